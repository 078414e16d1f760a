"""Look for the group of answers whose confidence is furthest off, among given columns of a table.

It reads the same tables as `trueodds report`, as .csv or .parquet. A tree on one half of the labelled rows finds a
group, such as `age > 60 and site is "north"`. Bets on the other half test it. If no group is off by more than the
tolerance, at most 5% of audits report one (--alpha).
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueodds.cli import Subparsers
from trueodds.cli.tables import OptionsError, add_form, form_of

if TYPE_CHECKING:
    from trueodds.evaluation.worst_group import GroupAudit, WorstGroup

EXAMPLES = (
    "audit answers.parquet --features age,site,camera",
    "audit answers.csv --features tag,hour --swap --out audit.json",
)
TOLERANCE, ALPHA, DEPTH = 0.02, 0.05, 3
"""Defaults of --tolerance, --alpha and --depth."""


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("audit", description=__doc__, epilog=epilog, intermix=True)
    add_form(parser)
    words = "columns of the table whose values may form groups, separated by commas; the label must not be among them"
    parser.add_argument("--features", required=True, metavar="COLUMNS", help=words)
    words = "the positive class of two; a single column of probabilities belongs to this class"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    words = f"largest acceptable gap between confidence and accuracy in a group (default: {TOLERANCE:g})"
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help=words)
    words = f"largest probability of a false find (default: {ALPHA:g})"
    parser.add_argument("--alpha", type=float, default=ALPHA, help=words)
    words = f"largest number of conditions of a group (default: {DEPTH})"
    parser.add_argument("--depth", type=int, default=DEPTH, help=words)
    words = "also search on the second half and test on the first; each group then has half of alpha"
    parser.add_argument("--swap", action="store_true", help=words)
    parser.add_argument("--seed", type=int, default=0, help="seed of the split into halves (default: 0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read the table, print the worst group and write the file."""
    import numpy as np

    from trueodds.evaluation.worst_group import worst_group
    from trueodds.files import FileError, write_json
    from trueodds.inputs import columns
    from trueodds.reports.table import reading as tables
    from trueodds.reports.table.acting_threshold import sample_evenly

    path: Path = arguments.answers
    if path.suffix not in columns.SUFFIXES:
        allowed = " and ".join(columns.SUFFIXES)
        raise FileError(f"{path} has no named columns; allowed are {allowed}, which hold the features too")
    wanted = [name.strip() for name in arguments.features.split(",") if name.strip()]
    known = columns.names(path)
    if unknown := [name for name in wanted if name not in known]:
        raise OptionsError(f"--features names {unknown[0]!r}; {path} has the columns {', '.join(known)}")
    if not wanted or len(set(wanted)) < len(wanted) or arguments.label in wanted:
        raise OptionsError(
            f"--features is {arguments.features!r}; name each column once, at least one, and not the label's column"
        )
    answers, drawn = sample_evenly(tables.read(path, form_of(arguments)))
    read = columns.read(path, [], wanted).texts
    row_N = np.flatnonzero(answers.labelled_N)
    features = {name: np.array(read[name].as_list(), object)[row_N] for name in wanted}
    try:
        audit = worst_group(
            answers.confidence_N[row_N],
            answers.correct_N[row_N],
            features,
            tolerance=arguments.tolerance,
            alpha=arguments.alpha,
            depth=arguments.depth,
            swap=arguments.swap,
            seed=arguments.seed,
        )
    except ValueError as error:
        raise OptionsError(f"{path}: {error}") from None
    print("\n".join([*text_of(audit), *filter(None, [drawn, answers.read_as]), *answers.notes]))
    if arguments.out:
        write_json(arguments.out, document_of(audit, answers.source))
        print(f"\nWritten: {arguments.out}")
    return 0


def text_of(audit: GroupAudit) -> list[str]:
    """Format an audit as lines: the result, then each group with its numbers."""
    if audit.is_found:
        first = f"A group is off by more than {audit.tolerance:g}:"
    else:
        first = f"No group is shown to be off by more than {audit.tolerance:g}. The worst candidate:"
    ending = (
        f"Groups are found on half of the {audit.rows:,} labelled rows and tested on the others. If no group were off"
        f" by more than {audit.tolerance:g}, an audit would report one with a probability of at most"
        f" {100 * audit.alpha:.3g}%."
    )
    return [first, *(f"- {_line(group, audit)}" for group in audit.groups), ending]


def _line(group: WorstGroup, audit: GroupAudit) -> str:
    if not group.rows:
        return f"{group.words}: no row of the other half is in it."
    found = "found" if group.is_found else "not found"
    span = f"{group.lower:+.3f} to {group.upper:+.3f}"
    return (
        f"{group.words}: right {group.accuracy:.1%} of the time, says {group.mean_confidence:.1%}. Signed error"
        f" {group.signed_gap:+.3f} ({audit.level:.0%} interval {span}), {group.rows:,}"
        f" rows ({group.share:.0%}). log e-value {group.log_e:.1f}, {found} from {math.log(audit.threshold):.1f} on."
    )


def document_of(audit: GroupAudit, source: str) -> dict[str, Any]:
    """Return the content of the file of --out."""
    from trueodds.processes.version import __version__

    groups = []
    for group in audit.groups:
        tree = asdict(group)
        unknown = {key: None for key, value in tree.items() if isinstance(value, float) and math.isnan(value)}
        groups.append({"words": group.words, **tree, **unknown})
    return {**asdict(audit), "groups": groups, "found": audit.is_found, "table": source, "trueodds": __version__}
