"""Time and memory of a report by DuckDB, beside a plain GROUP BY of the same columns in the same engine.

Two tables, made by the engine: ten classes with label, tag (20 values) and time (30 days), 90 bytes a row on disk; and
confidence with correct, 9 bytes a row. The plain query reads the same columns. It groups by label, tag and day, and
adds up each probability. Of the second table it groups by correct and by 3,000 equal parts of confidence. Both run in
turns, and medians of the processors' seconds are compared, which other work on the machine changes little.

Before a table is made, the command prints the disk space that it needs, and stops if there is less. With --folder the
tables stay, and the next run uses them. With --add the result keeps its other tables, each with its command and commit.

    python -m benchmarks.scaling.warehouse_sums --rows 1000000 10000000 --confidences 100000000
    python -m benchmarks.scaling.warehouse_sums --rows 100000000 --confidences 1000000000 --folder FOLDER    # 19 GB
    python -m benchmarks.scaling.warehouse_sums --rows --confidences 1000000000 --turns 1 --add
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, circumstances, options_parser, whole_from, write
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
ROW_BYTES = {"classes": 90, "confidences": 9}
"""Kind of a table -> bytes of a row on disk, rounded up."""
SPARE_BYTES = 10**9
"""Disk space that stays free."""
DISK = Path("/var/tmp")
"""Folder for temporary tables. /tmp and /dev/shm may be in memory, which the measurement needs."""


def make_classes(
    path: Path,
    rows: int,
    classes: Sequence[str] = CLASSES,
    groups: Sequence[str] = ("tag",),
    seed: float = 0.5,
    connection: Any = None,
) -> None:
    """Write answers with a time, some of them sure, a fifth without a label.

    Args:
        path: The file.
        rows: Number of answers.
        classes: Names of the classes, two or more.
        groups: Columns of 20 values each.
        seed: Seed of the engine's random numbers, in [-1, 1].
        connection: The engine, for many files. None: one is opened and closed.
    """
    raw = ", ".join(f"pow(-ln(random()), 3) AS {name}" for name in classes)
    total = " + ".join(classes)
    label = " ".join(
        f"WHEN u * s < {' + '.join(classes[: k + 1])} THEN '{name}'" for k, name in enumerate(classes[:-1])
    )
    drawn = "".join(f", random() AS draw_{name}" for name in groups)
    values = "".join(f"'{name} ' || CAST(floor(20 * draw_{name}) AS INT) AS {name}, " for name in groups)
    _write(
        path,
        f"""SELECT {", ".join(f"{name} / s AS {name}" for name in classes)},
        CASE WHEN v < 0.2 THEN NULL ELSE CASE {label} ELSE '{classes[-1]}' END END AS label,
        {values}CAST(1760000000 + {86400 * DAYS} * x AS BIGINT) AS time
        FROM (SELECT *, {total} AS s, random() AS u, random() AS v{drawn}, random() AS x
        FROM (SELECT {raw} FROM range({rows})))""",
        seed,
        connection,
    )


def make_confidences(path: Path, rows: int) -> None:
    """Write confidences, and whether each answer was right."""
    _write(path, f"SELECT c AS confidence, random() < c AS correct FROM (SELECT random() AS c FROM range({rows}))")


def _write(path: Path, query: str, seed: float = 0.5, given: Any = None) -> None:
    connection = connect() if given is None else given
    connection.raw_sql("SET enable_progress_bar = false")
    connection.raw_sql(f"SELECT setseed({seed})")
    part = path.with_suffix(".part")  # a table that is cut off has another name
    connection.raw_sql(f"COPY ({query}) TO '{part}' (FORMAT parquet)")
    if given is None:
        connection.disconnect()
    part.rename(path)


MAKE = {"classes": make_classes, "confidences": make_confidences}


def check_disk(folder: Path, sizes: Sequence[int], *, stay: bool) -> str:
    """Return a sentence about the disk space that tables need.

    Args:
        folder: Folder of the tables.
        sizes: Bytes of each table that has to be made.
        stay: Whether all stay. Otherwise each is removed before the next one.

    Raises:
        SystemExit: There is less.
    """
    needed = (sum(sizes) if stay else max(sizes, default=0)) + SPARE_BYTES * bool(sizes)
    free = shutil.disk_usage(folder).free
    words = f"the tables need {needed / 1e9:.1f} GB in {folder}, of which {SPARE_BYTES / 1e9:.0f} GB stay free"
    if free < needed:
        raise SystemExit(
            f"{words}, and {free / 1e9:.1f} GB are free; make room, give another folder by --folder, or fewer rows by"
            " --rows and --confidences"
        )
    return f"{words}; {free / 1e9:.1f} GB are free"


PLAIN = {
    "classes": f"SELECT label, tag, time // 86400, count(*), {', '.join(f'sum({name})' for name in CLASSES)}"
    " FROM read_parquet('{}') GROUP BY ALL",
    "confidences": "SELECT correct, floor(confidence * 3000), count(*), sum(confidence) FROM read_parquet('{}')"
    " GROUP BY ALL",
}


def measure(kind: str, path: Path, rows: int, turns: int = TURNS) -> dict[str, Any]:
    """Return times of the sums and of the plain query, and time and memory of the report."""
    trend: TrendUnit | None = "day" if kind == "classes" else None
    sizes = {"table": kind, "rows": rows, "file_bytes": path.stat().st_size}
    return {**sizes, **compare(str(path), PLAIN[kind].format(path), rows, trend, turns)}


def compare(pattern: str, query: str, rows: int, trend: TrendUnit | None, turns: int) -> dict[str, Any]:
    """Return times of the sums and of a plain query in turns, and time and memory of the report.

    Args:
        pattern: Path or pattern of the Parquet files.
        query: The plain query.
        rows: Number of rows that the sums must count.
        trend: Unit of the periods.
        turns: Number of times that each runs.
    """
    source = open_source(pattern, "duckdb")
    source.table.get_backend().raw_sql("SET enable_progress_bar = false")
    form = Form()
    plan = plan_of(source, form, trend=trend)
    groups: list[int] = []

    def add_up() -> None:
        sums = sums_by_plan(source, plan)
        assert len(sums) == rows
        groups.append(len(sums.groups.part_G))

    plan_s, plain_s, sums_s = _in_turns(
        turns,
        lambda: plan_of(source, form, trend=trend),
        lambda: _plain(source, query),
        add_up,
    )
    return {
        "groups": groups[-1],
        "plain": plain_s,
        "sums": sums_s,
        "looks": plan_s,
        "ratio_of_processor_seconds": round(sums_s["processor_s"] / plain_s["processor_s"], 2),
        "report": _report(pattern),
    }


def _plain(source: TableSource, query: str) -> None:
    source.table.get_backend().raw_sql(query).fetchall()


def _in_turns(turns: int, *works: Callable[[], object]) -> list[dict[str, float]]:
    """Return the median of several times of each work, in seconds of the clock and of the processors."""
    times: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(turns):
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


def _report(pattern: str) -> dict[str, float]:
    """Run the command in a process of its own, and return its time and its largest memory."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", REPORT, pattern], capture_output=True, text=True, check=True)
    return {
        "clock_s": round(time.perf_counter() - start, 3),
        "peak_mib": round(int(done.stderr.split()[-1]) / 1024),
    }


