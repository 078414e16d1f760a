"""Work that fails beside other work: the others are stored, once, and acknowledged; a failing commit fails them all."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.store import Store, StoreError, open_store
from service.store.databases.sqlite import SqliteDatabase
from service.store.rows import Label
from service.store.work.statements import ExecuteMany, Insert, InsertNew, Query, Statement, Work
from tests.service.store.rows import START, batch, count, version

HELD = ("model", "id", "label", "given_ms")
ANSWERS = [batch(2, now=START + k, seed=k) for k in range(6)]


class StrayError(BaseException):
    """No Exception, as what a Rust extension raises when it panics."""


def held(number: int, name: str = "first") -> Insert:
    return Insert("held", HELD, [(1, name, "0", number)])


def failing(statements: list[Statement], error: BaseException | None = None) -> Work[None]:
    """Work that raises after these statements, unless the last of them is refused."""
    yield from statements
    if error:
        raise error


BAD: dict[str, tuple[list[Statement], BaseException | None]] = {
    "before its first statement": ([], KeyError("early")),
    "between statements": ([held(1)], ZeroDivisionError("between")),
    "no Exception at all": ([held(1)], StrayError("panic")),
    "the same key twice": ([held(1), held(1)], None),
    "beyond 64 bits": ([held(1), held(2**63, "second")], None),
    "a text for a number": (
        [held(1), ExecuteMany("UPDATE held SET given_ms = $1 WHERE model = $2", [("many", 1)])],
        None,
    ),
    "a value of no column": ([held(1), InsertNew("held", HELD, [(1, "x", object(), 1)])], None),
    "no value": ([held(1), Insert("held", HELD, [(1, "x", None, 1)])], None),
    "no such table": ([held(1), Query("SELECT * FROM nowhere")], None),
}


@asynccontextmanager
async def one_group(store: Store) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Tasks added to the list are queued while SQLite's writer waits, so they are one commit.

    In PostgreSQL each has a transaction of its own.
    """
    tasks: list[asyncio.Task[Any]] = []
    database = store.database
    if not isinstance(database, SqliteDatabase):
        yield tasks
        return
    waits, go = threading.Event(), threading.Event()

    def wait(_: sqlite3.Connection) -> None:
        waits.set()
        go.wait(10)

    first = asyncio.create_task(database._submit(wait))
    assert await asyncio.to_thread(waits.wait, 10)
    yield tasks
    await asyncio.sleep(0)
    assert database._jobs.qsize() == len(tasks)
    go.set()
    await first


async def outcomes_of(store: Store, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    async with one_group(store) as tasks:
        tasks += [asyncio.create_task(one) for one in work]
    return await asyncio.gather(*tasks, return_exceptions=True)


async def counts(store: Store) -> list[int]:
    """Rows of predictions, labels and held labels."""
    return [await store.database.read(partial(count, table)) for table in ("predictions", "labels", "held")]


@pytest.mark.parametrize("bad", BAD)
async def test_the_others_are_stored_once_and_acknowledged(address: str, bad: str) -> None:
    statements, error = BAD[bad]
    store, early = await open_store(address), batch(1, seed=9)
    await store.put_version(version())
    await store.put_predictions(early)
    good = [store.put_predictions(answers) for answers in ANSWERS]
    label = store.put_labels([Label(early.ids[0], 1), Label("later", 0, model="m")])
    work = [*good[:3], store.database.write(lambda: failing(statements, error)), *good[3:], label]
    outcomes = await outcomes_of(store, work)
    wanted = type(error) if isinstance(error, Exception) else (StoreError, OverflowError, StrayError)
    assert isinstance(outcomes[3], wanted)
    assert outcomes[:3] + outcomes[4:7] == [[None, None]] * 6
    assert (outcomes[7].stored, outcomes[7].held) == (1, 1)
    assert await store.put_predictions(batch(1, seed=10)) == [None]
    await store.close()
    store = await open_store(address)
    sums = await store.read_sums("m", "v1")
    assert (sums.answers, sums.labelled.cells[0].sum()) == (14, 1)
    assert await counts(store) == [14, 1, 1]
    await store.close()


async def test_a_caller_who_gave_up_does_not_touch_its_neighbours(address: str) -> None:
    store = await open_store(address)
    await store.put_version(version())
    await store.put_predictions(batch(1, seed=9))
    async with one_group(store) as tasks:
        tasks += [asyncio.create_task(store.put_predictions(answers)) for answers in ANSWERS]
        tasks.append(asyncio.create_task(store.database.write(lambda: failing([held(1), held(1)]))))
        await asyncio.sleep(0)
        tasks[2].cancel()
        tasks[6].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [k in (2, 6) for k in range(7)]
    assert [outcome for outcome in outcomes if isinstance(outcome, list)] == [[None, None]] * 5
    stored, _, holds = await counts(store)
    assert (stored in (11, 13), holds) == (True, 0)  # whether the one who gave up was stored is nobody's promise
    assert (await store.read_sums("m", "v1")).answers == stored
    await store.close()


@pytest.mark.parametrize("fault", ["commit", "disk"])
async def test_a_failing_database_acknowledges_nothing_of_the_group(tmp_path: Path, fault: str) -> None:
    """The commit itself is refused (by a constraint that is looked at then), or the disk is full in its middle."""
    store = await open_store(str(tmp_path / "s.sqlite"))
    await store.put_version(version())
    await store.put_predictions(batch(1, seed=9))
    assert isinstance(store.database, SqliteDatabase)
    db = store.database._writer
    db.execute("CREATE TABLE parents (key INTEGER PRIMARY KEY)")
    db.execute("CREATE TABLE children (key INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
    db.execute("PRAGMA foreign_keys=ON")
    work: list[Coroutine[Any, Any, Any]] = [store.put_predictions(answers) for answers in ANSWERS]
    if fault == "commit":
        work[3:3] = [store.database.write(lambda: failing([Insert("children", ("key",), [(7,)])]))]
    else:
        db.execute(f"PRAGMA max_page_count={db.execute('PRAGMA page_count').fetchone()[0] + 2}")
        work[3:3] = [store.put_predictions(batch(500, seed=8))]
    outcomes = await outcomes_of(store, work)
    words = "FOREIGN KEY constraint failed" if fault == "commit" else "database or disk is full"
    assert [str(outcome) for outcome in outcomes] == [
        f"the store {tmp_path / 's.sqlite'} cannot be written: {words}"
    ] * 7
    assert await counts(store) == [1, 0, 0]
    db.execute("PRAGMA max_page_count=1000000")
    assert await store.put_predictions(ANSWERS[0]) == [None, None]
    assert (await store.read_sums("m", "v1")).answers == 3
    await store.close()
