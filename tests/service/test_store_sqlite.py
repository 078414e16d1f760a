"""The SQLite store by itself: schema versions, group commit, and what a failing job or disk does to its neighbours."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from pipeline.calibrators import Identity
from pipeline.metrics import CELLS, COLUMNS
from service.engine import new_ids
from service.feedback import FeedbackError
from service.records import GivenLabel, PredictionBatch, Version
from service.store import StoreError
from service.store.schema import ADD_LABELLED, MIGRATIONS
from service.store.sqlite import SqliteStore

VERSION = Version("m", "v1", ("a", "b"), Identity(), {"after": {"ece": 0.1}})


def batch(count: int, version: str = "v1", now: int = 1) -> PredictionBatch:
    logits_NC = np.tile(np.array([0, -1], np.float32), (count, 1))
    probabilities_NC = Identity()(logits_NC)
    index_N = np.zeros(count, np.intp)
    return PredictionBatch(
        "m", version, now, new_ids(count, now), logits_NC, probabilities_NC, index_N, probabilities_NC[:, 0]
    )


async def opened(path: Path) -> SqliteStore:
    store = await SqliteStore.open(path)
    await store.put_version(VERSION)
    return store


def test_everything_comes_back_after_reopening(tmp_path: Path) -> None:
    async def run() -> None:
        store, given = await opened(tmp_path / "new" / "s.sqlite"), batch(5)
        await store.put_predictions(given)
        await store.put_labels([GivenLabel(given.ids[0], "a"), GivenLabel(given.ids[1], 1)])
        before = await store.read_sums("m", "v1")
        await store.close()
        await store.close()
        store = await opened(tmp_path / "new" / "s.sqlite")
        after = await store.read_sums("m", "v1")
        assert (after.answers, after.labelled) == (before.answers, before.labelled) == (5, before.labelled)
        assert await store.read_versions() == [VERSION]
        assert (await store.read_sums("m", "other")).answers == 0
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.put_predictions(batch(1))
        with pytest.raises(StoreError, match="cannot be read"):
            await store.read_versions()

    asyncio.run(run())


def test_a_bad_job_does_not_touch_its_neighbours(tmp_path: Path) -> None:
    async def run() -> None:
        store = await opened(tmp_path / "s.sqlite")
        jobs = [store.put_predictions(batch(2, now=k)) for k in range(20)]
        bad = [store.put_labels([GivenLabel("none", 0)]), store.put_predictions(batch(1, version="unknown"))]
        outcomes = await asyncio.gather(*jobs[:10], *bad, *jobs[10:], return_exceptions=True)
        assert isinstance(outcomes[10], FeedbackError)
        assert isinstance(outcomes[11], StoreError)
        assert [o for o in outcomes if o is not None] == outcomes[10:12]
        assert (await store.read_sums("m", "v1")).answers == 40
        await store.close()

    asyncio.run(run())


def test_a_failing_database_fails_the_call_and_recovers(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "s.sqlite"
        store, twice = await opened(path), batch(3)
        await store.put_predictions(twice)
        with pytest.raises(StoreError, match="cannot be written"):
            await store.put_predictions(twice)
        assert (await store.read_sums("m", "v1")).answers == 3
        await store.put_predictions(batch(1))
        assert (await store.read_sums("m", "v1")).answers == 4
        await store.close()

    asyncio.run(run())


def test_labels_of_an_older_version_are_scored_by_its_own_calibrator(tmp_path: Path) -> None:
    async def run() -> None:
        store, old = await opened(tmp_path / "s.sqlite"), batch(1)
        await store.put_predictions(old)
        await store.put_version(Version("m", "v2", ("x", "y", "z"), Identity(), {}))
        await store.put_labels([GivenLabel(old.ids[0], "b")])
        assert (await store.read_sums("m", "v1")).labelled.n == 1
        assert (await store.read_sums("m", "v2")).labelled.n == 0
        await store.close()

    asyncio.run(run())


def test_two_stores_on_one_file_agree(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = await asyncio.gather(opened(tmp_path / "s.sqlite"), opened(tmp_path / "s.sqlite"))
        given = batch(4)
        await first.put_predictions(given)
        await second.put_predictions(batch(4))
        await second.put_labels([GivenLabel(given.ids[0], 0)])
        assert (await first.put_labels([GivenLabel(given.ids[0], 0)])).already_known == 1
        assert (await first.read_sums("m", "v1")).answers == 8
        await first.close()
        await second.close()

    asyncio.run(run())


def test_commits_are_durable_ones(tmp_path: Path) -> None:
    async def run() -> tuple[str, int]:
        store = await opened(tmp_path / "s.sqlite")
        mode, level = (store._writer.execute(f"PRAGMA {p}").fetchone()[0] for p in ("journal_mode", "synchronous"))
        await store.close()
        return mode, level

    assert asyncio.run(run()) == ("wal", 2)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    asyncio.run(close_at_once(path))
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    with pytest.raises(StoreError, match=r"schema version 2; this release knows versions up to 1"):
        asyncio.run(close_at_once(path))


@pytest.mark.parametrize("statement", ["CREATE TABLE t (x)", "PRAGMA user_version=1", "PRAGMA application_id=7"])
def test_a_database_of_something_else_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "s.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(statement)
    with pytest.raises(StoreError, match="not a TrueOdds store"):
        asyncio.run(close_at_once(path))


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello " * 1000)
    for path in (tmp_path / "text", tmp_path, tmp_path / "text" / "below"):
        with pytest.raises(StoreError, match="cannot be opened"):
            asyncio.run(close_at_once(path))


def test_an_emptied_cell_holds_exact_zeros() -> None:
    db = sqlite3.connect(":memory:")
    for statement in MIGRATIONS[0]:
        db.execute(statement)
    for values in (
        [1, 0.1, 1, 0.3, 0.7, 0.1, 0.2],
        [2, 0.7, 1, 0.6, 0.1, 0.3, 0.9],
        [-3, -0.8, -2, -0.9, -0.8, -0.4, -1.1],
    ):
        db.execute(ADD_LABELLED, (1, CELLS - 1, *values))
    assert db.execute(f"SELECT {', '.join(COLUMNS)} FROM cells").fetchone() == (0.0,) * 7


async def close_at_once(path: Path) -> None:
    await (await SqliteStore.open(path)).close()


def test_ids_sort_by_time_and_differ() -> None:
    ids = new_ids(1000, 5)
    assert len(set(ids)) == 1000
    assert max(ids) < min(new_ids(1000, 6))
    assert {len(i) for i in ids} == {36}
