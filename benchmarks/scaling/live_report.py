"""Duration of a calibration report by the number of labels.

    python -m benchmarks.scaling.live_report            a temporary SQLite file, 10^4 to 10^7 labels, two minutes
    python -m benchmarks.scaling.live_report --write    and keep it in benchmarks/results/report.json

Answers of 100 classes over a year, half of them labelled, are written as the store's own sums. The last 100,000 labels
are in its log. In process: reading the sums, the numbers, and the whole report, with one more labelled answer each time
and without. Over HTTP: the same from a service of its own, with the alarm and its evidence. Before these comes the
first report of a model after the start, when the caches of classes and of compacted sums are empty.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np

from benchmarks.faults.process import without_model
from benchmarks.record import RESULTS, conclude, options_parser
from benchmarks.scaling.answers import START, VERSION, YEAR, execute
from service.ids import new_ids
from service.report.data import read, rows_of_window
from service.report.query import ReportQuery
from service.report.recent import RecentLabels
from service.report.report_route import compose
from service.runtime import Runtime
from service.settings import Settings
from service.store import Store, open_store
from service.store.rows import Version
from service.store.work import labels as label_log
from service.store.work.statements import Insert, Work
from service.store.work.sums import deltas
from service.store.work.sums.queries import MergedTotals
from trueodds.bundle import Reference
from trueodds.reports import labelling_of
from trueodds.reports.figures import figures_of
from trueodds.sums.hours import HOUR_MS

RESULT = RESULTS / "report.json"
TOTALS = (10**4, 10**5, 10**6, 10**7)
BLOCK = 200_000
LOGGED = 100_000
REPEATS = 9

Numbers = dict[str, Any]


def confidences(count: int, rng: np.random.Generator) -> Any:
    """Draw confidences, half of them above .98, like a good classifier of 100 classes."""
    return np.where(rng.random(count) < 0.5, 1 - rng.beta(0.6, 60, count), rng.beta(3, 1.5, count)).clip(0.02, 1)


async def fill(store: Store, total: int, rng: np.random.Generator) -> None:
    """Store `total` labelled answers, right 5% less often than predicted, and as many without a label."""
    of = replace(VERSION, model=f"of-{total}", reference=Reference.of(confidences(5_000, rng)))
    await store.put_version(of)
    key = await store._key(of.model, of.version)
    assert key is not None
    blocks = -(-total // BLOCK)
    for hours in np.array_split(np.arange(YEAR), blocks):
        count = total // blocks
        created_N = START + rng.choice(hours, count) * HOUR_MS
        confidence_N, predicted_N = confidences(count, rng), rng.integers(0, 100, count)
        right_N, tag_N = rng.random(count) < 0.95 * confidence_N, np.zeros(count, int)
        common = (created_N, confidence_N, predicted_N, tag_N)
        true_N = np.where(right_N, confidence_N, (1 - confidence_N) / 99).clip(1e-9)
        scores = -np.log(true_N), 2 * (1 - confidence_N) ** 2
        unlabelled = deltas.answer_deltas(created_N, confidences(count, rng), rng.integers(0, 100, count), tag_N)
        await store.database.write(
            partial(
                execute,
                deltas.insert_of(key, deltas.ANSWERS, deltas.answer_deltas(*common), unlabelled),
                deltas.insert_of(key, deltas.LABELS, deltas.label_deltas(*common, right_N, *scores)),
            )
        )
        await store.compact()
    log = [part[:LOGGED] for part in (created_N, confidence_N, predicted_N, right_N, *scores)]
    await store.database.write(lambda: _log(key, log, rng))


def _log(version: int, columns: list[Any], rng: np.random.Generator) -> Work[None]:
    rows = []
    created_N, *rest = (column.tolist() for column in columns)
    delays, ids = rng.exponential(3 * HOUR_MS, len(created_N)).astype(int).tolist(), new_ids(len(created_N), START)
    for k, (ms, confidence, predicted, right, nll, brier) in enumerate(zip(created_N, *rest, strict=True)):
        label = predicted if right else (predicted + 1) % 100
        when = (version, k + 1, ids[k], ms, ms + delays[k], None)
        rows.append((*when, label, predicted, int(right), label, confidence, nll, brier, *(None,) * 6))
    yield Insert("labels", label_log.COLUMNS, rows)
    return None


async def one_more(store: Store, total: int, k: int) -> None:
    """Store one labelled answer, with a class of its own, in the last hour."""
    version = await version_of(store, total)
    key = await store._key(version.model, version.version)
    assert key is not None
    common = (np.array([START + (YEAR - 1) * HOUR_MS]), np.array([0.9]), np.array([k % 100]), np.array([0]))
    work = deltas.label_deltas(*common, np.array([True]), np.array([0.1]), np.array([0.02]))
    await store.database.write(
        partial(
            execute,
            deltas.insert_of(key, deltas.ANSWERS, deltas.answer_deltas(*common)),
            deltas.insert_of(key, deltas.LABELS, work),
        )
    )


async def version_of(store: Store, total: int) -> Version:
    return next(version for version in await store.read_versions() if version.model == f"of-{total}")


async def timed(
    work: Callable[[int], Awaitable[object]], before: Callable[[int], Awaitable[None]] | None = None
) -> Numbers:
    """Return the milliseconds of `work(k)`, k = 0, 1, ..: median and minimum of nine, and minimum of processor time."""
    wall, cpu = [], []
    for k in range(REPEATS):
        if before:
            await before(k)
        started, used = time.perf_counter(), time.process_time()
        await work(k)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    median, least, least_cpu = (round(1e3 * float(t), 1) for t in (np.median(wall), min(wall), min(cpu)))
    return {"median": median, "least": least, "least_cpu": least_cpu}


async def in_process(store: Store, total: int) -> Numbers:
    version = await version_of(store, total)
    key, recent = (version.model, version.version), RecentLabels()
    registry, settings = SimpleNamespace(models=lambda known: {"models": []}), Settings()

    async def mature(_: Version) -> None:
        """Do nothing: these models have no maturity window."""

    runtime = cast(Runtime, SimpleNamespace(store=store, registry=registry, settings=settings, mature=mature))
    sums, labels = await store.read_sums(*key), await recent.labels(store, version)

    def at(level: int) -> ReportQuery:
        return ReportQuery(level=0.95 + level / 10**6)  # another level: these two are not remembered

    async def numbers(k: int) -> object:
        return figures_of(sums.labelled, 15, "width", at(100 + k).level, True)

    async def read_sums(k: int) -> object:
        store._totals = MergedTotals()
        return await store.read_sums(*key)

    async def report(k: int) -> object:
        query = ReportQuery()
        data = await read(runtime, recent, version, query)
        return compose(data, version, query, settings, "http://127.0.0.1:8000")

    async def about_labels(k: int) -> object:
        query = at(200 + k)
        return labelling_of(sums, query.options, rows_of_window(labels, version, query), version.reference)

    return {
        "reading the sums": await timed(read_sums),
        "reading the sums, again": await timed(lambda k: store.read_sums(*key)),
        "reading 5,000 labels (once)": await timed(lambda k: RecentLabels().labels(store, version)),
        "numbers": await timed(numbers),
        "what labels cannot tell": await timed(about_labels),
        "report, new": await timed(report, partial(one_more, store, total)),
        "report, again": await timed(report),
    }


async def first(client: httpx.AsyncClient, total: int) -> float:
    """Return the milliseconds of a model's first report.

    Afterwards wait until the alarm's evidence covers the whole log, which the service reads at its start.
    """
    began = time.perf_counter()
    answer = await client.get("/calibration-report", params={"model": f"of-{total}"})
    taken = 1e3 * (time.perf_counter() - began)
    assert answer.status_code == 200, answer.text
    while True:
        report = (await client.get("/calibration-report", params={"model": f"of-{total}"})).json()
        if report["alarm"] and report["alarm"]["nulls"][0]["labels"] >= min(total, LOGGED):
            return round(taken, 1)
        await asyncio.sleep(0.2)


async def over_http(client: httpx.AsyncClient, store: Store, total: int) -> Numbers:
    async def get(**query: Any) -> None:
        answer = await client.get("/calibration-report", params={"model": f"of-{total}", **query})
        assert answer.status_code == 200, answer.text
        assert answer.json()["labelled"] > total

    more = partial(one_more, store, total)
    return {
        "new": await timed(lambda k: get(), more),
        "again": await timed(lambda k: get()),
        "with a trend of 13 months, new": await timed(lambda k: get(trend="month"), more),
        "with a trend of 13 months, again": await timed(lambda k: get(trend="month")),
    }


def markdown(found: Numbers) -> str:
    """Return the table of docs/explanation/results.md."""
    heads = ["labels", "reading the sums", "in process, a label more", "again"]
    heads += ["over HTTP, the first", "a label more", "again"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for total, row in found["milliseconds"].items():
        inside, outside = row["in process"], row["over HTTP"]
        before = [inside[name]["median"] for name in ("reading the sums", "report, new", "report, again")]
        times = [*before, outside["first"], outside["new"]["median"], outside["again"]["median"]]
        lines.append(f"| {int(total):,} | {' | '.join(f'{ms:.1f} ms' for ms in times)} |")
    return "\n".join(lines)


async def measured(address: str, folder: Path, totals: tuple[int, ...]) -> Numbers:
    store, rng = await open_store(address), np.random.default_rng(0)
    assert isinstance(store, Store)
    try:
        found: Numbers = {}
        for total in totals:
            await fill(store, total, rng)
            found[str(total)] = {"in process": await in_process(store, total)}
        with without_model(folder, store=address) as service:
            async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
                firsts = {total: await first(client, total) for total in totals}
                for total in totals:
                    found[str(total)]["over HTTP"] = {"first": firsts[total], **await over_http(client, store, total)}
    finally:
        await store.close()
    return found


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--most", type=int, default=max(TOTALS), help="leave out larger numbers of labels")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT}")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        totals = tuple(total for total in TOTALS if total <= chosen.most)
        milliseconds = asyncio.run(measured(str(folder / "store.sqlite"), folder, totals))
    cores = len(os.sched_getaffinity(0))
    conclude(RESULT if chosen.write else None, markdown, packages=(), cores=cores, milliseconds=milliseconds)


if __name__ == "__main__":
    main()
