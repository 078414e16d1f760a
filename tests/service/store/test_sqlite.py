"""SQLite by itself: schema versions, group commit, and what a failing job, disk or file does to its neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from service.ids import new_ids
from service.store import Store, StoreError, open_store
from service.store.databases.schema import VERSION
from service.store.databases.sqlite import SqliteDatabase
from service.store.label_rules import RefusedLabelsError
from service.store.rows import Label
from service.store.work import reading
from service.store.work.statements import Query
from tests.service.store.rows import START, batch, version
from trueodds.calibrators import Temperature


async def filled(path: Path) -> Store:
    store = await open_store(str(path))
    await store.put_version(version())
    return store


async def close_at_once(path: Path) -> None:
    await (await open_store(str(path))).close()


def writer_of(store: Store) -> sqlite3.Connection:
    assert isinstance(store.database, SqliteDatabase)
    return store.database._writer


async def test_a_bad_job_does_not_touch_its_neighbours(tmp_path: Path) -> None:
    store = await filled(tmp_path / "new" / "s.sqlite")
    jobs = [store.put_predictions(batch(2, now=START + k)) for k in range(20)]
    bad = [store.put_labels([Label("none", 0)]), store.put_predictions(batch(1, version("unknown")))]
    outcomes = await asyncio.gather(*jobs[:10], *bad, *jobs[10:], return_exceptions=True)
    assert isinstance(outcomes[10], RefusedLabelsError)
    assert isinstance(outcomes[11], StoreError)
    assert [o for o in outcomes if o != [None, None]] == outcomes[10:12]
    assert (await store.read_sums("m", "v1")).answers == 40
    await store.close()


async def test_a_failing_database_fails_the_call_and_recovers(tmp_path: Path) -> None:
    store, twice = await filled(tmp_path / "s.sqlite"), batch(3)
    await store.put_predictions(twice)
    with pytest.raises(StoreError, match="cannot be written"):
        await store.put_predictions(twice)
    assert (await store.read_sums("m", "v1")).answers == 3
    await store.put_predictions(batch(1))
    assert (await store.read_sums("m", "v1")).answers == 4
    await store.close()


async def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await filled(tmp_path / "s.sqlite")
    pages = writer_of(store).execute("PRAGMA page_count").fetchone()[0]
    writer_of(store).execute(f"PRAGMA max_page_count={pages + 4}")
    stored = 0
    with pytest.raises(StoreError, match="full"):
        for k in range(100):
            await store.put_predictions(batch(50, now=START + k))
            stored += 50
    assert (await store.read_sums("m", "v1")).answers == stored
    writer_of(store).execute("PRAGMA max_page_count=1000000")
    await store.put_predictions(batch(1))
    await store.ping()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(StoreError, match="full: only 0 bytes are free"):
        await store.ping()
    await store.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_deleted_while_it_is_open_is_noticed(tmp_path: Path, replaced: bool) -> None:
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


async def test_a_file_that_is_deleted_while_a_write_waits_for_the_lock_takes_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    store = await filled(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        calls = [asyncio.create_task(call) for call in (store.put_predictions(batch(1)), store.ping())]
        await asyncio.sleep(0.05)  # the first one waits for the lock, the second one joins it
        path.rename(tmp_path / "aside")
        other.rollback()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert ["was deleted or replaced while it was open" in str(outcome) for outcome in outcomes] == [True, True]
    (tmp_path / "aside").rename(path)
    assert (await store.read_sums("m", "v1")).answers == 0
    await store.close()


async def test_commits_are_durable_ones(tmp_path: Path) -> None:
    store = await filled(tmp_path / "s.sqlite")
    mode, level = (writer_of(store).execute(f"PRAGMA {p}").fetchone()[0] for p in ("journal_mode", "synchronous"))
    await store.close()
    assert (mode, level) == ("wal", 2)


@pytest.mark.parametrize(("predicted", "tag"), [(None, None), (2, None), (None, "x"), (2, "x")])
def test_corrections_are_counted_without_reading_the_log(
    tmp_path: Path, predicted: int | None, tag: str | None
) -> None:
    """Reading a million labels takes .3 s."""
    path = tmp_path / "s.sqlite"
    asyncio.run(close_at_once(path))
    query = next(reading.count_corrected_labels(1, predicted, tag, (3, 5), 0))
    assert isinstance(query, Query)
    with contextlib.closing(sqlite3.connect(path)) as db:
        values = {str(k): value for k, value in enumerate(query.args, 1)}
        ((*_, plan),) = db.execute(f"EXPLAIN QUERY PLAN {query.sql}", values).fetchall()
    assert plan.startswith("SEARCH labels USING COVERING INDEX corrected (version=?")


@pytest.mark.parametrize("number", [4, VERSION + 1])
def test_another_schema_is_refused_and_left_alone(tmp_path: Path, number: int) -> None:
    path = tmp_path / "s.sqlite"
    asyncio.run(close_at_once(path))
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version={number}")
    for _ in range(2):
        words = f"has schema version {number}; this release reads version {VERSION}. Use the release that wrote"
        with pytest.raises(StoreError, match=words):
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
        with pytest.raises(StoreError, match=r"cannot be opened|is damaged: file is not a database"):
            asyncio.run(close_at_once(path))
    with pytest.raises(StoreError, match=r"mysql:// URL; allowed are file paths and postgresql:// URLs"):
        asyncio.run(open_store("mysql://host/db"))


def test_ids_sort_by_time_and_differ() -> None:
    ids = new_ids(1000, 5)
    assert len(set(ids)) == 1000
    assert max(ids) < min(new_ids(1000, 6))
    assert {len(i) for i in ids} == {36}
    assert Temperature(1.7) == version().calibrator
