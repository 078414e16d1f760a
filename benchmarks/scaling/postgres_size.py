"""A PostgreSQL store with 10^8 predictions: what grows with their number, and what monthly partitions would change.

    python -m benchmarks.scaling.postgres_size                 some 2 hours, 50 GB of disk, a PostgreSQL of its own
    python -m benchmarks.scaling.postgres_size --rows 1000000  a trial with fewer rows
    python -m benchmarks.scaling.postgres_size --tables small  one table again, beside the others of the result

The same measurements run on 10^5 predictions, on `--rows`, and on `--rows` in twelve partitions by month. Rows are made
by the server (`generate_series`) over a year, a third of them labelled. The sums are those of the measured calls.
Disk that is free is checked first, and only one large table exists at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from benchmarks.faults import postgres
from benchmarks.record import RESULTS, circumstances, commit, options_parser, write
from benchmarks.scaling.partitions import MONTH_MS, MONTHS, START, partitioned
from service.ids import new_ids
from service.predict.stored.archive import AnswerArchive
from service.store import Store, open_store
from service.store.rows import Label, PredictionBatch, Version
from service.store.work.archiving import DAY_MS
from trueodds.calibrators import Temperature
from trueodds.metrics import softmax

RESULT = RESULTS / "postgres_size.json"
CLASSES, SMALL, CHUNK = 10, 10**5, 10**6
BATCH, CALLS, SEVERAL = 200, 50, 100
TABLES = ("small", "one table", "by month")
HOUR_S = 3600
"""The longest statement of a fill: VACUUM of everything."""
TAKEN = 20_000
"""Answers that retention and the archive take, at every size."""
BYTES = 500
"""Bytes of disk for a row, generously: tables, indexes and the log of writes."""
VERSION = Version("size", "v1", tuple(f"class {k}" for k in range(CLASSES)), Temperature(1.7), {})

Numbers = dict[str, Any]

_PLACE = "SELECT k, (k * 7919 % 1000 + 1)::int AS n, $1::bigint + k * $2::bigint / $3 AS at_ms"
_PLACE += " FROM generate_series($4::bigint, $5::bigint - 1) AS k"
_ID = "lpad(to_hex(at_ms), 12, '0') || substr(md5(k::text), 1, 24)"
_FILL = f"""
INSERT INTO predictions (id, model, version, created_ms, request, predicted, raw_confidence, confidence, tag_key,
  logits)
SELECT {_ID}, 1, 1, at_ms, 'request', ($6::bigint[])[n], ($7::float8[])[n], ($8::float8[])[n], 0, ($9::bytea[])[n]
FROM ({_PLACE}) AS rows"""
_LABEL = f"""
INSERT INTO labels (version, sequence, prediction, created_ms, arrived_ms, label, predicted, first_correct, first_label,
  confidence, nll, brier)
SELECT 1, k / 3 + 1, {_ID}, at_ms, at_ms + 60000, ($6::bigint[])[n], ($6::bigint[])[n], 1, ($6::bigint[])[n],
  ($7::float8[])[n], -ln(($7::float8[])[n]), .1
