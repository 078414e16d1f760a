"""Sums of one partition: the answers of some days, and the labels that arrived within them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import ibis
import numpy as np

from trueodds.files import FileError
from trueodds.processes.choices import TrendUnit
from trueodds.reports.table.reading import Form
from trueodds.reports.table.stored_sums import FIRST, Partition, ReadFile, RowCounts, Window, merge
from trueodds.reports.table.summed import COLUMNS, SumGroups, TableSums
from trueodds.reports.warehouse.parquet_files import size_and_hash
from trueodds.reports.warehouse.parquet_source import TableSource, open_source
from trueodds.reports.warehouse.plan import Expression, ReadingPlan, TimeColumn
from trueodds.reports.warehouse.planning import plan_of, time_column
from trueodds.reports.warehouse.summing import sums_by_plan
from trueodds.sums.rounding import EXACT
from trueodds.texts import column_quotes, plural

_FILE, _NEW, _OLD = "trueodds_file", "trueodds_new", "trueodds_old"
_BEFORE, _CORRECTED, _LABELLED, _LABEL_FILE = (
    "trueodds_before",
    "trueodds_corrected",
    "trueodds_labelled",
    "trueodds_label_file",
)
UNIT: TrendUnit = "hour"
"""Unit of the periods, from which a report makes days and months."""


@dataclass(frozen=True, kw_only=True)
class PartitionedTable:
    """Answers and their labels, and the columns that tell when each arrived."""

    answers: str
    """A path or a pattern of Parquet files."""
    labels: str | None = None
    """Files of a table of ids, labels and their times of arrival. None: the answers hold their labels."""
    engine: str = "duckdb"
    key: str = "id"
    """Column that both tables share."""
    arrival: str = ""
    """Column of the answers with the arrival of each label, if there is no table of labels."""
    form: Form = field(default_factory=Form)
    trend: TrendUnit = UNIT


def sums_of_partition(table: PartitionedTable, window: Window) -> Partition:
    """Make the sums of the answers whose time lies in a window, and of the labels that arrived in it.

    A label arrives at its own time, or with its answer if that is later. So each label counts in one partition, and
    the sums of all partitions are those of the whole table. If a label replaces one of an earlier partition, this
    partition also subtracts that one.

    Args:
        table: The answers and their labels.
        window: Days of the partition.

    Raises:
        FileError: A column is missing, a label has no id or no time, ids repeat, or a row cannot be counted.
        FileChangedError: A file changed meanwhile.
        EngineError: The engine cannot run the expression.
    """
    opened = _Opened.of(table)
    partition = opened.partition(window)
    opened.answers.check_state()
    if opened.labels is not None:
        opened.labels.check_state()
    return partition


def rows_by_day(table: PartitionedTable) -> dict[int, tuple[int, int]]:
    """Count answers and labels by day, from the first day with answers on.

    Args:
        table: The answers and their labels.

    Returns:
        For the first millisecond of each day with rows: the number of answers, and of labels in the files.
    """
    opened = _Opened.of(table)
    answers = _count_by_day(opened.answers, opened.answers.table, opened.time)
    labels = _count_by_day(opened.label_source, opened.label_rows, opened.arrival)
    first = min(answers)
    return {day: (answers.get(day, 0), labels.get(day, 0)) for day in sorted(answers | labels) if day >= first}


def _count_by_day(source: TableSource, rows: Expression, moment: TimeColumn) -> dict[int, int]:
    """Count rows by the first millisecond of their day."""
    from trueodds.reports.warehouse.answer_rows import period_of

    keyed = rows.select(day=period_of(rows, moment, "day"))
    by_day = source.run(keyed.group_by("day").aggregate(count=keyed.count()))
    pairs = zip(by_day["day"], by_day["count"], strict=True)
    return {int(day) * 86_400_000: int(count) for day, count in pairs if day is not None}


@dataclass(frozen=True)
class _Opened:
    """A table of answers and its labels, open in an engine."""

    table: PartitionedTable
    answers: TableSource
    labels: TableSource | None
    time: TimeColumn
    """Column of the answers' times."""
    arrival: TimeColumn
    """Column of the labels' arrival."""

    @classmethod
    def of(cls, table: PartitionedTable) -> _Opened:
        """Open the files and check their columns."""
        answers = open_source(table.answers, table.engine, file_column=_FILE)
        label = table.form.label
        if "time" not in answers.header:
            raise FileError(
                f"{answers.name} has no column time, by which answers belong to a day; it has"
                f" {_columns(answers)}. Rename the column that holds it"
            )
        if not answers.run(answers.table.aggregate(rows=answers.table.count()))["rows"][0]:
            raise FileError(f"{answers.name} holds no answers; give files with rows")
        time = time_column(answers, "time")[0]
        if table.labels is None:
            if label not in answers.header:
                raise FileError(
                    f"{answers.name} has no column {label!r}; it has {_columns(answers)}. Name it with --label, or give"
                    " the table of labels with --labels"
                )
            if table.arrival not in answers.header:
                given = f"the column {table.arrival!r} of --arrival" if table.arrival else "no --arrival is given, and"
                raise FileError(
                    f"{answers.name} does not tell when labels arrive: {given} does not exist; it has"
                    f" {_columns(answers)}. Name the column with --arrival, or give a table of labels with --labels"
                    if table.arrival
                    else f"{answers.name} does not tell when labels arrive. Name the column that holds it with"
                    " --arrival (`--arrival time` if labels come with their answers), or give a table of labels with"
                    " --labels"
                )
            arrival = time if table.arrival == "time" else time_column(answers, table.arrival)[0]
            return cls(table, answers, None, time, arrival)
        labels = open_source(table.labels, table.engine, answers.table, file_column=_LABEL_FILE)
        _check_labels(answers, labels, label, table.key)
        return cls(table, answers, labels, time, time_column(labels, "time")[0])

    @property
    def label_source(self) -> TableSource:
        """Table that holds the labels."""
        return self.labels or self.answers

    @property
    def label_rows(self) -> Expression:
        """Rows of that table that hold one."""
        table = self.label_source.table
        return table.filter(table[self.table.form.label].notnull())

    def partition(self, window: Window) -> Partition:
        """Make the sums of a partition."""
        matched, without_answer = self._match_labels(window)
        rows = _keep_rows(matched)
        counts = _counts(self.answers, rows)
        arrived = self.label_rows.filter(_within(self.label_rows, self.arrival, window.start_ms, window.end_ms))
        label_rows = int(self.label_source.run(arrived.aggregate(count=arrived.count()))["count"][0])
        engine = f"{self.table.engine} {metadata.version(self.table.engine)}"
        files = (*_files_of(self.answers, rows, _FILE), *_files_of(self.answers, rows, _LABEL_FILE))
        partition = Partition(
            window=window,
            groups=_no_groups(),
            source=self.answers.name,
            rows=replace(counts, without_answer=without_answer, label_rows=label_rows),
            files=files,
            engine=engine,
            resolution=self.table.form.resolution or EXACT,
        )
        if partition.is_empty:
            return partition
        return self._with_sums(partition, rows)

    def _with_sums(self, partition: Partition, rows: Expression) -> Partition:
        """Add the sums: of new labels and all answers, less what earlier partitions count."""
        label = self.table.form.label
        left_out = {label, _FILE, self.table.arrival} - {"time"}  # a column of numbers would be a class
        kept = [name for name in self.answers.header if name not in left_out]

        def table(which: Expression, code: str) -> Expression:
            return which.select(*kept, which[code].name(label))

        corrected = rows.filter(rows[_CORRECTED])
        both = ibis.union(table(rows, _NEW), table(corrected, _OLD)) if partition.rows.corrections else None
        whole = replace(self.answers, table=table(rows, _NEW) if both is None else both)
        plan = plan_of(whole, self.table.form, trend=self.table.trend)

        def sums(which: Expression, code: str) -> TableSums:
            return sums_by_plan(replace(self.answers, table=table(which, code)), plan)

        made = sums(rows, _NEW)
        parts, first = [made.groups], [_first_of(made, plan)]
        if partition.rows.labels:
            earlier = rows.filter(rows[_BEFORE])
            if self.answers.run(earlier.aggregate(rows=earlier.count()))["rows"][0]:
                parts.append(_only_answers(sums(earlier, _NEW).groups))
        if partition.rows.corrections:
            parts.append(_negative(sums(corrected, _OLD).groups))
            first.append(_negative(_first_of(sums(corrected, _NEW), plan)))
        return replace(
            partition,
            groups=merge([*parts, *first]),
            classes=made.classes,
            by_confidence=made.by_confidence,
            positive_class=made.positive_class,
            resolution=made.resolution,
            unit=made.unit,
            columns=made.columns,
            notes=made.notes,
        )

    def _match_labels(self, window: Window) -> tuple[Expression, int]:
        """Return the rows that count in a window, with their new and their replaced label.

        Returns:
            The rows, and the number of labels of the window without an answer.
        """
        answers, label = self.answers.table, self.table.form.label
        kept = [name for name in self.answers.header if name != label]
        created = _within(answers, self.time, window.start_ms, window.end_ms)
        until = answers.filter(_within(answers, self.time, None, window.end_ms))
        if self.labels is None:
            gaps = answers.filter(answers[label].notnull() & answers[self.arrival.column].isnull())
            lost = int(self.answers.run(gaps.aggregate(count=gaps.count()))["count"][0])
            if lost:
                raise FileError(
                    f"{self.answers.name}: {plural(lost, 'label')} have no {self.arrival.column}; give each label the"
                    " time of its arrival"
                )
            known = _within(until, self.arrival, None, window.end_ms) & until[label].notnull()
            late = known & _within(until, self.arrival, window.start_ms, None)
            inside = _within(until, self.time, window.start_ms, None)
            rows = until.select(
                *kept,
                **{
                    _NEW: ibis.cases((known, until[label]), else_=ibis.null(until[label].type())),
                    _OLD: ibis.null(until[label].type()),
                    _BEFORE: ~inside,
                    _CORRECTED: ibis.literal(False),
                    _LABELLED: known & (late | inside),
                    _LABEL_FILE: ibis.null("string"),
                },
            )
            return rows.filter(~rows[_BEFORE] | rows[_LABELLED]), 0
        recent, older = self._latest_labels(window, answers.filter(created))
        key = self.table.key
        match = until.left_join(recent, until[key] == recent.new_key)
        match = match.left_join(older, until[key] == older.old_key)
        inside = _within(until, self.time, window.start_ms, None)
        is_new, is_old = recent.new_key.notnull(), older.old_key.notnull()
        rows = match.select(
            **{name: until[name] for name in kept},
            **{
                _NEW: ibis.cases(
                    (is_new, recent.new_label), (inside, older.old_label), else_=ibis.null(older.old_label.type())
                ),
                _OLD: older.old_label,
                _BEFORE: ~inside,
                _CORRECTED: ~inside & is_new & is_old,
                _LABELLED: is_new | (inside & is_old),
                _LABEL_FILE: ibis.cases((is_new, recent.new_file), else_=older.old_file),
            },
        )
        rows = rows.filter(~rows[_BEFORE] | rows[_LABELLED])
        return rows, self._check_keys(rows, recent, until)

    def _latest_labels(self, window: Window, new_answers: Expression) -> tuple[Expression, Expression]:
        """Return the latest label of each id in the window, and the latest one before it.

        Raises:
            FileError: An id has two different labels at one time.
        """
        assert self.labels is not None
        table, key = self.labels.table, self.table.key
        rows = table.select(
            key=table[key], label=table[self.table.form.label], time=table.time, file=table[_LABEL_FILE]
        )
        rows = rows.filter(rows.label.notnull())
        moment = replace(self.arrival, column="time")
        recent = _latest(rows.filter(_within(rows, moment, window.start_ms, window.end_ms)))
        before = rows.filter(_within(rows, moment, None, window.start_ms))
        wanted = ibis.union(recent.select(key=recent.key), new_answers.select(key=new_answers[key])).distinct()
        older = _latest(before.semi_join(wanted, "key"))
        for one in (recent, older):
            unclear = one.filter(one.different > 1)
            keys = self.labels.run(unclear.select(unclear.key).limit(1))["key"]
            if keys:
                raise FileError(
                    f"{self.labels.name}: {key} {keys[0]!r} has two different labels at the same time; keep one of"
                    " them, or correct their times of arrival"
                )
        return (
            recent.select(new_key=recent.key, new_label=recent.label, new_file=recent.file),
            older.select(old_key=older.key, old_label=older.label, old_file=older.file),
        )

    def _check_keys(self, rows: Expression, recent: Expression, until: Expression) -> int:
        """Check that each label belongs to one answer, and count the labels of the window without an answer."""
        key = self.table.key
        hit = rows.filter(rows[_LABELLED])
        ids = int(self.answers.run(hit.aggregate(ids=hit[key].nunique()))["ids"][0])
        same = until.semi_join(hit, key)  # also answers of earlier days, whose sums count the label already
        answers = int(self.answers.run(same.aggregate(answers=same.count()))["answers"][0])
        if answers > ids:
            raise FileError(
                f"{self.answers.name}: {plural(answers - ids, 'answer')} repeat the {key} of another one, so a label"
                " would count twice; keep one answer for each"
            )
        lost = recent.anti_join(hit, recent.new_key == hit[key])
        count = int(self.answers.run(lost.aggregate(count=lost.count()))["count"][0])
        found_now = hit.filter(~hit[_BEFORE] & hit[_OLD].notnull())  # an earlier partition counts them as lost
        return count - int(self.answers.run(found_now.aggregate(count=found_now.count()))["count"][0])


