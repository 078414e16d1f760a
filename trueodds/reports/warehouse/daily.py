"""Partitions by day: sums of each finished day that a folder lacks, and of days whose rows came late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from trueodds.files import FileError
from trueodds.reports.table.stored_sums import (
    DAY_MS,
    Partition,
    RowCounts,
    Window,
    day_ms,
    holds_sums,
    read_partition,
    write_partition,
)
from trueodds.reports.warehouse.partitions import DayRows, PartitionedTable, rows_by_day, sums_of_partition
from trueodds.texts import plural

KEPT = "Late rows are left out, because the answers of labels that these sums count have been removed since."


@dataclass(frozen=True)
class DayChange:
    """File of sums that a day needs: a new one, or one to make again because rows came late or were replaced."""

    path: Path
    window: Window
    reason: Literal["new", "late rows", "other rows", "after late rows"]


def missing_days(table: PartitionedTable, folder: Path, end_ms: int | None = None) -> list[DayChange]:
    """Return the files that a folder of sums lacks, in the order of their days.

    Days run from the first answer up to the last day with rows, or yesterday if that is earlier. A file is made again
    if its days have more rows by now, because some rows came late, and so are the files after it. So is a file whose
    days have as many rows as before, and another latest time. A file stays if its days have fewer rows, because a
    retention removed them. If the labels are a column of the answers, and some went without their answers, later
    labels have replaced them: then the file is made again, too.

    Args:
        table: The answers and their labels.
        folder: Folder of the sums. It may be absent.
        end_ms: Beginning of the first day that is not finished. None: of today.

    Raises:
        FileError: A file of the folder is damaged or was made with other options, or two files hold the same day.
    """
    made = _in_folder(folder)
    for path, partition in made:
        _check_options(path, partition, table)
    counts = rows_by_day(table)
    end = day_ms("today") if end_ms is None else end_ms
    changes: list[DayChange] = []
    covered: set[int] = set()
    is_after_late = has_lost_answers = False
    for path, partition in made:
        days = range(partition.window.start_ms, partition.window.end_ms, DAY_MS)
        if again := covered & set(days):
            raise FileError(f"{path} and another file of {folder} hold {Window.of_day(min(again))}; remove one of them")
        covered |= set(days)
        found = [counts[day] for day in days if day in counts]
        now = sum(rows.answers for rows in found), sum(rows.labels for rows in found)
        before = partition.rows.answers, partition.rows.label_rows
        has_lost_answers = has_lost_answers or now[0] < before[0]
        is_replaced = table.labels is None and not has_lost_answers
        if now[0] < before[0] or (now[1] < before[1] and not is_replaced):
            continue
        if now != before:
            changes.append(DayChange(path, partition.window, "late rows"))
        elif _has_other_rows(partition, found):
            changes.append(DayChange(path, partition.window, "other rows"))
        elif is_after_late:
            changes.append(DayChange(path, partition.window, "after late rows"))
        is_after_late = bool(changes)
    first, last = min(counts), max(counts)
    for day in range(first, min(end, last + DAY_MS), DAY_MS):
        if day not in covered:
            window = Window.of_day(day)
            changes.append(DayChange(folder / f"{window}.parquet", window, "new"))
    return sorted(changes, key=lambda change: change.window)


def _has_other_rows(partition: Partition, days: Sequence[DayRows]) -> bool:
    """Return whether the latest times of a partition's days have changed."""
    now = [
        max((ms for ms in times if ms is not None), default=None)
        for times in ([rows.last_answer_ms for rows in days], [rows.last_label_ms for rows in days])
    ]
    return [table.last_ms for table in partition.tables] != now


def _check_options(path: Path, partition: Partition, table: PartitionedTable) -> None:
    """Check that a partition's rows were read as those of its table are now.

    Raises:
        FileError: They were not.
    """
    for name, value in table.options.items():
        if (before := partition.options[name]) != value:
            raise FileError(
                f"{path} was made with {name} {_words(before)}, and now {name} is {_words(value)}; give the same"
                f" options (a view of the table may rename its columns), or another folder than {path.parent} for sums"
                " of all days"
            )


def _words(value: object) -> str:
    """Return an option's value in words."""
    return "not given" if value in (None, "", []) else repr(value)


def _in_folder(folder: Path) -> list[tuple[Path, Partition]]:
    """Return the partitions of a folder in the order of their days."""
    paths = [path for path in sorted(folder.glob("*.parquet")) if holds_sums(path)]
    return sorted(((path, read_partition(path)) for path in paths), key=lambda one: one[1].window)


def make_day(table: PartitionedTable, change: DayChange) -> Partition:
    """Make the sums of a day and write its file. If this is repeated, the file is the same.

    A file stays if its answers' rows have been removed meanwhile: made again, it would lose the labels that it counts.

    Args:
        table: The answers and their labels.
        change: An element of `missing_days`.

    Raises:
        FileError: The sums cannot be made (see `sums_of_partition`).
        OSError: The file cannot be written.
    """
    partition = sums_of_partition(table, change.window)
    if change.reason != "new" and table.labels is not None:
        old = read_partition(change.path)
        if _has_lost_answers(old.rows, partition.rows):
            return replace(old, notes=(*old.notes, KEPT))
    change.path.parent.mkdir(parents=True, exist_ok=True)
    write_partition(change.path, partition)
    return partition


def _has_lost_answers(old: RowCounts, new: RowCounts) -> bool:
    """Return whether labels that a file counts have no answer any more."""
    more_rows = max(0, new.label_rows - old.label_rows)
    return new.labels < old.labels or new.without_answer - old.without_answer > more_rows


def describe(change: DayChange, partition: Partition) -> str:
    """Describe a made file in a line."""
    rows = partition.rows
    words = f"{change.path}: {plural(rows.answers, 'answer')}, {plural(rows.labels, 'label')}"
    words += f", {plural(rows.corrections, 'correction')}" if rows.corrections else ""
    if KEPT in partition.notes:
        return f"{words} (not made again: {KEPT})"
    return words + ("" if change.reason == "new" else f" (made again: {change.reason})")
