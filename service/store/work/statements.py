"""Statements: the store's work is a generator that yields them and is sent their results.

A database (`service.store.databases`) runs such a generator inside one transaction. SQL is PostgreSQL's, with two
things that `sqlite_statements` translates: `$1` parameters, and `= ANY($1)` for a list.

Locks are taken in one order, so that no two transactions wait for each other: models, then versions, each by key.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """A statement whose result is the list of its rows."""

    sql: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Insert:
    """Appends rows that are known to be new, all columns of the table or the ones named."""

    table: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class InsertNew:
    """Appends those rows whose key is not there yet; the result is the set of their first columns."""

    table: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ExecuteMany:
    """Runs a statement once for each tuple of arguments."""

    sql: str
    args: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Lock:
    """A statement that only locks rows, until the transaction ends. SQLite has one writer and skips it."""

    sql: str
    args: tuple[Any, ...] = ()


def lock_of(version: int) -> Lock:
    """Keep others from labelling a version's answers, and from giving it tags, until the transaction ends."""
    return Lock("SELECT key FROM versions WHERE key = $1 FOR NO KEY UPDATE", (version,))


Statement = Query | Insert | InsertNew | ExecuteMany | Lock
Work = Generator[Statement, Any, T]
MakeWork = Callable[[], Work[T]]
"""Called once for each attempt: a transaction that fails before its commit may be tried again."""


@lru_cache(maxsize=64)
def insertion(table: str, columns: tuple[str, ...]) -> str:
    """INSERT of one row, as PostgreSQL has it."""
    values = ", ".join(f"${k}" for k in range(1, len(columns) + 1))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"
