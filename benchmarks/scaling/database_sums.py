"""Time of the sums in a database, beside a plain GROUP BY of the same columns in the same database.

The table is that of `benchmarks.scaling.warehouse_sums`: ten classes with label, tag (20 values) and time (30 days).
The plain query groups by label, tag and day, and adds up each probability. Both run in turns. The ratio is that of the
medians of processor seconds (user and system) of this process and of the database's processes, which other work on the
machine changes little. PostgreSQL's memory is the largest of one of its processes, without shared buffers.

    python -m benchmarks.scaling.database_sums --rows 300000
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.faults import postgres
from benchmarks.record import RESULTS, circumstances, options_parser, write
from benchmarks.scaling.warehouse_sums import CLASSES, make_classes
from trueodds.reports.table.reading import Form
from trueodds.reports.warehouse.parquet_source import TableSource, connect, open_source
from trueodds.reports.warehouse.plan import ReadingPlan
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.summing import sums_by_plan

TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds in which the kernel counts the processor time of other processes. A query may take less."""
TURNS = 3
ADDED = ", ".join(f"sum({name})" for name in CLASSES)
PLAIN = "SELECT label, tag, {day}, count(*), " + ADDED + " FROM answers GROUP BY label, tag, {day}"


@contextmanager
def postgres_table(path: Path) -> Iterator[tuple[TableSource, str, list[psutil.Process]]]:
    """Yield the table in a PostgreSQL of its own, the plain query, and the server's processes."""
    import psycopg

    with postgres.Cluster() as cluster:
        address = f"postgres://{postgres.USER}@127.0.0.1:{cluster.port}/postgres"
        rows = path.with_suffix(".csv")
        connect().raw_sql(f"COPY (SELECT * FROM read_parquet('{path}')) TO '{rows}' (HEADER false)")
        columns = ", ".join(f"{name} double precision" for name in CLASSES)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE answers ({columns}, label text, tag text, time bigint)".encode())
            with connection.cursor().copy("COPY answers FROM STDIN CSV") as copy:
                copy.write(rows.read_bytes())
            connection.execute("VACUUM ANALYZE answers")
        source = open_source("answers", address)
        server = cluster._process
        assert server is not None
        try:
            yield source, PLAIN.format(day="time / 86400"), psutil.Process(server.pid).children()
        finally:
            source.table.get_backend().disconnect()


@contextmanager
def chdb_table(path: Path) -> Iterator[tuple[TableSource, str, list[psutil.Process]]]:
    """Yield the table in chDB, and the plain query."""
    import clickhouse_connect

    address = f"chdb://{path.parent}/chdb"
    client = clickhouse_connect.get_client(dsn=address)
    client.command(f"CREATE TABLE answers ENGINE = MergeTree ORDER BY tuple() AS SELECT * FROM file('{path}')")
    yield open_source("answers", address), PLAIN.format(day="intDiv(time, 86400)"), []
    client.close()


@contextmanager
def spark_table(path: Path) -> Iterator[tuple[TableSource, str, list[psutil.Process]]]:
    """Yield the table as a view of Spark, and the plain query."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "2g").getOrCreate()
    session.read.parquet(str(path)).createOrReplaceTempView("answers")
    yield open_source("answers", "pyspark://"), PLAIN.format(day="time div 86400"), []
    session.stop()


TABLES = {"postgres": postgres_table, "chdb": chdb_table, "pyspark": spark_table}


def measure(name: str, path: Path, rows: int) -> dict[str, Any]:
    """Return the medians of both queries, and the ratio."""
    with TABLES[name](path) as (source, query, processes):
        plan = plan_of(source, Form(), trend="day")
        plain, sums, memory = [], [], 0
        for _ in range(TURNS):
            plain.append(_seconds(lambda: _plain(name, source, query)))
            sums.append(_seconds(lambda: _sums(source, plan, rows)))
        if processes:
            with _largest(processes) as largest:  # not in the turns, since the watch takes processor time
                _sums(source, plan, rows)
            memory = largest[0]
    medians = [[statistics.median(column) for column in zip(*own, strict=True)] for own in (plain, sums)]
    named = [{"processor_s": round(own[0], 3), "clock_s": round(own[1], 3)} for own in medians]
    return {
        "engine": name,
        "rows": rows,
        "plain": named[0],
        "sums": named[1],
        "ratio_of_processor_seconds": round(medians[1][0] / max(medians[0][0], TICK), 2),
        "peak_mib": round(memory / 2**20) or None,
    }


def _sums(source: TableSource, plan: ReadingPlan, rows: int) -> None:
    assert len(sums_by_plan(source, plan)) == rows


def _plain(name: str, source: TableSource, query: str) -> None:
    connection = source.table.get_backend()
    if name == "pyspark":
        connection._session.sql(query).toArrow()
    elif name == "chdb":
        connection.con.query_arrow(query)
    else:
        connection.con.execute(query).fetchall()


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of the processors, and those of the clock."""
    clock, processor = time.perf_counter(), _processor_seconds()
    work()
    return _processor_seconds() - processor, time.perf_counter() - clock


def _processor_seconds() -> float:
    """Return user and system seconds of this process, of all below it, and of those that have ended."""
    own = psutil.Process()
    found = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # the next look counts it as an ended one
        found += times.user + times.system + times.children_user + times.children_system
    return found


@contextmanager
def _largest(processes: list[psutil.Process]) -> Iterator[list[int]]:
    """Watch the memory of processes, and keep the largest of one of them in bytes."""
    found, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for process in processes:
                if process.is_running():
                    found[0] = max(found[0], process.memory_full_info().uss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def markdown(result: dict[str, Any]) -> str:
    """Return a row for each database."""
    head = ["| engine | rows | sums | plain query | ratio | memory |", "|---|---:|---:|---:|---:|---:|"]
    rows = [
        f"| {case['engine']} | {case['rows']:,} | {case['sums']['processor_s']:.2f} s"
        f" | {case['plain']['processor_s']:.2f} s | {case['ratio_of_processor_seconds']:.1f}"
        f" | {_mib(case['peak_mib'])} |"
        for case in result["cases"]
    ]
    return "\n".join([*head, *rows])


def _mib(size: int | None) -> str:
    return "not measured" if size is None else f"{size} MiB"


def main() -> None:
    """Fill each database, measure, and remove it."""
    parser = options_parser(__doc__, RESULTS / "database_sums.json")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (default: %(default)s)")
    arguments = parser.parse_args()
    found = []
    for name in TABLES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "answers.parquet"
            make_classes(path, arguments.rows)
            Path(folder).chmod(0o755)
            found.append(measure(name, path, arguments.rows))
        print(json.dumps(found[-1]), flush=True)
    packages = ("ibis-framework", "psycopg", "chdb", "pyspark")
    result = {**circumstances(*packages), "cases": found, "load_at_the_end": round(os.getloadavg()[0], 1)}
    write(arguments.out, result)


if __name__ == "__main__":
    main()