def _columns(source: TableSource) -> str:
    """Return the columns of a table for a message."""
    return column_quotes([name for name in source.header if name not in (_FILE, _LABEL_FILE)])


def _check_labels(answers: TableSource, labels: TableSource, label: str, key: str) -> None:
    """Check that a table of labels can be joined.

    Raises:
        FileError: A column is missing, the answers hold labels too, or a label has no id or no time.
    """
    if label in answers.header:
        raise FileError(f"{answers.name} holds the column {label!r} itself; leave out --labels, or remove the column")
    for one, wanted in ((answers, (key,)), (labels, (key, label, "time"))):
        for name in wanted:
            if name not in one.header:
                cure = "Rename the column with the arrival of each label" if name == "time" else "Name it with"
                option = {"time": "", key: " --id"}.get(name, " --label")
                raise FileError(f"{one.name} has no column {name!r}; it has {_columns(one)}. {cure}{option}")
    mine, theirs = answers.table[key].type().copy(nullable=True), labels.table[key].type().copy(nullable=True)
    if mine != theirs:
        raise FileError(
            f"the column {key!r} holds {mine} in {answers.name} and {theirs} in {labels.name}; cast one, so that equal"
            " ids are equal"
        )
    table = labels.table
    gaps = table.filter(table[key].isnull() & table[label].notnull())
    count = int(labels.run(gaps.aggregate(count=gaps.count()))["count"][0])
    if count:
        raise FileError(f"{labels.name}: {plural(count, 'label')} have no {key}; leave them out, or fill in the {key}")


