"""`trueodds.table_sums`: tables in memory and of Ibis have the sums of the same rows in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueodds
from tests.warehouse.tables import arrow, usual
from tests.warehouse.test_equality import assert_equal, assert_equal_groups
from trueodds.errors import UserError
from trueodds.reports.table import reading
from trueodds.reports.table.reading import Form
from trueodds.reports.table.table_report import positive_sums_of, sums_of
from trueodds.reports.warehouse.planning import plan_of


class Streamed:
    """A table that only offers a stream of Arrow, as a DataFrame of polars does."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def ibis_table(table: pa.Table) -> Any:
    connection = ibis.duckdb.connect()
    connection.raw_sql("SET TimeZone = 'America/New_York'")
    connection.con.from_arrow(table).create("mine")
    return connection.table("mine")


KINDS: dict[str, Callable[[pa.Table], Any]] = {
    "pandas": lambda table: table.to_pandas(),
    "shuffled": lambda table: table.to_pandas().sample(frac=1, random_state=0),  # its index becomes a column of Arrow
    "arrow": lambda table: table,
    "stream": Streamed,
    "relation": lambda table: duckdb.connect().from_arrow(table),
    "ibis": ibis_table,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_has_the_sums_of_its_rows(kind: str, tmp_path: Path) -> None:
    table = arrow(usual(800, 2))
    pq.write_table(table, tmp_path / "rows.parquet")
    expected = reading.read(tmp_path / "rows.parquet", Form(positive="class 1"))
    found = trueodds.table_sums(KINDS[kind](table), positive="class 1")
    assert_equal(found.total, sums_of(expected))
    assert_equal_groups(found, expected)
    assert_equal(found.positive("class 1").sums, positive_sums_of(expected, "class 1").sums)
    assert trueodds.metrics.ece(found.total.labelled) == pytest.approx(trueodds.metrics.ece(sums_of(expected).labelled))


def test_a_connection_of_ibis_keeps_its_settings() -> None:
    table = ibis_table(arrow(usual(50)))
    connection = ibis.get_backend(table)
    connection.raw_sql("SET disabled_optimizers = 'join_order'")
    connection.raw_sql("SET perfect_ht_threshold = 0")
    trueodds.table_sums(table)
    names = ("TimeZone", "disabled_optimizers", "perfect_ht_threshold")
    settings = [connection.raw_sql(f"SELECT current_setting('{name}')").fetchone()[0] for name in names]
    assert settings == ["America/New_York", "join_order", 0]


def test_a_nan_between_sound_confidences_is_seen_on_every_connection() -> None:
    table = pa.table({"confidence": [0.5, float("nan"), 0.7], "correct": [True, False, True]})
    for make in KINDS.values():
        with pytest.raises(UserError, match=r"gap|outside"):
            trueodds.table_sums(make(table))


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_times_of_pandas_with_a_zone_are_those_of_utc(kind: str) -> None:
    """pandas has them in nanoseconds, and writes them so to Parquet."""
    table = arrow(usual(80))
    utc = table.column("time").cast(pa.timestamp("s", tz="UTC")).cast(pa.timestamp("ns", tz="Europe/Berlin"))
    zoned = table.set_column(table.schema.get_field_index("time"), "time", utc)
    found, expected = (trueodds.table_sums(KINDS[kind](one), trend="hour").periods("hour") for one in (zoned, table))
    assert [(start, sums.answers) for start, sums in found[1]] == [(start, sums.answers) for start, sums in expected[1]]


@pytest.mark.full
def test_a_file_of_ibis_that_changes_while_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = arrow(usual(60))
    path = tmp_path / "answers.parquet"
    pq.write_table(table, path)

    def plan_and_change(*arguments: Any, **options: Any) -> Any:
        plan = plan_of(*arguments, **options)
        labels = pa.array([None] * 59 + ["class 7"])
        pq.write_table(table.set_column(table.schema.get_field_index("label"), "label", labels), path)
        return plan

    monkeypatch.setattr("trueodds.reports.warehouse.summing.plan_of", plan_and_change)
    with pytest.raises(UserError, match=r"1 row hold a label that was not there before.*run this again"):
        trueodds.table_sums(ibis.duckdb.connect().read_parquet(path))


def test_bad_tables_are_refused_with_the_cure() -> None:
    for wrong in ([0.5, 0.5], {"a": [1.0]}, "answers.parquet", None):
        with pytest.raises(TypeError, match="allowed are a DataFrame"):
            trueodds.table_sums(wrong)
    with pytest.raises(UserError, match="engine none; allowed are duckdb, postgres"):
        trueodds.table_sums(ibis.table({"a": "float64", "label": "string"}, name="elsewhere"))
    with pytest.raises(UserError, match="has no column 'truth'"):
        trueodds.table_sums(pd.DataFrame(usual(10)), label="truth")
    with pytest.raises(UserError, match="holds no answers"):
        trueodds.table_sums(arrow(usual(10)).slice(0, 0))
    with pytest.raises(UserError, match="resolution"):
        trueodds.table_sums(arrow(usual(10)), resolution=0.3)
