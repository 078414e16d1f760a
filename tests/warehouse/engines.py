"""The engine of the tests: DuckDB in this process, with one table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trueodds.reports.warehouse.parquet_source import TableSource, open_source


def duckdb_source(table: pa.Table, folder: Path) -> TableSource:
    """Return a table in a Parquet file, which DuckDB reads."""
    path = folder / "answers.parquet"
    pq.write_table(table, path, row_group_size=500)
    return open_source(str(path), "duckdb")
