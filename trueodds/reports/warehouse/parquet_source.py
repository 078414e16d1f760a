"""Sources of answers: a table of Ibis and the engine that runs its expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibis

from trueodds.bundle.storage.objects import is_url
from trueodds.errors import MissingExtraError, UserError
from trueodds.files import FileChangedError, FileError
from trueodds.reports.warehouse.parquet_files import files_of
from trueodds.reports.warehouse.plan import Expression
from trueodds.texts import hide_password, short

MEMORY = "1GB"
"""Largest memory of the embedded engine. What exceeds it is written to disk for a while."""
ENGINES = ("duckdb",)
"""Names of the engines."""


class EngineError(UserError, RuntimeError):
    """Error of an engine: its name is unknown, or it cannot read the table."""


@dataclass(frozen=True)
class TableSource:
    """A table of answers, and the way to run expressions over it."""

    name: str
    table: Expression
    engine: str = "duckdb"
    state: Callable[[], object] = lambda: None
    """Returns a value that changes when the table's files change."""
    first_state: object = None
    """That value when the table was opened."""
    execute: Callable[[Expression], Any] = lambda expression: expression.to_pyarrow()
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


def _check_state(name: str, state: Callable[[], object], first_state: object) -> None:
    if state() != first_state:
        raise FileChangedError(
            f"{name} changed while it was read, so its sums would be of neither state; run this again when nothing"
            " writes to it, or name the finished files"
        )


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
    """
    try:
        yield
    except UserError:
        raise
    except (ImportError, ModuleNotFoundError) as error:
        package = (error.name or "").partition(".")[0] or "ibis-framework"
        raise MissingExtraError(f"the engine {engine}", package, "warehouse") from None
    except Exception as error:  # each engine has errors of its own, without a common class
        _check_state(name, state, first_state)
        text = str(error)
        if "Traceback (most recent call last)" in text:  # from Python code that the engine called
            text = text.strip().splitlines()[-1]
        text = hide_password(" ".join(text.split()))[:400]
        cure = "check that each file is a whole Parquet file, and that all have the same columns"
        if "No files found" in text or "does not exist" in text or "not found" in text.lower():
            cure = "check the name of the table, or the path and its pattern"
        raise EngineError(f"{name}: {engine} reports {type(error).__name__}: {text}; {cure}") from None


def open_source(answers: str, engine: str, beside: Expression = None, *, file_column: str = "") -> TableSource:
    """Open a table of answers.

    Args:
        answers: A path, a pattern such as `answers/*.parquet`, or a URL such as `s3://bucket/answers/*.parquet`.
        engine: Name of the engine: `duckdb`.
        beside: A table that is open already, with whose connection this one is opened.
        file_column: Name of an added column with the file of each row; "" for none.

    Raises:
        EngineError: The engine is another one, or cannot read the files.
        FileError: There is no such file, or it has another suffix.
        BucketError: The bucket cannot be read.
        MissingExtraError: The engine's packages are not installed.
    """
    if engine not in ENGINES:
        raise EngineError(
            f"--engine is {short(hide_password(engine))}; allowed is {', '.join(ENGINES)}. For a table of another"
            " database, write it to Parquet files first"
        )
    return _of_files(answers, None if beside is None else ibis.get_backend(beside), file_column)


def connect() -> Any:
    """Open the embedded engine."""
    connection = ibis.duckdb.connect(memory_limit=MEMORY)
    connection.raw_sql("SET TimeZone = 'UTC'")
    connection.raw_sql("SET preserve_insertion_order = false")
    # Parquet's minima and maxima leave NaN out. DuckDB would simplify a check of [0, 1] by them, and a NaN would pass.
    connection.raw_sql("SET disabled_optimizers = 'statistics_propagation'")
    return connection


def _of_files(pattern: str, connection: Any = None, file_column: str = "") -> TableSource:
    """Open Parquet files with DuckDB."""
    if Path(pattern).suffix != ".parquet":
        raise FileError(
            f"{pattern} does not end in .parquet; --engine duckdb reads Parquet files: write the table as Parquet, or"
            " leave out --engine"
        )
    files = files_of(pattern)
    state = files.state()
    names = files.names()
    with naming(pattern, "duckdb", files.state, state):
        connection = connection or connect()
        files.open_in(connection)
        if len(names) > 1:
            _check_alike(pattern, connection, names)
        table = _view(connection, names, file_column)
    name = pattern if is_url(pattern) or any(sign in pattern for sign in "*?[") else Path(pattern).name
    return TableSource(name, table, "duckdb", state=files.state, first_state=state)


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
