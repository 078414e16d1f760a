"""Services that share one PostgreSQL: answers and labels per second, and the largest number of services (growth.py)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults import postgres
from benchmarks.faults.process import Service
from benchmarks.serving import vectors as vector_serving
from service.store import Store, StoreError, open_store
from service.store.work.statements import Query, Work

CLIENTS = 8

Numbers = dict[str, Any]


def times(seconds: list[float]) -> Numbers:
    p50, p99 = np.quantile(seconds, [0.5, 0.99]) * 1e3
    return {"calls": len(seconds), "p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2)}


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def get(service: Service, path: str) -> Any:
    answer = service.get(path)
    assert answer.status == 200, answer.body
    return answer.json() if path != "/metrics" else answer.body.decode()


@contextlib.contextmanager
def services(folder: Path, published: Path, store: str, count: int) -> Iterator[list[Service]]:
    with contextlib.ExitStack() as stack:
        several = []
        for k in range(count):
            (own := folder / f"service-{k}").mkdir(exist_ok=True)
            several.append(stack.enter_context(Service(own, published, store=store)).start())
        for service in several:
            service.until(200)
        yield several


def processes(folder: Path, store: str, small: bool) -> Numbers:
    """Return answers per second, and labels given at another service, by the number of services on one database."""
    version, row_F = vector_serving.publish(folder)
    body = {"instances": [row_F.tolist()] * 8}
    seconds, found = 1.0 if small else 10.0, dict[str, Any]()

    def client(several: list[Service], k: int) -> tuple[int, list[float]]:
        mine, other, spent, labelled = several[k % len(several)], several[(k + 1) % len(several)], list[float](), 0
        end = time.perf_counter() + seconds
        with mine.client() as asking, other.client() as telling:
            while time.perf_counter() < end:
                started = time.perf_counter()
                answers = asking.post("/predict", body).json()["predictions"]
                spent.append(time.perf_counter() - started)
                rows = [{"id": one["id"], "index": 0} for one in answers]
                labelled += telling.post("/feedback", {"labels": rows}).json()["stored"]
        return labelled, spent

    before = 0
    for count in (1, 2, 4):
        with services(folder, version.parents[1], store, count) as several, ThreadPoolExecutor(CLIENTS) as pool:
            done = list(pool.map(partial(client, several), range(CLIENTS)))
            labelled = sum(one[0] for one in done)
            counts = [get(service, "/calibration-report")["labelled"] for service in several]
        assert set(counts) == {before + labelled}, f"{counts} of {before + labelled}: a label was lost"
        before += labelled
        found[str(count)] = {"answers_and_labels_per_second": round(labelled / seconds)}
        found[str(count)] |= times([second for one in done for second in one[1]])
    return found


def connections(_: Path, address: str, small: bool) -> Numbers:
    """Return the number of services, with all connections in use, at which the database refuses another one."""

    def sleep() -> Work[None]:
        yield Query("SELECT pg_sleep(600)")

    async def main() -> Numbers:
        each, stores, busy = 8, list[Store](), list[asyncio.Task[None]]()
        try:
            while True:
                stores.append(await open_store(address, each))
                most = int((await stores[-1].database.read(_most))[0][0])
                busy += [asyncio.create_task(stores[-1].database.read(sleep)) for _ in range(each)]
                done, _ = await asyncio.wait(busy, timeout=1)
                if done:
                    return {"max_connections": most, "each": each, "services": len(stores) - 1, "refusal": _why(done)}
        except StoreError as error:
            return {"max_connections": most, "each": each, "services": len(stores), "refusal": str(error)}
        finally:
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
            for store in stores:
                await store.close()

    return asyncio.run(main())


def _most() -> Work[list[Any]]:
    rows: list[Any] = yield Query("SHOW max_connections")
    return rows


def _why(done: set[asyncio.Task[None]]) -> str:
    return str(next(iter(done)).exception())


@contextlib.contextmanager
def database(address: str | None) -> Iterator[str | None]:
    """Return the address of an empty database, or None if PostgreSQL is not installed."""
    if address or postgres.missing():
        yield address
        return
    cluster = postgres.Cluster()
    try:
        yield cluster.database()
    finally:
        cluster.remove()
