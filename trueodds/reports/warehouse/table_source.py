"""Tables of answers: a table of Ibis and the engine that runs its expressions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ibis

from trueodds.errors import MissingExtraError, UserError
from trueodds.files import FileChangedError
from trueodds.reports.warehouse.plan import Expression
from trueodds.texts import hide_password

EMBEDDED = "duckdb"
"""Name of the engine that reads files in this process."""
TESTED = (EMBEDDED, "postgres", "clickhouse", "pyspark")
"""Engines whose sums the tests compare with those of Python. Their packages are in the extras."""
_PACKAGES = {
    "postgres": "psycopg",
    "clickhouse": "clickhouse-connect",
    "bigquery": "google-cloud-bigquery",
    "snowflake": "snowflake-connector-python",
}
"""Package that an engine needs, where Ibis does not name it."""
_CURES = {
    True: "check that each file is a whole Parquet file, and that all have the same columns",
    False: "check the address of --engine, the credentials, and the table",
}


_ABSENT = ("no files found", "does not exist", "not found", "notfound")
"""Signs of a table or a file that does not exist, in an engine's message."""

_REFUSED = ("authentication failed", "no password supplied", "pg_hba.conf", *_ABSENT)
"""Signs of a database that answers, and refuses."""
_AWAY = (
    "connection",
    "timeout",
    "timed out",
    "max retries exceeded",
    "failed to resolve",
    "starting up",
    "shutting down",
    "too many clients",
    "conflict with recovery",
)
"""Signs of a database that does not answer now, and may answer later."""

_compiling = threading.Lock()
_nested = 0
"""Number of expressions that are compiled with nested selects at the moment."""
_fused = True
"""Ibis's own setting, which applies again when there are none."""


class EngineError(UserError, RuntimeError):
    """Error of an engine: its name is unknown, or it cannot read the table."""


class EngineAwayError(EngineError, ConnectionError):
    """A database cannot be reached now, or has ended the connection. Another try may succeed."""


@dataclass(frozen=True)
class TableSource:
    """A table of answers, and the way to run expressions over it."""

    name: str
    table: Expression
    engine: str = EMBEDDED
    state: Callable[[], object] = lambda: None
    """Returns a value that changes when the table's files change."""
    first_state: object = None
    """That value when the table was opened."""
    execute: Callable[[Expression], Any] = lambda expression: _execute(expression)
    """Runs an expression and returns a table of Arrow."""

    def run(self, expression: Expression) -> dict[str, Any]:
        """Run an expression and return its columns as lists by name.

        Raises:
            EngineError: The engine cannot run it.
        """
        with naming(self.name, self.engine, self.state, self.first_state):
            table = self.execute(expression)
        columns: dict[str, Any] = {name: table.column(name).to_pylist() for name in table.column_names}
        return columns

    def arrays(self, expression: Expression) -> Any:
        """Run an expression and return its table of Arrow.

        Raises:
            EngineError: The engine cannot run it.
        """
        with naming(self.name, self.engine, self.state, self.first_state):
            return self.execute(expression)

    def check_state(self) -> None:
        """Check that no file has changed since the table was opened.

        Raises:
            FileChangedError: One has.
        """
        _check_state(self.name, self.state, self.first_state)

    @property
    def header(self) -> list[str]:
        """Names of the columns."""
        return list(self.table.columns)


def missing_package(engine: str, module: str) -> UserError:
    """Build the error for a package that an engine needs and that is not installed.

    Args:
        engine: Name of the engine.
        module: Name of the module that cannot be imported; "" if it is not known.
    """
    package = module or _PACKAGES.get(engine, engine)
    if engine in TESTED:
        return MissingExtraError(f"the engine {engine}", package, "warehouse" if engine == EMBEDDED else "engines")
    return EngineError(
        f"the engine {engine} needs the package {package}, which is not installed here; install what belongs to it:"
        f" pip install 'ibis-framework[{engine}]'"
    )


def _check_state(name: str, state: Callable[[], object], first_state: object) -> None:
    if state() != first_state:
        raise FileChangedError(
            f"{name} changed while it was read, so its sums would be of neither state; run this again when nothing"
            " writes to it, or name the finished files"
        )


def _execute(expression: Expression) -> Any:
    connection = expression.get_backend()
    if connection.name != EMBEDDED:
        return expression.to_pyarrow()
    with _keeping_selects():
        text = connection.compile(expression)
    # to_pyarrow() would first search the expression for tables in memory and for geometries, of which it has none.
    return connection.con.sql(text).to_arrow_table().cast(expression.schema().to_pyarrow())


@contextmanager
def _keeping_selects() -> Iterator[None]:
    """Leave nested selects as they are: merging them takes Ibis a quarter of its time, and DuckDB does it itself."""
    global _nested, _fused
    with _compiling:
        if not _nested:
            _fused = ibis.options.sql.fuse_selects
        _nested += 1
        ibis.options.sql.fuse_selects = False
    try:
        yield
    finally:
        with _compiling:
            _nested -= 1
            if not _nested:
                ibis.options.sql.fuse_selects = _fused


@contextmanager
def naming(
    name: str, engine: str, state: Callable[[], object] = lambda: None, first_state: object = None
) -> Iterator[None]:
    """Turn errors of an engine into messages that name the table and the cure.

    Args:
        name: Name of the table.
        engine: Name of the engine.
        state: Returns the state of its files. A bucket that cannot be read raises its own error.
        first_state: Their state when they were opened.

    Raises:
        EngineAwayError: A database cannot be reached.
        EngineError: The engine reports another error.
    """
    try:
        yield
    except UserError:
        raise
    except ImportError as error:
        raise missing_package(engine, (error.name or "").partition(".")[0]) from None
    except Exception as error:  # each engine has errors of its own, without a common class
        _check_state(name, state, first_state)
        text = str(error)
        if "Traceback (most recent call last)" in text:  # from Python code that the engine called
            text = text.strip().splitlines()[-1]
        text = hide_password(" ".join(text.split()))[:400]
        cure = _CURES[engine == EMBEDDED]
        words = f"{type(error).__name__} {text}".lower()
        is_connecting = "connection" in words  # an unknown role or database does not exist either
        if any(sign in words for sign in ("permission denied", "insufficientprivilege", "access_denied")):
            cure = "let this account read the table (GRANT SELECT), or use the credentials of one that may"
        elif not is_connecting and any(sign in words for sign in _ABSENT):
            cure = "check the name of the table, or the path and its pattern"
            if engine != EMBEDDED and "." in name and '"' not in name:
                cure += f"; a point ends the name of a schema: for a table with a point in its name, give '\"{name}\"'"
        is_away = engine != EMBEDDED and any(sign in words for sign in _AWAY)
        kind = EngineAwayError if is_away and not any(sign in words for sign in _REFUSED) else EngineError
        raise kind(f"{name}: {engine} reports {type(error).__name__}: {text}; {cure}") from None
