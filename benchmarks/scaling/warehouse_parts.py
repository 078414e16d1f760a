"""Processor seconds of the parts of a report's sums by DuckDB, found by leaving out one part after another.

The table is that of `benchmarks.scaling.warehouse_sums`: ten classes, label, tag (20 values) and time (30 days). All
queries run in turns. Each step has fewer parts than the one before:

1. sums by class, tag and day
2. without the sums by day
3. without the sums by tag
4. the terms of each row alone, each reduced to its maximum
5. the reading alone: the maximum of each column

The plain query is a GROUP BY that reads the same columns.

    python -m benchmarks.scaling.warehouse_parts --rows 10000000
    python -m benchmarks.scaling.warehouse_parts --rows 10000000 --folder FOLDER    # uses tables that are there
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, circumstances, options_parser, whole_from, write
from benchmarks.scaling.warehouse_sums import DISK, PLAIN, ROW_BYTES, TURNS, _in_turns, check_disk, make_classes
from trueodds.reports.table.reading import Form
from trueodds.reports.warehouse.answer_rows import rows_of
from trueodds.reports.warehouse.parquet_source import TableSource, open_source
from trueodds.reports.warehouse.plan import Expression, ReadingPlan
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.summing import sums_by_plan
from trueodds.reports.warehouse.terms import cell_near, cells_below

STEPS = {
    "whole": "sums by class, tag and day",
    "without_day": "without the sums by day",
    "without_tag": "without the sums by day and tag",
    "terms": "the terms of each row alone",
    "reading": "the reading alone",
    "plain": "plain query",
}
"""Step -> what it computes, for people."""
TERMS = ("confidence", "class_code", "label_code", "nll", "brier", "problem", "period", "cell")
"""Columns of a row that the sums are made of. A tag is a column of the table."""


def terms_of(source: TableSource, plan: ReadingPlan) -> Expression:
    """Return the expression of the largest value of each term and of each group."""
    rows = rows_of(source.table, plan, quick=True)
    rows = rows.mutate(cell=cell_near(rows.confidence, cells_below(rows.confidence)))
    names = (*TERMS, *(f"group_{name}" for name in plan.groups))
    return rows.aggregate(**{name: rows[name].max() for name in names})


def reading_of(source: TableSource) -> Expression:
    """Return the expression of the largest value of each column."""
    table = source.table
    return table.aggregate(**{name: table[name].max() for name in table.columns})


def measure(path: Path, rows: int, turns: int) -> dict[str, Any]:
    """Return the times of each step."""
    source = open_source(str(path), "duckdb")
    backend = source.table.get_backend()
    backend.raw_sql("SET enable_progress_bar = false")
    plan = plan_of(source, Form(), trend="day")
    without_day = replace(plan, unit=None)
    without_tag = replace(without_day, groups=(), group_codes=())

    def add_up(plan: ReadingPlan) -> None:
        assert len(sums_by_plan(source, plan)) == rows

    times = _in_turns(
        turns,
        lambda: add_up(plan),
        lambda: add_up(without_day),
        lambda: add_up(without_tag),
        lambda: source.run(terms_of(source, plan)),
        lambda: source.run(reading_of(source)),
        lambda: backend.raw_sql(PLAIN["classes"].format(path)).fetchall(),
    )
    return {"rows": rows, "turns": turns, "steps": dict(zip(STEPS, times, strict=True))}


def markdown(result: dict[str, Any]) -> str:
    """Return a row for each step: its seconds, and their ratio to those of the plain query."""
    steps = result["steps"]
    plain = steps["plain"]["processor_s"]
    rows = [
        f"| {words} | {steps[step]['processor_s']:.2f} s | {steps[step]['processor_s'] / plain:.1f} |"
        for step, words in STEPS.items()
    ]
    return "\n".join([f"| {result['rows']:,} rows | processor seconds | ratio |", "|---|---:|---:|", *rows])


def main() -> None:
    """Make the table, measure, and remove it unless it has a folder."""
    parser = options_parser(__doc__, RESULTS / "warehouse_parts.json")
    parser.add_argument("--rows", type=whole_from(1), default=1_000_000, help="rows (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="folder in which the table stays (default: a temporary one)")
    parser.add_argument(
        "--turns", type=whole_from(1), default=TURNS, help="times that each runs (default: %(default)s)"
    )
    arguments = parser.parse_args()
    at_start = circumstances("duckdb", "ibis-framework", "pyarrow")
    with tempfile.TemporaryDirectory(dir=DISK if DISK.is_dir() else None) as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"classes-{arguments.rows}.parquet"
        if not path.exists():
            print(check_disk(folder, [ROW_BYTES["classes"] * arguments.rows], stay=True), flush=True)
            make_classes(path, arguments.rows)
        found = measure(path, arguments.rows, arguments.turns)
    found["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(found), flush=True)
    write(arguments.out, {**at_start, **found})


if __name__ == "__main__":
    main()
