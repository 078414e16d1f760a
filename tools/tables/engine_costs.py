"""The table of engines on docs/how-to/one-file-to-a-billion-rows.md: what the sums of a table cost in each."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table
from benchmarks.scaling.warehouse_sums import TABLES
from tools.tables.results import read

HEADER = ("engine", "table", "rows", "sums", "for a million rows", "a plain query takes", "peak memory")
NAMES = {"postgres": "PostgreSQL", "chdb": "ClickHouse", "pyspark": "Spark"}
"""Engine of a result -> its name."""


def engine_costs() -> str:
    """Return a row for each table that an engine added up, of the results `warehouse_sums` and `database_sums`."""
    files = [
        _row("DuckDB", TABLES[case["table"]], case, case.get("report", {}).get("peak_mib"))
        for case in read("warehouse_sums")["cases"]
    ]
    databases = [
        _row(NAMES.get(case["engine"], case["engine"]), TABLES["classes"], case, case.get("peak_mib"))
        for case in read("database_sums")["cases"]
    ]
    return table(HEADER, [*files, *databases])


def _row(engine: str, columns: str, case: dict[str, Any], peak_mib: float | None) -> tuple[str, ...]:
    seconds, rows = case["sums"]["processor_s"], case["rows"]
    memory = "not measured" if peak_mib is None else f"{peak_mib:,.0f} MiB"
    share = 1 / case["ratio_of_processor_seconds"]
    return engine, columns, f"{rows:,}", f"{seconds:,.2f} s", f"{1e6 * seconds / rows:.2f} s", f"{share:.0%}", memory
