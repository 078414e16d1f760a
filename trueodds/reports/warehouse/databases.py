"""Databases that make the sums: how each is opened, and how it runs an expression."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

import ibis
import pyarrow as pa
import sqlglot.expressions as sge

from trueodds.files import FileError
from trueodds.reports.warehouse.plan import Expression
from trueodds.reports.warehouse.probes import check_arithmetic
from trueodds.reports.warehouse.table_source import EMBEDDED, EngineError, TableSource, missing_package, naming
from trueodds.texts import hide_password

SCHEMES = {
    "postgres": "postgres",
    "postgresql": "postgres",
    "clickhouse": "clickhouse",
    "chdb": "clickhouse",
    "pyspark": "pyspark",
    "bigquery": "bigquery",
    "snowflake": "snowflake",
    "trino": "trino",
}
"""Beginning of an address -> name of the engine in Ibis."""
_PART = re.compile(r'"(?:[^"]|"")+"|[^".]+')
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
"""A table's name: parts between points, some of them in double quotes."""
READ_ONE_STATE = ("postgres",)
"""Engines whose connection reads one state of the database until it is closed."""
_CLICKHOUSE = {"precise_float_parsing": 1, "join_use_nulls": 1, "session_timezone": "UTC"}
"""Settings of ClickHouse. Without them it reads constants with errors in the last digit, and joins fill in zeros."""
POSTGRES_SETTINGS = ("SET LOCAL work_mem = '64MB'", "SET LOCAL jit = off")
"""Settings of PostgreSQL: memory of an aggregate before it writes to disk, and no compilation of long expressions."""


def is_address(engine: str) -> bool:
    """Return whether --engine is the address of a database."""
    return "://" in engine and engine.partition("://")[0] in SCHEMES


def engine_text(source: TableSource) -> str:
    """Return the engine of a table with its version, such as `postgres 16.4`.

    Raises:
        EngineError: The engine does not answer.
    """
    if source.engine == EMBEDDED:
        return f"{EMBEDDED} {metadata.version(EMBEDDED)}"
    with naming(source.name, source.engine):
        return f"{source.engine} {ibis.get_backend(source.table).version}"


def disconnect(connection: Any) -> None:
    """Close a connection. Spark's session stays: the process shares it."""
    if connection.name != "pyspark":
        connection.disconnect()


def open_table(name: str, address: str, connection: Any = None) -> TableSource:
    """Open a table of a database.

    Args:
        name: Name of the table or the view, perhaps after that of its schema and a point. A name that contains a
            point is in double quotes.
        address: Address of the database, such as `postgres://user@host/database`.
        connection: A connection of Ibis to this database; None opens one.

    Raises:
        EngineError: The database cannot be reached, has no such table, or computes otherwise than NumPy.
        FileError: The name is that of a file.
        MissingExtraError: The engine's packages are not installed.
    """
    if "://" in name or name.endswith((".parquet", ".csv", ".npz", ".npy")):
        raise FileError(f"{name} is a file, and --engine is a database; name one of its tables, or use --engine duckdb")
    engine = SCHEMES[address.partition("://")[0]]
    is_checked = connection is not None  # with the first table of the connection
    with naming(name, engine):
        connection = connection or _connect(address, engine)
        *schema, table = name_parts(name)
        database = schema[0] if len(schema) == 1 else tuple(schema) or None
        return table_of(connection.table(table, database=database), name, is_checked=is_checked)


def name_parts(name: str) -> list[str]:
    """Return the parts of a table's name, between points. A part in double quotes may contain points.

    Raises:
        FileError: The quotes are not paired, or a part is empty.

    Examples:
        >>> name_parts('logs."answers.2026"')
        ['logs', 'answers.2026']
    """
    if not _NAME.fullmatch(name):
        raise FileError(
            f"{name} is no name of a table; allowed are table and schema.table, with a part that has a point or a"
            " quote in double quotes: give '\"answers.2026\"'"
        )
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in _PART.findall(name)]


def table_of(table: Expression, name: str, *, is_checked: bool = False) -> TableSource:
    """Return the source of a table of Ibis that is on a database.

    Args:
        table: The table.
        name: Its name in messages and reports.
        is_checked: Whether the arithmetic of its connection has been checked.

    Raises:
        EngineError: The engine is none of the allowed ones, or computes otherwise than NumPy.
    """
    connection = ibis.get_backend(table)
    engine = connection.name
    run = _RUNNERS.get(engine, _run)
    source = TableSource(name, table, engine, execute=lambda expression: run(connection, expression))
    if not is_checked:
        check_arithmetic(source)
    return source


