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
    "arrow": lambda table: table,
    "stream": Streamed,
    "relation": lambda table: duckdb.connect().from_arrow(table),
    "ibis": ibis_table,
}


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
