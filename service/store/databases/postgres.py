"""PostgreSQL through asyncpg: a connection pool, COPY for new rows, one transaction per call.

A transaction that fails before its commit is tried again on another connection. Such failures are a server that stops
or restarts, and deadlocks. A transaction whose connection broke during its commit is not repeated, because nobody knows
whether it took effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg

from service.store.databases.database import Database
from service.store.databases.schema import APPLICATION_ID, POSTGRES, POSTGRES_UPGRADES, VERSION, other_version
from service.store.rows import RowsError, StoreDamagedError, StoreError
from service.store.work.statements import (
    ExecuteMany,
    Insert,
    InsertNew,
    Lock,
    MakeWork,
    Query,
    Statement,
    Work,
    insertion,
)

ATTEMPTS = 3
"""Largest number of attempts at a transaction."""
CONNECT_SECONDS = 5.0
WAIT_SECONDS = 10.0
"""Time for which a call waits for a free connection."""
COMMAND_SECONDS = 60.0
SESSION = {
    "application_name": "trueodds",
    "synchronous_commit": "on",  # an answer guarantees durability, whatever the server's default
    "plan_cache_mode": "force_generic_plan",  # every statement has its index; new tables have no statistics yet
    "jit": "off",
}
READING = {"default_transaction_read_only": "on"}
"""Extra settings of a read-only session."""
COPY_ROWS = 64
"""Number of rows from which COPY is used. Below it INSERT is as fast (15 us per row)."""

# asyncpg raises InternalClientError if the server stops during a statement.
CLIENT = (asyncpg.InterfaceError, asyncpg.InternalClientError)
_GONE = (OSError, *CLIENT, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError)
_OF_ROWS = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)
_OF_DAMAGE = (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError)
_AGAIN = (*_GONE, asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

T = TypeVar("T")


class PostgresDatabase(Database):
    """PostgreSQL store. Create it with `await PostgresDatabase.open(url)`."""

    def __init__(self, pool: Any, name: str, *, read_only: bool = False) -> None:
        self._pool, self._name, self._read_only, self._closed = pool, name, read_only, False

    @classmethod
    async def open(cls, url: str, connections: int = 8, *, read_only: bool = False) -> Self:
        """Connect, and create the tables in a new database. They are in the first schema of the search path.

        Args:
            url: URL of the database.
            connections: Largest number of connections.
            read_only: Create and write nothing. The server may then be a standby.

        Raises:
            StoreError: Unknown server or database, wrong password, another schema, or read-only and the tables do not
                exist.
        """
        name = without_password(url)
        try:
            pool = await asyncpg.create_pool(
                url,
                min_size=0,  # with more, asyncpg logs a traceback for every failed attempt to reconnect
                max_size=connections,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                server_settings=SESSION | READING if read_only else SESSION,
            )
        except (asyncpg.PostgresError, *CLIENT, OSError, ValueError, TimeoutError) as error:
            raise StoreError(f"the store {name} cannot be opened: {words_of(error)}") from None
        try:
            async with pool.acquire() as connection:
                await (_check_tables if read_only else _create_tables)(connection, name)
        except BaseException as error:
            await pool.close()
            if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                cure = "use the address of its primary, or --read-only for a service that only reports"
                raise StoreError(f"the store {name} accepts no writes: {error}; {cure}") from None
            if isinstance(error, (asyncpg.PostgresError, *CLIENT, OSError, ValueError)):
                raise StoreError(f"the store {name} cannot be opened: {words_of(error)}") from None
            raise
        return cls(pool, name, read_only=read_only)

    async def ping(self) -> None:
        with self._errors("reached"):
            async with self._connection() as connection:
                read_only = await connection.fetchval("SELECT current_setting('transaction_read_only')", timeout=5)
                if read_only == "on" and not self._read_only:
                    raise StoreError(f"the store {self._name} accepts no writes: it is a standby or set to read only")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.wait_for(self._pool.close(), CONNECT_SECONDS)
        except (TimeoutError, OSError, *CLIENT, asyncpg.PostgresError):
            self._pool.terminate()

    async def write(self, make: MakeWork[T], *, large: bool = False) -> T:
        if self._read_only:
            raise StoreError(f"the store {self._name} is opened read-only (--read-only); nothing can be written")
        with self._errors("written"):
            for attempt in range(1, ATTEMPTS + 1):
                committing = False
                try:
                    async with self._connection() as connection:
                        transaction = connection.transaction()
                        await transaction.start()
                        try:
                            result = await run(connection, make(), large)
                        except BaseException:
                            with suppress(*_GONE):
                                await transaction.rollback()
                            raise
                        committing = True
                        await transaction.commit()
                        return result
                except _AGAIN as error:
                    if committing or not _again(error, attempt):
                        raise
        raise AssertionError("unreachable")

    async def read(self, make: MakeWork[T]) -> T:
        with self._errors("read"):
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    async with (
                        self._connection() as connection,
                        connection.transaction(isolation="repeatable_read", readonly=True),
                    ):
                        return await run(connection, make(), True)
                except _AGAIN as error:
                    if not _again(error, attempt):
                        raise
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """Take a connection from the pool. A broken one is closed. Errors on its release are ignored after a commit."""
        connection = await self._pool.acquire(timeout=WAIT_SECONDS)
        try:
            yield connection
        except _GONE:
            connection.terminate()
            raise
        finally:
            with suppress(*_GONE):
                await self._pool.release(connection)

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        """Turn the driver's errors into StoreError."""
        if self._closed:
            raise StoreError("the store is closed: the service is shutting down")
        try:
            yield
        except StoreDamagedError as error:
            raise StoreDamagedError(error.damage, self._name) from error
        except _OF_DAMAGE as error:
            raise StoreDamagedError(words_of(error), self._name) from error
        except TimeoutError:
            message = f"the store {self._name} cannot be {verb}: timed out waiting for an answer or a free connection"
            raise StoreError(message) from None
        except (asyncpg.PostgresError, *CLIENT, OSError) as error:
            kind = RowsError if isinstance(error, _OF_ROWS) else StoreError
            raise kind(f"the store {self._name} cannot be {verb}: {words_of(error)}") from error


