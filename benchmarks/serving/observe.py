"""Answers of another server that /observe stores per second, compared with SQLite alone on the same rows.

    python -m benchmarks.serving.observe            a minute
    python -m benchmarks.serving.observe --write    and keep the result in benchmarks/results/observe.json

Rows have probabilities of 100 classes and the caller's own ids. They are sent over HTTP to a service of one worker with
a new SQLite store, in consecutive requests of 5,000 rows, and are durable when it answers. SQLite alone: Python's
sqlite3 in WAL mode with synchronous=FULL writes ids, times and the same prepared float32 blobs into one table, with one
commit per 1,000 rows. Both take turns, because the speed of a shared machine drifts.
"""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import orjson
import psutil
import pyarrow
from pyarrow import parquet

from benchmarks.faults.process import without_model
from benchmarks.record import RESULTS, conclude, options_parser
from benchmarks.shapes import pool_logits
from trueodds.metrics import softmax

RESULT = RESULTS / "observe.json"
CLASSES, REQUEST, COMMIT = 100, 5000, 1000
NDJSON, PARQUET = "application/x-ndjson", "application/vnd.apache.parquet"
KINDS = {"NDJSON": NDJSON, "Parquet": PARQUET}
ALONE = "SQLite alone"

Rows = npt.NDArray[np.float32]


def body(kind: str, rows_NC: Rows, first: int) -> bytes:
    """Return a request with rows whose ids count from `first`."""
    ids = [f"row-{first + n}" for n in range(len(rows_NC))]
    if kind == "NDJSON":
        lists = rows_NC.astype(np.float64).tolist()
        lines = zip(ids, lists, strict=True)
        return b"".join(orjson.dumps({"id": id_, "probabilities": p}) + b"\n" for id_, p in lines)
    file, lists = io.BytesIO(), pyarrow.FixedSizeListArray.from_arrays(rows_NC.reshape(-1), CLASSES)
    parquet.write_table(pyarrow.table({"id": ids, "probabilities": lists}), file)
    return file.getvalue()


def observed(kind: str, rows_NC: Rows) -> dict[str, float]:
    """Return rows per second through the service, and its processor time per row."""
    bodies = [body(kind, rows_NC[at : at + REQUEST], at) for at in range(0, len(rows_NC), REQUEST)]
    with (
        tempfile.TemporaryDirectory() as folder,
        without_model(Path(folder)) as service,
        httpx.Client(base_url=service.url, timeout=600) as client,
    ):
        process = psutil.Process(service.pid)
        query, headers = {"model": "benchmark", "version": "1"}, {"content-type": KINDS[kind]}
        client.post("/observe", params=query, content=body(kind, rows_NC[:1], -1), headers=headers).raise_for_status()
        before, started = _busy(process), time.perf_counter()
        for content in bodies:
            answer = client.post("/observe", params=query, content=content, headers=headers)
            assert answer.json()["stored"] == REQUEST, answer.text
        seconds, busy = time.perf_counter() - started, _busy(process) - before
    return {"rows_per_second": len(rows_NC) / seconds, "cpu_us_per_row": 1e6 * busy / len(rows_NC)}


def _busy(process: psutil.Process) -> float:
    """Return the processor time in seconds of a service and of the process that reads Parquet for it."""
    times = [one.cpu_times() for one in (process, *process.children())]
    return sum(time.user + time.system for time in times)


def alone(rows_NC: Rows) -> dict[str, float]:
    """Return prepared rows per second into one table."""
    rows = [(f"row-{n}", 0, row.tobytes()) for n, row in enumerate(rows_NC)]
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(sqlite3.connect(f"{folder}/s.sqlite")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE rows (id TEXT PRIMARY KEY, time INTEGER, logits BLOB) STRICT, WITHOUT ROWID")
        started, busy = time.perf_counter(), time.process_time()
        for at in range(0, len(rows), COMMIT):
            with db:
                db.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows[at : at + COMMIT])
        seconds, busy = time.perf_counter() - started, time.process_time() - busy
    return {"rows_per_second": len(rows) / seconds, "cpu_us_per_row": 1e6 * busy / len(rows)}


def measure(count: int, turns: int) -> dict[str, Any]:
    """Return the rates of all, measured in turns."""
    rows_NC = softmax(pool_logits("A", count, 1)).astype(np.float32)
    series: dict[str, list[dict[str, float]]] = {name: [] for name in (*KINDS, ALONE)}
    for turn in range(turns):
        for name, numbers in series.items():
            numbers.append(alone(rows_NC) if name == ALONE else observed(name, rows_NC))
            print(f"turn {turn + 1}, {name}: {numbers[-1]['rows_per_second']:,.0f} rows a second", file=sys.stderr)
    median = {
        name: {key: round(float(np.median([one[key] for one in numbers])), 1) for key in numbers[0]}
        | {"lowest": round(min(one["rows_per_second"] for one in numbers)), "kind": name}
        for name, numbers in series.items()
    }
    for kind in KINDS:
        shares = [a["rows_per_second"] / b["rows_per_second"] for a, b in zip(series[kind], series[ALONE], strict=True)]
        median[kind]["share_of_sqlite"] = round(float(np.median(shares)), 3)
    return {"rows": count, "classes": CLASSES, "turns": turns, "series": list(median.values())}


def markdown(result: dict[str, Any]) -> str:
    """Return the table for docs/explanation/results.md."""
    lines = [
        "| way | rows a second, median (lowest) | processor time a row | share of SQLite alone |",
        "|---|---|---|---|",
    ]
    for row in result["series"]:
        share = f"{row['share_of_sqlite']:.2f}" if "share_of_sqlite" in row else ""
        rate = f"{row['rows_per_second']:,.0f} ({row['lowest']:,})"
        lines.append(f"| {row['kind']} | {rate} | {row['cpu_us_per_row']:.0f} µs | {share} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = options_parser(__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT}")
    chosen = parser.parse_args()
    measured = {"cores": len(os.sched_getaffinity(0)), **measure(chosen.rows, chosen.turns)}
    conclude(RESULT if chosen.write else None, markdown, packages=(), **measured)
