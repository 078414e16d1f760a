"""The engines of the tests: DuckDB, and real databases on this machine that are filled with the same tables."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.faults import postgres
from trueodds.reports.warehouse.parquet_source import TableSource, open_source


def duckdb_source(table: pa.Table, folder: Path) -> TableSource:
    """Return a table in a Parquet file, which DuckDB reads."""
    path = folder / "answers.parquet"
    pq.write_table(table, path, row_group_size=500)
    return open_source(str(path), "duckdb")


class Database(ABC):
    """A database that tables are written to, and that `--engine` opens."""

    address: str
    _numbers = itertools.count(1)  # of every database: those of ClickHouse share one folder

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trueodds-engine-"))
        self._connections: list[Any] = []

    def write(self, table: pa.Table) -> str:
        """Write a table, and return its name."""
        name = f"answers_{next(self._numbers)}"
        self._write(name, table)
        return name

    def source(self, table: pa.Table) -> TableSource:
        """Write a table, and open it as the command does."""
        source = open_source(self.write(table), self.address)
        self._connections.append(source.table.get_backend())
        return source

    def disconnect(self) -> None:
        """Close the connections that `source` opened."""
        self._connections.clear()

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def _write(self, name: str, table: pa.Table) -> None: ...

    def insert(self, name: str, table: pa.Table) -> None:
        """Add rows to a table."""
        raise NotImplementedError

    def _parquet(self, name: str, table: pa.Table) -> Path:
        path = self.folder / f"{name}.parquet"
        pq.write_table(table, path)
        return path


KINDS = {
    pa.float64(): "double precision",
    pa.float32(): "real",
    pa.string(): "text",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.null(): "text",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}
"""Types of Arrow, and those of PostgreSQL."""


class Postgres(Database):
    """A PostgreSQL of its own."""

    def __init__(self) -> None:
        pytest.importorskip("psycopg", reason="psycopg is not installed (trueodds[engines])")
        if reason := postgres.missing():
            pytest.skip(reason)
        super().__init__()
        self.cluster = postgres.Cluster()
        self.address = f"postgres://{postgres.USER}@127.0.0.1:{self.cluster.port}/postgres"

    def run(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _write(self, name: str, table: pa.Table) -> None:
        import psycopg

        quoted = [field.name.replace('"', '""') for field in table.schema]
        columns = [f'"{column}" {KINDS[field.type]}' for column, field in zip(quoted, table.schema, strict=True)]
        with psycopg.connect(self.address) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {name} ({', '.join(columns)})".encode())
            with cursor.copy(f"COPY {name} FROM STDIN".encode()) as rows:
                for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                    rows.write_row(row)

    def disconnect(self) -> None:
        for connection in self._connections:
            connection.disconnect()
        super().disconnect()

    def close(self) -> None:
        self.disconnect()
        self.cluster.remove()
        super().close()


@functools.cache
def chdb_folder() -> Path:
    """Return the folder of this process's chDB, which opens no second one while any connection to the first is left."""
    folder = Path(tempfile.mkdtemp(prefix="trueodds-chdb-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class ClickHouse(Database):
    """ClickHouse in this process, by chDB."""

    def __init__(self) -> None:
        for package in ("chdb", "clickhouse_connect"):
            pytest.importorskip(package, reason=f"{package} is not installed (trueodds[engines])")
        super().__init__()
        self.address = f"chdb://{chdb_folder()}/data"
        import clickhouse_connect

        self.client = clickhouse_connect.get_client(dsn=self.address)

    def _write(self, name: str, table: pa.Table) -> None:
        path = self._parquet(name, table)
        self.client.command(
            f"CREATE TABLE {name} ENGINE = MergeTree ORDER BY tuple() AS SELECT * FROM file('{path}')"
            " SETTINGS session_timezone = 'UTC'"
        )

    def insert(self, name: str, table: pa.Table) -> None:
        path = self._parquet(f"{name}_more", table)
        self.client.command(f"INSERT INTO {name} SELECT * FROM file('{path}')")

    def close(self) -> None:
        self.client.close()
        super().close()


class Spark(Database):
    """Spark in a process of its own, with one session for all tests."""

    def __init__(self) -> None:
        pytest.importorskip("pyspark", reason="pyspark is not installed (trueodds[engines])")
        if shutil.which("java") is None:
            pytest.skip("Spark needs Java (Debian: apt-get install default-jre-headless)")
        super().__init__()
        self.address = "pyspark://"
        from pyspark.sql import SparkSession

        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {
            "spark.driver.memory": "1g",
            # Java's quick compiler alone: the thorough one pays in processes that live for minutes.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.folder),
            # On small tables the compilation of the code takes longest.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
        builder = SparkSession.builder.master("local[1]")
        for setting, value in settings.items():
            builder = builder.config(setting, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")

    def _write(self, name: str, table: pa.Table) -> None:
        path = self._parquet(name, table)
        self.session.read.parquet(str(path)).createOrReplaceTempView(name)

    def close(self) -> None:
        self.session.stop()
        super().close()


DATABASES: dict[str, type[Database]] = {"postgres": Postgres, "clickhouse": ClickHouse, "pyspark": Spark}
