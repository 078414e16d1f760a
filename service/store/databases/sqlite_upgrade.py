"""Upgrade of a SQLite store: under an exclusive lock, after a copy, in one transaction."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from service.store.databases.schema import APPLICATION_ID, SQLITE_UPGRADES, VERSION, other_version
from service.store.databases.sqlite import LEAST_FREE, failure, identity_of
from service.store.databases.sqlite_statements import run
from service.store.rows import StoreError
from service.store.work.statements import MakeWork, Work

PAGES = 10_000
"""Pages copied between two lines of progress."""

T = TypeVar("T")


def upgrade(path: Path, make: Callable[[int], Work[T]], say: Callable[[str], None]) -> T | None:
    """Upgrade the file. Return the work's result, or None if the file has this release's schema.

    `make` gets the version of the file's schema.

    Raises:
        StoreError: No such file, not a store, a schema that cannot be upgraded, or another process has the file open.
    """
    with _open_store(path, "upgraded") as (db, version):
        if version == VERSION:
            return None
        if version not in SQLITE_UPGRADES:
            raise StoreError(other_version(path, version, SQLITE_UPGRADES, "path"))
        _lock(db, path)
        with _keep_copy(db, path, version, say):
            return _transact(db, partial(make, version), SQLITE_UPGRADES[version])


def alone(path: Path, make: MakeWork[T]) -> T:
    """Run work in one transaction while no other process has the file open, and return its result.

    Raises:
        StoreError: No such file, not a store with this release's schema, or another process has the file open.
    """
    with _open_store(path, "written") as (db, version):
        if version != VERSION:
            raise StoreError(other_version(path, version, SQLITE_UPGRADES, "path"))
        _lock(db, path)
        return _transact(db, make, ())


@contextlib.contextmanager
def _open_store(path: Path, verb: str) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open the file of a store. Yield its connection and the version of its schema. `verb` is used in messages."""
    if not path.is_file():
        raise StoreError(f"the store {path} does not exist; give the file that the service uses as --store")
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as db:
            version, application = identity_of(db)
            if application != APPLICATION_ID:
                raise StoreError(f"{path} is not a TrueOdds store; give the file that the service uses as --store")
            yield db, version
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise failure(path, verb, error) from error


def _lock(db: sqlite3.Connection, path: Path) -> None:
    """Lock out every other process until the connection is closed."""
    try:
        db.execute("PRAGMA journal_mode=DELETE")  # refused while another connection has a WAL file open
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        message = f"another process has the store {path} open; stop every service that uses it, then try again"
        raise StoreError(message) from None


@contextlib.contextmanager
def _keep_copy(db: sqlite3.Connection, path: Path, version: int, say: Callable[[str], None]) -> Iterator[None]:
    """Keep a copy beside the file. If the block fails, the file is unchanged and the copy is removed."""
    size, free = path.stat().st_size, shutil.disk_usage(path.parent).free
    if free < size + LEAST_FREE:
        say(f"No copy is kept: it needs {size:,} bytes, but only {free:,} are free in {path.parent}.")
        yield
        return
    copy = _free_name(path.with_name(f"{path.name}.schema-{version}"))
    try:
        with contextlib.closing(sqlite3.connect(copy)) as target:
            db.backup(target, pages=PAGES, progress=lambda _, left, total: _progress(left, total, say))
        say(f"The store before the upgrade is kept as {copy}.")
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
