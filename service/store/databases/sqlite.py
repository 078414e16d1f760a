"""SQLite in WAL mode. One thread owns the write connection and commits everything queued in one transaction.

synchronous=FULL: a commit returns after fsync, so an acknowledged row survives `kill -9` and power loss. Reads use a
connection and a thread of their own. They see every commit that was acknowledged before them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from service.errors import ServiceError
from service.store.databases.database import Database
from service.store.databases.schema import APPLICATION_ID, SQLITE, SQLITE_UPGRADES, VERSION, other_version
from service.store.databases.sqlite_statements import CACHED, run
from service.store.rows import RowsError, StoreDamagedError, StoreError
from service.store.work.statements import MakeWork

GROUP = 256
"""Largest number of jobs in one commit: enough to share an fsync, few enough that the first waits milliseconds."""
BUSY_SECONDS = 10.0
"""Time for which a commit waits for another process's commit."""
TURN_SECONDS = 0.0005
"""Pause between two attempts at the write lock.

SQLite's own waiting backs off to .1 s: with two busy workers one waited up to .9 s (p99), with this pause .03 s.
"""
MAX_QUEUED = 4096
"""Largest number of jobs that wait for the writer. Beyond it a slow disk is an error, not a buffer in memory."""
LEAST_FREE = 16 * 1024**2
"""Free bytes on the disk that readiness requires: room for a commit and its copy in the main file."""

OF_ONE_JOB = frozenset(
    {
        sqlite3.SQLITE_ERROR,  # the statement's fault: unknown table or column, arguments of a function
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_RANGE,
        sqlite3.SQLITE_TOOBIG,
    }
)
"""Result codes that are the fault of a single job.

After any other code (disk full, I/O, damage) the whole transaction is rolled back, as SQLite's documentation asks.
"""

