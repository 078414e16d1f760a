"""Running work in an open transaction of SQLite."""

from __future__ import annotations

import json
import re
import sqlite3
from functools import lru_cache
from typing import Any, TypeVar

from service.store.steps import Insert, InsertNew, Lock, Many, Rows, Step, Work, insertion

T = TypeVar("T")

_ANY = re.compile(r"= ANY\(\$(\d+)\)")
_PARAMETER = re.compile(r"\$(\d+)")


def run(db: sqlite3.Connection, work: Work[T]) -> T:
    """Work, step by step, in the transaction that is open."""
    answer: Any = None
    while True:
        try:
            step = work.send(answer)
        except StopIteration as done:
            found: T = done.value
            return found
        answer = _perform(db, step)


def _perform(db: sqlite3.Connection, step: Step) -> Any:
    match step:
        case Lock():
            return None
        case Rows(sql, args):
            plain = tuple(json.dumps(arg) if isinstance(arg, list) else arg for arg in args)
            return db.execute(translated(sql), plain).fetchall()
        case Insert(table, columns, rows):
            db.executemany(translated(insertion(table, columns)), rows)
        case Many(sql, args):
            db.executemany(translated(sql), args)
        case InsertNew(table, columns, rows):
            statement = translated(insertion(table, columns) + f" ON CONFLICT DO NOTHING RETURNING {columns[0]}")
            return {found[0][0] for row in rows if (found := db.execute(statement, row).fetchall())}
    return None


@lru_cache(maxsize=256)
def translated(sql: str) -> str:
    """SQLite's form of a statement."""
    listed = _ANY.sub(r"IN (SELECT value FROM json_each(?\1))", sql)
    return _PARAMETER.sub(r"?\1", listed)
