"""Find the confidence from which on answers may act alone, with a bound on the share of wrong ones.

It reads the same tables as `trueodds report`. The labelled answers must be a random sample. With --by, each group gets
its own threshold, and all bounds hold together. With --costs, --risk is the largest mean cost of an answer that acts.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from trueodds.cli import Subparsers
from trueodds.cli.tables import OptionsError, add_form, costs_of, form_of
from trueodds.errors import UserError
from trueodds.processes.choices import ActingBy

if TYPE_CHECKING:
    from trueodds.metrics.decisions.acting import ActingThreshold

EXAMPLES = (
    "threshold answers.parquet --risk 0.05 --confidence 0.95 --out act.json",
    "threshold answers.csv --by tag",
    "threshold scores.csv --positive malignant --costs miss=10,alarm=1 --risk 0.2",
)
RISK, CONFIDENCE = 0.05, 0.95
"""Defaults of --risk and --confidence."""


class NotCertifiedError(UserError, ValueError):
    """There is no threshold to write."""


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("threshold", description=__doc__, epilog=epilog, intermixed=True)
    add_form(parser)
    words = "the positive class of two, for --costs; a single column of probabilities belongs to this class"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    words = f"largest share of wrong answers among those that act (default: {RISK:g}); with --costs, largest mean cost"
    parser.add_argument("--risk", type=float, default=RISK, help=words)
    words = f"probability, over the labels, that the bound holds (default: {CONFIDENCE:g})"
    parser.add_argument("--confidence", type=float, default=CONFIDENCE, help=words)
    words = "a threshold for each question or tag (columns of the table), or for each predicted class"
    parser.add_argument("--by", choices=get_args(ActingBy), help=words)
    words = "with --positive: costs of a missed positive and of a false alarm, in one unit: miss=10,alarm=1"
    parser.add_argument("--costs", metavar="COSTS", help=words)
    words = (
        "write the threshold as JSON; fails if there is none. `trueodds publish --act-alone FILE` accepts one for all"
        " answers, or one for each tag"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help=words)


def run(arguments: argparse.Namespace) -> int:
    """Read the table, print the threshold and write the file."""
    from trueodds.files import FileError, write_json
    from trueodds.reports.table import reading as tables
    from trueodds.reports.table.acting_threshold import acting_threshold, sample_evenly
    from trueodds.sums.inputs import check_level

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
        raise FileError(f"{answers.source} holds no labels; fill in the true classes of some answers, chosen at random")
    sample, drawn = sample_evenly(answers)
    result = acting_threshold(
        sample,
        risk=arguments.risk,
        confidence=arguments.confidence,
        by=arguments.by,
        costs=costs,
        positive=arguments.positive,
    )
    print(
        "\n".join(
            [
                *text_of(result, by=arguments.by, costs=costs is not None),
                *filter(None, [drawn, answers.read_as]),
                *answers.notes,
            ]
        )
    )
    if arguments.out:
        if result.reason != "certified":
            raise NotCertifiedError(f"{arguments.out} is not written: no threshold can be certified; see above")
        document = document_of(result, answers.source, by=arguments.by, costs=arguments.costs)
        write_json(arguments.out, document)
        print(f"\nWritten: {arguments.out}")
    return 0


def text_of(result: ActingThreshold, *, by: ActingBy | None = None, costs: bool = False) -> list[str]:
    """Format the result as lines: one or two sentences for each group."""
    from trueodds.reports.table.acting_threshold import reading
    from trueodds.reports.words import level, percent
    from trueodds.texts import capitalise

    if not result.groups:
        return [capitalise(reading(result, costs=costs))]
    each = round(result.groups[0].confidence, 4)
    span = f"{percent(result.share_lower)} to {percent(result.share_upper)}"
    return [
        f"By {by}, {len(result.groups):,} groups at {level(each)} each: all bounds hold with"
        f" {level(result.confidence)}.",
        *(f"- {reading(one, costs=costs)}" for one in result.groups),
        f"Together {percent(result.share)} ({span}) of the answers may act alone.",
    ]


def document_of(result: ActingThreshold, source: str, *, by: ActingBy | None, costs: str | None) -> dict[str, Any]:
    """Return the content of the file: the fields of `ActingThreshold`, and the source of the labels.

    With costs the bound is called `mean_cost` instead of `risk`, because a version's promise is a share of wrong
    answers.
    """
    made = {"made_from": source, "made_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    fields = asdict(result)
    if costs:
        fields = {"threshold": fields.pop("threshold"), "mean_cost": fields.pop("risk"), **fields}
    return {**fields, "by": by, "costs": costs, **made}
