"""Tables of answers and labels whose sums are made by day: how they are opened and checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import ibis

from trueodds.files import FileChangedError, FileError
from trueodds.processes.choices import TrendUnit
from trueodds.reports.table.reading import Form
from trueodds.reports.table.stored_sums import ReadTable, Window
from trueodds.reports.warehouse.arrivals import FILE, LABEL_FILE, OWN_COLUMNS, within
from trueodds.reports.warehouse.databases import READ_ONE_STATE, disconnect, engine_text, is_address
from trueodds.reports.warehouse.label_join import with_equal_keys
from trueodds.reports.warehouse.parquet_source import TableSource, open_source
from trueodds.reports.warehouse.plan import Expression, TimeColumn
from trueodds.reports.warehouse.planning import look_at_times
from trueodds.reports.warehouse.table_source import EMBEDDED
from trueodds.texts import column_quotes, hide_password, plural

UNIT: TrendUnit = "hour"
"""Unit of the periods, from which a report makes days and months."""


@dataclass(frozen=True, kw_only=True)
class PartitionedTable:
    """Answers and their labels, and the columns that tell when each arrived."""

    answers: str
    """A path or a pattern of Parquet files, or the name of a table of a database."""
    labels: str | None = None
    """The same of a table of ids, labels and their times of arrival. None: the answers hold their labels."""
    engine: str = EMBEDDED
    """`duckdb` for files, or the address of a database."""
    key: str = "id"
    """Column that both tables share."""
    arrival: str = ""
    """Column of the answers with the arrival of each label, if there is no table of labels."""
    form: Form = field(default_factory=Form)
    trend: TrendUnit = UNIT

    @property
    def is_of_database(self) -> bool:
        """Whether a database holds the tables."""
        return is_address(self.engine)

    @property
    def address(self) -> str:
        """Address of the database without its password; "" for files."""
        return hide_password("%20".join(self.engine.split())) if self.is_of_database else ""

    @property
    def options(self) -> dict[str, Any]:
        """Options that decide how the rows are read, as JSON. Sums of days that were read differently do not add up."""
        form = self.form
        return {
            "label": form.label,
            "arrival": self.arrival,
            "classes": list(form.classes),
            "first_label": form.first_label,
            "positive": form.positive,
            "resolution": None if form.resolution is None else form.resolution.step or "exact",
            "trend": self.trend,
        }


@dataclass(frozen=True)
class TableState:
    """Numbers of rows up to the end of some days, and the tables' rows in these days."""

    tables: tuple[ReadTable, ReadTable]
    """Answers and labels of these days."""
    rows_until: tuple[int, int]
    """Number of answers and of labels up to the end of the days."""
    first_ms: int | None
    """Time of the first answer; None if the days end before it."""


@dataclass(frozen=True)
class OpenTables:
    """A table of answers and its labels, open in an engine."""

    table: PartitionedTable
    answers: TableSource
    labels: TableSource | None
    time: TimeColumn
    """Column of the answers' times."""
    arrival: TimeColumn
    """Column of the labels' arrival."""

    @property
    def label_source(self) -> TableSource:
        """Table that holds the labels."""
        return self.labels or self.answers

    @property
    def label_rows(self) -> Expression:
        """Rows of that table that hold one."""
        table = self.label_source.table
        return table.filter(table[self.table.form.label].notnull())

    @property
    def engine(self) -> str:
        """Engine with its version."""
        return engine_text(self.answers)

    @property
    def has_files(self) -> bool:
        """Whether rows come from files, which have names and hashes."""
        return not self.table.is_of_database

    def state(self, window: Window) -> TableState:
        """Count the rows of some days, and those before their end."""
        sides = (
            (self.answers, self.answers.table, self.time),
            (self.label_source, self.label_rows, self.arrival),
        )
        aggregates = []
        for side, (_, rows, moment) in enumerate(sides):
            rows = rows.filter(within(rows, moment, None, window.end_ms))
            inside, column = within(rows, moment, window.start_ms, None), rows[moment.column]
            terms = {"until": rows.count(), "rows": inside.ifelse(1, 0).sum(), "last": column.max(where=inside)}
            terms |= {"first": column.min()}
            aggregates.append(rows.aggregate(**{f"{name}_{side}": term for name, term in terms.items()}))
        found = {name: values[0] for name, values in self.answers.run(aggregates[0].cross_join(aggregates[1])).items()}
        tables = []
        for side, (source, _, moment) in enumerate(sides):
            count, last = int(found[f"rows_{side}"] or 0), found[f"last_{side}"]
            tables.append(ReadTable(source.name, self.table.address, count, time_ms(last, moment) if count else None))
        until = int(found["until_0"]), int(found["until_1"])
        first_ms = time_ms(found["first_0"], self.time) if until[0] else None
        return TableState((tables[0], tables[1]), until, first_ms)

    def check_state(self, window: Window, state: TableState) -> None:
        """Check that nothing has changed since the tables were opened.

        Raises:
            FileChangedError: A file has, or the rows of a database without snapshots.
        """
        for source in (self.answers, self.label_source):
            source.check_state()
        if self.has_files or self.answers.engine in READ_ONE_STATE:
            return
        now = self.state(window)
        if now != state:
            rows, later = sum(state.rows_until), sum(now.rows_until)
            raise FileChangedError(
                f"{self.answers.name} changed while it was read: it and its labels had {rows:,} rows up to {window},"
                f" and then {later:,}, or later ones. So the sums would be of neither state; run this again when"
                " nothing writes rows of finished days"
            )


