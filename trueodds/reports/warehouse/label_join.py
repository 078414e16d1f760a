"""Labels that another table holds: joined by id, each answer with its latest label."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ibis
from ibis.expr.datatypes import DataType, Int64, String

from trueodds.files import FileError
from trueodds.reports.table.reading import NOT_CLASSES
from trueodds.reports.warehouse.parquet_source import TableSource, open_source
from trueodds.reports.warehouse.plan import Expression
from trueodds.reports.warehouse.terms import where
from trueodds.texts import column_quotes, plural


def open_with_labels(
    answers: str, engine: str, labels: str | None, label: str, key: str
) -> tuple[TableSource, tuple[str, ...]]:
    """Open a table of answers, and join the labels of another one.

    Args:
        answers: The answers, as `open_source` has them.
        engine: The engine of both tables.
        labels: The table of labels; None if the answers hold them.
        label: Column of the labels.
        key: Column that both tables share.

    Returns:
        The source, and sentences about the join.

    Raises:
        FileError: A column is missing, or ids do not tell which label belongs to which answer.
    """
    source = open_source(answers, engine)
    if labels is None:
        return source, ()
    other = open_source(labels, engine, source.table)
    return join_labels(source, other, label, key)


def join_labels(source: TableSource, labels: TableSource, label: str, key: str) -> tuple[TableSource, tuple[str, ...]]:
    """Join labels to answers by id.

    An answer gets its latest label by the labels' column `time`. Without that column, an id may not have two different
    labels. Rows without a label are left out.

    Args:
        source: The answers.
        labels: The labels: `key`, the label, and perhaps `time`.
        label: Column of the labels.
        key: Column that both tables share.

    Raises:
        FileError: A column is missing, an id is missing or ambiguous, or no label belongs to an answer.
    """
    if label in source.header:
        raise FileError(f"{source.name} holds the column {label!r} itself; leave out --labels, or remove the column")
    for one, wanted in ((source, (key,)), (labels, (key, label))):
        for name in wanted:
            if name not in one.header:
                option = "--id" if name == key else "--label"
                raise FileError(
                    f"{one.name} has no column {name!r}, which joins labels to answers; it has"
                    f" {column_quotes(one.header)}. Name it with {option}"
                )
    source, labels = with_equal_keys(source, labels, key)
    has_times = "time" in labels.header
    rows = labels.table.select(
        key=labels.table[key], label=labels.table[label], **({"time": labels.table.time} if has_times else {})
    )
    rows = rows.filter(rows.label.notnull())  # `trueodds sums` counts such rows as no label, too
    latest = _latest(rows, has_times)
    _check_labels(labels, rows, latest, key)
    left_out = {label} if key in NOT_CLASSES else {label, key}  # a column of numbers would be a class
    kept = {name: source.table[name] for name in source.header if name not in left_out}
    match = source.table.left_join(latest, source.table[key] == latest.key)
    table = match.select(**kept, **{label: latest.label})
    notes = _check_join(source, match, latest, key)
    both = (source, labels)
    first_state = [one.first_state for one in both]
    return replace(source, table=table, state=lambda: [one.state() for one in both], first_state=first_state), notes


def with_equal_keys(source: TableSource, labels: TableSource, key: str) -> tuple[TableSource, TableSource]:
    """Return two tables whose ids have one type. Texts of any length become text, signed whole numbers int64.

    Args:
        source: The answers.
        labels: The labels.
        key: Column that both tables share.

    Raises:
        FileError: The types are of different kinds, such as text and numbers.
    """
    both = (source, labels)
    kinds = [one.table[key].type().copy(nullable=True) for one in both]
    if kinds[0] == kinds[1]:
        return both
    if all(kind.is_string() for kind in kinds):
        wanted: DataType = String()
    elif all(kind.is_signed_integer() for kind in kinds):
        wanted = Int64()
    else:
        raise FileError(
            f"the column {key!r} holds {kinds[0]} in {source.name} and {kinds[1]} in {labels.name}; cast one, so that"
            " equal ids are equal"
        )
    # Only where needed: a cast may keep an engine from using an index. A cast to the shorter text would cut ids.
    first, second = (
        one if kind == wanted else replace(one, table=one.table.mutate(**{key: one.table[key].cast(wanted)}))
        for one, kind in zip(both, kinds, strict=True)
    )
    return first, second


def _latest(rows: Expression, has_times: bool) -> Expression:
    """Return one row for each id: its latest label, and how many different labels it has at that time."""
    if not has_times:
        return rows.group_by("key").aggregate(label=rows.label.max(), different=rows.label.nunique())
    last = rows.group_by("key").aggregate(time=rows.time.max())
    newest = rows.join(last, (rows.key == last.key) & (rows.time == last.time)).select(
        key=rows.key, label=rows.label, time=rows.time
    )
    return newest.group_by("key").aggregate(
        label=newest.label.max(), time=newest.time.max(), different=newest.label.nunique()
    )


def _check_labels(labels: TableSource, rows: Expression, latest: Expression, key: str) -> None:
    counts = labels.run(
        rows.aggregate(rows=rows.count(), gaps=where(rows.key.isnull(), ibis.literal(1), ibis.literal(0)).sum())
    )
    if not counts["rows"][0]:
        raise FileError(f"{labels.name} holds no labels; give a table with rows, or leave out --labels")
    if counts["gaps"][0]:
        raise FileError(f"{labels.name}: {plural(int(counts['gaps'][0]), 'label')} have no {key}; leave them out")
    unclear = latest.filter(latest.different > 1)
    found: dict[str, Any] = labels.run(unclear.select(unclear.key).limit(1))
    if found["key"]:
        raise FileError(
            f"{labels.name}: {key} {found['key'][0]!r} has two different labels at the same time; give a column time"
            " of arrival, by which the latest counts, or keep one label"
        )


def _check_join(source: TableSource, match: Expression, latest: Expression, key: str) -> tuple[str, ...]:
    """Check that each label belongs to one answer, and describe labels without an answer."""
    hit = match.select(own=source.table[key], key=latest.key)
    hit = hit.filter(hit.key.notnull())
    found = source.run(hit.aggregate(answers=hit.count(), ids=hit.key.nunique()))
    answers, ids = int(found["answers"][0]), int(found["ids"][0])
    total = int(source.run(latest.aggregate(count=latest.count()))["count"][0])
    if not answers:
        raise FileError(f"no {key} of the labels is one of {source.name}; give the labels of these answers")
    if answers > ids:
        raise FileError(
            f"{source.name}: {plural(answers - ids, 'answer')} repeat the {key} of another one, so a label would count"
            " twice; keep one answer for each"
        )
    return (f"{plural(total - ids, 'label')} left out: no answer has the {key}.",) if total > ids else ()
