"""How fast the store takes predictions and labels, and how fast its sums are read whatever their number.

    python -m benchmarks.scaling.answers                                   a SQLite file in a temporary folder
    python -m benchmarks.scaling.answers --store postgresql://user@host/db  a database that may be filled
    python -m benchmarks.scaling.answers --write                           and keep it in benchmarks/results/store.json

Predictions have 100 classes and come from four callers at once; every commit is durable. Labels in bulk go through a
real service over HTTP. The sums are those of 10 million labelled answers over a year.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.intervals.ece import processor
from service.ids import new_ids
from service.store import Store, open_store
from service.store.rows import Label, PredictionBatch, Version
from service.store.work.statements import Insert, Work
from service.store.work.sums import deltas
from trueodds.calibrators import Temperature
from trueodds.metrics import softmax
from trueodds.sums.hours import HOUR_MS

RESULTS = Path(__file__).parents[1] / "results" / "store.json"
VERSION = Version("benchmark", "v1", tuple(f"class {k}" for k in range(100)), Temperature(1.7), {})
START = 1_700_000_000_000
YEAR = 365 * 24

Numbers = dict[str, Any]


def batch(count: int, now: int, rng: np.random.Generator) -> PredictionBatch:
    """Answers of 100 classes, half of them very sure."""
    logits_NC = rng.normal(0, 1.2, (count, 100)).astype(np.float32)
    logits_NC[:, 3] += rng.normal(9.9, 5.6, count).clip(0)
    logits_NC -= logits_NC.max(axis=1, keepdims=True)
    probabilities_NC = VERSION.calibrator(logits_NC)
    index_N, row_N = probabilities_NC.argmax(axis=1), np.arange(count)
    return PredictionBatch(
        model=VERSION.model,
        version=VERSION.version,
        created_ms_N=np.full(count, now),
        ids=new_ids(count, now),
        request_ids=["request"] * count,
        logits_NC=logits_NC,
        probabilities_NC=probabilities_NC,
        index_N=index_N,
        raw_confidence_N=softmax(logits_NC.astype(np.float64))[row_N, index_N],
        confidence_N=probabilities_NC[row_N, index_N],
        digests=[None] * count,
        tags=[None] * count,
        propensities=[None] * count,
    )


async def predictions(store: Store, rng: np.random.Generator) -> tuple[Numbers, list[str]]:
    """Rows a second and the time of a call, by the size of the batches."""
    found: Numbers = {}
    ids: list[str] = []
    for size, count in ((1, 2000), (8, 1500), (64, 800)):
        ready, waiting = [batch(size, START + k, rng) for k in range(count)], asyncio.Semaphore(4)
        times: list[float] = []

        async def one(given: PredictionBatch, waiting: asyncio.Semaphore = waiting, times: list[float] = times) -> None:
            async with waiting:
                started = time.perf_counter()
                await store.put_predictions(given)
                times.append(time.perf_counter() - started)

        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(one, ready))
        taken, cpu, rows = time.perf_counter() - started, time.process_time() - cpu, size * count
        p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
        found[f"batches of {size}"] = {
            "rows_per_second": round(rows / taken),
            "cpu_us_per_row": round(1e6 * cpu / rows, 1),
            "p50_ms": round(p50, 2),
            "p99_ms": round(p99, 2),
        }
        ids += [id_ for given in ready for id_ in given.ids]
    return found, ids


async def labels(store: Store, ids: list[str]) -> Numbers:
    """Labels a second in calls of 100, for answers in random order."""
    started = time.perf_counter()
    for start in range(0, len(ids), 100):
        await store.put_labels([Label(id_, 3) for id_ in ids[start : start + 100]])
    return {"calls of 100, one after the other": round(len(ids) / (time.perf_counter() - started))}


def bulk(address: str, ids: list[str]) -> Numbers:
    """Labels a second over HTTP, half as CSV, half as JSON lines; each answered once all are durable."""
    half = len(ids) // 2
    text = "id,label\n" + "".join(f"{id_},class 3\n" for id_ in ids[:half])
    lines = "".join(json.dumps({"id": id_, "index": 3}) + "\n" for id_ in ids[half:])
    found: Numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        url_file = Path(folder) / "url"
        command = [sys.executable, "-m", "service", "--port", "0", "--store", address, "--url-file", str(url_file)]
        command += ["--models", str(Path(folder) / "none"), "--max-body-bytes", str(10**9)]
        service = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            while not url_file.exists():
                time.sleep(0.05)
            with httpx.Client(base_url=url_file.read_text().strip(), timeout=600) as client:
                for kind, body in (("text/csv", text), ("application/x-ndjson", lines)):
                    started = time.perf_counter()
                    answer = client.post("/feedback", content=body.encode(), headers={"content-type": kind})
                    taken = time.perf_counter() - started
                    assert answer.json()["stored"] == half, answer.text
                    found[kind] = round(half / taken)
        finally:
            service.terminate()
            service.wait()
    return found


async def sums(store: Store, total: int, rng: np.random.Generator) -> Numbers:
    """Milliseconds to read the sums of so many labelled answers over a year, whole and in windows."""
    other = replace(VERSION, version=f"of {total}")
    await store.put_version(other)
    key = await store._key(other.model, other.version)
    assert key is not None
    for hours in np.array_split(np.arange(YEAR), max(total // 100_000, 1)):
        count = total // max(total // 100_000, 1)
        created_N = START + rng.choice(hours, count) * HOUR_MS
        confidence_N, predicted_N = rng.beta(4, 1, count), rng.integers(0, 100, count)
        right_N, tag_N = rng.random(count) < confidence_N, np.zeros(count, int)
        common = created_N, confidence_N, predicted_N, tag_N
        losses = -np.log(confidence_N.clip(0.01)), 2 * (1 - confidence_N) ** 2
        await store.database.write(
            partial(
                execute,
                deltas.insert_of(key, deltas.ANSWERS, deltas.answer_deltas(*common)),
                deltas.insert_of(key, deltas.LABELS, deltas.label_deltas(*common, right_N, *losses)),
            )
        )
        await store.compact()
    found: Numbers = {}
    middle = START + 100 * 24 * HOUR_MS + 7 * HOUR_MS
    for name, window in {
        "everything": (None, None),
        "since an hour in a month": (middle, None),
        "200 days, ragged": (middle, middle + 200 * 24 * HOUR_MS + 5 * HOUR_MS),
    }.items():
        found[name] = await _fastest(store.read_sums, other.model, other.version, *window)
    found["by class"] = await _fastest(store.read_sums_by, "class", other.model, other.version)
    return found


def execute(*statements: Insert) -> Work[None]:
    """Work of these statements."""
    yield from statements


async def _fastest(read: Any, *arguments: Any) -> float:
    times = []
    for _ in range(9):
        started = time.perf_counter()
        await read(*arguments)
        times.append(time.perf_counter() - started)
    return round(1e3 * float(np.median(times)), 1)


def main(address: str, write: bool) -> None:
    rng = np.random.default_rng(0)

    async def part(work: Any) -> Any:
        store = await open_store(address)
        assert isinstance(store, Store)
        await store.put_version(VERSION)
        try:
            return await work(store)
        finally:
            await store.close()

    found, ids = asyncio.run(part(lambda store: predictions(store, rng)))
    order = [ids[k] for k in rng.permutation(len(ids))]
    numbers: Numbers = {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "predictions": found}
    numbers["labels_per_second"] = asyncio.run(part(lambda store: labels(store, order[:5000]))) | bulk(
        address, order[5000:]
    )
    numbers["read_ms"] = {
        f"{total:,} labels": asyncio.run(part(lambda store, n=total: sums(store, n, rng))) for total in (10**5, 10**7)
    }
    text = json.dumps(numbers, indent=2) + "\n"
    print(text, end="")
    if write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", help="another store than a temporary SQLite file")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS}")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        main(chosen.store or f"{temporary}/store.sqlite", chosen.write)