def markdown(result: dict[str, Any]) -> str:
    """Return a row for each table: its size, the seconds of the sums and of a plain query, and the memory."""
    head = [
        "| table | rows | file | sums | plain query | ratio | clock: sums | clock: plain | peak memory of the report |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows = [
        f"| {TABLES[case['table']]} | {case['rows']:,} | {case['file_bytes'] / 1e6:,.0f} MB"
        f" | {case['sums']['processor_s']:.2f} s | {case['plain']['processor_s']:.2f} s"
        f" | {case['ratio_of_processor_seconds']:.1f} | {case['sums']['clock_s']:.1f} s"
        f" | {case['plain']['clock_s']:.1f} s | {case['report']['peak_mib']} MiB |"
        for case in result["cases"]
    ]
    return "\n".join([*head, *rows])


def earlier_cases(path: Path) -> list[dict[str, Any]]:
    """Return the cases of a result, each with its command and commit; none if there is no such file."""
    if not path.exists():
        return []
    result = json.loads(path.read_text(encoding="utf-8"))
    return [{"command": result["command"], "commit": result["commit"], **case} for case in result["cases"]]


def merged(cases: Sequence[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cases with a new one, in place of that of the same table and rows, in the order of tables and rows."""
    kept = [case for case in cases if (case["table"], case["rows"]) != (new["table"], new["rows"])]
    return sorted([*kept, new], key=lambda case: (case["table"], case["rows"]))


def main() -> None:
    """Make the tables one after another, measure, and remove them unless they have a folder."""
    parser = options_parser(__doc__, RESULTS / "warehouse_sums.json")
    whole = whole_from(1)
    parser.add_argument("--rows", type=whole, nargs="*", default=[1_000_000], help="rows of ten classes")
    parser.add_argument("--confidences", type=whole, nargs="*", default=[1_000_000], help="rows of confidences")
    parser.add_argument(
        "--folder",
        type=Path,
        help="folder in which the tables stay, and from which they are used again (default: a temporary one)",
    )
    parser.add_argument("--turns", type=whole, default=TURNS, help="times that each runs (default: %(default)s)")
    parser.add_argument("--add", action="store_true", help="keep the tables of --out that are not measured now")
    arguments = parser.parse_args()
    cases = [("classes", rows) for rows in arguments.rows] + [("confidences", rows) for rows in arguments.confidences]
    stay = arguments.folder is not None
    at_start = circumstances("duckdb", "ibis-framework", "pyarrow")
    with tempfile.TemporaryDirectory(dir=DISK if DISK.is_dir() else None) as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{kind}-{rows}.parquet" for kind, rows in cases]
        missing = [ROW_BYTES[kind] * rows for (kind, rows), path in zip(cases, paths, strict=True) if not path.exists()]
        print(check_disk(folder, missing, stay=stay), flush=True)
        found = earlier_cases(arguments.out) if arguments.add else []
        for (kind, rows), path in zip(cases, paths, strict=True):
            if not path.exists():
                MAKE[kind](path, rows)
            case = measure(kind, path, rows, arguments.turns)
            case |= {"turns": arguments.turns, "load": round(os.getloadavg()[0], 1)}
            case |= {name: at_start[name] for name in ("command", "commit")}
            if not stay:
                path.unlink()
            print(json.dumps(case), flush=True)
            found = merged(found, case)
            write(arguments.out, {**at_start, "cases": found})  # a long run may be cut off


if __name__ == "__main__":
    main()
