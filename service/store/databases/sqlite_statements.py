"""Runs the statements of work in an open SQLite transaction."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

from service.store.work.statements import ExecuteMany, Insert, InsertNew, Lock, Query, Statement, Work, insertion

T = TypeVar("T")

ROWS = 64
"""Rows per INSERT; equals the default `max_batch`."""
CACHED = 512
"""Size of the cache of prepared INSERT statements, one per table and number of rows."""

_ANY = re.compile(r"= ANY\(\$(\d+)\)")
_PARAMETER = re.compile(r"\$(\d+)")


def run(db: sqlite3.Connection, work: Work[T]) -> T:
    """Run work statement by statement in the open transaction."""
    outcome: Any = None
    while True:
        try:
            statement = work.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        outcome = _execute(db, statement)


def _execute(db: sqlite3.Connection, statement: Statement) -> Any:
    match statement:
        case Lock():
            return None
        case Query(sql, args):
            plain = tuple(json.dumps(arg) if isinstance(arg, list) else arg for arg in args)
            return db.execute(translate(sql), plain).fetchall()
        case Insert(table, columns, rows):
            _insert(db, table, columns, rows)
        case ExecuteMany(sql, args):
            db.executemany(translate(sql), args)
        case InsertNew():
            return _insert_new(db, statement)
    return None


def _insert(db: sqlite3.Connection, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> None:
    """Insert many rows per statement. After each one Python waits for the GIL, which a busy event loop holds."""
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]
        db.execute(_insertion(table, columns, len(part)), [value for row in part for value in row])


@lru_cache(maxsize=CACHED)
def _insertion(table: str, columns: tuple[str, ...], rows: int) -> str:
    row = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * rows)}"


def _insert_new(db: sqlite3.Connection, statement: InsertNew) -> set[Any]:
    """Insert all rows at once if all are new, which is nearly always so: 8 us per row instead of 22 one by one."""
    db.execute("SAVEPOINT all_new")
    try:
        _insert(db, statement.table, statement.columns, statement.rows)
    except sqlite3.IntegrityError:
        db.execute("ROLLBACK TO all_new")
        plain = insertion(statement.table, statement.columns)
        sql = translate(f"{plain} ON CONFLICT DO NOTHING RETURNING {statement.columns[0]}")
        return {key for row in statement.rows for (key,) in db.execute(sql, row).fetchall()}
    finally:
        db.execute("RELEASE all_new")
    return {row[0] for row in statement.rows}


@lru_cache(maxsize=256)
def translate(sql: str) -> str:
    """Translate a statement to SQLite's dialect."""
    listed = _ANY.sub(r"IN (SELECT value FROM json_each(?\1))", sql)
    return _PARAMETER.sub(r"?\1", listed)
