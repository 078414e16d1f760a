"""The SQL for engines that no test can reach: as it was reviewed, and with the sums of Python when DuckDB runs it.

After a change of the expression, `python -m tests.warehouse.test_generated_sql` writes the texts again.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pytest
import sqlglot

from tests.conftest import ROOT
from tests.warehouse.partitioned import DAY, START, make
from tests.warehouse.tables import arrow, outcomes, usual
from tests.warehouse.test_equality import assert_equal, read
from trueodds import cli
from trueodds.errors import UserError
from trueodds.reports.table.reading import Form
from trueodds.reports.table.stored_sums import Partition, Window, merge
from trueodds.reports.table.table_report import sums_of
from trueodds.reports.warehouse.expression import sums_expression
from trueodds.reports.warehouse.partitions import PartitionedTable, sums_of_partition
from trueodds.reports.warehouse.plan import Expression, ReadingPlan
from trueodds.reports.warehouse.planning import plan_of, time_column
from trueodds.reports.warehouse.summing import sums_by_plan
from trueodds.reports.warehouse.table_source import TableSource

DIALECTS = ("bigquery", "snowflake", "trino")
TEXTS = Path(__file__).parent / "sql"
TABLES: dict[str, dict[str, Any]] = {"classes": usual(400, 2), "outcomes": {**outcomes(), "tag": ["a", "b"] * 250}}


def source_of(name: str, dialect: str) -> TableSource:
    """Return a table of DuckDB that runs the SQL of another engine, as sqlglot translates it back."""
    connection = ibis.duckdb.connect()
    connection.con.register("answers", arrow(TABLES[name]))
    connection.raw_sql("SET TimeZone = 'UTC'")
    connection.raw_sql("CREATE MACRO ieee_divide(a, b) AS a / b")  # BigQuery's division of doubles

    def execute(expression: Expression) -> Any:
        text = ibis.to_sql(expression.unbind(), dialect=dialect)
        return connection.con.sql(sqlglot.transpile(text, read=dialect, write="duckdb")[0]).to_arrow_table()

    return TableSource("answers", connection.table("answers"), dialect, execute=execute)


def plan(name: str, dialect: str) -> ReadingPlan:
    unit: Any = "day" if name == "classes" else None
    return plan_of(source_of(name, dialect), Form(), trend=unit)


def text_of(name: str, dialect: str) -> str:
    table = ibis.table(source_of(name, dialect).table.schema(), name="answers")
    quick = name == "classes"
    return f"{ibis.to_sql(sums_expression(table, plan(name, dialect), quick=quick), dialect=dialect)}\n"


@pytest.mark.parametrize("fused", [True, False])
def test_duckdb_gets_nested_selects_and_ibis_keeps_its_setting(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ibis.options.sql, "fuse_selects", fused)
    source = source_of("outcomes", "bigquery")
    seen: list[bool] = []
    backend = type(source.table.get_backend())
    compiled = backend.compile

    def compile_it(*arguments: Any, **options: Any) -> str:
        seen.append(ibis.options.sql.fuse_selects)
        return str(compiled(*arguments, **options))

    monkeypatch.setattr(backend, "compile", compile_it)
    count = source.table.aggregate(count=source.table.count())
    assert TableSource("answers", source.table).run(count) == {"count": [500]}
    source.table.get_backend().con.unregister("answers")
    with pytest.raises(UserError, match="CatalogException"):
        TableSource("answers", source.table).run(count)
    assert seen and not any(seen) and ibis.options.sql.fuse_selects is fused


@pytest.mark.few(2)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", TABLES)
def test_the_sql_is_the_reviewed_one(name: str, dialect: str) -> None:
    text = (TEXTS / f"{name}.{dialect}.sql").read_text(encoding="utf-8")
    assert text_of(name, dialect) == text, "python -m tests.warehouse.test_generated_sql writes it again: review it"


@pytest.mark.few(2)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", TABLES)
def test_the_sql_makes_the_sums_of_python(name: str, dialect: str, tmp_path: Path) -> None:
    found = sums_by_plan(source_of(name, dialect), plan(name, dialect))
    assert_equal(found.total, sums_of(read(TABLES[name], tmp_path, Form())))


WINDOW = Window.of_day((START + DAY) * 1000)


@pytest.fixture(scope="module")
def of_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[PartitionedTable, Partition]:
    """A table in files, and its sums of a day."""
    table = make(tmp_path_factory.mktemp("table"), "confidence", rows=120)
    return table, sums_of_partition(table, WINDOW)


@pytest.mark.full
@pytest.mark.parametrize("dialect", DIALECTS)
def test_sums_by_day_in_the_sql_are_those_of_files(
    dialect: str, of_files: tuple[PartitionedTable, Partition], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, expected = of_files
    stand_in = source_of("outcomes", dialect)
    connection = stand_in.table.get_backend()
    for name, pattern in {"days": table.answers, "late": str(table.labels)}.items():
        connection.con.execute(f"CREATE TABLE {name} AS SELECT * FROM '{pattern}'")

    def open_table(name: str, address: str, beside: Any = None) -> TableSource:
        assert address == f"{dialect}://host/database"
        return TableSource(name, connection.table(name), dialect, execute=stand_in.execute)

    monkeypatch.setattr("trueodds.reports.warehouse.parquet_source.open_table", open_table)
    found = sums_of_partition(
        replace(table, answers="days", labels="late", engine=f"{dialect}://host/database"), WINDOW
    )
    assert found.rows == expected.rows and found.rows.corrections > 0 and found.rows.labels > found.rows.corrections
    mine, theirs = (merge([one.groups]) for one in (found, expected))
    assert (mine.part_G == theirs.part_G).all() and (mine.cell_G == theirs.cell_G).all()
    np.testing.assert_allclose(mine.sums_GK, theirs.sums_GK, rtol=1e-9, atol=1e-12)


def test_the_command_of_the_page_reports_by_the_sql_of_bigquery(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "how-to" / "one-file-to-a-billion-rows.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    trueodds (report .* --engine bigquery://.*)$", text, re.MULTILINE)
    opened: list[str] = []

    def open_table(name: str, address: str, beside: Any = None) -> TableSource:
        opened.append(f"{name} of {address}")
        return source_of("classes", "bigquery")

    monkeypatch.setattr("trueodds.reports.warehouse.parquet_source.open_table", open_table)
    assert cli.main("trueodds", cli.COMMANDS, shlex.split(command)) == 0
    assert opened == ["answers of bigquery://project/dataset"] and "of 400 answers have" in capsys.readouterr().out


def test_timestamps_of_an_untested_engine_are_refused() -> None:
    table = ibis.table({"time": "timestamp('UTC')", "a": "float64"}, name="answers")
    with pytest.raises(UserError, match="not tested on snowflake; allowed are whole numbers"):
        time_column(TableSource("answers", table, "snowflake"), "time")


if __name__ == "__main__":
    TEXTS.mkdir(exist_ok=True)
    for table_name in TABLES:
        for engine in DIALECTS:
            (TEXTS / f"{table_name}.{engine}.sql").write_text(text_of(table_name, engine), encoding="utf-8")
