"""Monthly partitions of the predictions in PostgreSQL: inserts, look-ups, and two ways of retention.

    python -m benchmarks.scaling.partitions            a PostgreSQL of its own, a minute or two
    python -m benchmarks.scaling.partitions --write    and keep it in benchmarks/results/partitions.json

The same store has the same rows, whose ids begin with their time: in one table, and in twelve ranges of ids, one per
month, with a thirteenth for callers' own ids. Retention is the store's own (rows and labels, in small transactions).
For comparison, the oldest partition is dropped, after which that month's labels still have to be removed.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from functools import partial
from typing import Any

import asyncpg
import numpy as np

from benchmarks.faults import postgres
from benchmarks.record import RESULTS, circumstances, options_parser, write
from benchmarks.scaling.answers import VERSION, batch
from service.store import Store, open_store
from service.store.rows import Label
from service.store.work import reading
from trueodds.sums.hours import HOUR_MS

RESULT = RESULTS / "partitions.json"
MONTHS, MONTH_MS, SIZE = 12, 30 * 24 * HOUR_MS, 200
START = 1_700_000_000_000

Numbers = dict[str, Any]


async def partitioned(address: str) -> None:
    """Replace the empty table of predictions by one in ranges of ids, with the same key."""
    connection = await asyncpg.connect(address)
    await connection.execute("ALTER TABLE predictions RENAME TO plain")
    await connection.execute(
        "CREATE TABLE predictions (LIKE plain INCLUDING DEFAULTS INCLUDING STORAGE) PARTITION BY RANGE (id)"
    )
    await connection.execute("DROP TABLE plain")
    await connection.execute("ALTER TABLE predictions ADD PRIMARY KEY (id, model)")
    await connection.execute("CREATE INDEX own_ids ON predictions (created_ms) WHERE digest IS NOT NULL")
    for k in range(MONTHS):
        low, high = (f"{START + n * MONTH_MS:012x}" for n in (k, k + 1))
        await connection.execute(
            f"CREATE TABLE month_{k} PARTITION OF predictions FOR VALUES FROM ('{low}') TO ('{high}')"
        )
    await connection.execute("CREATE TABLE others PARTITION OF predictions DEFAULT")
    await connection.close()


async def measured(address: str, rows: int, *, parts: bool) -> Numbers:
    store, rng = await open_store(address), np.random.default_rng(0)
    if parts:
        await partitioned(address)
    await store.put_version(VERSION)
    batches = [batch(SIZE, START + k * MONTHS * MONTH_MS * SIZE // rows, rng) for k in range(rows // SIZE)]
    ids = [id_ for one in batches for id_ in one.ids]
    try:
        inserted = await _seconds([partial(store.put_predictions, one) for one in batches])
        some = rng.choice(ids, 2000).tolist()
        found = {
            "insert_rows_per_second": round(rows / inserted),
            "lookup_p50_ms": await _middle(store, [[id_] for id_ in some[:500]]),
            "lookup_of_200_p50_ms": await _middle(store, [rng.choice(ids, SIZE).tolist() for _ in range(50)]),
        }
        labelled = ids[: 2 * rows // MONTHS : 2]
        for k in range(0, len(labelled), 1000):
            await store.put_labels([Label(id_, 3) for id_ in labelled[k : k + 1000]])
        found |= await _retention(store, address, parts=parts)
    finally:
        await store.close()
    return found


async def _retention(store: Store, address: str, *, parts: bool) -> Numbers:
    connection = await asyncpg.connect(address)
    relations = "SELECT relid FROM pg_partition_tree('predictions') UNION SELECT 'predictions'::regclass"
    size = f"SELECT sum(pg_total_relation_size(relid))::bigint FROM ({relations}) AS parts"
    before, wal = await connection.fetchval(size), await connection.fetchval("SELECT pg_current_wal_lsn()")
    found: Numbers = {"mb_before": round(before / 1e6, 1)}
    if parts:
        count = await connection.fetchval("SELECT count(*) FROM month_0")
        seconds = await _seconds([partial(connection.execute, "DROP TABLE month_0")])
        found |= {"month_rows": count, "drop_partition_seconds": round(seconds, 3)}
    started = time.perf_counter()
    removed = await store.prune(START + MONTH_MS * (2 if parts else 1))
    seconds = time.perf_counter() - started
    found |= {
        "removed": removed.predictions,
        "removed_labels": removed.labels,
        "rows_per_second": round(removed.predictions / seconds),
        "wal_bytes_per_row": round(
            int(await connection.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", wal))
            / removed.predictions
        ),
    }
    await connection.execute("VACUUM predictions")
    found["mb_after"] = round(await connection.fetchval(size) / 1e6, 1)
    await connection.close()
    return found


async def _seconds(works: list[Any]) -> float:
    started = time.perf_counter()
    for work in works:
        await work()
    return time.perf_counter() - started


async def _middle(store: Store, groups: list[list[str]]) -> float:
    spent = [
        await _seconds([partial(store.database.read, partial(reading.answers, VERSION.model, ids))]) for ids in groups
    ]
    return round(1e3 * float(np.median(spent)), 2)


def markdown(found: Numbers) -> str:
    """Return the table of docs/explanation/scaling.md: one table compared with twelve partitions."""
    one, many = found["one table"], found["by month"]
    names = {
        "insert_rows_per_second": "answers stored a second",
        "lookup_p50_ms": "look-up of one id, ms",
        "lookup_of_200_p50_ms": "look-up of 200 ids, ms",
        "rows_per_second": "answers that retention removes a second",
        "wal_bytes_per_row": "bytes of WAL for each that it removes",
        "mb_before": "MB of predictions before retention",
        "mb_after": "MB after it and VACUUM, free for new rows",
    }
    lines = ["| | one table | by month |", "|---|---|---|"]
    lines += [f"| {text} | {one[name]:,} | {many[name]:,} |" for name, text in names.items()]
    dropped = f"{many['month_rows']:,} in {1e3 * many['drop_partition_seconds']:.0f} ms, their labels left"
    return "\n".join([*lines, f"| dropping a month's answers | | {dropped} |"])


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT}")
    chosen = parser.parse_args()
    cluster = postgres.Cluster()
    try:
        found: Numbers = {**circumstances(), "cores": len(os.sched_getaffinity(0)), "rows": chosen.rows}
        for name, parts in (("one table", False), ("by month", True)):
            found[name] = asyncio.run(measured(cluster.database(), chosen.rows, parts=parts))
            print(name, json.dumps(found[name]), flush=True)
    finally:
        cluster.remove()
    print(markdown(found))
    if chosen.write:
        write(RESULT, found)


if __name__ == "__main__":
    main()