def _within(table: Expression, moment: TimeColumn, start_ms: int | None, end_ms: int | None) -> Expression:
    """Return whether a time lies in a window; false for a missing one."""
    column = table[moment.column]
    if moment.per_second:
        limits = [None if ms is None else ibis.literal(ms * moment.per_second // 1000) for ms in (start_ms, end_ms)]
    else:
        column = column.cast("timestamp") if column.type().is_date() else column
        limits = [None if ms is None else _timestamp(ms, column) for ms in (start_ms, end_ms)]
    inside = ibis.literal(True)
    if limits[0] is not None:
        inside = inside & (column >= limits[0])
    if limits[1] is not None:
        inside = inside & (column < limits[1])
    return inside.fill_null(False)


def _timestamp(ms: int, column: Expression) -> Expression:
    """Return a time in UTC as a constant of a column's type."""
    zone = column.type().timezone
    time = datetime.fromtimestamp(ms / 1000, UTC)
    return ibis.literal(time, "timestamp('UTC')") if zone else ibis.literal(time.replace(tzinfo=None), "timestamp")


def _latest(rows: Expression) -> Expression:
    """Return the latest label of each id, its file, and how many different labels it has at that time."""
    last = rows.group_by("key").aggregate(last=rows.time.max())
    newest = rows.join(last, (rows.key == last.key) & (rows.time == last["last"])).select(
        key=rows.key, label=rows.label, file=rows.file
    )
    return newest.group_by("key").aggregate(
        label=newest.label.max(), file=newest.file.max(), different=newest.label.nunique()
    )


def _keep_rows(rows: Expression) -> Expression:
    """Keep rows in a temporary table of the engine, so that the join runs once. It ends with the connection."""
    return ibis.get_backend(rows).create_table("trueodds_rows", rows, temp=True)


def _counts(source: TableSource, rows: Expression) -> RowCounts:
    """Count the rows of a partition."""
    totals = source.run(
        rows.aggregate(
            answers=(~rows[_BEFORE]).ifelse(1, 0).sum(),
            labels=rows[_LABELLED].ifelse(1, 0).sum(),
            corrections=rows[_CORRECTED].ifelse(1, 0).sum(),
        )
    )
    return RowCounts(**{name: int(values[0] or 0) for name, values in totals.items()})


def _files_of(source: TableSource, rows: Expression, column: str) -> list[ReadFile]:
    """Return the files of a partition's rows, with their hashes."""
    known = rows.filter(rows[column].notnull())
    by_value = source.run(known.group_by(column).aggregate(count=known.count()))
    pairs = sorted(zip(by_value[column], by_value["count"], strict=True))
    return [ReadFile(name, *size_and_hash(name), int(count)) for name, count in pairs]


def _no_groups() -> SumGroups:
    return SumGroups(
        np.array([], object),
        np.array([], object),
        np.zeros(0, np.int64),
        np.zeros(0, np.int64),
        np.zeros((0, len(COLUMNS))),
    )


def _negative(groups: SumGroups) -> SumGroups:
    """Return groups that subtract labelled rows, and no answers."""
    sums_GK = -groups.sums_GK
    sums_GK[:, COLUMNS.index("answers")] = 0.0
    return replace(groups, sums_GK=sums_GK)


def _only_answers(groups: SumGroups) -> SumGroups:
    """Return groups that subtract answers, and no labelled rows."""
    sums_GK: Any = np.zeros_like(groups.sums_GK)
    sums_GK[:, COLUMNS.index("answers")] = -groups.sums_GK[:, COLUMNS.index("answers")]
    return replace(groups, sums_GK=sums_GK)


def _first_of(sums: TableSums, plan: ReadingPlan) -> SumGroups:
    """Return counts, confidences and correct ones of the labelled rows by version."""
    groups = sums.groups.of("version" if "version" in plan.groups else "class")
    kept = [COLUMNS.index(name) for name in ("count", "confidence", "correct")]
    sums_GK = np.zeros_like(groups.sums_GK)
    sums_GK[:, kept] = groups.sums_GK[:, kept]
    name_G = groups.name_G if "version" in plan.groups else np.full(len(groups.name_G), "", object)
    return SumGroups(
        np.full(len(groups.part_G), FIRST, object), name_G, np.zeros_like(groups.number_G), groups.cell_G, sums_GK
    )
