"""Report the calibration of a table of answers, without a server or a model.

The file holds the probabilities of each answer, or its confidence, and the true class where it is known. An empty cell,
null or NaN means no label; -1 is a class like any other. A single column of probabilities belongs to the class that it
is named after, else to --positive. The columns `tag`, `time` and `version` are optional; their groups are compared.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from trueodds.cli import Subparsers
from trueodds.cli.tables import (
    NO_ROWS,
    OptionsError,
    add_engine,
    add_form,
    add_history,
    check_bins_and_level,
    costs_of,
    file_path,
    form_of,
    rule_of_sets,
)
from trueodds.processes.choices import ALERT_THRESHOLD, MOST_RATIO, TABLES, TOLERANCE, Binning, ReportBy, TrendUnit
from trueodds.texts import hide_password

if TYPE_CHECKING:
    from trueodds.reports.options import ReportOptions
    from trueodds.reports.table.reading import Form
    from trueodds.reports.table.summed import TableSums
    from trueodds.reports.table.table_content import Answers
    from trueodds.reports.table.table_report import ReportTable


EXAMPLES = (
    "report answers.npz --html report.html",
    "report answers.csv --label species --by tag --trend day",
    "report scores.csv --positive malignant --costs miss=10,alarm=1",
    "report score.csv --classes score --positive churn",
    "report answers.parquet --set-level 0.9 --set-rows 500",
    "report answers.csv --human-labels to_label.csv --judge judge_label",
    "report new.csv --positive churn --reference last-year.csv",
    "report stars.csv --label stars --ordered --html report.html",
    "report photos.csv --multi-label --html report.html",
    "report probabilities.npy --labels labels.npy --json report.json",
    'report "answers/*.parquet" --engine duckdb --by tag',
    'report "s3://bucket/answers/*.parquet" --engine duckdb --labels "s3://bucket/labels/*.parquet"',
    "report answers --engine postgres://reader@127.0.0.1/logs --by tag",
    "report sums/*.parquet",
    "report --store postgresql://127.0.0.1/trueodds --archive s3://bucket/answers --model mail",
)


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("report", description=__doc__, epilog=epilog, intermix=True)
    add_form(parser, urls=True, optional=True)
    parser.add_argument("more", type=Path, nargs="*", metavar="SUMS", help="more files that `trueodds sums` wrote")
    add_engine(parser, databases=True)
    add_history(parser)
    words = "the positive class of two; the report adds figures of its probability, and alerts by it; a single"
    words += " column of probabilities belongs to this class, unless its name is a class"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    words = "the classes are levels, the lowest first, in the order of their columns or of --classes; the report adds"
    words += " the ranked probability score, the bias of the level, and the calibration of each `at least level k`"
    parser.add_argument("--ordered", action="store_true", help=words)
    words = "each label is a yes/no question of its own: the column p_NAME has its probability (z_NAME its logit), and"
    words += " y_NAME has 0, 1, or an empty cell if the truth is not known; --classes names the labels to report on"
    parser.add_argument("--multi-label", action="store_true", help=words)
    words = "with --positive: costs of a missed positive and of a false alarm, in one unit: miss=10,alarm=1"
    parser.add_argument("--costs", metavar="COSTS", help=words)
    words = "with --positive: p(positive) above which an alert is given, for expected precision and recall of answers"
    words += f" without a label (default: {ALERT_THRESHOLD:g})"
    parser.add_argument("--alert-threshold", type=float, metavar="P", help=words)
    words = "the column with the labels of a judge, such as a language model; they never count as human labels; the"
    words += " report adds estimates of all answers from both, and the judge's error rates"
    parser.add_argument("--judge", metavar="COLUMN", help=words)
    words = "level of the conformal sets in the column set (an .npz: the array sets); the report adds their coverage"
    parser.add_argument("--set-level", type=float, metavar="P", help=words)
    words = (
        "with --set-level: number of calibration rows of the sets' threshold, which the test of the coverage allows for"
    )
    parser.add_argument("--set-rows", type=int, metavar="N", help=words)
    words = "a table of drawn answers with their labels, as `trueodds sample` wrote it: its labels and propensities are"
    words += " joined to the answers by the column id"
    parser.add_argument("--human-labels", type=file_path, metavar="TABLE", help=words)
    words = (
        "a table of the rows that fitted the calibrator, with their calibrated probabilities; the limits of expected"
    )
    words += " precision and recall then allow for their number"
    parser.add_argument("--fit-rows", type=file_path, metavar="TABLE", help=words)
    words = "a table of labelled rows from before the answers, with the same columns; the report adds the class shares"
    words += " of the answers by their scores, if only these shares have changed (prior shift)"
    parser.add_argument("--reference", type=file_path, metavar="TABLE", help=words)
    parser.add_argument("--bins", type=int, default=15, help="bins of confidence: a divisor of 3,000 (default: 15)")
    words = "bins of equal width, or with about the same number of answers (default: width; for p(positive): mass)"
    parser.add_argument("--binning", choices=get_args(Binning), help=words)
    words = "confidence level of the intervals (default: 0.95)"
    parser.add_argument("--level", type=float, default=0.95, help=words)
    parser.add_argument(
        "--by", choices=get_args(ReportBy), help="add a table by predicted class, tag or source of the confidence"
    )
    words = "add a trend by minute, hour, day or month; auto: the finest unit with at most 120 points"
    parser.add_argument("--trend", choices=get_args(TrendUnit), help=words)
    words = f"largest acceptable calibration error (ECE) (default: {TOLERANCE:g})"
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, metavar="ECE", help=words)
    words = "with --positive: largest acceptable expected / observed positives, or observed / expected"
    words += f" (default: {MOST_RATIO:g})"
    parser.add_argument("--ratio-tolerance", type=float, metavar="RATIO", help=words)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as an HTML page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read the table, print its report and write the files."""
    from trueodds.files import write_text
    from trueodds.reports.display.live import page_of
    from trueodds.reports.table.table_report import report_of_table
    from trueodds.reports.table.text import text_of

    options = _options(arguments)
    _check_place(arguments)
    if arguments.multi_label:
        from trueodds.cli import multi_label

        if arguments.set_level is not None:
            raise OptionsError(
                "--set-level is for classes of which one is true; leave it out, or leave out --multi-label"
            )

        return multi_label.report(arguments, options)
    table = _table(arguments)
    trend: TrendUnit | None = arguments.trend
    if arguments.html and trend is None and table.has("time"):
        trend = "auto"
    report = report_of_table(
        table,
        options,
        by=arguments.by,
        trend=trend,
        tolerance=arguments.tolerance,
        ratio_tolerance=arguments.ratio_tolerance or MOST_RATIO,
        positive=arguments.positive,
        ordered=arguments.ordered,
        fit_rows=_fit_rows(arguments),
        judge=arguments.judge,
        reference=_reference(arguments),
    )
    print(text_of(report))
    files: dict[Path, str] = {}
    if arguments.json:
        files[arguments.json] = report.model_dump_json(indent=2) + "\n"
    if arguments.html:
        files[arguments.html] = page_of(report, "--html")
    for path, text in files.items():
        write_text(path, text)
    if files:
        print(f"\nWritten: {', '.join(map(str, files))}")
    return 0


