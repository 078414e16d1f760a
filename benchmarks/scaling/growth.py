"""Scaling: labels, models, tags, service processes on PostgreSQL, and retention while the service answers.

    python -m benchmarks.scaling.growth                    some minutes; kept in benchmarks/results/scaling.json
    python -m benchmarks.scaling.growth --only tags        one part, printed only (several: --only tags --only models)
    python -m benchmarks.scaling.growth --small            a hundredth of everything: a trial run, printed only

Services share a PostgreSQL that is started for this and removed, or an empty one of yours with --postgres.

The sums of 10^8 labels are those of 10^6 with each count and sum multiplied by a hundred, because a report reads sums
and not rows. Models are gradient boostings of 30 features. Clients are threads on the same cores as the services.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.faults import postgres
from benchmarks.faults.process import Service
from benchmarks.record import RESULTS, circumstances, options_parser, write
from benchmarks.scaling import live_report as report
from benchmarks.scaling.answers import VERSION, batch
from benchmarks.scaling.services import Numbers, connections, database, get, processes, timed, times
from benchmarks.serving import load
from benchmarks.serving import vectors as vector_serving
from service.store import Store, open_store
from service.store.work.statements import ExecuteMany, Query, Work
from service.store.work.sums.period_sums import PeriodSums
from trueodds.bundle import Bundle, open_models
from trueodds.sums.hours import HOUR_MS
from trueodds.texts import plural

RESULT = RESULTS / "scaling.json"


def multiplied(factor: int) -> Work[None]:
    """Multiply all sums of the store."""
    rows = yield Query("SELECT version, kind, unit, period, data FROM sums", ())
    larger = []
    for *place, data in rows:
        sums = PeriodSums.from_bytes(bytes(data))
        more = replace(sums, answers_A=sums.answers_A * factor, columns_7L=sums.columns_7L * factor)
        larger.append((*place, more.to_bytes()))
    yield ExecuteMany(
        "INSERT INTO sums (version, kind, unit, period, data) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (version, kind, unit, period) DO UPDATE SET data = excluded.data",
        larger,
    )
    return None


def labels(folder: Path, small: bool) -> Numbers:
    """Return the milliseconds of a report over HTTP on that many labels over a year."""
    rows, factors = (10**4, (1, 100)) if small else (10**6, (1, 10, 100))
    found: Numbers = {}

    async def filled(address: str, factor: int) -> None:
        store = await open_store(address)
        assert isinstance(store, Store)
        await report.fill(store, rows, np.random.default_rng(0))
        await store.database.write(partial(multiplied, factor))
        await store.close()

    for factor in factors:
        address = str(folder / f"labels-{factor}.sqlite")
        asyncio.run(filled(address, factor))
        with Service(folder, folder / "none", store=address) as service:
            service.start()
            model = f"/calibration-report?model=of-{rows}"
            seen = get(service, model)
            assert seen["labelled"] == rows * factor, seen["labelled"]
            while get(service, model)["alarm"]["nulls"][0]["labels"] < min(rows, report.LOGGED):
                time.sleep(0.5)  # the evidence of the log is taken at the start
            first = timed(partial(get, service, model + "&bins=20"))
            new = [timed(partial(get, service, f"{model}&level={0.95 + k / 10**6:.6f}")) for k in range(1, 10)]
            again = [timed(partial(get, service, model)) for _ in range(9)]
        size = Path(address).stat().st_size / 1e6
        found[f"{rows * factor:,}"] = {
            "first_ms": round(1e3 * first, 1),
            "new": times(new),
            "again": times(again),
            "store_mb": round(size, 1),
        }
    return found


def models(folder: Path, small: bool) -> Numbers:
    """Load that many models. Returns the time until all are ready, the memory, and the time of an answer of each."""
    found: Numbers = {}
    version, row_F = vector_serving.publish(folder)
    source = Bundle.load(version)
    body = json.dumps({"instances": [row_F.tolist()]}).encode()
    for count in (1, 3) if small else (1, 10, 50):
        published = open_models(folder / f"models-{count}")
        for k in range(count):
            bundle = Bundle.write(
                folder / "renamed",
                source.model_path,
                source.calibrator,
                source.card.model_copy(update={"name": f"m{k}"}),
                golden_input=source.golden_input()[0],
                golden_logits=source.card.golden.logits,
            )
            published.publish(bundle.directory)
        with Service(folder, published.path, store=str(folder / f"models-{count}.sqlite")) as service:
            started = time.perf_counter()
            service.start()
            while get(service, "/metrics").count('role="default"') < count:
                time.sleep(0.1)
            while any(line.endswith(" 0.0") for line in _ready(get(service, "/metrics"))):
                time.sleep(0.1)
            ready = time.perf_counter() - started
            with service.client() as client:
                headers = {"content-type": "application/json"}
                each = [
                    timed(partial(client.send, "POST", f"/predict?model=m{k % count}", body, headers))
                    for k in range(20 if small else 1000)
                ]
            scrape = timed(partial(get, service, "/metrics"))
            held = load.memory(service.pid).pss_mb
        found[str(count)] = {"ready_s": round(ready, 1), "pss_mb": round(held), "answer": times(each)}
        found[str(count)]["metrics_ms"] = round(1e3 * scrape, 1)
    return found


def _ready(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("trueodds_version_ready{")]


def tags(folder: Path, small: bool) -> Numbers:
    """Time a report by tag on answers with that many tags. Tags beyond the first hundred share one row."""
    found: Numbers = {}
    draw = np.random.default_rng(0)
    for count in (10, 100, 1000):
        each = 2 if small else 100
        confidence_N = draw.beta(4, 1, count * each)
        lines = [
            json.dumps({"id": f"o{k}", "tag": f"tag {k % count}", "probabilities": {"yes": p, "no": 1 - p}})
            for k, p in enumerate(confidence_N.tolist())
        ]
        marks = [
            json.dumps({"id": f"o{k}", "model": "m", "label": "yes" if draw.random() < p else "no"})
            for k, p in enumerate(confidence_N)
        ]
        with Service(folder, folder / "none", store=str(folder / f"tags-{count}.sqlite")) as service:
            service.start()
            kind = {"content-type": "application/x-ndjson"}
            with service.client(600) as client:
                for path, rows in (("/observe?model=m&version=1", lines), ("/feedback", marks)):
                    answer = client.send("POST", path, "\n".join(rows).encode(), kind)
                    assert answer.status == 200, answer.body
            seen = get(service, "/calibration-report?model=m&by=tag")
            assert seen["labelled"] == count * each, seen["labelled"]
            again = [timed(partial(get, service, "/calibration-report?model=m&by=tag")) for _ in range(9)]
        found[str(count)] = {"rows": len(seen["tags"]), "report": times(again)}
    return found


def retention(folder: Path, small: bool) -> Numbers:
    """Return an answer's time while old predictions are removed, and afterwards."""
    rows, address = 2_000 if small else 200_000, folder / "retention.sqlite"
    (version, row_F), long_ago = vector_serving.publish(folder), time.time_ns() // 1_000_000 - 10 * 24 * HOUR_MS

    async def fill() -> None:
        store, rng = await open_store(str(address)), np.random.default_rng(0)
        await store.put_version(VERSION)
        for k in range(rows // 200):
            await store.put_predictions(batch(200, long_ago + k, rng))
        await store.close()

    def old() -> bool:
        """Return whether the first prediction by id, and so by time, is an old one."""
        with contextlib.closing(sqlite3.connect(f"file:{address}?mode=ro", uri=True)) as connection:
            first = connection.execute("SELECT created_ms FROM predictions ORDER BY id LIMIT 1").fetchone()
        return bool(first) and first[0] < long_ago + rows

    def asked(going_on: Callable[[], bool]) -> list[float]:
        spent = []
        with service.client() as client:
            while going_on():
                spent.append(timed(partial(client.post, "/predict", {"instances": [row_F.tolist()]})))
                time.sleep(0.002)
        return spent

    def wait() -> None:
        while old():
            time.sleep(0.2)

    asyncio.run(fill())
    assert old()
    with Service(folder, version.parents[1], "--retention-days", "1", store=str(address)) as service:
        started = time.perf_counter()
        service.start().until(200)
        with ThreadPoolExecutor(1) as pool:
            gone = pool.submit(wait)
            during = asked(lambda: not gone.done())
        taken = time.perf_counter() - started
        end = time.perf_counter() + (1 if small else 10)
        after = asked(lambda: time.perf_counter() < end)
    return {"rows": rows, "seconds": round(taken, 1), "during": times(during or [0.0]), "after": times(after)}


PARTS: dict[str, Callable[[Path, bool], Numbers]] = {
    "labels": labels,
    "models": models,
    "tags": tags,
    "retention": retention,
}
SHARED: dict[str, Callable[[Path, str, bool], Numbers]] = {"processes": processes, "connections": connections}
"""Parts that need PostgreSQL."""


def markdown(found: Numbers) -> str:
    """Return the table of docs/explanation/scaling.md."""
    rows = []
    for labels, row in found["labels"].items():
        new, again = row["new"]["p50_ms"], row["again"]["p50_ms"]
        took = (
            f"the first report in {row['first_ms']:.0f} ms, at another level in {new:.0f} ms, again in {again:.0f} ms"
        )
        rows.append((f"{labels} labels of 100 classes, as sums", f"{took}; {row['store_mb']:.0f} MB of store"))
    for models, row in found["models"].items():
        took = f"{row['pss_mb']:,} MB, ready after {row['ready_s']:.1f} s, an answer in {_ms(row['answer'])}"
        rows.append((f"{plural(int(models), 'model')} loaded", f"{took}; metrics in {row['metrics_ms']:.0f} ms"))
    for tags, row in found["tags"].items():
        rows.append((f"{int(tags):,} tags", f"a report by tag in {_ms(row['report'])}, {row['rows']} rows"))
    for count, row in found["processes"].items():
        rate = f"{row['answers_and_labels_per_second']:,} answers, and as many labels, a second"
        rows.append((f"{plural(int(count), 'service')} on PostgreSQL", f"{rate}; a call of 8 in {_ms(row)}"))
    kept = found["retention"]
    during, after = _ms(kept["during"]), _ms(kept["after"])
    rows.append(
        (
            f"retention of {kept['rows']:,} answers while serving",
            f"{kept['seconds']:.1f} s; an answer in {during}, then in {after}",
        )
    )
    full = found["connections"]
    of = f"{full['services']} with {full['each']} connections each, of {full['max_connections']}"
    rows.append(("busy services until PostgreSQL refuses one", of))
    lines = ["| what | measured (p50 / p99) |", "|---|---|"]
    return "\n".join([*lines, *(f"| {what} | {took} |" for what, took in rows)])


def _ms(times: Numbers) -> str:
    return f"{times['p50_ms']:.1f} / {times['p99_ms']:.1f} ms"


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--postgres", metavar="URL", help="an empty database, or schema")
    parser.add_argument("--small", action="store_true", help="a hundredth of everything")
    parser.add_argument("--only", action="append", choices=[*PARTS, *SHARED], help="not the other parts")
    chosen = parser.parse_args()
    found: Numbers = {**circumstances(), "cores": len(os.sched_getaffinity(0))}
    for name, part in PARTS.items():
        if name in (chosen.only or PARTS):
            with tempfile.TemporaryDirectory() as temporary:
                found[name] = part(Path(temporary), chosen.small)
                print(name, json.dumps(found[name]), flush=True)
    wanted = [name for name in SHARED if name in (chosen.only or SHARED)]
    with database(chosen.postgres) if wanted else contextlib.nullcontext() as address:
        if wanted and not address:
            parser.error(f"{', '.join(wanted)}: {postgres.missing()}, or name a database with --postgres")
        for name in wanted if address else ():
            assert address
            with tempfile.TemporaryDirectory() as temporary:
                found[name] = SHARED[name](Path(temporary), address, chosen.small)
                print(name, json.dumps(found[name]), flush=True)
    if not (chosen.only or chosen.small):
        write(RESULT, found)
        print(markdown(found))


if __name__ == "__main__":
    main()
