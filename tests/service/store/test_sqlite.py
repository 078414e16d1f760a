"""SQLite by itself: schema versions, group commit, and what a failing job, disk or file does to its neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.ids import new_ids
from service.store import StoreError, moves, open_store, reading
from service.store.label_rules import FeedbackError
from service.store.records import GivenLabel
from service.store.schema import SQLITE_1, SQLITE_2
from service.store.sqlite import SqliteStore
from service.store.sqlite_schema import MIGRATIONS
from service.store.steps import Rows
from tests.service.store.rows import CLASSES, HOUR, START, Twin, assert_same, batch, version
from trueodds.bundle.bundle import Reference
from trueodds.calibrators import Temperature


async def filled(path: Path) -> SqliteStore:
    store = await SqliteStore.open(path)
    await store.put_version(version())
    return store


async def close_at_once(path: Path) -> None:
    await (await SqliteStore.open(path)).close()


def test_a_bad_job_does_not_touch_its_neighbours(tmp_path: Path) -> None:
    async def run() -> None:
        store = await filled(tmp_path / "new" / "s.sqlite")
        jobs = [store.put_predictions(batch(2, now=START + k)) for k in range(20)]
        bad = [store.put_labels([GivenLabel("none", 0)]), store.put_predictions(batch(1, version("unknown")))]
        outcomes = await asyncio.gather(*jobs[:10], *bad, *jobs[10:], return_exceptions=True)
        assert isinstance(outcomes[10], FeedbackError)
        assert isinstance(outcomes[11], StoreError)
        assert [o for o in outcomes if o != [None, None]] == outcomes[10:12]
        assert (await store.read_sums("m", "v1")).answers == 40
        await store.close()

    asyncio.run(run())


def test_a_failing_database_fails_the_call_and_recovers(tmp_path: Path) -> None:
    async def run() -> None:
        store, twice = await filled(tmp_path / "s.sqlite"), batch(3)
        await store.put_predictions(twice)
        with pytest.raises(StoreError, match="cannot be written"):
            await store.put_predictions(twice)
        assert (await store.read_sums("m", "v1")).answers == 3
        await store.put_predictions(batch(1))
        assert (await store.read_sums("m", "v1")).answers == 4
        await store.close()

    asyncio.run(run())


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        store = await filled(tmp_path / "s.sqlite")
        pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
        store._writer.execute(f"PRAGMA max_page_count={pages + 4}")
        stored = 0
        with pytest.raises(StoreError, match="full"):
            for k in range(100):
                await store.put_predictions(batch(50, now=START + k))
                stored += 50
        assert (await store.read_sums("m", "v1")).answers == stored
        store._writer.execute("PRAGMA max_page_count=1000000")
        await store.put_predictions(batch(1))
        await store.ping()
        monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
        with pytest.raises(StoreError, match="full: 0 bytes are free"):
            await store.ping()
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_deleted_while_it_is_open_is_noticed(tmp_path: Path, replaced: bool) -> None:
    async def run() -> None:
        path = tmp_path / "s.sqlite"
        store = await filled(path)
        path.rename(tmp_path / "aside")
        if replaced:
            path.write_bytes(b"")
        for call in (lambda: store.put_predictions(batch(1)), store.read_versions, store.ping):
            with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
                await call()
        (tmp_path / "aside").rename(path)
        await store.put_predictions(batch(1))
        assert (await store.read_sums("m", "v1")).answers == 1
        await store.close()

    asyncio.run(run())


def test_commits_are_durable_ones(tmp_path: Path) -> None:
    async def run() -> tuple[str, int]:
        store = await filled(tmp_path / "s.sqlite")
        mode, level = (store._writer.execute(f"PRAGMA {p}").fetchone()[0] for p in ("journal_mode", "synchronous"))
        await store.close()
        return mode, level

    assert asyncio.run(run()) == ("wal", 2)


def test_version_1_is_carried_over_to_the_hours_of_its_predictions(tmp_path: Path) -> None:
    """A file as the first release wrote it: two versions, labels and a correction, over two months."""
    path, twin, versions = tmp_path / "s.sqlite", Twin(), (version("v1"), version("v2", "n", CLASSES, 0.6))
    with sqlite3.connect(path) as db:
        for statement in SQLITE_1:
            db.execute(statement)
        db.execute("PRAGMA application_id=1953658213")
        db.execute("PRAGMA user_version=1")
        for key, of in enumerate(versions, 1):
            texts = (
                '["cat", "dog", "café"]',
                f'{{"calibrator": "temperature", "temperature": {1.7 if key == 1 else 0.6}}}',
            )
            db.execute("INSERT INTO versions VALUES (?, ?, ?, ?, ?, '{}')", (key, of.model, of.version, *texts))
            for k in range(6):
                twin.add(answers := batch(7, of, now=START + k * 200 * HOUR, seed=10 * key + k))
                rows = zip(
                    answers.ids, answers.index_N.tolist(), answers.confidence_N.tolist(), answers.logits_NC, strict=True
                )
                db.executemany(
                    "INSERT INTO predictions VALUES (?, ?, ?, ?, ?, ?)",
                    [(id_, key, answers.created_ms, index, c, logits.tobytes()) for id_, index, c, logits in rows],
                )
                for n, id_ in enumerate(answers.ids[:5]):
                    twin.labels[id_] = n % 3
                    db.execute("INSERT INTO labels VALUES (?, ?, ?)", (id_, n % 3, START + 10**10 + 100 * n - k))

    async def run() -> None:
        store = await open_store(str(path))
        found = await store.read_versions()
        assert [(v.model, v.version, v.classes) for v in found] == [(v.model, v.version, CLASSES) for v in versions]
        for of in versions:
            since = START + 500 * HOUR
            for start in (None, since):
                wanted = twin.sums(lambda a, _: a.model == of.model and (start is None or a.created_ms >= start))  # noqa: B023
                assert_same(await store.read_sums(of.model, of.version, start), wanted)
            log = await store.read_labels(of.model, of.version)
            assert len(log) == 30
            assert (np.diff(log.arrived_ms_L) >= 0).all()
            assert {id_: int(y) for id_, y in zip(log.ids, log.label_L, strict=True)}.items() <= twin.labels.items()
        answers, k = twin.rows[3]
        stored = (await store.read_answers("m", [answers.ids[k]]))[answers.ids[k]]
        assert stored.raw_confidence == pytest.approx(answers.raw_confidence_N[k], abs=1e-12)
        assert stored.logits == answers.logits_NC[k].tobytes()
        counts = await store.put_labels([GivenLabel(twin.ids[0], 0), GivenLabel(twin.ids[6], "dog")])
        assert (counts.already_known, counts.stored) == (1, 1)
        await store.close()

    asyncio.run(run())
    with sqlite3.connect(path) as db:
        assert not db.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'old%'").fetchall()
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_version_2_learns_of_validation_confidences(tmp_path: Path) -> None:
    path, texts = tmp_path / "s.sqlite", ('["cat", "dog", "café"]', '{"calibrator": "temperature", "temperature": 1.7}')
    with sqlite3.connect(path) as db:
        for statement in SQLITE_2:
            db.execute(statement)
        db.execute("INSERT INTO models (name) VALUES ('m')")
        db.execute("INSERT INTO versions VALUES (1, 1, 'v1', ?, ?, '{\"after\": {\"ece\": 0.1}}', 0)", texts)
        db.execute("PRAGMA application_id=1953658213")
        db.execute("PRAGMA user_version=2")

    async def run() -> None:
        store = await open_store(str(path))
        newer = replace(version("v2"), reference=Reference.of([0.2, 0.9, 1.0]))
        await store.put_version(newer)
        await store.put_predictions(batch(3))
        assert await store.read_versions() == [version(), newer]
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize(("kind", "group"), [(moves.TOTAL, ""), (moves.BY_CLASS, "2"), (moves.BY_TAG, "x")])
def test_corrections_are_counted_without_reading_the_log(tmp_path: Path, kind: int, group: str) -> None:
    """Reading a million labels takes .3 s."""
    path = tmp_path / "s.sqlite"
    asyncio.run(close_at_once(path))
    step = next(reading.count_corrected(1, kind, group, (3, 5), 0))
    assert isinstance(step, Rows)
    with contextlib.closing(sqlite3.connect(path)) as db:
        values = {str(k): value for k, value in enumerate(step.args, 1)}
        ((*_, plan),) = db.execute(f"EXPLAIN QUERY PLAN {step.sql}", values).fetchall()
    assert plan.startswith("SEARCH labels USING COVERING INDEX corrected (version=?")


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    asyncio.run(close_at_once(path))
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    with pytest.raises(StoreError, match=r"schema version 5; this release knows versions up to 4"):
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
    with pytest.raises(StoreError, match=r"mysql:// URL; allowed are the path of a file and postgresql:// URLs"):
        asyncio.run(open_store("mysql://host/db"))


def test_ids_sort_by_time_and_differ() -> None:
    ids = new_ids(1000, 5)
    assert len(set(ids)) == 1000
    assert max(ids) < min(new_ids(1000, 6))
    assert {len(i) for i in ids} == {36}
    assert Temperature(1.7) == version().calibrator
