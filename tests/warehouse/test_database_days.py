"""Sums by day of a database: those of files with the same rows, whatever comes late; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.engines import DATABASES, Database, Postgres
from tests.warehouse.partitioned import DAY, START, end_ms, made, make
from tests.warehouse.test_partitions import assert_same
from trueodds import cli
from trueodds.files import FileChangedError, FileError
from trueodds.reports.table.stored_sums import Partition, Window, read_partition, read_sums, write_partition
from trueodds.reports.warehouse.daily import make_day, missing_days
from trueodds.reports.warehouse.databases import name_parts
from trueodds.reports.warehouse.parquet_source import open_source
from trueodds.reports.warehouse.partitions import PartitionedTable, sums_of_partition
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.table_source import EngineAwayError, EngineError

on_postgres = pytest.mark.parametrize("engine", ["postgres"])


@pytest.fixture(scope="module")
def opened() -> Iterator[dict[str, Database]]:
    """The databases by name, each started at its first use."""
    found: dict[str, Database] = {}
    yield found
    for database in found.values():
        database.close()


@pytest.fixture
def database(engine: str, opened: dict[str, Database]) -> Database:
    if engine not in opened:
        opened[engine] = DATABASES[engine]()
    return opened[engine]


def rows_of(pattern: str, columns: tuple[str, ...] = ()) -> pa.Table:
    """Return the rows of a pattern of files; those of some columns as timestamps."""
    table = pq.read_table(Path(pattern).parent)
    for name in columns:
        times = table.column(name).cast(pa.timestamp("s")).cast(pa.timestamp("us"))
        table = table.set_column(table.schema.get_field_index(name), name, times)
    return table


def stored(table: PartitionedTable, database: Database, columns: tuple[str, ...] = ()) -> PartitionedTable:
    """Write the rows of files to a database, and return the description of these tables."""
    names = [database.write(rows_of(str(pattern), columns)) for pattern in (table.answers, table.labels)]
    return replace(table, answers=names[0], labels=names[1], engine=database.address)


@pytest.mark.full
@on_postgres
def test_sums_by_day_of_a_database_are_those_of_files(
    engine: str, database: Database, daily: tuple[PartitionedTable, list[Path]], tmp_path: Path
) -> None:
    table, paths = daily
    of_database = stored(table, database)
    found = made(of_database, tmp_path / "sums")
    assert [path.name for path in found] == [path.name for path in paths]
    (days, total), (own_days, own) = read_sums(paths), read_sums(found)
    assert_same(replace(own, source=total.source), total)
    assert [day.rows for day in own_days] == [day.rows for day in days]
    for day, theirs in zip(own_days, days, strict=True):
        assert day.engine.startswith("postgres 1") and not day.files and day.source == of_database.answers
        assert [one.name for one in day.tables] == [of_database.answers, of_database.labels]
        assert [(one.rows, one.last_ms) for one in day.tables] == [(one.rows, one.last_ms) for one in theirs.tables]
    assert missing_days(of_database, tmp_path / "sums", end_ms()) == []


@pytest.mark.full
@pytest.mark.parametrize(("engine", "kind"), [("postgres", "rounded"), ("clickhouse", "positive")])
def test_two_partitions_of_timestamps(kind: str, engine: str, database: Database, tmp_path: Path) -> None:
    assert_partitions_of_timestamps(engine, kind, database, tmp_path)


def assert_partitions_of_timestamps(engine: str, kind: str, database: Database, tmp_path: Path, count: int = 2) -> None:
    table = make(tmp_path / "rows", kind, rows=240, seed=2)
    windows = (Window(START * 1000, (START + 2 * DAY) * 1000), Window((START + 2 * DAY) * 1000, end_ms()))[:count]
    found: dict[str, list[Partition]] = {}
    for name, one in {"files": table, "database": stored(table, database, ("time",))}.items():
        (tmp_path / name).mkdir()
        found[name] = [sums_of_partition(one, window) for window in windows]
        for partition in found[name]:
            write_partition(tmp_path / name / f"{partition.window.first_day}.parquet", partition)
    for theirs, mine in zip(found["files"], found["database"], strict=True):
        assert mine.rows == theirs.rows and mine.rows.labels > 0 and mine.engine.startswith(f"{engine} ")
        assert [one.last_ms for one in mine.tables] == [one.last_ms for one in theirs.tables]
    totals = [read_sums(sorted((tmp_path / name).iterdir()))[1] for name in ("files", "database")]
    assert_same(replace(totals[1], source=totals[0].source), totals[0])


@pytest.mark.full
@on_postgres
def test_a_day_is_made_again_if_its_rows_come_late_or_are_replaced(
    engine: str, database: Database, tmp_path: Path
) -> None:
    assert isinstance(database, Postgres)
    table = stored(make(tmp_path / "rows", rows=60), database)
    sums = tmp_path / "sums"
    made(table, sums)
    answer = f"SELECT * FROM {table.answers} WHERE time >= {START + DAY} AND time < {START + 2 * DAY} ORDER BY time"
    database.run(
        f"CREATE TABLE late AS {answer} DESC LIMIT 1",
        "UPDATE late SET id = 'late', time = time - 1",
        f"INSERT INTO {table.answers} SELECT * FROM late",
    )
    changes = missing_days(table, sums, end_ms())
    after = ("after late rows", "after late rows")
    assert [change.reason for change in changes] == ["late rows", *after]
    for change in changes:
        make_day(table, change)
    assert missing_days(table, sums, end_ms()) == []

    database.run(
        f"UPDATE {table.answers} SET time = {START + 2 * DAY - 1}"
        f" WHERE time = (SELECT max(time) FROM {table.answers} WHERE time < {START + 2 * DAY} AND id <> 'late')"
    )
    assert [change.reason for change in missing_days(table, sums, end_ms())] == ["other rows", *after]


@on_postgres
def test_the_command_names_the_table_and_hides_the_password(
    engine: str, database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = stored(make(tmp_path / "rows", rows=60), database)
    address = database.address.replace("@", ":my@secret@") + "?password=secret"
    words = ["sums", table.answers, "--engine", address, "--labels", str(table.labels), "--since", "2026-03-01"]
    out = tmp_path / "sums.parquet"
    assert cli.main("trueodds", cli.COMMANDS, [*words, "--until", "2026-03-05", "--out", str(out)]) == 0
    assert "60 answers" in capsys.readouterr().out
    partition = read_partition(out)
    assert {one.address for one in partition.tables} == {database.address.replace("@", ":***@") + "?password=***"}
    assert b"secret" not in out.read_bytes()


@on_postgres
def test_a_database_that_is_away_may_be_tried_again(engine: str, database: Database) -> None:
    closed = "postgres://me:secret@127.0.0.1:1/logs"
    with pytest.raises(EngineAwayError, match="check the address") as away:
        open_source("answers", closed)
    assert isinstance(away.value, OSError) and "secret" not in str(away.value)
    with pytest.raises(EngineError, match="does not exist") as refused:
        open_source("answers", f"{database.address}_nothing")
    assert not isinstance(refused.value, OSError), "another try does not help"


@pytest.mark.full
@pytest.mark.parametrize("engine", ["clickhouse"])
def test_a_table_that_changes_meanwhile_is_refused(
    engine: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ClickHouse has no snapshots, so a late label is found by the second count."""
    table = stored(make(tmp_path / "rows", "confidence", rows=60), database)

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        database.insert(str(table.labels), rows_of(str(tmp_path / "rows" / "labels" / "*.parquet")).slice(0, 1))
        return plan_of(*arguments, **options)

    monkeypatch.setitem(sums_of_partition.__globals__, "plan_of", meanwhile)
    with pytest.raises(FileChangedError, match="changed while it was read"):
        sums_of_partition(table, Window(START * 1000, end_ms()))