FROM ({_PLACE}) AS rows WHERE k % 3 = 0"""
"""A third of the answers has a label, and is right."""


def batch(now: int, rng: np.random.Generator, rows: int = BATCH) -> PredictionBatch:
    """Return answers of 10 classes."""
    logits_NC = rng.normal(0, 2, (rows, CLASSES)).astype(np.float32)
    logits_NC -= logits_NC.max(axis=1, keepdims=True)
    p_NC = VERSION.calibrator(logits_NC)
    index_N, row_N = p_NC.argmax(axis=1), np.arange(rows)
    none = [None] * rows
    return PredictionBatch(
        model=VERSION.model,
        version=VERSION.version,
        created_ms_N=np.full(rows, now),
        ids=new_ids(rows, now),
        request_ids=["request"] * rows,
        logits_NC=logits_NC,
        probabilities_NC=p_NC,
        index_N=index_N,
        raw_confidence_N=softmax(logits_NC.astype(np.float64))[row_N, index_N],
        confidence_N=p_NC[row_N, index_N],
        digests=list(none),
        tags=list(none),
        propensities=list(none),
    )


async def fill(connection: Any, rows: int) -> float:
    """Make the rows, and let the server collect its statistics. Return the seconds."""
    started = time.perf_counter()
    await connection.execute("SET synchronous_commit = off")
    some = batch(START, np.random.default_rng(1), 1000)
    predicted, confidence = some.index_N.tolist(), some.confidence_N.tolist()
    logits = [row.tobytes() for row in some.logits_NC]
    for first in range(0, rows, CHUNK):
        place = START, MONTHS * MONTH_MS, rows, first, min(first + CHUNK, rows)
        await connection.execute(_FILL, *place, predicted, some.raw_confidence_N.tolist(), confidence, logits)
        await connection.execute(_LABEL, *place, predicted, confidence)
        spent = time.perf_counter() - started
        print(f"{place[-1]:,} of {rows:,} rows after {spent:.0f} s", end="\r", file=sys.stderr, flush=True)
    await connection.execute("UPDATE versions SET last_sequence = $1", (rows + 2) // 3)
    await connection.execute("VACUUM ANALYZE predictions")
    await connection.execute("VACUUM ANALYZE labels")
    await connection.execute("CHECKPOINT")
    return time.perf_counter() - started


async def measured(address: str, rows: int, *, parts: bool) -> Numbers:
    """Fill a store and measure it."""
    store, rng = await open_store(address), np.random.default_rng(0)
    connection = await asyncpg.connect(
        address, command_timeout=HOUR_S, server_settings={"statement_timeout": f"{HOUR_S}s"}
    )
    try:
        if parts:
            await partitioned(address)
        await store.put_version(VERSION)
        found: Numbers = {"rows": rows, "fill_s": round(await fill(connection, rows), 1)}
        found |= await _sizes(connection, rows)
        end = START + MONTHS * MONTH_MS
        # One look at everything first, so that no measurement pays for cold caches alone.
        await store.put_predictions(batch(end, rng))
        found["insert_200_ms"] = await _middle([partial(store.put_predictions, batch(end, rng)) for _ in range(CALLS)])
        ids = await connection.fetch(
            "SELECT id FROM predictions p WHERE created_ms >= $1 AND id = ANY($2)",
            START + MONTH_MS,
            _ids(rows, rng.choice(rows, 3 * SEVERAL + 12 * BATCH, replace=False)),
        )
        known = [row[0] for row in ids]
        single, many = known[:SEVERAL], known[SEVERAL:]
        found["lookup_ms"] = await _middle([partial(store.read_answers, VERSION.model, [id_]) for id_ in single])
        found["label_ms"] = await _middle([partial(store.put_labels, [Label(id_, 3, correct=True)]) for id_ in single])
        calls = [many[k : k + BATCH] for k in range(0, len(many) - BATCH + 1, BATCH)]
        found["label_200_ms"] = await _middle(
            [partial(store.put_labels, [Label(id_, 3, correct=True) for id_ in call]) for call in calls]
        )
        found["report_ms"] = await _middle([partial(_report, store) for _ in range(30)])
        found["export_rows_per_s"] = await _export(store, rows)
        found |= await _retention(store, connection, rows)
        if rows > SMALL:
            found |= await _months(store, connection, parts=parts, rows=rows)
    finally:
        await connection.close()
        await store.close()
    return found


def _ids(rows: int, places: Any) -> list[str]:
    """Return the ids of the rows with these numbers, as `_FILL` makes them."""
    from hashlib import md5

    return [
        f"{START + int(k) * MONTHS * MONTH_MS // rows:012x}{md5(str(int(k)).encode()).hexdigest()[:24]}" for k in places
    ]


async def _sizes(connection: Any, rows: int) -> Numbers:
    parts = "SELECT relid FROM pg_partition_tree('predictions') UNION SELECT 'predictions'::regclass"
    answers = await connection.fetchval(f"SELECT sum(pg_total_relation_size(relid))::bigint FROM ({parts}) AS parts")
    labels = await connection.fetchval("SELECT pg_total_relation_size('labels')")
    return {
        "bytes_per_answer": round(answers / rows),
        "bytes_per_label": round(labels / ((rows + 2) // 3)),
        "gb": round((answers + labels) / 1e9, 2),
    }


async def _report(store: Store) -> None:
    await store.read_sums(*VERSION.key)
    async for _ in await store.read_trend(*VERSION.key, "month"):
        pass


async def _export(store: Store, rows: int) -> int:
    """Export up to 200,000 answers of the middle of the year; all columns but the logits."""
    first, share = START + 6 * MONTH_MS, min(1.0, 200_000 * MONTHS / rows)
    started, count = time.perf_counter(), 0
    async for block in store.export(*VERSION.key, first, first + int(MONTH_MS * share)):
        count += len(block)
    return round(count / (time.perf_counter() - started))


async def _retention(store: Store, connection: Any, rows: int) -> Numbers:
    """Let the archive take the oldest answers, then retention as many."""
    step = MONTHS * MONTH_MS * TAKEN // rows
    folder = Path(tempfile.mkdtemp(prefix="trueodds-archive-benchmark-"))
    try:
        started, count = time.perf_counter(), 0
        archive = AnswerArchive(store, str(folder))
        days = (1 + -(-step // DAY_MS)) * DAY_MS  # whole days, of which the first has two hours of answers
        count = await archive.run(START - START % DAY_MS + days)
        archived = count / (time.perf_counter() - started)
        files = [path.stat().st_size for path in folder.rglob("*.parquet")]
    finally:
        shutil.rmtree(folder)
    low = await connection.fetchval("SELECT created_ms FROM predictions ORDER BY id LIMIT 1")
    started = time.perf_counter()
    removed = await store.prune(low + step)
    return {
        "archived": count,
        "archive_rows_per_s": round(archived),
        "archive_bytes_per_answer": round(sum(files) / count),
        "archive_files": len(files),
        "removed": removed.predictions,
        "retention_rows_per_s": round(removed.predictions / (time.perf_counter() - started)),
    }


async def _months(store: Store, connection: Any, *, parts: bool, rows: int) -> Numbers:
    """Remove a whole month: by retention and VACUUM, or by dropping its partition."""
    size = (await _sizes(connection, rows))["gb"]
    found: Numbers = {}
    wal = await connection.fetchval("SELECT pg_current_wal_lsn()")
    month = START + 2 * MONTH_MS
    if parts:
        await store.prune(START + MONTH_MS)  # the rest of the first month, so that the second is whole
        wal = await connection.fetchval("SELECT pg_current_wal_lsn()")
        count = await connection.fetchval("SELECT count(*) FROM month_1")
        started = time.perf_counter()
        await connection.execute("DROP TABLE month_1")
        found |= {"month_rows": count, "drop_month_s": round(time.perf_counter() - started, 3)}
        started = time.perf_counter()
        left = await connection.execute("DELETE FROM labels WHERE version = 1 AND created_ms < $1", month)
        await connection.execute("VACUUM labels")
        found |= {"labels_left": int(left.split()[1]), "labels_s": round(time.perf_counter() - started, 2)}
    else:
        await store.prune(START + MONTH_MS)
        wal = await connection.fetchval("SELECT pg_current_wal_lsn()")
        started = time.perf_counter()
        removed = await store.prune(month)
        found |= {"month_rows": removed.predictions, "delete_month_s": round(time.perf_counter() - started, 2)}
        started = time.perf_counter()
        await connection.execute("VACUUM predictions")
        await connection.execute("VACUUM labels")
        found["vacuum_s"] = round(time.perf_counter() - started, 2)
    written = int(await connection.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", wal))
    return found | {
        "wal_mb": round(written / 1e6, 1),
        "gb_before": size,
        "gb_after": (await _sizes(connection, rows))["gb"],
    }


async def _middle(works: list[Callable[[], Awaitable[Any]]]) -> float:
    """Return the median of the milliseconds; the first fifth only warms up the connections."""
    spent = []
    for work in works:
        started = time.perf_counter()
        await work()
        spent.append(time.perf_counter() - started)
    return round(1e3 * float(np.median(spent[len(spent) // 5 :])), 2)


def check_disk(rows: int) -> None:
    """Stop unless the disk has room for the rows and the log of their writes."""
    needed, free = rows * BYTES + 2 * 10**9, shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        raise SystemExit(
            f"{tempfile.gettempdir()} has {free:,} bytes free; {rows:,} rows need {needed:,}: fewer --rows"
        )


NAMES = {
    "insert_200_ms": "a call of 200 answers, ms",
    "lookup_ms": "look-up of one id, ms",
    "label_ms": "one label by id, ms",
    "label_200_ms": "a call of 200 labels, ms",
    "report_ms": "sums and months of a report, ms",
    "export_rows_per_s": "answers exported a second",
    "archive_rows_per_s": "answers archived a second",
    "retention_rows_per_s": "answers that retention removes a second",
    "bytes_per_answer": "bytes of disk for an answer",
    "bytes_per_label": "bytes of disk for a label",
}


def markdown(found: Numbers) -> str:
    """Return the table of docs/explanation/scaling.md."""
    small, large, parts = found["small"], found["one table"], found["by month"]
    lines = [
        f"| | {small['rows']:,} | {large['rows']:,} | ratio | {parts['rows']:,} by month |",
        "|---|---|---|---|---|",
    ]
    for name, text in NAMES.items():
        ratio = large[name] / small[name]
        lines.append(f"| {text} | {small[name]:,} | {large[name]:,} | {ratio:.2f} | {parts[name]:,} |")
    one = f"{large['month_rows']:,} in {large['delete_month_s']} s, then VACUUM in {large['vacuum_s']} s"
    many = f"{parts['month_rows']:,} in {parts['drop_month_s']} s, their labels in {parts['labels_s']} s"
    lines.append(f"| removing a month of answers | | {one} | | {many} |")
    lines.append(f"| MB of WAL for that | | {large['wal_mb']:,} | | {parts['wal_mb']:,} |")
    sizes = [f"{n['gb_before']}, then {n['gb_after']}" for n in (large, parts)]
    lines.append(f"| GB of answers and labels before and after | | {sizes[0]} | | {sizes[1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--rows", type=int, default=10**8)
    parser.add_argument("--tables", nargs="+", choices=TABLES, help="measure only these again, and keep the others")
    chosen = parser.parse_args()
    check_disk(chosen.rows)
    found: Numbers = {**circumstances("asyncpg"), "cores": len(os.sched_getaffinity(0))}
    if chosen.tables:
        found = json.loads(chosen.out.read_text(encoding="utf-8"))
    for name in chosen.tables or TABLES:
        cluster = postgres.Cluster()  # a cluster each, so that no large table is left beside the next
        rows = SMALL if name == "small" else chosen.rows
        try:
            load = os.getloadavg()[0]
            one = asyncio.run(measured(cluster.database(), rows, parts=name == "by month"))
            found[name] = one | {"load": [load, os.getloadavg()[0]], "commit": commit()}
            print(name, found[name], flush=True)
            write(chosen.out, found)  # the next table may take an hour
        finally:
            cluster.remove()
    print(markdown(found))


if __name__ == "__main__":
    main()
