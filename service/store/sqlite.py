"""SQLite in WAL mode: one thread owns the write connection and commits everything queued in one transaction.

synchronous=FULL: a commit returns after fsync, so an acknowledged row survives `kill -9` and power loss. Reads
have a connection and a thread of their own, and see every commit that was acknowledged before them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from pipeline import calibrators
from pipeline.metrics import COLUMNS, CalibrationSums, cell_of
from service import feedback
from service.records import GivenLabel, LabelCounts, PredictionBatch, StoredAnswer, StoredSums, Version
from service.store import StoreError
from service.store.schema import ADD_ANSWERS, ADD_LABELLED, migrate

GROUP = 256
"""Jobs in one commit at most: enough to share an fsync, few enough that the first waits milliseconds."""
BUSY_SECONDS = 10.0
"""How long a commit waits for another process's commit."""
MAX_QUEUED = 4096
"""Jobs that may wait for the writer; a disk that slow is reported as a failure, not buffered in memory."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Job:
    """A function of the write connection, run inside the group's transaction, and who waits for its outcome."""

    run: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class SqliteStore:
    """See `service.store.Store`. Create with `await SqliteStore.open(path)`."""

    def __init__(self, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._writer, self._reader = writer, reader
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._versions: dict[int, Version] = {}
        self._thread = threading.Thread(target=self._write_groups, name="store-writer", daemon=True)
        self._thread.start()
        self._reading = ThreadPoolExecutor(1, "store-reader")
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open or create the file, and bring its schema up to date.

        Raises:
            StoreError: not a SQLite file, not a store of this project, written by a newer release, or not writable.
        """

        def connect() -> tuple[sqlite3.Connection, sqlite3.Connection]:
            with contextlib.ExitStack() as undo:
                path.parent.mkdir(parents=True, exist_ok=True)
                writer = undo.enter_context(contextlib.closing(_connect(path)))
                writer.execute("PRAGMA journal_mode=WAL")
                migrate(writer, path)
                reader = _connect(path)
                reader.execute("PRAGMA query_only=ON")
                undo.pop_all()
                return writer, reader

        try:
            return cls(*await asyncio.to_thread(connect))
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"the store {path} cannot be opened: {error}") from None

    async def put_version(self, version: Version) -> None:
        await self._write(lambda db: self._insert_version(db, version))

    async def put_predictions(self, batch: PredictionBatch) -> None:
        await self._write(lambda db: self._insert_predictions(db, batch))

    async def put_labels(self, labels: list[GivenLabel]) -> LabelCounts:
        return await self._write(lambda db: self._insert_labels(db, labels))

    async def read_versions(self) -> list[Version]:
        return list((await self._read(_select_versions)).values())

    async def read_sums(self, model: str, version: str) -> StoredSums:
        return await self._read(lambda db: _select_sums(db, model, version))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._reading.shutdown)
        self._reader.close()
        self._writer.close()

    # Writing: asyncio side.

    async def _write(self, run: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreError("the store is closed: the service is shutting down")
        if self._jobs.qsize() >= MAX_QUEUED:
            raise StoreError("the store cannot keep up with the requests; try again later")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(run, future, loop))
        return await future

    async def _read(self, run: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, run, self._reader)
        except (sqlite3.Error, RuntimeError) as error:
            raise StoreError(f"the store cannot be read: {error}") from error

    # Writing: the writer thread's side.

    def _write_groups(self) -> None:
        while (job := self._jobs.get()) is not None:
            group = [job]
            with contextlib.suppress(queue.Empty):
                while len(group) < GROUP and (job := self._jobs.get_nowait()) is not None:
                    group.append(job)
            outcomes = self._commit(group)
            with contextlib.suppress(RuntimeError):  # the loop of a caller that did not wait may be gone
                group[0].loop.call_soon_threadsafe(_resolve, group, outcomes)
            if job is None:
                break

    def _commit(self, group: list[_Job]) -> list[Any]:
        """One transaction. A job that raises is undone alone; a failing database fails the group."""
        db = self._writer
        try:
            db.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(db, job) for job in group]
            db.execute("COMMIT")
        except Exception as error:
            self._versions = {}  # may hold a key that is now rolled back
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            return [StoreError(f"the store cannot be written: {error}")] * len(group)
        return outcomes

    def _attempt(self, db: sqlite3.Connection, job: _Job) -> Any:
        db.execute("SAVEPOINT job")
        try:
            outcome = job.run(db)
        except sqlite3.Error:
            raise
        except Exception as error:
            db.execute("ROLLBACK TO job")
            outcome = error
        db.execute("RELEASE job")
        return outcome

    def _insert_version(self, db: sqlite3.Connection, version: Version) -> None:
        texts = [json.dumps(v) for v in (version.classes, version.calibrator.to_json(), version.metrics)]
        db.execute(
            "INSERT INTO versions (model, version, classes, calibrator, metrics) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (model, version) DO NOTHING",
            (version.model, version.version, *texts),
        )

    def _insert_predictions(self, db: sqlite3.Connection, batch: PredictionBatch) -> None:
        key = self._version_key(db, batch.model, batch.version)
        blobs = [row.tobytes() for row in batch.logits_NC.astype("<f4", copy=False)]
        indices, confidences = batch.index_N.tolist(), batch.confidence_N.tolist()
        db.executemany(
            "INSERT INTO predictions VALUES (?, ?, ?, ?, ?, ?)",
            [
                (id_, key, batch.created_ms, *row)
                for id_, *row in zip(batch.ids, indices, confidences, blobs, strict=True)
            ],
        )
        cells, counts = np.unique(cell_of(batch.confidence_N), return_counts=True)
        db.executemany(ADD_ANSWERS, [(key, c, n) for c, n in zip(cells.tolist(), counts.tolist(), strict=True)])

    def _insert_labels(self, db: sqlite3.Connection, labels: list[GivenLabel]) -> LabelCounts:
        found = _select_answers(db, [given.id for given in labels])
        if not {answer.version for answer in found.values()} <= self._versions.keys():
            self._versions = _select_versions(db)
        plan, now = feedback.plan(labels, found, self._versions), time.time_ns() // 1_000_000
        db.executemany("INSERT INTO labels VALUES (?, ?, ?)", [(i, label, now) for i, label in plan.new.items()])
        db.executemany(
            "UPDATE labels SET label = ?, labelled_ms = ? WHERE prediction = ?",
            [(label, now, i) for i, label in plan.changed.items()],
        )
        for key, cells in sorted(plan.sums.items()):
            touched = np.flatnonzero(cells.any(axis=0))
            db.executemany(
                ADD_LABELLED, [(key, k, *v) for k, v in zip(touched.tolist(), cells.T[touched].tolist(), strict=True)]
            )
        return plan.counts

    def _version_key(self, db: sqlite3.Connection, model: str, version: str) -> int:
        for key, known in self._versions.items():
            if (known.model, known.version) == (model, version):
                return key
        self._versions = _select_versions(db)
        if not any((v.model, v.version) == (model, version) for v in self._versions.values()):
            raise StoreError(f"{model}/{version} is not known to the store; put_version comes before put_predictions")
        return self._version_key(db, model, version)


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA synchronous=FULL")
    return db


def _resolve(group: list[_Job], outcomes: list[Any]) -> None:
    for job, outcome in zip(group, outcomes, strict=True):
        if job.future.done():  # cancelled by its caller; the rows are stored all the same
            continue
        if isinstance(outcome, Exception):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)


def _select_versions(db: sqlite3.Connection) -> dict[int, Version]:
    rows = db.execute("SELECT key, model, version, classes, calibrator, metrics FROM versions ORDER BY key").fetchall()
    return {
        key: Version(
            model, version, tuple(json.loads(classes)), calibrators.from_json(json.loads(fit)), json.loads(metrics)
        )
        for key, model, version, classes, fit, metrics in rows
    }


def _select_answers(db: sqlite3.Connection, ids: list[str]) -> dict[str, StoredAnswer]:
    rows = db.execute(
        "SELECT p.id, p.version, p.logits, l.label FROM predictions p LEFT JOIN labels l ON l.prediction = p.id"
        " WHERE p.id IN (SELECT value FROM json_each(?))",
        (json.dumps(ids),),
    )
    return {id_: StoredAnswer(version, logits, label) for id_, version, logits, label in rows}


def _select_sums(db: sqlite3.Connection, model: str, version: str) -> StoredSums:
    rows = db.execute(
        f"SELECT c.answers, c.cell, {', '.join(f'c.{name}' for name in COLUMNS)} FROM cells c"
        " JOIN versions v ON v.key = c.version WHERE v.model = ? AND v.version = ?",
        (model, version),
    ).fetchall()
    return StoredSums(sum(row[0] for row in rows), CalibrationSums.from_cells(row[1:] for row in rows))