def _check_place(arguments: argparse.Namespace) -> None:
    """Check that the answers are named once: by a file, or by --store and --archive.

    Raises:
        OptionsError: They are not, or an option belongs to the other way.
    """
    of_history = {"--store": arguments.store, "--archive": arguments.archive}
    place = next((option for option, value in of_history.items() if value is not None), "")
    if place and arguments.multi_label:
        raise OptionsError(f"{place} is given with --multi-label, which reads a file; leave one of them out")
    if place:
        return
    if arguments.answers is None:
        raise OptionsError(f"no answers are named; give a file ({TABLES}), or --store and --archive of a service")
    for option, value in {"--model": arguments.model, "--version": arguments.version}.items():
        if value is not None:
            raise OptionsError(
                f"{option} {value} is given without --store and --archive, to which it belongs; leave it out, or name"
                " the store or the archive"
            )


def _table(arguments: argparse.Namespace) -> ReportTable:
    """Read the rows of a file, let an engine make the sums of a table, or add up files of sums.

    Raises:
        OptionsError: --id is given without --engine, or several files are given that do not hold sums.
    """
    from trueodds.reports.table import reading
    from trueodds.reports.table.table_report import table_of_answers

    is_history = arguments.store is not None or arguments.archive is not None
    of_rows = {
        "--judge": arguments.judge,
        "--human-labels": arguments.human_labels,
        "--set-level": arguments.set_level,
    }
    for option, value in of_rows.items():
        if value and (is_history or arguments.engine or arguments.more):
            raise OptionsError(f"{option} needs the rows: give one file of answers, without --engine")
    if is_history:
        from trueodds.cli.tables import sums_of_history

        return sums_of_history(arguments, trend=arguments.trend)
    if arguments.engine:
        if arguments.more:
            raise OptionsError(
                f"{arguments.more[0]} is given beside {arguments.answers}; --engine reads one table: quote its pattern,"
                " so that the shell keeps it"
            )
        from trueodds.cli.tables import sums_of_engine

        return sums_of_engine(arguments, trend=arguments.trend)
    for place in (arguments.answers, arguments.labels):
        if isinstance(place, str):
            raise OptionsError(f"{hide_password(place)} is a URL, which an engine reads; add --engine duckdb")
    if arguments.id is not None:
        raise OptionsError(f"--id is {arguments.id!r} without --engine, which joins labels by it; add --engine duckdb")
    if sums := _stored_sums(arguments):
        return sums
    return table_of_answers(reading.read(arguments.answers, _form(arguments)))