@contextmanager
def open_tables(table: PartitionedTable) -> Iterator[OpenTables]:
    """Open files or tables of a database, check their columns, and close the connection at the end.

    Raises:
        FileError: A column is missing, a label has no id or no time, or there are no answers.
        EngineError: The engine cannot read the tables.
    """
    has_files = not table.is_of_database
    answers = open_source(table.answers, table.engine, file_column=FILE if has_files else "")
    try:
        yield _open(table, answers, LABEL_FILE if has_files else "")
    finally:
        disconnect(ibis.get_backend(answers.table))


def _open(table: PartitionedTable, answers: TableSource, label_file: str) -> OpenTables:
    """Open the labels, and check the columns of both tables."""
    label = table.form.label
    if own := set(answers.header) & (OWN_COLUMNS - {FILE} if label_file else OWN_COLUMNS):
        raise FileError(f"{answers.name} has the column {min(own)!r}, a name that `trueodds sums` needs; rename it")
    if "time" not in answers.header:
        raise FileError(
            f"{answers.name} has no column time, by which answers belong to a day; it has"
            f" {_columns(answers)}. Rename the column that holds it{_by_a_view(table)}"
        )
    time, _, counts = look_at_times(answers, "time", {"answers": answers.table.count()})
    if not counts["answers"]:
        raise FileError(f"{answers.name} holds no answers; give {'files' if label_file else 'a table'} with rows")
    if table.labels is not None:
        labels = open_source(table.labels, table.engine, answers.table, file_column=label_file)
        answers, labels, arrival = _check_labels(table, answers, labels)
        return OpenTables(table, answers, labels, time, arrival)
    if label not in answers.header:
        raise FileError(
            f"{answers.name} has no column {label!r}; it has {_columns(answers)}. Name it with --label, or give"
            " the table of labels with --labels"
        )
    if not table.arrival:
        raise FileError(
            f"{answers.name} does not tell when labels arrive. Name the column that holds it with --arrival"
            " (`--arrival time` if labels come with their answers), or give a table of labels with --labels"
        )
    if table.arrival not in answers.header:
        raise FileError(
            f"{answers.name} does not tell when labels arrive: the column {table.arrival!r} of --arrival does not"
            f" exist; it has {_columns(answers)}. Name the column with --arrival, or give a table of labels with"
            " --labels"
        )
    if table.arrival == "time":  # which has no gaps
        return OpenTables(table, answers, None, time, time)
    gaps = answers.table[label].notnull() & answers.table[table.arrival].isnull()
    arrival, _, counts = look_at_times(answers, table.arrival, {"lost": gaps.ifelse(1, 0).sum()})
    lost = int(counts["lost"])
    if lost:
        raise FileError(
            f"{answers.name}: {plural(lost, 'label')} have no {table.arrival}; give each label the time of its arrival"
        )
    return OpenTables(table, answers, None, time, arrival)


def _columns(source: TableSource) -> str:
    """Return the columns of a table for a message."""
    return column_quotes([name for name in source.header if name not in (FILE, LABEL_FILE)])


def _by_a_view(table: PartitionedTable) -> str:
    return " with a view" if table.is_of_database else ""


def _check_labels(
    table: PartitionedTable, answers: TableSource, labels: TableSource
) -> tuple[TableSource, TableSource, TimeColumn]:
    """Check that a table of labels can be joined, and return both with ids of one type, and the column of arrivals.

    Raises:
        FileError: A column is missing, the answers hold labels too, or a label has no id or no time.
    """
    label, key = table.form.label, table.key
    if label in answers.header:
        raise FileError(f"{answers.name} holds the column {label!r} itself; leave out --labels, or remove the column")
    for one, wanted in ((answers, (key,)), (labels, (key, label, "time"))):
        for name in wanted:
            if name not in one.header:
                cure = {
                    "time": f"Rename the column with the arrival of each label{_by_a_view(table)}",
                    key: "Name it with --id",
                }.get(name, "Name it with --label")
                raise FileError(f"{one.name} has no column {name!r}; it has {_columns(one)}. {cure}")
    answers, labels = with_equal_keys(answers, labels, key)
    gaps = labels.table[key].isnull() & labels.table[label].notnull()
    arrival, _, counts = look_at_times(labels, "time", {"lost": gaps.ifelse(1, 0).sum()})
    if count := int(counts["lost"] or 0):
        raise FileError(f"{labels.name}: {plural(count, 'label')} have no {key}; leave them out, or fill in the {key}")
    return answers, labels, arrival


def time_ms(value: Any, moment: TimeColumn) -> int:
    """Return a value of a column of times as Unix milliseconds, rounded down."""
    if moment.per_second:
        return int(value) * 1000 // moment.per_second
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    value = value if value.tzinfo else value.replace(tzinfo=UTC)
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    return int(since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000)
