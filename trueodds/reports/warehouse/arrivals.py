"""Expressions of the rows that count in some days: new answers, and earlier ones that got a label in these days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import and_

import ibis

from trueodds.reports.table.stored_sums import Window
from trueodds.reports.warehouse.plan import Expression, TimeColumn

FILE, LABEL_FILE = "trueodds_file", "trueodds_label_file"
"""Columns with the file of an answer and of its label."""
NEW, OLD = "trueodds_new", "trueodds_old"
"""Columns with the label that counts from these days on, and with the one that earlier days count."""
BEFORE, CORRECTED, LABELLED = "trueodds_before", "trueodds_corrected", "trueodds_labelled"
"""Columns that say whether an answer is of earlier days, replaces a label of theirs, and got a label."""
OWN_COLUMNS = {FILE, LABEL_FILE, NEW, OLD, BEFORE, CORRECTED, LABELLED}
"""Columns that a table of answers may not have."""


@dataclass(frozen=True)
class LatestLabels:
    """Latest labels by id, each with `label`, `time`, `file` and the number of `different` ones at that time."""

    recent: Expression
    """Those that arrived in the days."""
    older: Expression
    """Those that arrived before, of ids that have a recent one or a new answer."""


def within(table: Expression, moment: TimeColumn, start_ms: int | None, end_ms: int | None) -> Expression:
    """Return whether a time lies in a window; null for a missing one, which a filter leaves out.

    One end at least is given. The condition has no other terms, so that a database finds the rows by its index.
    """
    column = table[moment.column]
    if moment.per_second:
        limits = [None if ms is None else ibis.literal(ms * moment.per_second // 1000) for ms in (start_ms, end_ms)]
    else:
        column = column.cast("timestamp") if column.type().is_date() else column
        limits = [None if ms is None else _timestamp(ms, column) for ms in (start_ms, end_ms)]
    conditions = [] if limits[0] is None else [column >= limits[0]]
    if limits[1] is not None:
        conditions.append(column < limits[1])
    return reduce(and_, conditions)


def _timestamp(ms: int, column: Expression) -> Expression:
    """Return a time in UTC as a constant of a column's type."""
    zone = column.type().timezone
    time = datetime.fromtimestamp(ms / 1000, UTC)
    return ibis.literal(time, "timestamp('UTC')") if zone else ibis.literal(time.replace(tzinfo=None), "timestamp")


def latest_labels(
    answers: Expression,
    labels: Expression,
    *,
    key: str,
    label: str,
    time: TimeColumn,
    arrival: TimeColumn,
    window: Window,
) -> LatestLabels:
    """Return the latest label of each id in a window, and the latest one before it.

    Args:
        answers: The answers.
        labels: The table of labels.
        key: Column that both share.
        label: Column of the labels.
        time: Column of the answers' times.
        arrival: Column of the labels' times.
        window: The days.
    """
    file = labels[LABEL_FILE] if LABEL_FILE in labels.columns else ibis.null("string")
    rows = labels.select(key=labels[key], label=labels[label], time=labels[arrival.column], file=file)
    rows = rows.filter(rows.label.notnull())
    moment = replace(arrival, column="time")
    recent = _latest(rows.filter(within(rows, moment, window.start_ms, window.end_ms)))
    before = rows.filter(within(rows, moment, None, window.start_ms))
    new = answers.filter(within(answers, time, window.start_ms, window.end_ms))
    wanted = ibis.union(recent.select(key=recent.key), new.select(key=new[key])).distinct()
    return LatestLabels(recent, _latest(before.semi_join(wanted, "key")))


def _latest(rows: Expression) -> Expression:
    """Return the latest label of each id, its file, and how many different labels it has at that time."""
    last = rows.group_by("key").aggregate(last=rows.time.max())
    newest = rows.join(last, (rows.key == last.key) & (rows.time == last["last"])).select(
        key=rows.key, label=rows.label, time=rows.time, file=rows.file
    )
    return newest.group_by("key").aggregate(
        label=newest.label.max(), time=newest.time.max(), file=newest.file.max(), different=newest.label.nunique()
    )


def rows_of_labels(
    answers: Expression, latest: LatestLabels, *, columns: Sequence[str], key: str, time: TimeColumn, window: Window
) -> Expression:
    """Return the rows that count in a window, with labels of another table.

    New answers and earlier ones are two parts, so that an engine need not look at every column of all earlier answers.

    Args:
        answers: The answers.
        latest: Their labels.
        columns: Columns of the answers that the rows keep.
        key: Column that both tables share.
        time: Column of the answers' times.
        window: The days.
    """
    recent = latest.recent.select(new_key=latest.recent.key, new_label=latest.recent.label, new_file=latest.recent.file)
    older = latest.older.select(old_key=latest.older.key, old_label=latest.older.label, old_file=latest.older.file)
    new = answers.filter(within(answers, time, window.start_ms, window.end_ms))
    match = new.left_join(recent, new[key] == recent.new_key).left_join(older, new[key] == older.old_key)
    is_new, is_old = recent.new_key.notnull(), older.old_key.notnull()
    now = match.select(
        **{name: new[name] for name in columns},
        **{
            NEW: ibis.cases((is_new, recent.new_label), else_=older.old_label),
            OLD: older.old_label,
            BEFORE: ibis.literal(False),
            CORRECTED: ibis.literal(False),
            LABELLED: is_new | is_old,
            LABEL_FILE: ibis.cases((is_new, recent.new_file), else_=older.old_file),
        },
    )
    earlier = answers.filter(within(answers, time, None, window.start_ms))
    again = earlier.join(recent, earlier[key] == recent.new_key).left_join(older, earlier[key] == older.old_key)
    late = again.select(
        **{name: earlier[name] for name in columns},
        **{
            NEW: recent.new_label,
            OLD: older.old_label,
            BEFORE: ibis.literal(True),
            CORRECTED: older.old_key.notnull(),
            LABELLED: ibis.literal(True),
            LABEL_FILE: recent.new_file,
        },
    )
    return ibis.union(now, late)


def rows_of_column(
    answers: Expression,
    *,
    columns: Sequence[str],
    label: str,
    time: TimeColumn,
    arrival: TimeColumn,
    window: Window,
) -> Expression:
    """Return the rows that count in a window, with labels in a column of the answers.

    Args:
        answers: The answers.
        columns: Columns that the rows keep.
        label: Column of the labels.
        time: Column of the answers' times.
        arrival: Column of the labels' arrival.
        window: The days.
    """
    until = answers.filter(within(answers, time, None, window.end_ms))
    known = within(until, arrival, None, window.end_ms).fill_null(False) & until[label].notnull()
    late = known & within(until, arrival, window.start_ms, None).fill_null(False)
    inside = within(until, time, window.start_ms, None)
    rows = until.select(
        *columns,
        **{
            NEW: ibis.cases((known, until[label]), else_=ibis.null(until[label].type())),
            OLD: ibis.null(until[label].type()),
            BEFORE: ~inside,
            CORRECTED: ibis.literal(False),
            LABELLED: known & (late | inside),
            LABEL_FILE: ibis.null("string"),
        },
    )
    return rows.filter(~rows[BEFORE] | rows[LABELLED])