def _form(arguments: argparse.Namespace) -> Form:
    """Return the form of the answers, with a judge's and human labels, and with the rule of their sets."""
    return replace(
        form_of(arguments), judge=arguments.judge, human=arguments.human_labels, sets=rule_of_sets(arguments)
    )


def _fit_rows(arguments: argparse.Namespace) -> Answers | None:
    """Read the rows that fitted the calibrator, in the form of the answers. Their labels are not needed."""
    if arguments.fit_rows is None:
        return None
    from trueodds.reports.table import reading

    return reading.read(arguments.fit_rows, replace(form_of(arguments), labels=None, needs_labels=False))


def _reference(arguments: argparse.Namespace) -> Answers | None:
    """Read the labelled rows from before the shift, in the form of the answers.

    Raises:
        OptionsError: The file is one array, for whose labels there is no option.
    """
    if arguments.reference is None:
        return None
    if arguments.reference.suffix == ".npy":
        raise OptionsError(
            f"--reference {arguments.reference} holds one array, and no labels; give an .npz with probabilities (or"
            " logits) and labels, or a table"
        )
    from trueodds.reports.table import reading

    return reading.read(arguments.reference, replace(form_of(arguments), labels=None))


def _stored_sums(arguments: argparse.Namespace) -> TableSums | None:
    """Add up the files, if they hold sums.

    Raises:
        OptionsError: Several files are given that do not hold sums, or an option is for rows.
    """
    paths = [arguments.answers, *arguments.more]
    is_pattern = any(sign in str(arguments.answers) for sign in "*?[") and not arguments.answers.exists()
    if arguments.answers.suffix != ".parquet" and not arguments.more:
        return None
    from trueodds.reports.table.stored_sums import paths_of_sums, problem_of_sums, read_sums

    files = paths_of_sums(paths)
    if not files:
        if arguments.more or is_pattern:
            raise OptionsError(
                f"{problem_of_sums(paths)}; several files must be those that `trueodds sums` writes. Answers in several"
                ' files need --engine duckdb and a pattern in quotes: "answers/*.parquet"'
            )
        return None
    given = {
        "--labels": arguments.labels,
        "--classes": arguments.classes,
        "--first-label": arguments.first_label,
        "--judge": arguments.judge,
        "--human-labels": arguments.human_labels,
        "--set-level": arguments.set_level,
        "--resolution": arguments.resolution,
        "--logits": arguments.logits,
    }
    for option, value in given.items():
        if value not in (None, "", False):
            raise OptionsError(f"{option} is for rows, and {files[0]} holds sums; give it to `trueodds sums` instead")
    sums = read_sums(files)[1]
    return replace(sums, notes=(*sums.notes, NO_ROWS))


def _options(arguments: argparse.Namespace) -> ReportOptions:
    """Check the options."""
    from trueodds.reports.options import ReportOptions

    check_bins_and_level(arguments, arguments.binning or "width")
    if not 0 < arguments.tolerance < 1:
        raise OptionsError(f"--tolerance is {arguments.tolerance!r}; allowed is (0, 1), such as {TOLERANCE:g}")
    ratio = arguments.ratio_tolerance
    if ratio is not None and not 1 < ratio <= 100:
        allowed = f"more than 1 and at most 100, such as {MOST_RATIO:g}"
        raise OptionsError(f"--ratio-tolerance is {ratio!r}; allowed is {allowed}")
    if ratio is not None and not arguments.positive:
        raise OptionsError(
            f"--ratio-tolerance {ratio:g} without --positive: name the positive class with --positive CLASS"
        )
    threshold: float | None = arguments.alert_threshold
    if threshold is not None and not 0 <= threshold <= 1:
        raise OptionsError(f"--alert-threshold is {threshold!r}; allowed is [0, 1], such as {ALERT_THRESHOLD:g}")
    if threshold is not None and not arguments.positive:
        raise OptionsError(
            f"--alert-threshold {threshold:g} without --positive: name the class that alerts are for with --positive"
            " CLASS"
        )
    binning: Binning | None = arguments.binning
    return ReportOptions(
        bins=arguments.bins,
        binning=binning or "width",
        binning_of_positive=binning or "mass",
        level=arguments.level,
        costs=costs_of(arguments),
        alert_threshold=ALERT_THRESHOLD if threshold is None else threshold,
    )
