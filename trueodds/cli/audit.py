"""Look for the group of answers whose confidence is furthest off, in a table or a running service.

A table is read as by `trueodds report`, from .csv or .parquet, and --features names the columns that may form groups. A
service is given by its URL. It looks among tag, predicted class, confidence, hour and weekday of its labelled answers.

A tree on one half of the labelled rows finds a group, such as `age > 60 and site is "north"`. Bets on the other half
test it. If no group is off by more than the tolerance, at most 5% of audits report one (--alpha).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueodds.cli import Subparsers
from trueodds.cli.tables import OptionsError, add_form, form_of
from trueodds.processes.choices import LABEL, TOLERANCE

if TYPE_CHECKING:
    from trueodds.evaluation.audit_result import Audit

EXAMPLES = (
    "audit answers.parquet --features age,site,camera",
    "audit answers.csv --features tag,hour --swap --out audit.json",
    "audit http://127.0.0.1:8000 --model mail --last 20000",
)
ALPHA, DEPTH = 0.05, 3
"""Defaults of --alpha and --depth."""
OF_SERVICE = ("model", "version", "since", "last", "key_file")
"""Options of a service only."""


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("audit", description=__doc__, epilog=epilog, intermix=True)
    add_form(parser, answers="a .csv or .parquet of answers, or the URL of a service (extra `client`)", urls=True)
    words = "columns of the table whose values may form groups, separated by commas; the label must not be among them."
    words += " With a service: some of its features (default: all)"
    parser.add_argument("--features", metavar="COLUMNS", help=words)
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
    service = parser.add_argument_group("options of a service")
    service.add_argument("--model", metavar="NAME", help="model (default: the served one)")
    service.add_argument("--version", metavar="VERSION", help="its version (default: the served one)")
    service.add_argument("--since", metavar="TIME", help="only answers given since then")
    words = "only the labels that arrived last: this many (default: 100,000, the most)"
    service.add_argument("--last", type=int, metavar="LABELS", help=words)
    service.add_argument("--key-file", type=Path, metavar="FILE", help="file with the service's key")


def run(arguments: argparse.Namespace) -> int:
    """Audit the table or the service, print the worst group and write the file."""
    from trueodds.files import write_json
    from trueodds.processes.version import __version__

    of_service = isinstance(arguments.answers, str)
    audit = _service_audit(arguments) if of_service else _table_audit(arguments)
    print(audit)
    if arguments.out:
        origin = {"service" if of_service else "table": str(arguments.answers), "trueodds": __version__}
        write_json(arguments.out, {**audit.model_dump(mode="json"), **origin})
        print(f"\nWritten: {arguments.out}")
    return 0


def _service_audit(arguments: argparse.Namespace) -> Audit:
    """Ask a service."""
    from trueodds.client import Client
    from trueodds.texts import hide_password

    if not arguments.answers.startswith(("http://", "https://")):
        raise OptionsError(
            f"{hide_password(arguments.answers)} is not the URL of a service; allowed are http:// and https://, and"
            " the path of a table: copy it to this machine first"
        )
    others = ("labels", "logits", "probabilities", "classes", "positive", "first_label", "resolution")
    given = [name for name in others if getattr(arguments, name) not in (None, False, "")]
    if given := given + ["label"] * (arguments.label != LABEL):
        option = f"--{given[0].replace('_', '-')}"
        raise OptionsError(f"{option} is for tables; leave it out, because a service knows its answers")
    client = Client.from_environment(arguments.answers, arguments.key_file)
    return client.audit(
        arguments.model,
        arguments.version,
        since=arguments.since,
        last=arguments.last,
        **_search_options(arguments),
        features=None if arguments.features is None else _names(arguments.features),
    )


def _table_audit(arguments: argparse.Namespace) -> Audit:
    """Read the table and audit it."""
    import numpy as np

    from trueodds.errors import nearest
    from trueodds.evaluation.audit_result import audit_of
    from trueodds.evaluation.worst_group import worst_group
    from trueodds.files import FileError
    from trueodds.inputs import columns
    from trueodds.reports.table import reading as tables
    from trueodds.reports.table.acting_threshold import asked_labels
    from trueodds.reports.table.table_content import propensities_of

    if given := [name for name in OF_SERVICE if getattr(arguments, name) is not None]:
        option = f"--{given[0].replace('_', '-')}"
        raise OptionsError(f"{option} is for a service; leave it out, or give the service's URL instead of a table")
    if arguments.features is None:
        raise OptionsError("--features is missing; name the columns of the table whose values may form groups")
    path: Path = arguments.answers
    if isinstance(arguments.labels, str):
        raise OptionsError(f"--labels is {arguments.labels}; allowed is a file: copy it to this machine first")
    if path.suffix not in columns.SUFFIXES:
        allowed = " and ".join(columns.SUFFIXES)
        raise FileError(f"{path} has no named columns; allowed are {allowed}, which hold the features too")
    wanted = _names(arguments.features)
    known = columns.names(path)
    if unknown := [name for name in wanted if name not in known]:
        near = nearest(unknown[0], known)
        raise OptionsError(f"--features names {unknown[0]!r}; {path} has the columns {', '.join(known)}.{near}")
    if not wanted or len(set(wanted)) < len(wanted) or {arguments.label, "correct"} & {*wanted}:
        raise OptionsError(
            f"--features is {arguments.features!r}; name each column once, at least one, and neither the label's column"
            " nor correct"
        )
    answers = tables.read(path, form_of(arguments))
    labelled_N, unasked = asked_labels(answers)
    read = columns.read(path, [], wanted).texts
    row_N = np.flatnonzero(labelled_N)
    features = {name: np.array(read[name].as_list(), object)[row_N] for name in wanted}
    try:
        audit = worst_group(
            answers.confidence_N[row_N],
            answers.correct_N[row_N],
            features,
            propensity_N=propensities_of(answers)[row_N],
            **_search_options(arguments),
        )
    except ValueError as error:
        raise OptionsError(f"{path}: {error}") from None
    return audit_of(audit, wanted, [*filter(None, [unasked, answers.read_as]), *answers.notes])


def _search_options(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in ("tolerance", "alpha", "depth", "swap", "seed")}


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