TABLES: dict[str, tuple[dict[str, object], dict[str, object] | None, dict[str, str], str]] = {
    "no times": ({"time": None}, {}, {}, "has no column time"),
    "no rows": ({"id": [], "a": [], "b": [], "time": []}, {}, {}, "holds no answers; give a table with rows"),
    "a column of ours": ({"trueodds_new": [0.1] * 4}, {}, {}, "'trueodds_new', a name that `trueodds sums` needs"),
    "times of text": ({"time": ["monday"] * 4}, {}, {}, "'time' holds string"),
    "ids of another type": ({}, {"id": ["1"]}, {}, "'id' holds int64 in"),
    "no ids": ({}, {"id": None}, {}, "Name it with --id"),
    "no arrival of labels": ({}, {"time": None}, {}, "arrival of each label with a view"),
    "a label without an id": ({}, {"id": pa.array([None], pa.int64())}, {}, "1 label have no id"),
    "no table of labels": ({}, {}, {"labels": "nothing"}, "check the name of the table"),
    "no arrival": ({"label": ["a"] * 4}, None, {}, "does not tell when labels arrive"),
    "a gap in the arrival": (
        {"label": ["a"] * 4, "at": [START, START, START, None]},
        None,
        {"arrival": "at"},
        "1 label have no at",
    ),
    "another label": ({}, {}, {"label": "truth"}, "has no column 'truth'"),
    "text as a probability": ({"a": ["high"] * 4}, {}, {}, "'a' holds string"),
    "not a probability": ({"a": [1.6] * 4}, {}, {}, "outside [0, 1]"),
    "a class that no column has": ({}, {"label": ["z"]}, {}, "'z'"),
}