OF_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
"""Result codes of a damaged file: its pages are not as SQLite wrote them."""
OF_SCHEMA = frozenset({sqlite3.SQLITE_ERROR})
"""Result codes that mean damage in a read: all stores have the same tables, so a failing statement shows damage."""
MOST_BYTES = 256 * 1024**2
"""Largest size of a value in bytes. It keeps a damaged length from allocating memory."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Job:
    """Function of the write connection that runs inside the group's transaction, with the future of its caller."""

    action: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class SqliteDatabase(Database):
    """SQLite store. Create it with `await SqliteDatabase.open(path)`."""

    def __init__(self, path: Path, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._path, self._writer, self._reader = path, writer, reader
        self._closed = False
        self._file = _identity(path)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ends = False
        """Whether the writer's thread ends after the current group."""
        self._thread = threading.Thread(target=self._write_groups, name="store-writer", daemon=True)
        self._thread.start()
        self._reading = ThreadPoolExecutor(1, "store-reader")

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open or create the file.

        Raises:
            StoreError: Not a SQLite file, not a TrueOdds store, another schema, damaged, or not writable.
        """

        def connect() -> tuple[Path, sqlite3.Connection, sqlite3.Connection]:
            with contextlib.ExitStack() as undo:
                path.parent.mkdir(parents=True, exist_ok=True)
                writer = undo.enter_context(contextlib.closing(_connect(path)))
                _insist(writer, "PRAGMA journal_mode=WAL")  # refused at once if several processes open a new file
                _create_tables(writer, path)
                writer.execute("PRAGMA busy_timeout=0")
                reader = undo.enter_context(contextlib.closing(_connect(path)))
                reader.execute("PRAGMA query_only=ON")
                undo.pop_all()
                return path, writer, reader

        try:
            return cls(*await asyncio.to_thread(connect))
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise failure(path, "opened", error) from None

    async def ping(self) -> None:
        def touch(db: sqlite3.Connection) -> None:
            free = shutil.disk_usage(self._path.parent).free
            if free < LEAST_FREE:
                raise StoreError(f"the disk of the store {self._path} is full: only {free:,} bytes are free")
            if not os.access(self._path, os.W_OK):
                self._check_file()  # it may have gone since the group began
                raise StoreError(f"the store {self._path} cannot be written: no permission")

        await self._submit(touch)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._reading.shutdown)
        self._reader.close()
        self._writer.close()

    # Methods that run on the event loop.

    async def write(self, make: MakeWork[T], *, large: bool = False) -> T:
        return await self._submit(lambda db: run(db, make()))

    async def _submit(self, job: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        if self._jobs.qsize() >= MAX_QUEUED:
            raise StoreError("the store is overloaded; try again later")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(job, future, loop))
        return await future

    async def read(self, make: MakeWork[T]) -> T:
        def snapshot() -> T:
            self._check_file()
            self._reader.execute("BEGIN")
            try:
                return run(self._reader, make())
            except Exception as error:
                raise _explain(self._reader, self._path, error) from error
            finally:
                self._reader.execute("ROLLBACK")

        self._check_open()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, snapshot)
        except (sqlite3.Error, RuntimeError) as error:
            raise failure(self._path, "read", error) from error

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed: the service is shutting down")

    # Methods that run in the writer thread.

    def _write_groups(self) -> None:
        while not self._ends and (job := self._jobs.get()) is not None:
            group = [job]
            outcomes = self._commit(group)
            with contextlib.suppress(RuntimeError):  # the event loop of a caller that did not wait may be closed
                group[0].loop.call_soon_threadsafe(_resolve, group, outcomes)

    def _commit(self, group: list[_Job]) -> list[Any]:
        """Commit a group in one transaction. A job that raises is undone alone; a database error fails the group.

        The queued jobs join the group once the transaction has begun. So they include those that came while another
        process held the write lock. With two workers this saves commits, and each commit of the other process makes
        this one read its pages again.
        """
        db = self._writer
        try:
            try:
                self._check_file()
                _insist(db, "BEGIN IMMEDIATE")
            finally:
                self._join(group)
            self._check_file()  # the lock may have taken seconds, and jobs joined meanwhile
            outcomes = [self._attempt(db, job) for job in group]
            db.execute("COMMIT")
        except Exception as error:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            return [error if isinstance(error, StoreError) else failure(self._path, "written", error)] * len(group)
        return outcomes

    def _join(self, group: list[_Job]) -> None:
        """Add the queued jobs to a group."""
        with contextlib.suppress(queue.Empty):
            while len(group) < GROUP:
                if (job := self._jobs.get_nowait()) is None:
                    self._ends = True
                    return
                group.append(job)

    def _attempt(self, db: sqlite3.Connection, job: _Job) -> Any:
        db.execute("SAVEPOINT job")
        outcome: Any
        try:
            outcome = job.action(db)
        except BaseException as error:  # if the thread ended, every later caller would wait for ever
            if not (_is_of_one_job(error) and db.in_transaction):
                raise
            db.execute("ROLLBACK TO job")
            if isinstance(error, Exception) and not isinstance(error, sqlite3.Error):
                outcome = _explain(db, self._path, error)
            else:
                outcome = failure(self._path, "written", error, RowsError)
        db.execute("RELEASE job")
        return outcome

    def _check_file(self) -> None:
        """Raise StoreError if the file was deleted or replaced. It would accept rows and lose them on closing."""
        if _identity(self._path) != self._file:
            raise StoreError(
                f"the store {self._path} was deleted or replaced while it was open, so nothing more is stored; restore"
                " the file or restart the service"
            )


class SqliteReader(Database):
    """SQLite store of which only this process reads. Nothing is written, also no table of a new file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def write(self, make: MakeWork[T], *, large: bool = False) -> T:
        raise StoreError(f"the store {self._path} is opened to be read; nothing can be written")

    async def read(self, make: MakeWork[T]) -> T:
        """See `Database.read`. Each call opens the file.

        Raises:
            StoreError: There is no such file, or it is not a TrueOdds store of this release's schema.
        """

        def snapshot() -> T:
            if not self._path.is_file():
                raise StoreError(f"the store {self._path} does not exist; give the path of its SQLite file (--store)")
            address = f"{self._path.absolute().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(address, BUSY_SECONDS, isolation_level=None, uri=True)) as db:
                db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
                db.execute("PRAGMA cell_size_check=ON")
                db.execute("BEGIN")
                version, application = identity_of(db)
                if application != APPLICATION_ID:
                    raise StoreError(f"{self._path} is not a TrueOdds store; give another path (--store)")
                if version != VERSION:
                    raise StoreError(other_version(self._path, version, SQLITE_UPGRADES, "path"))
                try:
                    return run(db, make())
                except Exception as error:
                    raise _explain(db, self._path, error) from error

        try:
            return await asyncio.to_thread(snapshot)
        except sqlite3.Error as error:
            raise failure(self._path, "read", error) from error

    async def ping(self) -> None:
        raise StoreError(f"the store {self._path} is opened to be read; nothing can be written")

    async def close(self) -> None:
        pass


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=CACHED
    )
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    db.execute("PRAGMA cell_size_check=ON")
    db.execute("PRAGMA synchronous=FULL")
    return db


