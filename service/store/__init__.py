"""The service's store: answers, labels and their sums, in a SQLite file or a PostgreSQL database.

The rest of the service calls only `Store`. `work` holds the SQL and the computation between statements. `databases`
runs such work in transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from service.store.databases.database import Database
from service.store.rows import By, RowsError, StoreError
from service.store.store import MAX_LAST, MAX_PERIODS, Store
from service.store.work import upgrading, windows
from service.store.work.sums.class_and_tag import RowSums
from service.store.work.upgrading import DoubtfulCounts
from service.store.work.voiding import Restart
from service.store.work.windows import WindowCounts
from trueodds.sums.maturity import Matures

__all__ = [
    "MAX_LAST",
    "MAX_PERIODS",
    "By",
    "DoubtfulCounts",
    "WindowCounts",
    "RowSums",
    "RowsError",
    "Store",
    "StoreError",
    "begin_windows",
    "is_postgres",
    "open_reader",
    "open_store",
    "upgrade_store",
]

POSTGRES = ("postgresql://", "postgres://")


def is_postgres(address: str) -> bool:
    """Return whether an address names a PostgreSQL database rather than a file."""
    return address.startswith(POSTGRES)


async def open_store(address: str, connections: int = 8, *, read_only: bool = False, matures: Matures = ()) -> Store:
    """Open the store.

    Args:
        address: Path of a SQLite file, or a URL `postgresql://user:password@host:port/database`.
        connections: Largest number of connections to PostgreSQL.
        read_only: For PostgreSQL: every write raises StoreError, and the server may be a standby.
        matures: Maturity windows of models with late labels. They apply to versions that are added from now on.

    Raises:
        StoreError: The store cannot be opened. The message gives the reason without the password.
    """
    store = Store(await _open_database(address, connections, read_only), matures=matures)
    if read_only:
        return store
    try:
        await store.compact()
        await store.mature()
    except BaseException:
        await store.close()
        raise
    return store


async def open_reader(address: str) -> Store:
    """Open a store of which only this process reads, beside the services that use it. Nothing is written to it.

    Args:
        address: See `open_store`.

    Raises:
        StoreError: The store cannot be opened. A file is opened by its first read.
    """
    if is_postgres(address) or "://" in address:
        return Store(await _open_database(address, 1, True))
    from service.store.databases.sqlite import SqliteReader

    return Store(SqliteReader(Path(address)))


async def _open_database(address: str, connections: int, read_only: bool) -> Database:
    if is_postgres(address):
        from service.store.databases.postgres import PostgresDatabase

        return await PostgresDatabase.open(address, connections, read_only=read_only)
    if "://" in address:
        scheme = address.partition("://")[0]
        raise StoreError(f"the store is a {scheme}:// URL; allowed are file paths and postgresql:// URLs")
    if read_only:
        raise StoreError(
            f"the store {address} is a file, but --read-only needs a postgresql:// URL; to report from a file, start a"
            " service without --read-only and send it no traffic"
        )
    from service.store.databases.sqlite import SqliteDatabase

    return await SqliteDatabase.open(Path(address))


async def upgrade_store(
    address: str, restart: Restart, say: Callable[[str], None]
) -> dict[tuple[str, str], DoubtfulCounts] | None:
    """Upgrade a store from an earlier schema, in one transaction.

    Args:
        address: See `open_store`.
        restart: See `Store.void_labels`; applied to versions with doubtful labels.
        say: Receives lines of progress.

    Returns:
        The doubtful labels by model and version (see `work.upgrading`); None if the store has this release's schema.

    Raises:
        StoreError: The upgrade failed; the message gives the reason. The store is unchanged.
    """
    make = partial(upgrading.upgrade, restart)
    if is_postgres(address):
        from service.store.databases import postgres_upgrade

        return await postgres_upgrade.upgrade(address, make, say)
    from service.store.databases import sqlite_upgrade

    return await asyncio.to_thread(sqlite_upgrade.upgrade, Path(address), make, say)


async def begin_windows(address: str, matures: Matures, restart: Restart) -> dict[tuple[str, str], WindowCounts]:
    """Give versions without a maturity window the window of their model, in one transaction. See `work.windows`.

    Args:
        address: See `open_store`.
        matures: The windows, by model.
        restart: See `Store.void_labels`.

    Raises:
        StoreError: It failed, for example because a service uses the store. The store is unchanged.
    """
    make = partial(windows.begin, dict(matures), restart)
    if is_postgres(address):
        from service.store.databases import postgres_upgrade

        return await postgres_upgrade.alone(address, make)
    from service.store.databases import sqlite_upgrade

    return await asyncio.to_thread(sqlite_upgrade.alone, Path(address), make)
