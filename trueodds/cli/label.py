"""Draw, export and import answers that people label for a running service.

`draw` puts a sample of the stored answers into the service's label queue. `export` leases the next answers to one
person and writes them as CSV. `import` reads this file when its labels are filled in. People can also label on the
service's page, at /label-queue. `judge` sends labels of a judge, such as a language model, which never count as human
ones.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueodds.cli import Subparsers
from trueodds.cli.arguments import whole_number
from trueodds.cli.sample import add_design, suspects_line
from trueodds.errors import UserError
from trueodds.processes.choices import SERVICE, URL

if TYPE_CHECKING:
    from trueodds.client import CallError, Client

EXAMPLES = """examples:
  trueodds label draw --budget 200 --who Ada
  trueodds label export --who Ada --count 50 --hours 48 --out to_label.csv
  trueodds label import to_label.csv --who Ada
  trueodds label judge answers.csv --column judge"""
MOST_COUNT, MOST_HOURS, ROWS = 1_000, 14 * 24, 1_000
TRUTH = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}
"""Cells of the column `skip`."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("label", description=__doc__, epilog=EXAMPLES)
    steps = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    draw = steps.add_parser("draw", help="draw answers without a label, and put them into the queue")
    budget = whole_number(1, 1_000_000, "a whole number from 1 to 1,000,000")
    words = "expected number of answers; each is drawn on its own"
    draw.add_argument("--budget", type=budget, required=True, metavar="LABELS", help=words)
    add_design(draw)
    words = "only answers given since then (default: the end of the last draw)"
    draw.add_argument("--since", metavar="TIME", help=words)
    draw.add_argument("--until", metavar="TIME", help="only answers given before then (default: now)")
    export = steps.add_parser("export", help="lease the next answers to one person, as CSV")
    count = whole_number(1, MOST_COUNT, f"a whole number from 1 to {MOST_COUNT:,}")
    export.add_argument("--count", type=count, default=100, metavar="N", help="number of answers (default: 100)")
    hours = whole_number(1, MOST_HOURS, f"a whole number from 1 to {MOST_HOURS}")
    words = "time after which others get them (default: 24)"
    export.add_argument("--hours", type=hours, default=24, metavar="N", help=words)
    words = "columns of the file; a prediction may sway people (default: input)"
    export.add_argument("--show", choices=("input", "prediction", "probabilities"), default="input", help=words)
    export.add_argument("--out", type=Path, required=True, metavar="FILE", help="write the answers as CSV")
    take = steps.add_parser("import", help="send the labels of an exported file")
    words = "a CSV with the columns id and label; a row whose skip is true is skipped, one without a label stays open"
    take.add_argument("file", type=Path, help=words)
    judge = steps.add_parser("judge", help="send a judge's labels of stored answers")
    words = "a table with the ids of stored answers, and the judge's label of each; an empty label is left out"
    judge.add_argument("file", type=Path, help=words)
    words = "column of the judge's labels (default: judge)"
    judge.add_argument("--column", default="judge", metavar="COLUMN", help=words)
    judge.add_argument("--model", metavar="NAME", help="model, if several have the ids")
    for step in (draw, export, take):
        step.add_argument("--who", required=True, metavar="NAME", help="name of the person who acts, for the log")
        step.add_argument("--model", metavar="NAME", help="model (default: the served one)")
        step.add_argument("--version", metavar="VERSION", help="its version (default: the served one)")
    for step in (draw, export, take, judge):
        words = f"URL of the service (default: {URL}; {SERVICE})"
        step.add_argument("--url", default=os.environ.get(SERVICE) or URL, metavar="URL", help=words)
        step.add_argument("--key-file", type=Path, metavar="FILE", help="file with the service's key")


def run(arguments: argparse.Namespace) -> int:
    """Run one step."""
    from trueodds.client import Client

    client = Client.from_environment(arguments.url, arguments.key_file)
    if arguments.step == "judge":
        _judge(client, arguments)
        return 0
    whose = {"who": arguments.who, "model": arguments.model, "version": arguments.version}
    {"draw": _draw, "export": _export, "import": _import}[arguments.step](client, arguments, whose)
    return 0


def _draw(client: Client, arguments: argparse.Namespace, whose: dict[str, Any]) -> None:
    drawn = client.draw_label_queue(
        arguments.budget,
        **whose,
        goal=arguments.goal,
        threshold=arguments.threshold,
        tag=arguments.tag,
        floor=arguments.floor,
        since=arguments.since,
        until=arguments.until,
    )
    print(
        f"{drawn['sample_size']:,} of {drawn['answers']:,} answers of {drawn['model']}/{drawn['version']} are in the"
        f" label queue, drawn with propensities from"
        f" {drawn['smallest_propensity']:.3g} to {drawn['largest_propensity']:.3g}."
        f"\n{suspects_line([(one['tag'], one['chance']) for one in drawn.get('suspects', [])])}"
        f"Label them at {client.url}/label-queue"
    )


