"""Make the calibration sums of some days of answers, and write them to a file that reports add up.

An answer belongs to the day of its column `time`, in UTC. A label belongs to the day on which it arrived: the column
`time` of the table of labels, or --arrival. So a late label counts once, in a later file. A label that replaces an
earlier one is counted, and the earlier one is subtracted. `trueodds report sums/*.parquet` makes the report of all
days, and `trueodds alarm sums/*.parquet` reads them day by day.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trueodds.cli import Subparsers
from trueodds.cli.tables import OptionsError, add_engine, add_form, form_of
from trueodds.errors import MissingExtraError

if TYPE_CHECKING:
    from trueodds.reports.table.stored_sums import Window
    from trueodds.reports.warehouse.partitions import PartitionedTable

EXAMPLES = (
    'sums "answers/*.parquet" --labels "labels/*.parquet" --partition yesterday --out sums/yesterday.parquet',
    'sums "answers/*.parquet" --arrival labelled_at --since 2026-01-01 --until 2026-03-01 --out sums/before.parquet',
    'sums "answers/*.parquet" --labels "labels/*.parquet" --daily --out sums',
    "sums answers --engine postgres://user@host/logs --labels labels --daily --out sums",
)
UNITS = ("minute", "hour", "day", "month")


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("sums", description=__doc__, epilog=epilog, intermix=True)
    answers = (
        "a .parquet file, or a pattern of such files in quotes or in a bucket (s3://bucket/answers/*.parquet): a column"
    )
    answers += " for each class, or confidence and predicted (or correct); and a column time; or the name of such a"
    answers += " table in the database of --engine"
    labels = (
        "a .parquet file or pattern, or a table of the database, with the labels: the columns id, label and time, the"
        " arrival of each label"
    )
    add_form(parser, answers=answers, labels=labels, urls=True)
    add_engine(parser, default="duckdb", databases=True)
    words = (
        "with labels in the table of answers: the column with the time at which each label arrived (`time` if labels"
    )
    words += " come with their answers)"
    parser.add_argument("--arrival", metavar="COLUMN", default="", help=words)
    words = "the positive class of two, for reports with --positive"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    words = "smallest unit of the trends of reports (default: hour)"
    parser.add_argument("--trend", choices=UNITS, default="hour", help=words)
    days = parser.add_mutually_exclusive_group(required=True)
    words = "one day, such as 2026-01-31 or yesterday"
    days.add_argument("--partition", metavar="DAY", help=words)
    days.add_argument("--since", metavar="DAY", help="this day and those after it, up to --until, as one partition")
    words = "a file for each finished day that the folder --out lacks; files whose rows came late are made again"
    days.add_argument("--daily", action="store_true", help=words)
    words = "with --since: the first day that does not count (default: today)"
    parser.add_argument("--until", metavar="DAY", help=words)
    words = "the file to write; with --daily, a folder"
    parser.add_argument("--out", type=Path, metavar="FILE", required=True, help=words)


def run(arguments: argparse.Namespace) -> int:
    """Make the sums and write the files."""
    try:
        from trueodds.reports.warehouse.daily import DayChange, describe, make_day, missing_days
        from trueodds.reports.warehouse.partitions import days_note
    except ModuleNotFoundError as error:
        raise MissingExtraError("sums", (error.name or "ibis").partition(".")[0], "warehouse") from None

    if arguments.until and not arguments.since:
        raise OptionsError(f"--until {arguments.until} without --since; add --since DAY, or leave it out")
    table = _table(arguments)
    out: Path = arguments.out
    if arguments.daily:
        if out.exists() and not out.is_dir():
            raise OptionsError(f"--out {out} is a file; --daily writes a file for each day: name a folder")
        changes = missing_days(table, out)
        if not changes:
            print(f"{out} has the sums of every finished day.")
    else:
        if out.suffix != ".parquet":
            raise OptionsError(f"--out {out} does not end in .parquet; name a file such as sums/2026-01-31.parquet")
        changes = [DayChange(out, _window(arguments), "new")]
    for change in changes:
        made = make_day(table, change)
        print(describe(change, made), flush=True)
        if made.is_empty and not arguments.daily:
            print(days_note(table, change.window))
    return 0


def _table(arguments: argparse.Namespace) -> PartitionedTable:
    """Build the description of the tables."""
    from trueodds.reports.warehouse.partitions import PartitionedTable

    if arguments.labels and arguments.arrival:
        raise OptionsError(
            f"--arrival {arguments.arrival} is for labels in the table of answers; with --labels, the column time of"
            " that table is their arrival: leave --arrival out"
        )
    return PartitionedTable(
        answers=str(arguments.answers),
        labels=None if arguments.labels is None else str(arguments.labels),
        engine=arguments.engine,
        key=arguments.id or "id",
        arrival=arguments.arrival,
        form=form_of(arguments),
        trend=arguments.trend,
    )


def _window(arguments: argparse.Namespace) -> Window:
    """Return the days of --partition or --since.

    Raises:
        OptionsError: A day is not over.
        ConfigError: A text is not a day.
    """
    from trueodds.reports.table.stored_sums import Window, day_ms, day_text

    today = day_ms("today")
    if arguments.partition:
        window = Window.of_day(day_ms(arguments.partition))
    else:
        window = Window.of_days(arguments.since, arguments.until or "today")
    if window.end_ms > today:
        raise OptionsError(
            f"{window} is not over: its labels still arrive, and no other partition would count them; allowed are days"
            f" up to yesterday, {day_text(today - 1)}"
        )
    return window
