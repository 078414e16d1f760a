"""Statements: the store's work is a generator that yields statements and receives their results.

A database (`service.store.databases`) runs such a generator inside one transaction. The SQL is PostgreSQL's.
`sqlite_statements` translates two things: `$1` parameters, and `= ANY($1)` for a list.

All transactions take locks in the same order, so that they cannot deadlock: models, then versions, each by key.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """Statement whose result is the list of its rows."""

    sql: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Insert:
    """Insertion of rows that are known to be new, with the given columns."""

    table: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class InsertNew:
    """Insertion of those rows whose key does not exist yet. The result is the set of their first columns."""

    table: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ExecuteMany:
    """Statement that runs once per tuple of arguments."""

    sql: str
    args: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Lock:
    """Statement that only locks rows until the transaction ends. SQLite has a single writer and skips it."""

    sql: str
    args: tuple[Any, ...] = ()


def lock_of(version: int) -> Lock:
    """Return the lock that keeps others from labelling and tagging a version's answers until the transaction ends."""
    return Lock("SELECT key FROM versions WHERE key = $1 FOR NO KEY UPDATE", (version,))


Statement = Query | Insert | InsertNew | ExecuteMany | Lock
Work = Generator[Statement, Any, T]
MakeWork = Callable[[], Work[T]]
"""Maker of work. It is called once per attempt, because a transaction that fails may be repeated."""


@lru_cache(maxsize=64)
def insertion(table: str, columns: tuple[str, ...]) -> str:
    """Return the INSERT of one row in PostgreSQL's dialect."""
    values = ", ".join(f"${k}" for k in range(1, len(columns) + 1))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"
