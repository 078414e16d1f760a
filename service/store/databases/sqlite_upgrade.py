"""Upgrades a SQLite store: under an exclusive lock, after a copy, in one transaction."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from service.store.databases.schema import APPLICATION_ID, SQLITE_BEFORE, SQLITE_UPGRADE, VERSION, other_version
from service.store.databases.sqlite import LEAST_FREE, failure, identity_of
from service.store.databases.sqlite_statements import run
from service.store.rows import StoreError
from service.store.work.statements import MakeWork

PAGES = 10_000
"""Pages that are copied between two lines of progress."""

T = TypeVar("T")


def upgrade(path: Path, make: MakeWork[T], say: Callable[[str], None]) -> T | None:
    """Upgrade the file; what the work returned, or None where the file has this release's schema.

    Raises:
        StoreError: no such file, no store, a schema that cannot be upgraded, or a process that has the file open.
    """
    with _opened(path, "upgraded") as (db, version):
        if version == VERSION:
            return None
        if version != SQLITE_BEFORE:
            raise StoreError(other_version(path, version, SQLITE_BEFORE, "path"))
        _lock(db, path)
        with _copied(db, path, version, say):
            return _transact(db, make, SQLITE_UPGRADE)


def alone(path: Path, make: MakeWork[T]) -> T:
    """Run work in one transaction on a file that no other process has open, and return what it returns.

    Raises:
        StoreError: no such file, no store of this release's schema, or a process that has the file open.
    """
    with _opened(path, "written") as (db, version):
        if version != VERSION:
            raise StoreError(other_version(path, version, SQLITE_BEFORE, "path"))
        _lock(db, path)
        return _transact(db, make, ())


@contextlib.contextmanager
def _opened(path: Path, verb: str) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open a store's file by itself; its schema's version with it. `verb`: what is done to it, in messages."""
    if not path.is_file():
        raise StoreError(f"there is no store {path}; name the file that the service is given as --store")
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as db:
            version, application = identity_of(db)
            if application != APPLICATION_ID:
                raise StoreError(f"{path} is not a TrueOdds store; name the file that the service is given as --store")
            yield db, version
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise failure(path, verb, error) from error


def _lock(db: sqlite3.Connection, path: Path) -> None:
    """Keep every other process out until the connection is closed."""
    try:
        db.execute("PRAGMA journal_mode=DELETE")  # refused while another connection has a file in WAL mode open
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        message = f"a process has the store {path} open; end every service that uses it, then run this again"
        raise StoreError(message) from None


@contextlib.contextmanager
def _copied(db: sqlite3.Connection, path: Path, version: int, say: Callable[[str], None]) -> Iterator[None]:
    """Keep a copy beside the file, unless the block fails and so leaves the file as it was."""
    size, free = path.stat().st_size, shutil.disk_usage(path.parent).free
    if free < size + LEAST_FREE:
        say(f"No copy is kept: it needs {size:,} bytes, and {free:,} are free in {path.parent}.")
        yield
        return
    copy = _free_name(path.with_name(f"{path.name}.schema-{version}"))
    try:
        with contextlib.closing(sqlite3.connect(copy)) as target:
            db.backup(target, pages=PAGES, progress=lambda _, left, total: _progress(left, total, say))
        say(f"A copy of the store before the upgrade is {copy}.")
        yield
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


def _progress(left: int, total: int, say: Callable[[str], None]) -> None:
    if total > PAGES:
        say(f"Copying: {100 * (total - left) // total}%.")


def _free_name(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _transact(db: sqlite3.Connection, make: MakeWork[T], statements: Sequence[str]) -> T:
    db.execute("PRAGMA synchronous=FULL")
    db.execute("BEGIN EXCLUSIVE")
    try:
        for statement in statements:
            db.execute(statement)
        result = run(db, make())
        db.execute(f"PRAGMA user_version={VERSION}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    return result
