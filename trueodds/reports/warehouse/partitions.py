"""Sums of one partition: the answers of some days, and the labels that arrived within them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ibis
import numpy as np

from trueodds.files import FileError
from trueodds.reports.table.reading import NOT_CLASSES
from trueodds.reports.table.stored_sums import DAY_MS, FIRST, Partition, ReadFile, RowCounts, Window, merge
from trueodds.reports.table.summed import COLUMNS, SumGroups, TableSums
from trueodds.reports.warehouse.answer_rows import period_of
from trueodds.reports.warehouse.arrivals import (
    BEFORE,
    CORRECTED,
    FILE,
    LABEL_FILE,
    LABELLED,
    NEW,
    OLD,
    LatestLabels,
    latest_labels,
    rows_of_column,
    rows_of_labels,
    within,
)
from trueodds.reports.warehouse.daily_tables import OpenTables, open_tables, time_ms
from trueodds.reports.warehouse.daily_tables import PartitionedTable as PartitionedTable
from trueodds.reports.warehouse.parquet_files import size_and_hash
from trueodds.reports.warehouse.parquet_source import TableSource
from trueodds.reports.warehouse.plan import Expression, ReadingPlan, TimeColumn
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.summing import sums_by_plan
from trueodds.sums.rounding import EXACT
from trueodds.texts import plural


class DayRows(NamedTuple):
    """Rows of a day in the tables."""

    answers: int
    labels: int
    last_answer_ms: int | None
    """Time of the last answer in Unix milliseconds; None if there is none."""
    last_label_ms: int | None
    """The same of the labels."""


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
        FileChangedError: A file, or a table of a database, changed meanwhile.
        EngineError: The engine cannot run the expression.
    """
    with open_tables(table) as opened:
        return _Partitioning(opened, window).partition()


def rows_by_day(table: PartitionedTable) -> dict[int, DayRows]:
    """Count answers and labels by day, from the first day with answers on.

    Args:
        table: The answers and their labels.

    Returns:
        The rows by the first millisecond of each day that has some.
    """
    with open_tables(table) as opened:
        answers = _count_by_day(opened.answers, opened.answers.table, opened.time)
        labels = _count_by_day(opened.label_source, opened.label_rows, opened.arrival)
    none = (0, None)
    days = [day for day in sorted(answers | labels) if day >= min(answers)]
    pairs = {day: (answers.get(day, none), labels.get(day, none)) for day in days}
    return {day: DayRows(one[0], other[0], one[1], other[1]) for day, (one, other) in pairs.items()}


def days_note(table: PartitionedTable, window: Window) -> str:
    """Describe on which days a table has rows, for days without any: their times may have another unit."""
    days = rows_by_day(table)
    there = Window(min(days), max(days) + DAY_MS)
    doubt = "" if there.start_ms <= window.start_ms < there.end_ms else " Is the column time right?"
    return f"No row of {table.answers} is of {window}. In UTC, its rows are of {there}.{doubt}"


def _count_by_day(source: TableSource, rows: Expression, moment: TimeColumn) -> dict[int, tuple[int, int]]:
    """Return the count of rows and the last time, by the first millisecond of their day."""
    keyed = rows.select(day=period_of(rows, moment, "day"), moment=rows[moment.column])
    found = source.run(keyed.group_by("day").aggregate(count=keyed.count(), last=keyed.moment.max()))
    triples = zip(found["day"], found["count"], found["last"], strict=True)
    return {int(day) * 86_400_000: (int(n), time_ms(last, moment)) for day, n, last in triples if day is not None}


