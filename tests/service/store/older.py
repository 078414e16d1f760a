"""Stores of older schemas as text: of commits 955bcb0 (SQLite 6, PostgreSQL 5) and 23a8691 (9, with ordered classes).

To write another, check out the commit that is to be upgraded from and run `python -m tests.service.store.older FILE`
there, with this file beside its tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from service.store import Store, open_store
from service.store.databases import schema
from service.store.rows import Label, LabelBlock, LabelSelection, PredictionBatch, Version, Voiding
from service.store.work.voiding import Restart
from trueodds.bundle.contents import shadow_of
from trueodds.calibrators import Temperature
from trueodds.metrics import softmax
from trueodds.sums.maturity import Maturity

FILE = Path(__file__).with_name("older_store.json")
FILE_9 = Path(__file__).with_name("older_store_9.json")
HOUR = 3_600_000
START = 1_699_900_000_000 - 1_699_900_000_000 % HOUR
RESTART: Restart = {"log": lambda tree, first: ([], 0)}

PETS = Version("pets", "v1", ("cat", "dog", "bird"), Temperature(1.7), {"after": {"ece": 0.1}})
STARS = Version("stars", "v1", ("1", "2", "3", "4", "5"), Temperature(1.3), {"after": {"ece": 0.1}})
BESIDE = Version(shadow_of("stars"), "v2", STARS.classes, Temperature(0.8), {})
FRAUD = Version("fraud", "v1", ("no", "yes"), Temperature(1.0), {}, None, True, True, "yes")
LEVELS = Version("levels", "v1", ("low", "mid", "high"), Temperature(1.3), {}, ordered=True)
LATE = Version("late", "v1", LEVELS.classes, Temperature(1.3), {}, ordered=True, maturity=Maturity(10 * HOUR, "ok"))


def answers(of: Version, count: int, seed: int, *, own: str = "", tags: tuple[str | None, ...] = (None,)) -> Any:
    """Answers to `count` random rows, in four hours."""
    logits_NC = np.random.default_rng(seed).normal(0, 2, (count, len(of.classes))).astype(np.float32)
    logits_NC -= logits_NC.max(axis=1, keepdims=True)
    probabilities_NC = of.calibrator(logits_NC)
    index_N, row_N = probabilities_NC.argmax(axis=1), np.arange(count)
    created_N = START + np.arange(count) % 4 * HOUR
    made = [f"{ms:012x}{seed:012x}{k:012x}" for k, ms in enumerate(created_N.tolist())]
    return PredictionBatch(
        model=of.model,
        version=of.version,
        created_ms_N=created_N,
        ids=[f"{own}{k}" for k in range(count)] if own else made,
        request_ids=["request"] * count,
        logits_NC=logits_NC,
        probabilities_NC=probabilities_NC,
        index_N=index_N,
        raw_confidence_N=softmax(logits_NC.astype(np.float64))[row_N, index_N],
        confidence_N=probabilities_NC[row_N, index_N],
        digests=[b"0123456789abcdef" if own else None] * count,
        tags=[tags[k % len(tags)] for k in range(count)],
        propensities=[None if k % 2 else 0.5 for k in range(count)],
    )


def log_of(tree: Any, block: LabelBlock) -> Any:
    """A state that holds every label that it took."""
    return (tree or []) + block.ids


async def fill(store: Store) -> None:
    """Labels, tags, corrections, a voided import, a shadow, an observed version, labels that wait."""
    for version in (PETS, STARS, BESIDE, FRAUD):
        await store.put_version(version)
    pets, fraud = answers(PETS, 12, 1, tags=("north", "south", None)), answers(FRAUD, 6, 3, own="order-", tags=("web",))
    stars = answers(STARS, 10, 2, own="review-", tags=("app",))
    beside = answers(BESIDE, 10, 4, own="review-", tags=("app",))
    for batch in (pets, stars, beside):
        await store.put_predictions(batch)
    await store.put_observations([fraud], each=True)
    await store.put_labels([Label(id_, k % 3) for k, id_ in enumerate(pets.ids[:8])], "pets-1")
    await store.put_labels([Label(pets.ids[0], "dog", correct=True)], "pets-2")
    await store.put_labels([Label(id_, "bird") for id_ in pets.ids[8:10]], "wrong-file")
    await store.put_labels([Label(id_, k % 2) for k, id_ in enumerate(fraud.ids)], "fraud-1")
    await store.compact()
    await store.put_labels([Label(id_, 1 + k % 4, model="stars") for k, id_ in enumerate(stars.ids[:6])], "as-numbers")
    await store.put_labels(
        [Label(id_, str(1 + k % 5), model="stars") for k, id_ in enumerate(stars.ids[6:9])], "as-names"
    )
    await store.put_labels([Label(stars.ids[1], 4, model="stars", correct=True)], "as-numbers-2")
    await store.put_labels([Label("review-90", 3, model="stars"), Label("review-91", "3", model="stars")], "early")
    for version in (PETS, STARS, FRAUD):
        await store.update_state(version.model, version.version, "log", log_of)
    voiding = Voiding(LabelSelection("wrong-file"), START, "Ada", "the file of another day")
    await store.void_labels(voiding, RESTART)
    await store.put_predictions(answers(PETS, 3, 5, tags=("north",)))


async def fill_levels(store: Store) -> dict[str, dict[str, int]]:
    """Ordered classes, with and without a window, whose labels were corrected; the first label by version and id."""
    firsts: dict[str, dict[str, int]] = {}
    for version in (LEVELS, LATE):
        seconds = itertools.count(START + 4 * HOUR, 1000)
        store._clock = lambda seconds=seconds: next(seconds)  # type: ignore[misc]
        await store.put_version(version)
        batch = answers(version, 12, 6, own="level-")
        await store.put_predictions(batch)
        model, predicted = version.model, batch.index_N.tolist()

        async def label(k: int, steps: int, model: str = model, predicted: list[int] = predicted) -> int:
            """Label answer k with the class `steps` above the predicted one, and return it."""
            now = (predicted[k] + steps) % 3
            await store.put_labels([Label(f"level-{k}", now, correct=True, model=model)], f"step-{steps}")
            return now

        said = {k: await label(k, k % 3) for k in range(9)}
        then = {k: await label(k, 1) for k in (1, 2, 3)}  # the same, wrong in another way, right before
        if version.maturity is not None:
            store._clock = lambda seconds=seconds: next(seconds) + 40 * HOUR  # type: ignore[misc]
            await store.mature()
            said |= then | {k: predicted[k] for k in (9, 10, 11)}  # the last label in the window, or the assumed one
        else:
            said[2] = then[2]  # the one before is voided below
            del said[5], said[8]
        for k, steps in ((2, 0), (4, 0), (10, 1)):
            now = await label(k, steps)
            said.setdefault(k, now)
        firsts[f"{model}/{version.version}"] = {f"level-{k}": now for k, now in said.items()}
    voiding = Voiding(LabelSelection("step-2", model="levels"), START, "Ada", "the file of another day")
    await store.void_labels(voiding, RESTART)
    return firsts


async def read(store: Store) -> dict[str, Any]:
    """What reports are made of: counts exactly, sums of scores as numbers."""
    read: dict[str, Any] = {}
    for version in await store.read_versions():
        key = version.model, version.version
        whole, log = await store.read_sums(*key), await store.read_labels(*key)
        read["/".join(key)] = {
            "answers": int(whole.answers),
            "labelled": whole.labelled.cells.sum(axis=1).tolist(),
            "positive": (await store.read_sums(*key, positive=True)).labelled.cells.sum(axis=1).tolist(),
            "tags": {
                name: [int(sums.answers), int(sums.labelled.n)]
                for name, sums in sorted((await store.read_sums_by("tag", *key)).items())
            },
            "classes": {
                name: [int(sums.answers), int(sums.labelled.n)]
                for name, sums in sorted((await store.read_sums_by("class", *key)).items())
            },
            "hours": [
                [ms, int(sums.answers), int(sums.labelled.n)] async for ms, sums in await store.read_trend(*key, "hour")
            ],
            "log": dict(sorted(zip(log.ids, log.label_L.tolist(), strict=True))),
            "corrected": await store.count_corrected_labels(*key),
            "voided": [voiding.counts.labels for voiding in await store.read_voidings(*key)],
            "state": await store.read_state(*key, "log"),
        }
    read["held"] = {model: held.count for model, held in (await store.read_held()).items()}
    return read


async def _write(path: Path) -> dict[str, Any]:
    store = await open_store(str(path))
    await fill(store)
    firsts = await fill_levels(store)
    expected = {**await read(store), "firsts": firsts}
    await store.close()
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")]
        rows = {}
        for table in tables:
            if not table.startswith("sqlite_"):
                cursor = db.execute(f"SELECT * FROM {table}")
                columns = [column[0] for column in cursor.description]
                rows[table] = {"columns": columns, "rows": [list(map(_text, row)) for row in cursor]}
    versions = dict.fromkeys(("sqlite", "postgres"), schema.VERSION)
    tables_of = {"sqlite": list(schema.SQLITE), "postgres": list(schema.POSTGRES)}
    return {"versions": versions, "tables": tables_of, "rows": rows, "read": expected}


def load_sqlite(path: Path, file: Path = FILE) -> dict[str, Any]:
    """Write the older store to a SQLite file; what was read of it then."""
    older = json.loads(file.read_text(encoding="utf-8"))
    with contextlib.closing(sqlite3.connect(path)) as db:
        for statement in older["tables"]["sqlite"]:
            db.execute(statement)
        db.execute("DELETE FROM compactions")
        for table, columns, rows in _rows(older):
            places = ", ".join("?" * len(columns))
            db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)
        db.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={older['versions']['sqlite']}")
        db.commit()
    return dict(older["read"])


async def load_postgres(url: str, file: Path = FILE) -> dict[str, Any]:
    """Write the older store to a PostgreSQL database; what was read of it then."""
    older = json.loads(file.read_text(encoding="utf-8"))
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE trueodds_schema (version BIGINT NOT NULL)")
    await connection.execute("INSERT INTO trueodds_schema VALUES ($1)", older["versions"]["postgres"])
    for statement in older["tables"]["postgres"]:
        await connection.execute(statement)
    await connection.execute("DELETE FROM compactions")
    for table, columns, rows in _rows(older):
        await connection.copy_records_to_table(table, columns=columns, records=rows)
        if table in ("models", "versions", "replaced", "voidings", "moves", "early"):
            next_key = f"SELECT setval(pg_get_serial_sequence('{table}', 'key'), max(key)) FROM {table}"
            await connection.execute(next_key)
    await connection.close()
    return dict(older["read"])


def _rows(older: dict[str, Any]) -> Iterator[tuple[str, list[str], list[tuple[Any, ...]]]]:
    for table, content in older["rows"].items():
        rows = [tuple(map(_value, row)) for row in content["rows"]]
        if rows:
            yield table, content["columns"], rows


def _value(text: Any) -> Any:
    return bytes.fromhex(text["hex"]) if isinstance(text, dict) else text


def _text(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        written = asyncio.run(_write(Path(folder) / "store.sqlite"))
    Path(sys.argv[1]).write_text(_lines(written), encoding="utf-8")


def _lines(written: dict[str, Any]) -> str:
    """JSON with a line for each row, so that a change of it can be read."""
    parts = [f"{json.dumps(name)}: {json.dumps(part)}" for name, part in written.items() if name != "rows"]
    tables = []
    for table, content in written["rows"].items():
        rows = ",\n".join(map(json.dumps, content["rows"]))
        tables.append(f'"{table}": {{"columns": {json.dumps(content["columns"])}, "rows": [\n{rows}\n]}}')
    return "{" + ",\n".join([*parts, '"rows": {' + ",\n".join(tables) + "}"]) + "}\n"


if __name__ == "__main__":
    main()
