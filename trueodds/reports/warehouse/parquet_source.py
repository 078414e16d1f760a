"""Openers of tables of answers: Parquet files, or a table of a database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ibis

from trueodds.bundle.storage.objects import is_url
from trueodds.files import FileError
from trueodds.reports.warehouse.databases import SCHEMES, is_address, open_table
from trueodds.reports.warehouse.parquet_files import files_of
from trueodds.reports.warehouse.plan import Expression
from trueodds.reports.warehouse.table_source import EMBEDDED
from trueodds.reports.warehouse.table_source import EngineError as EngineError
from trueodds.reports.warehouse.table_source import TableSource as TableSource
from trueodds.reports.warehouse.table_source import naming as naming
from trueodds.texts import hide_password, short

MEMORY = "1GB"
"""Largest memory of the embedded engine. What exceeds it is written to disk for a while."""
_ZONED = "TIMESTAMPTZ_NS"
"""DuckDB's type of times with a zone in nanoseconds."""
_MOST_THREADS = 16
"""Largest number of threads for which keys of 16 bits are places in an array."""


def open_source(answers: str, engine: str, beside: Expression = None, *, file_column: str = "") -> TableSource:
    """Open a table of answers.

    Args:
        answers: With `duckdb`, a path, a pattern such as `answers/*.parquet`, or a URL such as
            `s3://bucket/answers/*.parquet`. With the address of a database, the name of a table or a view.
        engine: `duckdb`, or the address of a database, such as `postgres://user@host/database`.
        beside: A table that is open already, with whose connection this one is opened.
        file_column: Name of an added column with the file of each row of files; "" for none.

    Raises:
        EngineError: The engine is another one, or cannot read the table.
        FileError: There is no such file, or it has another suffix.
        BucketError: The bucket cannot be read.
        MissingExtraError: The engine's packages are not installed.
    """
    connection = None if beside is None else ibis.get_backend(beside)
    if is_address(engine):
        return open_table(answers, engine, connection)
    if engine != EMBEDDED:
        raise EngineError(
            f"--engine is {short(hide_password(engine))}; allowed is {EMBEDDED}, or the address of a database, which"
            f" begins with {', '.join(f'{scheme}://' for scheme in SCHEMES)}. For a table of another database, write it"
            " to Parquet files first"
        )
    return _of_files(answers, connection, file_column)


def connect() -> Any:
    """Open the embedded engine."""
    connection = ibis.duckdb.connect(memory_limit=MEMORY)
    connection.raw_sql("SET TimeZone = 'UTC'")
    connection.raw_sql("SET preserve_insertion_order = false")
    allow_small_keys(connection)
    # Parquet's minima and maxima leave NaN out. DuckDB would simplify a check of [0, 1] by them, and a NaN would pass.
    connection.raw_sql("SET disabled_optimizers = 'statistics_propagation'")
    return connection


def with_known_times(table: Expression) -> Expression:
    """Return a table of DuckDB whose times with a zone in nanoseconds, as pandas writes them, are times in UTC.

    Ibis does not know their type. The cast is exact, because sessions have the time zone UTC.
    """
    unknown = [name for name, kind in table.schema().items() if kind.is_unknown() and _ZONED in str(kind.raw_type)]
    return table.mutate(**{name: table[name].cast("timestamp(9)") for name in unknown}) if unknown else table


def allow_small_keys(connection: Any) -> None:
    """Let the engine count by places in an array for keys of 16 bits, in some 20 MB for each of its threads.

    With very many threads it would need too much memory, and finds keys by their hashes as before.
    """
    if int(connection.raw_sql("SELECT current_setting('threads')").fetchone()[0]) <= _MOST_THREADS:
        connection.raw_sql("SET perfect_ht_threshold = 17")


def _of_files(pattern: str, connection: Any = None, file_column: str = "") -> TableSource:
    """Open Parquet files with DuckDB."""
    if Path(pattern).suffix != ".parquet":
        other = "" if file_column else ", or leave out --engine"  # sums by day have no other engine of files
        raise FileError(
            f"{pattern} does not end in .parquet; --engine duckdb reads Parquet files: write the table as Parquet"
            f"{other}"
        )
    files = files_of(pattern)
    state = files.state()
    names = files.names()
    with naming(pattern, EMBEDDED, files.state, state):
        connection = connection or connect()
        files.open_in(connection)
        if len(names) > 1:
            _check_alike(pattern, connection, names)
        table = _view(connection, names, file_column)
        schema = connection.raw_sql(f"SELECT name FROM parquet_schema([{_quote_names(names[:1])}])").fetchall()
        check_spellings(pattern, [*(name for (name,) in schema), file_column], table)
    name = pattern if is_url(pattern) or any(sign in pattern for sign in "*?[") else Path(pattern).name
    return TableSource(name, with_known_times(table), EMBEDDED, state=files.state, first_state=state)


def check_spellings(source: str, names: Sequence[str], table: Expression) -> None:
    """Check that DuckDB has renamed no column. It does so with one that differs from another only in case.

    Args:
        source: Name of the table.
        names: Names of its columns.
        table: The table as DuckDB has it.

    Raises:
        FileError: It has. The labels of that class would count as those of the other one.
    """
    if set(table.columns) <= set(names):
        return
    first: dict[str, str] = {}
    for column in names:
        other = first.setdefault(column.lower(), column)
        if other != column:
            raise FileError(
                f"{source} has the columns {other!r} and {column!r}; DuckDB takes names that differ only in upper and"
                " lower case as one: rename one of them, or report on the rows without an engine"
            )


def _view(connection: Any, names: list[str], file_column: str) -> Expression:
    """Return files as a table. Ibis would read a URL by an extension of DuckDB that needs the internet once."""
    view = ibis.util.gen_name("answers")
    # Folders such as version=3 would become columns, and columns of numbers are classes.
    options = "hive_partitioning = false" + (f", filename = '{file_column}'" if file_column else "")
    connection.raw_sql(f"CREATE TEMP VIEW {view} AS SELECT * FROM read_parquet([{_quote_names(names)}], {options})")
    return connection.table(view)


def _quote_names(names: list[str]) -> str:
    return ", ".join(f"'{name.replace(chr(39), 2 * chr(39))}'" for name in names)


def _check_alike(pattern: str, connection: Any, names: list[str]) -> None:
    """Check that all files have the same columns with the same types.

    DuckDB leaves out columns that the first file lacks, and rounds fractions to the first file's whole numbers.

    Raises:
        FileError: They have not. A column of nothing but nulls may have another type.
    """
    kinds = "list(DISTINCT duckdb_type ORDER BY duckdb_type) FILTER (WHERE logical_type IS DISTINCT FROM 'NullType()')"
    found = connection.raw_sql(
        f"SELECT name, count(DISTINCT file_name) AS files, {kinds} AS kinds"
        f" FROM parquet_schema([{_quote_names(names)}]) WHERE duckdb_type IS NOT NULL GROUP BY name"
        f" HAVING files < {len(names)} OR len(kinds) > 1"
        " ORDER BY name LIMIT 1"
    ).fetchone()
    if found is not None:
        column, files, types = found
        differs = f"is in {files:,} of them" if files < len(names) else f"is {' or '.join(types)}"
        raise FileError(
            f"{pattern} names {len(names):,} files, and the column {column!r} {differs}; allowed are the same columns"
            " with the same types: write the files alike, or report on each kind"
        )