@dataclass(frozen=True)
class _Partitioning:
    """Tables that are open, and the days whose sums are made."""

    tables: OpenTables
    window: Window

    def partition(self) -> Partition:
        """Make the sums.

        Raises:
            FileChangedError: The tables changed meanwhile.
        """
        tables, window = self.tables, self.window
        state = tables.state(window)
        rows, latest = self._match_labels()
        if tables.has_files:
            rows = _keep_rows(rows)
        counts, number_before = self._counts(rows, latest, state.first_ms)
        files: list[ReadFile] = []
        if tables.has_files:
            files = [*_files_of(tables.answers, rows, FILE), *_files_of(tables.answers, rows, LABEL_FILE)]
        partition = Partition(
            window=window,
            groups=_no_groups(),
            source=tables.answers.name,
            rows=replace(counts, label_rows=state.tables[1].rows),
            files=tuple(files),
            engine=tables.engine,
            resolution=tables.table.form.resolution or EXACT,
            tables=state.tables,
            options=tables.table.options,
        )
        if not partition.is_empty:
            partition = self._with_sums(partition, rows, number_before)
        tables.check_state(window, state)
        return partition

    def _with_sums(self, partition: Partition, rows: Expression, number_before: int) -> Partition:
        """Add the sums: of new labels and all answers, less what earlier partitions count.

        Args:
            partition: The partition without sums.
            rows: Its rows.
            number_before: Number of those whose answers are of earlier days.
        """
        answers, table = self.tables.answers, self.tables.table
        label = table.form.label
        left_out = {label, FILE, table.arrival} - {"time"}  # a column of numbers would be a class
        if table.labels is not None and table.key not in NOT_CLASSES:
            left_out.add(table.key)
        kept = [name for name in answers.header if name not in left_out]

        def part(which: Expression, code: str) -> Expression:
            return which.select(*kept, which[code].name(label))

        corrected = rows.filter(rows[CORRECTED])
        both = ibis.union(part(rows, NEW), part(corrected, OLD)) if partition.rows.corrections else None
        whole = replace(answers, table=part(rows, NEW) if both is None else both)
        plan = plan_of(whole, table.form, trend=table.trend)

        def sums(which: Expression, code: str) -> TableSums:
            return sums_by_plan(replace(answers, table=part(which, code)), plan)

        made = sums(rows, NEW)
        parts, first = [made.groups], [_first_of(made, plan)]
        if number_before:
            parts.append(_only_answers(sums(rows.filter(rows[BEFORE]), NEW).groups))
        if partition.rows.corrections:
            parts.append(_negative(sums(corrected, OLD).groups))
            first.append(_negative(_first_of(sums(corrected, NEW), plan)))
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

    def _match_labels(self) -> tuple[Expression, LatestLabels | None]:
        """Return the rows that count, with their new and their replaced label, and the labels of another table."""
        tables, label, key = self.tables, self.tables.table.form.label, self.tables.table.key
        answers = tables.answers.table
        kept = [name for name in tables.answers.header if name != label]
        time, arrival, window = tables.time, tables.arrival, self.window
        if tables.labels is None:
            rows = rows_of_column(answers, columns=kept, label=label, time=time, arrival=arrival, window=window)
            return rows, None
        latest = latest_labels(
            answers, tables.labels.table, key=key, label=label, time=time, arrival=arrival, window=window
        )
        self._check_different(tables.labels, latest)
        return rows_of_labels(answers, latest, columns=kept, key=key, time=time, window=window), latest

    def _check_different(self, labels: TableSource, latest: LatestLabels) -> None:
        """Check that no id has two different labels at one time.

        Raises:
            FileError: One has.
        """
        unclear = [one.filter(one.different > 1).select("key").limit(1) for one in (latest.recent, latest.older)]
        if keys := labels.run(ibis.union(*unclear))["key"]:
            raise FileError(
                f"{labels.name}: {self.tables.table.key} {keys[0]!r} has two different labels at the same time;"
                " keep one of them, or correct their times of arrival"
            )

    def _counts(self, rows: Expression, latest: LatestLabels | None, first_ms: int | None) -> tuple[RowCounts, int]:
        """Count the rows of the partition, and check that each label belongs to one answer. One query does both.

        Args:
            rows: The rows.
            latest: Labels of another table; None if the answers hold them.
            first_ms: Time of the first answer. No partition counts labels from before its day.

        Returns:
            The counts, and the number of rows whose answers are of earlier days.
        """
        answers, key, window = self.tables.answers, self.tables.table.key, self.window
        terms = {
            "answers": (~rows[BEFORE]).ifelse(1, 0).sum(),
            "labels": rows[LABELLED].ifelse(1, 0).sum(),
            "corrections": rows[CORRECTED].ifelse(1, 0).sum(),
            "before": rows[BEFORE].ifelse(1, 0).sum(),
        }
        if latest is None:
            found = answers.run(rows.aggregate(**terms))
        else:
            hit = rows.filter(rows[LABELLED])
            until = answers.table.filter(within(answers.table, self.tables.time, None, window.end_ms))
            same = until.semi_join(hit, key)  # also answers of earlier days, whose sums count the label already
            first_day_ms = window.end_ms if first_ms is None else first_ms // DAY_MS * DAY_MS
            arrival = replace(self.tables.arrival, column="time")
            counted = latest.older.filter(within(latest.older, arrival, first_day_ms, None))
            lost = latest.recent.anti_join(hit, latest.recent.key == hit[key])
            lost = lost.anti_join(counted, lost.key == counted.key)
            found_now = hit.filter(~hit[BEFORE])
            found_now = found_now.semi_join(counted, found_now[key] == counted.key)
            whole = rows.aggregate(**terms, ids=rows[key].nunique(where=rows[LABELLED]))
            for name, one in {"same": same, "lost": lost, "found_now": found_now}.items():
                whole = whole.cross_join(one.aggregate(**{name: one.count()}))
            found = answers.run(whole)
        counts = {name: int(values[0] or 0) for name, values in found.items()}
        if latest is not None and (more := counts["same"] - counts["ids"]) > 0:
            raise FileError(
                f"{answers.name}: {plural(more, 'answer')} repeat the {key} of another one, so a label would"
                " count twice; keep one answer for each"
            )
        without_answer = counts.get("lost", 0) - counts.get("found_now", 0)
        kinds = {name: counts[name] for name in ("answers", "labels", "corrections")}
        return RowCounts(**kinds, without_answer=without_answer), counts["before"]


def _keep_rows(rows: Expression) -> Expression:
    """Keep rows in a temporary table of DuckDB, so that the join runs once. It ends with the connection.

    A database gets no such table, so that an account and a replica that may only read are enough.
    """
    return ibis.get_backend(rows).create_table("trueodds_rows", rows, temp=True)


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