def _create_tables(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file, in one transaction.

    Raises:
        StoreError: A SQLite file of another application, or of another schema.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        version, application = identity_of(db)
        tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if application != APPLICATION_ID and (tables or version or application):
            raise StoreError(f"{path} is a SQLite file, but not a TrueOdds store; give another path (--store)")
        if not tables:
            for statement in SQLITE:
                db.execute(statement)
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            db.execute(f"PRAGMA user_version={VERSION}")
        elif version != VERSION:
            raise StoreError(other_version(path, version, SQLITE_UPGRADES, "path"))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def identity_of(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the version of a file's schema and the id of the application that made it."""
    version, application = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
    return version, application


def _insist(db: sqlite3.Connection, statement: str) -> None:
    """Execute a statement that takes a lock, and repeat it until another process releases the lock."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(TURN_SECONDS)
        else:
            return


def _is_of_one_job(error: BaseException) -> bool:
    """Return whether an error concerns one job only: an error of Python, or a statement that SQLite refused."""
    code = getattr(error, "sqlite_errorcode", None)  # missing if a value cannot be bound
    return code is None or code & 0xFF in OF_ONE_JOB


def failure(path: Path, verb: str, error: BaseException, kind: type[StoreError] = StoreError) -> StoreError:
    """Convert an error of SQLite to a StoreError, or to a StoreDamagedError if the file is damaged."""
    words, code = str(error) or type(error).__name__, getattr(error, "sqlite_errorcode", None)
    is_text = isinstance(error, UnicodeDecodeError) or "Could not decode to UTF-8" in words
    if is_text or (code is not None and code & 0xFF in OF_DAMAGE) or (verb == "read" and code in OF_SCHEMA):
        return _damage_error(path, words)
    return kind(f"the store {path} cannot be {verb}: {words}")


def _damage_error(path: Path, damage: str) -> StoreDamagedError:
    cure = (
        f"Restore it from a backup. Without one, save what is left: sqlite3 {path} .recover | sqlite3 {path}.recovered"
    )
    return StoreDamagedError(damage, path, cure)


def _explain(db: sqlite3.Connection, path: Path, error: Exception) -> Exception:
    """Return the error to raise for failed work. It is StoreDamagedError if its own or SQLite's checks find damage."""
    if isinstance(error, StoreDamagedError):
        return _damage_error(path, error.damage)
    if isinstance(error, UnicodeDecodeError):
        return failure(path, "read", error)
    if isinstance(error, (ServiceError, ValueError, sqlite3.Error)):
        return error
    try:
        ((damage,),) = db.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error as worse:
        damage = str(worse)
    return error if damage == "ok" else _damage_error(path, damage)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _resolve(group: list[_Job], outcomes: list[Any]) -> None:
    for job, outcome in zip(group, outcomes, strict=True):
        if job.future.done():  # cancelled by its caller; the rows are stored nevertheless
            continue
        if isinstance(outcome, Exception):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)
