"""The tables of the benchmark of sums: they are read as answers, and the engine's sums are those of Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.faults import postgres
from benchmarks.scaling import database_sums, warehouse_sums
from tests.warehouse.test_equality import assert_equal
from trueodds.reports.table import reading
from trueodds.reports.table.reading import Form
from trueodds.reports.table.table_report import sums_of
from trueodds.reports.warehouse.parquet_source import open_source
from trueodds.reports.warehouse.summing import sums_of_source

MAKE = {"classes": warehouse_sums.make_classes, "confidences": warehouse_sums.make_confidences}


@pytest.mark.parametrize("kind", MAKE)
def test_its_tables_have_equal_sums_and_the_plain_query_reads_them(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.parquet"
    MAKE[kind](path, 3_000)
    source = open_source(str(path), "duckdb")
    sums = sums_of_source(source)
    assert_equal(sums.total, sums_of(reading.read(path, Form())))
    query = warehouse_sums.PLAIN[kind].format(path)
    rows = source.table.get_backend().raw_sql(query).fetchall()
    assert sum(row[3 if kind == "classes" else 2] for row in rows) == len(sums) == 3_000


def test_a_database_makes_both_queries(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed (trueodds[engines])")
    if reason := postgres.missing():
        pytest.skip(reason)
    path = tmp_path / "answers.parquet"
    warehouse_sums.make_classes(path, 2_000)
    found = database_sums.measure("postgres", path, 2_000)
    assert found["rows"] == 2_000 and found["sums"]["processor_s"] > 0 and found["plain"]["clock_s"] > 0
    assert found["peak_mib"] > 0
    assert "| postgres | 2,000 |" in database_sums.markdown({"cases": [found]})