def _connect(address: str, engine: str) -> Any:
    """Open a connection. PostgreSQL reads one state of the database until it is closed, and writes nothing."""
    if address.startswith("chdb://"):
        return _connect_chdb(address)
    try:
        connection = ibis.connect(address)
    except ImportError as error:
        raise missing_package(engine, (error.name or "").partition(".")[0]) from None
    except ibis.IbisError as error:
        raise EngineError(f"the engine {engine} cannot be loaded: {error}") from None
    if engine == "postgres":
        import psycopg

        connection.con.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.con.read_only = True
        connection.con.autocommit = False
        connection.con.execute("SELECT 1")  # begins the transaction in which all that follows is nested
    return connection


def _connect_chdb(address: str) -> Any:
    """Open ClickHouse in this process, with the data of a folder."""
    import clickhouse_connect
    from ibis.backends.clickhouse import Backend

    if not urlsplit(address).path.strip("/"):
        raise EngineError(
            f"{hide_password(address)} names no folder; give the folder of the data, such as chdb:///data/answers"
        )
    return Backend.from_connection(clickhouse_connect.get_client(dsn=address))


def _run(connection: Any, expression: Expression) -> pa.Table:
    return connection.to_pyarrow(expression.as_table())


def _run_clickhouse(connection: Any, expression: Expression) -> pa.Table:
    return connection.to_pyarrow(expression.as_table(), settings=dict(_CLICKHOUSE))


def _run_spark(connection: Any, expression: Expression) -> pa.Table:
    """Run an expression in Spark. Ibis would go through pandas, where null and NaN are one."""
    return connection._session.sql(connection.compile(expression.as_table())).toArrow()


def _run_postgres(connection: Any, expression: Expression) -> pa.Table:
    table = expression.as_table()
    with connection.con.transaction(), connection.con.cursor() as cursor:
        for setting in POSTGRES_SETTINGS:
            cursor.execute(setting)
        cursor.execute(postgres_sql(connection.compiler, table))
        rows = cursor.fetchall()
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(table.columns)
    arrays = [_array(column, kind) for column, kind in zip(columns, table.schema().types, strict=True)]
    return pa.Table.from_arrays(arrays, names=list(table.columns))


def postgres_sql(compiler: Any, table: Expression) -> str:
    """Return the SQL text of an expression, each step of which PostgreSQL computes once for a row.

    PostgreSQL puts the terms of an inner SELECT in place of its names. A term that the next step uses three times is
    then computed three times, and over many steps the query outgrows every memory. `OFFSET 0` keeps steps apart, and
    writes nothing to disk. Steps that only choose rows and columns get none (`_has_terms`).
    """
    tree = compiler.to_sqlglot(table)
    for step in tree.find_all(sge.Subquery, sge.CTE):
        if isinstance(step.this, sge.Select) and _has_terms(step.this):
            step.this.set("offset", sge.Offset(expression=sge.Literal.number(0)))
    return str(tree.sql("postgres"))


def _has_terms(select: sge.Select) -> bool:
    """Return whether a SELECT computes terms of single rows.

    One that only chooses rows and columns is merged into the next step, so that PostgreSQL can use an index. So is one
    that reads a column as text, as ids of two types are.
    """
    if select.args.get("offset") or select.args.get("limit"):
        return False
    constants = (sge.Null, sge.Literal, sge.Boolean)
    for one in (term.unalias() for term in select.expressions):
        is_constant = isinstance(one.this if isinstance(one, sge.Cast) else one, constants)
        is_text = isinstance(one, sge.Cast) and isinstance(one.this, sge.Column) and one.is_type("varchar", "text")
        if not (is_constant or is_text or isinstance(one, sge.Column | sge.Star)):
            return True
    return False


def _array(values: Any, kind: Any) -> pa.Array:
    """Return values of PostgreSQL as an array. Its sums of whole numbers are decimals."""
    make: Callable[[Any], Any] | None = int if kind.is_integer() else float if kind.is_floating() else None
    if make is not None:
        values = [None if value is None else make(value) for value in values]
    return pa.array(values, kind.to_pyarrow())


_RUNNERS = {"postgres": _run_postgres, "clickhouse": _run_clickhouse, "pyspark": _run_spark}
