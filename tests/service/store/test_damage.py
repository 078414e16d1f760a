"""Damaged SQLite stores: a correct answer, or an error that names the file, what was found and the cure."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import tracemalloc
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from benchmarks.faults import postgres
from service.app import create_app
from service.settings import Settings
from service.store import open_store
from service.store.rows import StoreDamagedError
from tests.service.app_client import Client
from tests.service.store import older

FLIPS = 40
MOST_BYTES = 64 * 1024**2


async def read(path: Path) -> dict[str, Any]:
    """Everything that is read of a store."""
    store = await open_store(str(path))
    try:
        everything = await older.read(store)
        for version in await store.read_versions():
            key = version.model, version.version
            blocks = store.read_labelled_logits(*key) if version.has_logits else None
            everything[f"logits of {version.model}"] = [b.labels_N.tolist() async for b in blocks] if blocks else []
        try:
            rows = await store.read_class_and_tag("pets", "v1", "dog", "north")
            everything["class and tag"] = rows.total().answers
        except ValueError as refused:  # it found out that rows are missing
            assert "are still stored" in str(refused)
        return everything
    finally:
        await store.close()


def wrong(actual: Any, expected: Any) -> bool:
    """Whether something was read that was never written; a row whose key was hit may be missing."""
    if isinstance(expected, dict):
        return any(wrong(actual[key], expected[key]) for key in actual.keys() & expected.keys())
    if isinstance(expected, list):
        known = repr(expected)
        return any(value and repr(value) not in known and not isinstance(value, (int, float, list)) for value in actual)
    return isinstance(expected, int) and actual > expected


async def write(path: Path) -> None:
    store = await open_store(str(path))
    await older.fill(store)
    await store.close()


@pytest.mark.full
def test_changed_bytes_give_a_correct_answer_or_the_clear_error(tmp_path: Path) -> None:
    """Bytes all over the file, and bounded memory whatever they are."""
    whole = tmp_path / "whole.sqlite"
    asyncio.run(write(whole))
    content, expected = whole.read_bytes(), asyncio.run(read(whole))
    draw, outcomes = random.Random(5), list[str]()
    places = [place for place, byte in enumerate(content) if byte]
    tracemalloc.start()
    for number, place in enumerate(sorted(draw.sample(places, FLIPS))):
        changed = bytearray(content)
        changed[place] ^= draw.randrange(1, 256)
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(changed)
        try:
            actual = asyncio.run(read(path))
        except StoreDamagedError as error:
            assert str(error).startswith(f"the store {path} is damaged: ") and ".recover" in str(error)
            outcomes.append("damaged")
        else:
            assert not wrong(actual, expected), place
            outcomes.append("same" if actual == expected else "missing")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_BYTES
    assert outcomes.count("damaged") > FLIPS // 4 and outcomes.count("missing") <= FLIPS // 10


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE moves SET data = zeroblob(4000000)", "a checksum or a length in its table moves is wrong"),
        ("UPDATE moves SET data = substr(data, 1, 9)", "a checksum or a length in its table moves is wrong"),
        ("UPDATE moves SET version = 3 - version WHERE version < 3", "in its table moves is wrong"),
        ("UPDATE sums SET data = substr(data, 1, 30)", "a checksum or a length in its table sums is wrong"),
        ("UPDATE sums SET data = x'00'", "its table sums holds a value that is not sums"),
        ("UPDATE versions SET classes = '[1]'", "row 1 of its table versions cannot be decoded"),
        ("UPDATE versions SET calibrator = '{'", "row 1 of its table versions cannot be decoded"),
        ("DELETE FROM models WHERE key = 1", "row 1 of its table versions cannot be decoded"),
        ("UPDATE predictions SET logits = zeroblob(3)", "are not 3 numbers"),
        ("UPDATE predictions SET logits = x'0000c07f0000c07f0000c07f'", "are not a row minus its maximum"),
        ("UPDATE labels SET confidence = 3", "its table labels cannot be decoded (impossible values)"),
        ("UPDATE states SET state = '{'", "the state log of its table states cannot be decoded"),
        ("ALTER TABLE labels RENAME COLUMN label TO other", "no such column: label"),
    ],
)
async def test_what_no_store_writes_is_damage(tmp_path: Path, statement: str, found: str) -> None:
    path = tmp_path / "store.sqlite"
    await write(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()
    with pytest.raises(StoreDamagedError) as raised:
        await read(path)
    assert f"the store {path} is damaged: " in str(raised.value) and found in str(raised.value)


async def test_damage_of_a_database_names_it(cluster: postgres.Cluster) -> None:
    address = cluster.database()
    store = await open_store(address)
    await older.fill(store)
    connection = await asyncpg.connect(address)
    await connection.execute("UPDATE sums SET data = 'x'")
    await connection.close()
    with pytest.raises(StoreDamagedError, match=r"postgresql://.* is damaged: its table sums holds"):
        await older.read(store)
    await store.close()


def test_damage_is_an_answer_and_not_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    asyncio.run(write(path))
    with Client(create_app(Settings(store=str(path), models=str(tmp_path / "none")))) as client:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE sums SET data = substr(data, 1, 30)")
            db.commit()
        for route in ("/calibration-report?model=pets", "/metrics"):
            answer = client.get(route)
            assert answer.status_code == 503 and answer.json()["error"]["code"] == "store_damaged", answer.text
            assert str(path) in answer.text and ".recover" in answer.text
