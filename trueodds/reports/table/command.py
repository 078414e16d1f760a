"""Reports on a table of answers: do the probabilities mean what they say? No server, no model.

A file holds each answer's probabilities, or its confidence, and the true class where that is known. An answer whose
label is an empty cell, null or NaN has none; -1 is a class like any other. A single column of probabilities is that of
the class it is named as, else that of --positive. `tag`, `time` and `version` beside them are compared where they are.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from trueodds.cli import Subparsers
from trueodds.errors import MissingExtraError
from trueodds.files import write_text
from trueodds.reports.options import TOLERANCE, Options
from trueodds.reports.schemas import Report
from trueodds.reports.table import reading
from trueodds.reports.table.form import OptionsError, add_form, costs_of, form_of
from trueodds.reports.table.report import By, TrendUnit, report_of_answers
from trueodds.reports.table.text import text_of
from trueodds.reports.verdict.in_the_large import RATIO_TOLERANCE
from trueodds.sums.bins import Binning, check_bins
from trueodds.sums.inputs import check_level

EXAMPLES = (
    "report answers.npz --html report.html",
    "report answers.csv --label species --by tag --trend day",
    "report scores.csv --positive malignant --costs miss=10,alarm=1",
    "report score.csv --classes score --positive churn",
    "report probabilities.npy --labels labels.npy --json report.json",
)


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("report", description=__doc__, epilog=epilog, intermixed=True)
    add_form(parser)
    words = "the class of two that the model is asked about: figures of its probability, and alerts by it; a single"
    words += " column of probabilities is this class's, unless it is named as one"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    words = "with --positive: what a missed one and a false alarm cost, in one unit: miss=10,alarm=1"
    parser.add_argument("--costs", metavar="COSTS", help=words)
    parser.add_argument("--bins", type=int, default=15, help="bins of confidence: a divisor of 3,000 (default: 15)")
    words = "bins of equal width, or of about as many answers each (default: width; of p(positive): mass)"
    parser.add_argument("--binning", choices=get_args(Binning), help=words)
    words = "nominal coverage of the intervals (default: 0.95)"
    parser.add_argument("--level", type=float, default=0.95, help=words)
    parser.add_argument("--by", choices=get_args(By), help="also a table by predicted class, or by tag")
    words = "also a point for each minute, hour, day or month; auto: the finest with at most 120 points"
    parser.add_argument("--trend", choices=get_args(TrendUnit), help=words)
    words = f"calibration error (ECE) that is put up with (default: {TOLERANCE:g})"
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, metavar="ECE", help=words)
    words = "with --positive: expected / observed positives that is put up with, or observed / expected"
    words += f" (default: {RATIO_TOLERANCE:g})"
    parser.add_argument("--ratio-tolerance", type=float, metavar="RATIO", help=words)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page, which needs no server")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers")


def run(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    answers = reading.read(arguments.answers, form_of(arguments))
    trend: TrendUnit | None = arguments.trend
    if arguments.html and trend is None and answers.groups.time_ms_N is not None:
        trend = "auto"
    report = report_of_answers(
        answers,
        options,
        by=arguments.by,
        trend=trend,
        tolerance=arguments.tolerance,
        ratio_tolerance=arguments.ratio_tolerance or RATIO_TOLERANCE,
        positive=arguments.positive,
    )
    print(text_of(report))
    files: dict[Path, str] = {}
    if arguments.json:
        files[arguments.json] = report.model_dump_json(indent=2) + "\n"
    if arguments.html:
        files[arguments.html] = _page(report)
    for path, text in files.items():
        write_text(path, text)
    if files:
        print(f"\nWritten: {', '.join(map(str, files))}")
    return 0


def _options(arguments: argparse.Namespace) -> Options:
    try:
        check_bins(arguments.bins, arguments.binning or "width")
        check_level(arguments.level)
    except ValueError as error:
        raise OptionsError(f"--{error}") from None
    if not 0 < arguments.tolerance < 1:
        raise OptionsError(f"--tolerance is {arguments.tolerance!r}; allowed is (0, 1), such as {TOLERANCE:g}")
    ratio = arguments.ratio_tolerance
    if ratio is not None and not 1 < ratio <= 100:
        allowed = f"more than 1 and at most 100, such as {RATIO_TOLERANCE:g}"
        raise OptionsError(f"--ratio-tolerance is {ratio!r}; allowed is {allowed}")
    if ratio is not None and not arguments.positive:
        raise OptionsError(f"--ratio-tolerance {ratio:g} without --positive: name the class whose number is expected")
    given: Binning | None = arguments.binning
    return Options(
        bins=arguments.bins,
        binning=given or "width",
        binning_of_positive=given or "mass",
        level=arguments.level,
        costs=costs_of(arguments),
    )


def _page(report: Report) -> str:
    try:
        from trueodds.reports.page import render
    except ModuleNotFoundError as error:
        raise MissingExtraError("--html", error.name or "jinja2", "report") from None
    return render(report)
