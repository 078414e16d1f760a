"""The statements of work, run in an open transaction of SQLite."""

from __future__ import annotations

import json
import re
import sqlite3
from functools import lru_cache
from typing import Any, TypeVar

from service.store.work.statements import ExecuteMany, Insert, InsertNew, Lock, Query, Statement, Work, insertion

T = TypeVar("T")

_ANY = re.compile(r"= ANY\(\$(\d+)\)")
_PARAMETER = re.compile(r"\$(\d+)")


def run(db: sqlite3.Connection, work: Work[T]) -> T:
    """Run work, statement by statement, in the transaction that is open."""
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
            return db.execute(translated(sql), plain).fetchall()
        case Insert(table, columns, rows):
            db.executemany(translated(insertion(table, columns)), rows)
        case ExecuteMany(sql, args):
            db.executemany(translated(sql), args)
        case InsertNew():
            return _insert_new(db, statement)
    return None


def _insert_new(db: sqlite3.Connection, statement: InsertNew) -> set[Any]:
    """All at once where all are new, which they nearly always are: 8 us a row, and one by one 22."""
    plain = insertion(statement.table, statement.columns)
    db.execute("SAVEPOINT all_new")
    try:
        db.executemany(translated(plain), statement.rows)
    except sqlite3.IntegrityError:
        db.execute("ROLLBACK TO all_new")
        sql = translated(f"{plain} ON CONFLICT DO NOTHING RETURNING {statement.columns[0]}")
        return {key for row in statement.rows for (key,) in db.execute(sql, row).fetchall()}
    finally:
        db.execute("RELEASE all_new")
    return {row[0] for row in statement.rows}


@lru_cache(maxsize=256)
def translated(sql: str) -> str:
    """SQLite's form of a statement."""
    listed = _ANY.sub(r"IN (SELECT value FROM json_each(?\1))", sql)
    return _PARAMETER.sub(r"?\1", listed)
