"""Time and memory of a report by DuckDB, beside a plain GROUP BY of the same columns in the same engine.

Two tables, made by the engine: ten classes with label, tag (20 values) and time (30 days), 90 bytes a row on disk; and
confidence with correct, 9 bytes a row. The plain query reads the same columns. It groups by label, tag and day, and
adds up each probability. Of the second table it groups by correct and by 3,000 equal parts of confidence. Both run in
turns, and medians of the processors' seconds are compared, which other work on the machine changes little.

    python -m benchmarks.scaling.warehouse_sums --rows 1000000 10000000 --confidences 100000000
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, circumstances, options_parser, write
from trueodds.processes.choices import TrendUnit
from trueodds.reports.table.reading import Form
from trueodds.reports.warehouse.parquet_source import TableSource, connect, open_source
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.summing import sums_by_plan

CLASSES = [f"c{k}" for k in range(10)]
DAYS = 30
TURNS = 3
TABLES = {"classes": "10 classes, label, tag, time", "confidences": "confidence, correct"}
"""Kind of a table -> its columns, for people."""


def make_classes(path: Path, rows: int) -> None:
    """Write answers of ten classes, some of them sure, a fifth without a label."""
    raw = ", ".join(f"pow(-ln(random()), 3) AS {name}" for name in CLASSES)
    total = " + ".join(CLASSES)
    label = " ".join(
        f"WHEN u * s < {' + '.join(CLASSES[: k + 1])} THEN '{name}'" for k, name in enumerate(CLASSES[:-1])
    )
    _write(
        path,
        f"""SELECT {", ".join(f"{name} / s AS {name}" for name in CLASSES)},
        CASE WHEN v < 0.2 THEN NULL ELSE CASE {label} ELSE '{CLASSES[-1]}' END END AS label,
        'tag ' || CAST(floor(20 * w) AS INT) AS tag, CAST(1760000000 + {86400 * DAYS} * x AS BIGINT) AS time
        FROM (SELECT *, {total} AS s, random() AS u, random() AS v, random() AS w, random() AS x
        FROM (SELECT {raw} FROM range({rows})))""",
    )


def make_confidences(path: Path, rows: int) -> None:
    """Write confidences, and whether each answer was right."""
    _write(path, f"SELECT c AS confidence, random() < c AS correct FROM (SELECT random() AS c FROM range({rows}))")


def _write(path: Path, query: str) -> None:
    connection = connect()
    connection.raw_sql("SELECT setseed(0.5)")
    connection.raw_sql(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    connection.disconnect()


PLAIN = {
    "classes": f"SELECT label, tag, time // 86400, count(*), {', '.join(f'sum({name})' for name in CLASSES)}"
    " FROM read_parquet('{}') GROUP BY ALL",
    "confidences": "SELECT correct, floor(confidence * 3000), count(*), sum(confidence) FROM read_parquet('{}')"
    " GROUP BY ALL",
}


def measure(kind: str, path: Path, rows: int) -> dict[str, Any]:
    """Return times of the sums and of the plain query, and time and memory of the report."""
    source = open_source(str(path), "duckdb")
    form = Form()
    trend: TrendUnit | None = "day" if kind == "classes" else None
    plan = plan_of(source, form, trend=trend)
    plan_s, plain_s, sums_s = _in_turns(
        lambda: plan_of(source, form, trend=trend),
        lambda: _plain(source, PLAIN[kind].format(path)),
        lambda: sums_by_plan(source, plan),
    )
    sums = sums_by_plan(source, plan)
    assert len(sums) == rows
    return {
        "table": kind,
        "rows": rows,
        "file_bytes": path.stat().st_size,
        "groups": len(sums.groups.part_G),
        "plain": plain_s,
        "sums": sums_s,
        "looks": plan_s,
        "ratio_of_processor_seconds": round(sums_s["processor_s"] / plain_s["processor_s"], 2),
        "report": _report(path),
    }


def _plain(source: TableSource, query: str) -> None:
    source.table.get_backend().raw_sql(query).fetchall()


def _in_turns(*works: Callable[[], object]) -> list[dict[str, float]]:
    """Return the median of several times of each work, in seconds of the clock and of the processors."""
    times: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(TURNS):
        for work, own in zip(works, times, strict=True):
            clock, processor = time.perf_counter(), time.process_time()
            work()
            own.append((time.process_time() - processor, time.perf_counter() - clock))
    medians = [[round(statistics.median(column), 3) for column in zip(*own, strict=True)] for own in times]
    return [{"processor_s": processor, "clock_s": clock} for processor, clock in medians]


REPORT = """
import re, sys
from pathlib import Path
from trueodds import cli
status = cli.main("trueodds", cli.COMMANDS, ["report", sys.argv[1], "--engine", "duckdb"])
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1], file=sys.stderr)
sys.exit(status)
"""
"""Runs the command, and then prints the largest memory of the process since its start, in KiB."""


def _report(path: Path) -> dict[str, float]:
    """Run the command in a process of its own, and return its time and its largest memory."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", REPORT, str(path)], capture_output=True, text=True, check=True)
    return {
        "clock_s": round(time.perf_counter() - start, 3),
        "peak_mib": round(int(done.stderr.split()[-1]) / 1024),
    }


def markdown(result: dict[str, Any]) -> str:
    """Return a row for each table: its size, the seconds of the sums and of a plain query, and the memory."""
    head = [
        "| table | rows | file | sums | plain query | ratio | peak memory of the report |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    rows = [
        f"| {TABLES[case['table']]} | {case['rows']:,} | {case['file_bytes'] / 1e6:.0f} MB"
        f" | {case['sums']['processor_s']:.2f} s | {case['plain']['processor_s']:.2f} s"
        f" | {case['ratio_of_processor_seconds']:.1f} | {case['report']['peak_mib']} MiB |"
        for case in result["cases"]
    ]
    return "\n".join([*head, *rows])


def main() -> None:
    """Make the tables one after another, measure, and remove them."""
    parser = options_parser(__doc__, RESULTS / "warehouse_sums.json")
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000], help="rows of ten classes")
    parser.add_argument("--confidences", type=int, nargs="*", default=[1_000_000], help="rows of confidences")
    parser.add_argument("--folder", type=Path, help="where the tables lie for a while")
    arguments = parser.parse_args()
    cases = [("classes", make_classes, rows) for rows in arguments.rows]
    cases += [("confidences", make_confidences, rows) for rows in arguments.confidences]
    found = []
    for kind, make, rows in cases:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            path = Path(folder) / "answers.parquet"
            make(path, rows)
            found.append(measure(kind, path, rows))
        print(json.dumps(found[-1]), flush=True)
    result = {**circumstances("duckdb", "ibis-framework", "pyarrow"), "cases": found}
    result["load_at_the_end"] = round(os.getloadavg()[0], 1)
    write(arguments.out, result)


if __name__ == "__main__":
    main()
