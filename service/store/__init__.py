"""The service's store: answers, labels and their sums, in a SQLite file or a PostgreSQL database.

`Store` is all that the rest of the service calls. Below it, `work` says what is done, as SQL and the computing between
its statements, and `databases` run such work in transactions.
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
from service.store.work.upgrading import Doubt
from service.store.work.voiding import Restart
from service.store.work.windows import Begun
from trueodds.sums.maturity import Matures

__all__ = [
    "MAX_LAST",
    "MAX_PERIODS",
    "By",
    "Doubt",
    "Begun",
    "RowSums",
    "RowsError",
    "Store",
    "StoreError",
    "begin_windows",
    "is_postgres",
    "open_store",
    "upgrade_store",
]

POSTGRES = ("postgresql://", "postgres://")


def is_postgres(address: str) -> bool:
    """Whether an address is that of a PostgreSQL database and not a file."""
    return address.startswith(POSTGRES)


async def open_store(address: str, connections: int = 8, *, read_only: bool = False, matures: Matures = ()) -> Store:
    """The store at the path of a SQLite file, or at a URL `postgresql://user:password@host:port/database`.

    `read_only`, of PostgreSQL: all that writes raises StoreError, and a standby will do. `matures`: the windows of
    models whose labels come late, for versions that come from now on.

    Raises:
        StoreError: it cannot be opened; the message says why, without the password.
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


async def _open_database(address: str, connections: int, read_only: bool) -> Database:
    if is_postgres(address):
        from service.store.databases.postgres import PostgresDatabase

        return await PostgresDatabase.open(address, connections, read_only=read_only)
    if "://" in address:
        scheme = address.partition("://")[0]
        raise StoreError(f"the store is a {scheme}:// URL; allowed are the path of a file and postgresql:// URLs")
    if read_only:
        raise StoreError(
            f"the store {address} is a file, and --read-only takes a postgresql:// URL; a service that is given no"
            " traffic reports from a file as well"
        )
    from service.store.databases.sqlite import SqliteDatabase

    return await SqliteDatabase.open(Path(address))


async def upgrade_store(
    address: str, restart: Restart, say: Callable[[str], None]
) -> dict[tuple[str, str], Doubt] | None:
    """Upgrade a store of the schema before this release's, in one transaction.

    Args:
        address: As for `open_store`.
        restart: As for `Store.void_labels`, for versions whose labels are in doubt.
        say: Takes lines of progress.

    Returns:
        The labels in doubt by model and version (see `work.upgrading`); None where the store has this release's schema.

    Raises:
        StoreError: it cannot be upgraded; the message says why. The store is then as it was.
    """
    make = partial(upgrading.upgrade, restart)
    if is_postgres(address):
        from service.store.databases import postgres_upgrade

        return await postgres_upgrade.upgrade(address, make, say)
    from service.store.databases import sqlite_upgrade

    return await asyncio.to_thread(sqlite_upgrade.upgrade, Path(address), make, say)


async def begin_windows(address: str, matures: Matures, restart: Restart) -> dict[tuple[str, str], Begun]:
    """Give versions that began without a window the one of their model, in one transaction; see `work.windows`.

    Args:
        address: As for `open_store`.
        matures: The windows, by model.
        restart: As for `Store.void_labels`.

    Raises:
        StoreError: it cannot be done, such as with a service that uses the store. The store is then as it was.
    """
    make = partial(windows.begin, dict(matures), restart)
    if is_postgres(address):
        from service.store.databases import postgres_upgrade

        return await postgres_upgrade.alone(address, make)
    from service.store.databases import sqlite_upgrade

    return await asyncio.to_thread(sqlite_upgrade.alone, Path(address), make)