def _export(client: Client, arguments: argparse.Namespace, whose: dict[str, Any]) -> None:
    from trueodds.inputs import table

    table.check_no_labels(arguments.out, ("label", "skip"))
    queue = client.lease_answers(**whose, count=arguments.count, minutes=60 * arguments.hours, show=arguments.show)
    classes = queue["classes"]
    waiting = queue["state"]["waiting"]
    if not queue["answers"]:
        cure = "all are leased; import the files, or try again later" if waiting else "draw some: trueodds label draw"
        raise UserError(f"no answer is to be had, and no file was written: {waiting:,} answers wait for labels; {cure}")
    names = ["id", "time", "tag", "predicted", "confidence", "propensity", "label", "skip"]
    rows = [{name: "" if one.get(name) is None else one[name] for name in names} for one in queue["answers"]]
    table.write(arguments.out, names, rows)
    print(
        f"{arguments.out}: {len(rows):,} of {waiting:,} waiting answers. The classes are {', '.join(classes)}.\n"
        f"Fill in the column label, then run: trueodds label import {arguments.out} --who {arguments.who!r}"
    )


def _import(client: Client, arguments: argparse.Namespace, whose: dict[str, Any]) -> None:
    from trueodds.client import CallError

    labels, left = _labels(arguments.file)
    totals = {"stored": 0, "already_known": 0, "skips": 0}
    pairs = list(labels.items())
    for start in range(0, len(pairs), ROWS):
        try:
            stored = client.label_answers(dict(pairs[start : start + ROWS]), **whose)
        except CallError as error:
            raise _with_id(error) from None
        totals = {name: total + stored[name] for name, total in totals.items()}
    print(
        f"{arguments.file}: {totals['stored']:,} labels stored, {totals['already_known']:,} known already,"
        f" {totals['skips']:,} skipped, {left:,} rows without a label."
    )


def _with_id(error: CallError) -> CallError:
    """Name the ids of refused rows: the service counts the sent rows, which are not those of the file."""
    from trueodds.client import CallError

    problems = error.details.get("problems", ())
    if not problems:
        return error
    named = [f"{problem['id']}: {problem['message'].rstrip('.')}" for problem in problems if problem.get("id")]
    message = (
        f"{'; '.join(named) or error.message}. Nothing of this call was stored: correct the file, and import it again"
    )
    return CallError(error.code, message, status=error.status, request_id=error.request_id, details=error.details)


def _judge(client: Client, arguments: argparse.Namespace) -> None:
    from trueodds.files import FileError
    from trueodds.inputs import columns

    path, column = arguments.file, arguments.column
    header = columns.names(path)
    for name in ("id", column):
        if name not in header:
            raise FileError(f"{path} has no column {name!r}; it has {', '.join(header)}. Name another with --column")
    texts = columns.read(path, (), ["id", column]).texts
    pairs = zip(texts["id"].as_list(), texts[column].as_list(), strict=True)
    labels = [(id_, label) for id_, label in pairs if label]
    sent = client.judge(labels, model=arguments.model)
    left = len(texts["id"]) - len(labels)
    print(
        f"{path}: {sent.stored:,} labels of the judge stored, {sent.replaced:,} replaced, {sent.already_known:,} known"
        f" already, {left:,} rows without a label."
    )


def _labels(path: Path) -> tuple[dict[str, str | None], int]:
    """Read the labels by id, None where a person skips, and count the rows without a label.

    Raises:
        FileError: The file is not such a CSV, or a row has a label and is skipped, or an id comes twice.
    """
    from trueodds.files import FileError
    from trueodds.inputs import columns
    from trueodds.texts import short, without_point

    header = columns.names(path)
    for name in ("id", "label"):
        if name not in header:
            raise FileError(f"{path} has no column {name!r}; expected the columns of `trueodds label export`")
    texts = columns.read(path, (), [name for name in ("id", "label", "skip") if name in header]).texts
    cells = {name: column.as_list() for name, column in texts.items()}
    skips = cells.get("skip", [""] * len(cells["id"]))
    labels: dict[str, str | None] = {}
    left = 0
    for row, (id_, label, skip) in enumerate(zip(cells["id"], cells["label"], skips, strict=True), columns.FIRST):
        is_skipped = TRUTH.get(without_point(skip.lower()))
        if is_skipped is None:
            allowed = "true, false, yes, no, 1, 0 and an empty cell"
            raise FileError(f"{path}, row {row:,}: skip is {short(skip)}; allowed are {allowed}")
        if is_skipped and label:
            raise FileError(
                f"{path}, row {row:,}: {short(id_)} has the label {short(label)} and is skipped; remove one"
            )
        if id_ in labels:
            raise FileError(f"{path}, row {row:,}: the id {short(id_)} comes twice; keep one row")
        if label or is_skipped:
            labels[id_] = label or None
        else:
            left += 1
    return labels, left