@pytest.mark.few(6)
@on_postgres
@pytest.mark.parametrize("name", TABLES)
def test_tables_without_sums_are_refused_and_leave_no_file(
    name: str, engine: str, database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, label_changes, options, words = TABLES[name]
    answers = {"id": [1, 2, 3, 4], "a": [0.6] * 4, "b": [0.4] * 4, "time": [START] * 4} | changes
    labels = {"id": [1], "label": ["a"], "time": [START]} | (label_changes or {})
    options = dict(options)
    if label_changes is not None:
        options.setdefault("labels", database.write(_table(labels)))
    command = ["sums", database.write(_table(answers)), "--engine", database.address, "--partition", "2026-03-01"]
    command += [word for option, value in options.items() for word in (f"--{option}", value)]
    assert cli.main("trueodds", cli.COMMANDS, [*command, "--out", str(tmp_path / "out.parquet")]) == 1
    printed = capsys.readouterr()
    assert words in printed.err and not printed.out and not list(tmp_path.iterdir())


@on_postgres
def test_ids_of_two_text_types_are_joined_and_infinite_times_refused(
    engine: str, database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(database, Postgres)
    database.run(
        'CREATE TABLE "answers.2026" (id varchar(20), a double precision, b double precision, time timestamptz)',
        "CREATE TABLE text_ids (id text, label text, time timestamp)",
        """INSERT INTO "answers.2026" VALUES ('1', .6, .4, '2026-03-01 10:00+00'), ('2', .3, .7, '2026-03-01')""",
        "INSERT INTO text_ids VALUES ('1', 'a', '2026-03-01 12:00'), ('2' || repeat('x', 30), 'b', '2026-03-01 13:00')",
    )
    words = ["--engine", database.address, "--labels", "text_ids"]
    day = [*words, "--partition", "2026-03-01", "--out", str(tmp_path / "sums.parquet")]
    for command in (["sums", '"answers.2026"', *day], ["report", 'public."answers.2026"', *words]):
        assert cli.main("trueodds", cli.COMMANDS, command) == 0
    printed = capsys.readouterr().out
    assert "2 answers, 1 label" in printed and "1 of 2 answers" in printed
    assert cli.main("trueodds", cli.COMMANDS, ["sums", "answers.2026", *day]) == 1
    assert """in its name, give '"answers.2026"'""" in capsys.readouterr().err
    database.run("""INSERT INTO "answers.2026" VALUES ('3', .6, .4, 'infinity'), ('4', .6, .4, '-infinity')""")
    for command in (["sums", '"answers.2026"', *day], ["report", '"answers.2026"', *words]):
        assert cli.main("trueodds", cli.COMMANDS, command) == 1
        assert (
            "'time' holds infinite times, or times outside of the years 1 to 9998, in 2 rows" in capsys.readouterr().err
        )
    database.run("""DELETE FROM "answers.2026" WHERE id IN ('3', '4')""", "UPDATE text_ids SET time = 'infinity'")
    assert cli.main("trueodds", cli.COMMANDS, ["sums", '"answers.2026"', *day]) == 1
    assert "text_ids: the column 'time' holds infinite times" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", ".", "a.", '"a', 'a"b', '""', 'logs."a'])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(FileError, match="is no name of a table; allowed are"):
        name_parts(name)


def test_parts_of_a_name() -> None:
    names = ("answers", "a.b.c", 'logs."a.b"', '"a""b"', "project-1.set.table")
    assert [name_parts(name) for name in names] == [
        ["answers"], ["a", "b", "c"], ["logs", "a.b"], ['a"b'], ["project-1", "set", "table"]
    ]  # fmt: skip


def _table(columns: dict[str, object]) -> pa.Table:
    """Return columns as a table; an empty one holds numbers."""
    kept = {name: pa.array([], pa.int64()) if values == [] else values for name, values in columns.items()}
    return pa.table({name: values for name, values in kept.items() if values is not None})
