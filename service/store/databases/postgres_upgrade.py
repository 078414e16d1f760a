"""Upgrade of a PostgreSQL store, in one transaction that locks out other processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg

from service.store.databases.postgres import CLIENT, CONNECT_SECONDS, SESSION, run, without_password, words_of
from service.store.databases.schema import APPLICATION_ID, POSTGRES_UPGRADES, VERSION, other_version
from service.store.rows import StoreError
from service.store.work.statements import MakeWork, Work

_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
    " AND pid <> pg_backend_pid()"
)

T = TypeVar("T")


async def upgrade(url: str, make: Callable[[int], Work[T]], say: Callable[[str], None]) -> T | None:
    """Upgrade the database. Return the work's result, or None if the database has this release's schema.

    `make` gets the version of the database's schema.

    Raises:
        StoreError: Unknown database, not a store, a schema that cannot be upgraded, or a service is connected.
    """
    async with _connect(url) as (connection, name, version):
        if version == VERSION:
            return None
        if version not in POSTGRES_UPGRADES:
            raise StoreError(other_version(name, version, POSTGRES_UPGRADES, "database"))
        await _lock(connection, name)
        say("No copy is kept; make one with pg_dump. If the upgrade fails, the database is unchanged.")
        for statement in POSTGRES_UPGRADES[version]:
            await connection.execute(statement)
        result = await run(connection, make(version), large=False)
        await connection.execute("UPDATE trueodds_schema SET version = $1", VERSION)
        return result


async def alone(url: str, make: MakeWork[T]) -> T:
    """Run work in one transaction while no service is connected, and return its result.

    Raises:
        StoreError: Unknown database, not a store with this release's schema, or a service is connected.
    """
    async with _connect(url) as (connection, name, version):
        if version != VERSION:
            raise StoreError(other_version(name, version, POSTGRES_UPGRADES, "database"))
        await _lock(connection, name)
        return await run(connection, make(), large=False)


@asynccontextmanager
async def _connect(url: str) -> AsyncIterator[tuple[Any, str, Any]]:
    """Open a connection and a transaction. Yield it with the database's name and the version of its schema."""
    name = without_password(url)
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, server_settings=SESSION)
        try:
            async with connection.transaction():
                yield connection, name, await connection.fetchval("SELECT max(version) FROM trueodds_schema")
        finally:
            await connection.close()
    except asyncpg.UndefinedTableError:
        raise StoreError(f"{name} has no TrueOdds tables; give the database that the service uses") from None
    except (asyncpg.PostgresError, *CLIENT, OSError, ValueError, TimeoutError) as error:
        raise StoreError(f"the store {name} cannot be changed: {words_of(error)}") from error


async def _lock(connection: Any, name: str) -> None:
    """Lock out every service until the transaction ends.

    Raises:
        StoreError: A service is connected.
    """
    await connection.execute("SELECT pg_advisory_xact_lock($1)", APPLICATION_ID)
    if others := await connection.fetchval(_OTHERS, SESSION["application_name"]):
        words = "a service is" if others == 1 else f"{others} connections of services are"
        raise StoreError(f"{words} connected to {name}; stop every service that uses it, then try again")
    await connection.execute("LOCK TABLE trueodds_schema, predictions, labels, held, moves IN ACCESS EXCLUSIVE MODE")
