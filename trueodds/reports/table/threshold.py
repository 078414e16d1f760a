"""Finds the confidence from which on answers may act alone: at most so many of them are wrong, with so much confidence.

Reads the same tables as `trueodds report`. Labels must be those of answers drawn by chance. With --by each group gets a
threshold, and all bounds hold together. With --costs, --risk is the largest mean cost of an answer that acts.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from trueodds.cli import Subparsers
from trueodds.files import FileError, write_json
from trueodds.metrics.decisions.acting import ActingThreshold
from trueodds.reports.table import reading as tables
from trueodds.reports.table.acting import By, acting_threshold, capitalised, evenly_labelled, reading
from trueodds.reports.table.form import OptionsError, add_form, costs_of, form_of
from trueodds.reports.words import level, percent
from trueodds.sums.inputs import check_level

EXAMPLES = (
    "threshold answers.parquet --risk 0.05 --confidence 0.95 --out act.json",
    "threshold answers.csv --by tag",
    "threshold scores.csv --positive malignant --costs miss=10,alarm=1 --risk 0.2",
)
RISK, CONFIDENCE = 0.05, 0.95


class NotCertifiedError(FileError):
    """There is no threshold to write."""


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("threshold", description=__doc__, epilog=epilog, intermixed=True)
    add_form(parser)
    words = "the class of two that --costs are about; a single column of probabilities is this class's"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    words = f"largest share of wrong answers among those that act (default: {RISK:g}); with --costs, largest mean cost"
    parser.add_argument("--risk", type=float, default=RISK, help=words)
    words = f"probability, over the labels, that the bound holds (default: {CONFIDENCE:g})"
    parser.add_argument("--confidence", type=float, default=CONFIDENCE, help=words)
    words = "a threshold for each question or tag (columns of the table), or for each predicted class"
    parser.add_argument("--by", choices=get_args(By), help=words)
    words = "with --positive: what a missed one and a false alarm cost, in one unit: miss=10,alarm=1"
    parser.add_argument("--costs", metavar="COSTS", help=words)
    words = (
        "write the threshold as JSON; fails if there is none. `trueodds publish --act-alone FILE` takes one of all"
        " answers, or those by tag"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help=words)


def run(arguments: argparse.Namespace) -> int:
    costs = costs_of(arguments)
    try:
        check_level(arguments.confidence)
    except ValueError:
        words = f"--confidence is {arguments.confidence!r}; allowed is (0, 1), such as {CONFIDENCE:g}"
        raise OptionsError(words) from None
    most = max(costs.miss, costs.alarm) if costs else 1
    if not 0 < arguments.risk < most:
        raise OptionsError(f"--risk is {arguments.risk!r}; allowed is (0, {most:g}), such as {RISK * most:g}")
    answers = tables.read(arguments.answers, form_of(arguments))
    if not answers.labelled_N.any():
        raise FileError(f"{answers.source} holds no labels; fill in the true classes of some answers, chosen by chance")
    sample, drawn = evenly_labelled(answers)
    found = acting_threshold(
        sample,
        risk=arguments.risk,
        confidence=arguments.confidence,
        by=arguments.by,
        costs=costs,
        positive=arguments.positive,
    )
    print(
        "\n".join([*text_of(found, by=arguments.by, costs=costs is not None), *filter(None, [drawn]), *answers.notes])
    )
    if arguments.out:
        if found.reason != "certified":
            raise NotCertifiedError(f"{arguments.out} is not written: no threshold can be certified; see above")
        document = document_of(found, answers.source, by=arguments.by, costs=arguments.costs)
        write_json(arguments.out, document)
        print(f"\nWritten: {arguments.out}")
    return 0


def text_of(found: ActingThreshold, *, by: By | None = None, costs: bool = False) -> list[str]:
    """Say the result in lines: one sentence or two for each group."""
    if not found.groups:
        return [capitalised(reading(found, costs=costs))]
    each = round(found.groups[0].confidence, 4)
    span = f"{percent(found.share_lower)} to {percent(found.share_upper)}"
    return [
        f"By {by}, {len(found.groups):,} groups at {level(each)} each: all bounds hold with {level(found.confidence)}.",
        *(f"- {reading(one, costs=costs)}" for one in found.groups),
        f"Together {percent(found.share)} ({span}) of the answers may act alone.",
    ]


def document_of(found: ActingThreshold, source: str, *, by: By | None, costs: str | None) -> dict[str, Any]:
    """Lay the result out for a file: the fields of `ActingThreshold`, and what they were made from.

    With costs the bound is `mean_cost`, not `risk`: a version's promise is a share of wrong answers.
    """
    made = {"made_from": source, "made_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    fields = asdict(found)
    if costs:
        fields = {"threshold": fields.pop("threshold"), "mean_cost": fields.pop("risk"), **fields}
    return {**fields, "by": by, "costs": costs, **made}
