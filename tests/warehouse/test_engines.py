"""Sums by other engines are those of Python: the tables of the test of DuckDB, on real databases."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueodds
from benchmarks.faults import postgres
from tests.conftest import ROOT
from tests.warehouse.engines import DATABASES, Database, Postgres
from tests.warehouse.partitioned import START
from tests.warehouse.tables import REFUSED, USED, arrow, usual
from tests.warehouse.test_command import assert_close, figures, refusal
from tests.warehouse.test_database_days import assert_partitions_of_timestamps
from tests.warehouse.test_equality import assert_equal, assert_equal_groups, read
from trueodds import cli
from trueodds.errors import UserError
from trueodds.reports.table import reading
from trueodds.reports.table.reading import Form
from trueodds.reports.table.table_report import positive_sums_of, sums_by_period, sums_of
from trueodds.reports.warehouse import databases
from trueodds.reports.warehouse.label_join import open_with_labels
from trueodds.reports.warehouse.parquet_source import open_source
from trueodds.reports.warehouse.summing import sums_of_source

pytestmark = pytest.mark.full

SLOW: dict[str, set[str]] = {
    "postgres": {"many"},
    "clickhouse": set(USED) - {"two classes", "edges", "fine edges", "ties", "one column", "confidences"},
    "pyspark": set(USED) - {"two classes"},
}
AS_DUCKDB = {"sharp", "hundredths", "thousandths", "above 1", "sum of other decimals"}
"""Tables whose queries DuckDB runs for all: they are those of other tables, with more columns or other limits."""
LEFT_OUT = {
    "postgres": AS_DUCKDB,
    "clickhouse": AS_DUCKDB,
    "pyspark": AS_DUCKDB
    | {"many", "tenths", "usual", "single precision", "a thousandth", "mixed decimals"}  # takes long to plan them
    | {"hundredths of two", "one column", "huge"},
}
QUICK_REFUSED = {"postgres": set(REFUSED), "clickhouse": {"NaN", "null", "huge", "sum"}, "pyspark": {"NaN"}}


def cases(names: Any, quick: dict[str, set[str]]) -> list[Any]:
    """Return each engine with each table. Those that are not quick are long tests."""
    return [
        pytest.param(engine, name, marks=() if name in quick[engine] else pytest.mark.full, id=f"{engine}-{name}")
        for engine in DATABASES
        for name in names
        if name not in LEFT_OUT[engine]
    ]


each_engine = pytest.mark.parametrize(
    "engine", [pytest.param(engine, marks=pytest.mark.full if engine == "pyspark" else ()) for engine in DATABASES]
)


@pytest.fixture(scope="session")
def opened() -> Iterator[dict[str, Database]]:
    """The databases by name, each started at its first use."""
    found: dict[str, Database] = {}
    yield found
    for database in found.values():
        database.close()


@pytest.fixture
def database(engine: str, opened: dict[str, Database]) -> Iterator[Database]:
    if engine not in opened:
        opened[engine] = DATABASES[engine]()
    yield opened[engine]
    opened[engine].disconnect()


@pytest.mark.parametrize(("engine", "name"), cases(USED, {e: set(USED) - slow for e, slow in SLOW.items()}))
def test_sums_of_a_database_are_those_of_python(name: str, database: Database, tmp_path: Path) -> None:
    columns, positive = USED[name]
    form = Form(positive=positive)
    expected, found = read(columns, tmp_path, form), sums_of_source(database.source(arrow(columns)), form)
    assert_equal(found.total, sums_of(expected))
    assert_equal_groups(found, expected)
    assert found.resolution == expected.resolution and found.notes == expected.notes
    if positive:
        assert_equal(found.positive(positive).sums, positive_sums_of(expected, positive).sums)
    if expected.groups.time_ms_N is not None:
        assert_equal_periods(found, expected, "auto")


def assert_equal_periods(found: Any, expected: Any, trend: Any) -> None:
    (unit, periods), (own_unit, own) = sums_by_period(expected, trend), found.periods(trend)
    assert own_unit == unit and [start for start, _ in own] == [start for start, _ in periods]
    for (_, mine), (_, theirs) in zip(own, periods, strict=True):
        assert_equal(mine, theirs)


@pytest.mark.parametrize(("engine", "name"), cases(REFUSED, QUICK_REFUSED))
def test_rows_that_python_refuses_are_refused(name: str, database: Database) -> None:
    columns, words = REFUSED[name]
    with pytest.raises(UserError, match=words):
        sums_of_source(database.source(arrow(columns)))


KINDS = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.date32())


@pytest.mark.parametrize(
    ("engine", "trend"), cases(["hour", "month"], {"postgres": {"hour"}, "clickhouse": {"hour"}, "pyspark": set()})
)
def test_times_of_every_type_have_the_periods_of_python(trend: Any, database: Database, tmp_path: Path) -> None:
    for kind in KINDS if database.address != "pyspark://" else KINDS[:2]:
        table = arrow(usual(200, 2))
        column = table.column("time").cast(pa.timestamp("s", tz=getattr(kind, "tz", None))).cast(kind)
        table = table.set_column(table.schema.get_field_index("time"), "time", column)
        pq.write_table(table, tmp_path / "rows.parquet")
        expected = reading.read(tmp_path / "rows.parquet", Form())
        assert_equal_periods(sums_of_source(database.source(table), trend=trend), expected, trend)


@each_engine
def test_the_latest_label_of_an_id_counts(engine: str, database: Database, tmp_path: Path) -> None:
    columns = usual(300, 2)
    true = columns.pop("label")
    ids = [f"id {k}" for k in range(300)]
    known = [(key, label) for key, label in zip(ids, true, strict=True) if label is not None]
    rows = [(key, "class 0", 1) for key, _ in known[:50]] + [(key, label, 2) for key, label in known]
    keys, labels, times = zip(*rows, ("nobody", "class 1", 2), strict=True)
    late = {"id": list(keys), "label": list(labels), "time": list(times)}
    names = [database.write(arrow({**columns, "id": ids})), database.write(arrow(late))]
    source, notes = open_with_labels(names[0], database.address, names[1], "label", "id")
    assert notes == ("1 label left out: no answer has the id.",)
    assert_equal(sums_of_source(source).total, sums_of(read({**columns, "label": true}, tmp_path, Form())))


@each_engine
def test_a_table_of_ibis_stays_in_its_engine(engine: str, database: Database, tmp_path: Path) -> None:
    columns = usual(200, 2)
    table = database.source(arrow(columns)).table
    found = trueodds.table_sums(table.filter(table["class 0"] < 0.5), positive="class 1")
    rows = [row for row in range(200) if columns["class 0"][row] < 0.5]
    kept = {name: [values[row] for row in rows] for name, values in columns.items()}
    assert_equal(found.total, sums_of(read(kept, tmp_path, Form())))


@pytest.mark.parametrize("engine", ["postgres"])
def test_the_report_of_a_database_is_that_of_a_file(engine: str, database: Database, tmp_path: Path) -> None:
    table = arrow(usual(500, 2))
    pq.write_table(table, tmp_path / "rows.parquet")
    options = ("--by", "tag", "--trend", "day", "--positive", "class 1")
    found = figures(tmp_path, database.write(table), "--engine", database.address, *options)
    expected = figures(tmp_path, str(tmp_path / "rows.parquet"), *options)
    for name in ("answers", "labelled", "accuracy", "ece", "nll", "brier", "tags", "trend", "positive"):
        assert_close(found.get(name), expected.get(name))


PAGE = ROOT / "docs" / "how-to" / "report-on-a-database.md"


@pytest.mark.parametrize("engine", ["postgres"])
def test_the_commands_of_the_page_run(
    engine: str, database: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(database, Postgres)
    monkeypatch.chdir(tmp_path)
    columns = usual(300, 2)
    times = [START + 400 * k for k in range(300)]
    scores = {"id": list(range(300)), "no": columns["class 0"], "yes": columns["class 1"], "time": times}
    labels = {"id": list(range(200)), "label": ["no", "yes"] * 100, "time": [time + 60 for time in times[:200]]}
    tables = {"answers": arrow(columns), "scores": arrow(scores), "labels": arrow(labels)}
    for name, table in tables.items():
        database.run(f"DROP TABLE IF EXISTS {name}", f"ALTER TABLE {database.write(table)} RENAME TO {name}")
    text = PAGE.read_text(encoding="utf-8").replace("postgres://reader@127.0.0.1/logs", database.address)
    commands = re.findall(r"^    trueodds (report .*)$", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert cli.main("trueodds", cli.COMMANDS, shlex.split(command)) == 0
        assert "300 answers have labels" in capsys.readouterr().out
    for command in re.findall(r"^    trueodds ((?:sums|alarm) .*)$", text, re.MULTILINE):
        assert cli.main("trueodds", cli.COMMANDS, shlex.split(command)) == 0
    assert "sums/2026-03-01.parquet: 216 answers" in (printed := capsys.readouterr().out)
    assert "no alarm after 2 partitions" in printed or "ALARM" in printed
    assert cli.main("trueodds", cli.COMMANDS, ["report", "sums/*.parquet"]) == 0
    assert "200 of 300 answers have labels" in capsys.readouterr().out
    (block,) = re.findall(r"^    import ibis\n(?:(?:    .*)?\n)+", text, re.MULTILINE)
    names: dict[str, Any] = {}
    exec(dedent(block), names)
    names["connection"].disconnect()
    assert 0 < float(capsys.readouterr().out) < 1
    addresses = re.findall(r"^\| `(\w+)://", text, re.MULTILINE)
    assert {databases.SCHEMES[scheme] for scheme in addresses} == set(databases.SCHEMES.values())


@pytest.mark.parametrize("engine", ["pyspark"])
def test_sums_by_day_of_spark_are_those_of_files(engine: str, database: Database, tmp_path: Path) -> None:
    """It has its place here because of the one session of Spark."""
    assert_partitions_of_timestamps(engine, "confidence", database, tmp_path, 1)


@pytest.mark.parametrize("engine", ["pyspark"])
def test_the_command_of_spark_runs(engine: str, database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    text = (PAGE.parent / "one-file-to-a-billion-rows.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    trueodds (report .* --engine pyspark://.*)$", text, re.MULTILINE)
    words = shlex.split(command)
    words[words.index("answers")] = database.write(arrow({**usual(100, 2), "tag": ["a", "b"] * 50}))
    assert cli.main("trueodds", cli.COMMANDS, words) == 0
    assert "of 100 answers have" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_report_on_postgres_is_of_one_state_and_writes_nothing(engine: str, database: Database) -> None:
    assert isinstance(database, Postgres)
    source = database.source(arrow(usual(100)))
    database.run(f"INSERT INTO {source.name} SELECT * FROM {source.name}")
    assert len(sums_of_source(source)) == 100
    with pytest.raises(Exception, match="read-only"):
        source.table.get_backend().raw_sql(f"DROP TABLE {source.name}")
    database.run(f"CREATE SCHEMA logs_{source.name}", f"ALTER TABLE {source.name} SET SCHEMA logs_{source.name}")
    with_schema = open_source(f"logs_{source.name}.{source.name}", database.address)
    assert len(sums_of_source(with_schema)) == 200
    with_schema.table.get_backend().disconnect()


@pytest.mark.parametrize("engine", ["postgres"])
def test_bad_addresses_and_tables_are_refused(
    engine: str, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = database.address.replace("@", ":secret@").replace(str(database.address.split(":")[-1]), "1/postgres")
    for arguments, words in {
        ("nothing", database.address): "check the name of the table",
        ("answers", closed): "the credentials",
        ("answers.parquet", database.address): "name one of its tables",
        ("s3://bucket/answers.parquet", database.address): "name one of its tables",
    }.items():
        message = refusal(capsys, arguments[0], "--engine", arguments[1])
        assert words in message and "secret" not in message


@pytest.mark.parametrize("engine", ["postgres"])
def test_wrong_credentials_are_not_taken_for_a_missing_table(
    engine: str, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(database, Postgres)
    name = database.write(arrow(usual(20)))
    database.run("DROP ROLE IF EXISTS stranger", "CREATE ROLE stranger LOGIN")
    user, other = postgres.USER, database.address.removesuffix("/postgres")
    for address, words in {
        database.address.replace(user, "nobody:secret", 1): "check the address of --engine, the credentials",
        f"{other}/nothing": "check the address of --engine, the credentials",
        database.address.replace(user, "stranger", 1): "let this account read the table (GRANT SELECT)",
    }.items():
        message = refusal(capsys, name, "--engine", address)
        assert words in message and "name of the table" not in message and "secret" not in message


@pytest.mark.parametrize("engine", ["postgres"])
def test_booleans_are_no_probabilities_on_postgres(
    engine: str, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({"a": [True, False], "b": [False, True], "label": ["a", "b"]})
    message = refusal(capsys, database.write(table), "--engine", database.address)
    assert "'a' holds boolean, which PostgreSQL does not take for numbers" in message and "view" in message


def test_an_engine_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(address: str) -> None:
        raise ModuleNotFoundError(f"no module for {address}")

    monkeypatch.setattr("ibis.connect", missing)
    cures = {
        "postgres": r"psycopg.*trueodds\[engines\]",
        "bigquery": r"google-cloud-bigquery.*ibis-framework\[bigquery\]",
        "snowflake": r"snowflake-connector-python.*ibis-framework\[snowflake\]",
        "trino": r"package trino.*ibis-framework\[trino\]",
    }
    for engine, words in cures.items():
        with pytest.raises(UserError, match=words):
            open_source("answers", f"{engine}://host/database")


@pytest.mark.parametrize("engine", ["pyspark"])
def test_times_of_spark_beyond_all_years_are_refused(database: Database) -> None:
    """Spark reads times up to the year 294247."""
    table = arrow(usual(20))
    place = table.schema.get_field_index("time")
    for far in (-63_000_000_000_000_000, 2**63 - 1):
        moments = pa.array([far, *range(19)], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        with pytest.raises(UserError, match="or times outside of the years 1 to 9998, in 1 row"):
            sums_of_source(database.source(table.set_column(place, "time", moments)), trend="day")


@pytest.mark.parametrize("engine", ["postgres"])
def test_an_account_that_may_not_read_is_named_by_the_library(engine: str, database: Database) -> None:
    import ibis

    assert isinstance(database, Postgres)
    name = database.write(arrow(usual(20)))
    database.run("CREATE ROLE blind LOGIN", f"REVOKE ALL ON {name} FROM PUBLIC")
    connection = ibis.connect(database.address.replace(postgres.USER, "blind", 1))
    try:
        with pytest.raises(UserError, match=r"permission denied.*let this account read the table \(GRANT SELECT\)"):
            trueodds.table_sums(connection.table(name))
    finally:
        connection.disconnect()
        database.run("DROP ROLE blind")