async def run(connection: Any, work: Work[T], large: bool) -> T:
    """Run work statement by statement. `large` moves its own computation to a thread."""
    outcome: Any = None
    while True:
        statement = await asyncio.to_thread(_next, work, outcome) if large else _next(work, outcome)
        if isinstance(statement, _Result):
            result: T = statement.value
            return result
        outcome = await _execute(connection, statement)


@dataclass(frozen=True)
class _Result:
    """Value that the work returned. It is wrapped because StopIteration cannot leave a thread."""

    value: Any


def _next(work: Work[Any], outcome: Any) -> Statement | _Result:
    try:
        return work.send(outcome)
    except StopIteration as end:
        return _Result(end.value)


async def _execute(connection: Any, statement: Statement) -> Any:
    match statement:
        case Query(sql, args) | Lock(sql, args):
            return await connection.fetch(sql, *args)
        case ExecuteMany(sql, args):
            await connection.executemany(sql, args)
        case Insert(table, columns, rows) if len(rows) < COPY_ROWS:
            await connection.executemany(insertion(table, columns), rows)
        case Insert(table, columns, rows):
            await connection.copy_records_to_table(table, records=rows, columns=columns)
        case InsertNew(table, columns, rows):
            sql = f"{insertion(table, columns)} ON CONFLICT DO NOTHING RETURNING {columns[0]}"
            return {row[0] for row in await connection.fetchmany(sql, rows)}
    return None


async def _create_tables(connection: Any, name: str) -> None:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", APPLICATION_ID)  # one process at a time
        await connection.execute("CREATE TABLE IF NOT EXISTS trueodds_schema (version BIGINT NOT NULL)")
        version = await connection.fetchval("SELECT max(version) FROM trueodds_schema")
        if version is None:
            await connection.execute(";\n".join(POSTGRES))  # in one message
            await connection.execute("INSERT INTO trueodds_schema VALUES ($1)", VERSION)
        elif version != VERSION:
            raise StoreError(other_version(name, version, POSTGRES_UPGRADES, "database"))


async def _check_tables(connection: Any, name: str) -> None:
    """Raise StoreError unless the tables exist and have this release's schema."""
    try:
        version = await connection.fetchval("SELECT max(version) FROM trueodds_schema")
    except asyncpg.UndefinedTableError:
        words = "has no TrueOdds tables, and --read-only creates none: first start a service that writes to it"
        raise StoreError(f"the store {name} {words}") from None
    if version != VERSION:
        raise StoreError(other_version(name, version, POSTGRES_UPGRADES, "database"))


def _again(error: BaseException, attempt: int) -> bool:
    return isinstance(error, _AGAIN) and not isinstance(error, TimeoutError) and attempt < ATTEMPTS


def without_password(url: str) -> str:
    """Return the URL without its password."""
    try:
        parts = urlsplit(url)
        where = parts.netloc.rpartition("@")[2]
        user = f"{parts.username}@" if parts.username else ""
        return f"{parts.scheme}://{user}{where}{parts.path}"
    except ValueError:
        return "postgresql://..."


def words_of(error: BaseException) -> str:
    """Return the error's message, or its class name if it has none."""
    return str(error) or type(error).__name__
