"""Time of the sums in a database, beside a plain GROUP BY of the same columns in the same database.

The table is that of `benchmarks.scaling.warehouse_sums`: ten classes with label, tag (20 values) and time (30 days).
The plain query groups by label, tag and day, and adds up each probability. Both run in turns. The ratio is that of the
medians of processor seconds (user and system) of this process and of the database's processes, which other work on the
machine changes little. PostgreSQL's memory is the largest of one of its processes, without shared buffers.

A day of the same table follows: its sums as `trueodds sums --partition` makes them, beside the plain query of that
day, and the count of the rows of all days, by which `--daily` finds missing days and late rows. PostgreSQL has an index
by time, and ClickHouse an order.

    python -m benchmarks.scaling.database_sums --rows 1000000
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
from trueodds.reports.table.stored_sums import Window, day_ms
from trueodds.reports.warehouse.databases import POSTGRES_SETTINGS
from trueodds.reports.warehouse.parquet_source import TableSource, connect, open_source
from trueodds.reports.warehouse.partitions import PartitionedTable, rows_by_day, sums_of_partition
from trueodds.reports.warehouse.plan import ReadingPlan
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.summing import sums_by_plan

TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds in which the kernel counts the processor time of other processes. A query may take less."""
TURNS = 3
REPEATS = 20
"""Plain queries of a day in one measurement: a single one takes less than the kernel counts."""
DAY = Window.of_day(day_ms("2025-10-20"))
"""Day in the middle of the table's 30 days."""
ADDED = ", ".join(f"sum({name})" for name in CLASSES)
PLAIN = "SELECT label, tag, {day}, count(*), " + ADDED + " FROM answers{where} GROUP BY label, tag, {day}"
DAYS: dict[str, str] = {"postgres": "time / 86400", "chdb": "intDiv(time, 86400)", "pyspark": "time div 86400"}
"""Number of a row's day in each database's SQL."""


@contextmanager
def postgres_table(path: Path) -> Iterator[tuple[TableSource, str, list[psutil.Process]]]:
    """Yield the table in a PostgreSQL of its own, the address of the database, and the server's processes."""
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
            connection.execute("CREATE INDEX by_time ON answers (time)")
            # Without their count, PostgreSQL expects 100 times as many groups, and sorts the rows of the plain query.
            connection.execute("CREATE STATISTICS days ON label, tag, (time / 86400) FROM answers")
            connection.execute("VACUUM ANALYZE answers")
        source = open_source("answers", address)
        server = cluster._process
        assert server is not None
        try:
            yield source, address, psutil.Process(server.pid).children()
        finally:
            source.table.get_backend().disconnect()


@contextmanager
def chdb_table(path: Path) -> Iterator[tuple[TableSource, str, list[psutil.Process]]]:
    """Yield the table in chDB, and the address of the database."""
    import clickhouse_connect

    address = f"chdb://{path.parent}/chdb"
    client = clickhouse_connect.get_client(dsn=address)
    rows = f"SELECT * REPLACE (assumeNotNull(time) AS time) FROM file('{path}')"
    client.command(f"CREATE TABLE answers ENGINE = MergeTree ORDER BY time AS {rows}")
    yield open_source("answers", address), address, []
    client.close()


@contextmanager
def spark_table(path: Path) -> Iterator[tuple[TableSource, str, list[psutil.Process]]]:
    """Yield the table as a view of Spark, and the address of the database."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "2g").getOrCreate()
    session.read.parquet(str(path)).createOrReplaceTempView("answers")
    yield open_source("answers", "pyspark://"), "pyspark://", []
    session.stop()


TABLES = {"postgres": postgres_table, "chdb": chdb_table, "pyspark": spark_table}


def measure(name: str, path: Path, rows: int) -> dict[str, Any]:
    """Return the medians of all queries, and the ratios."""
    with TABLES[name](path) as (source, address, processes):
        query = PLAIN.format(day=DAYS[name], where="")
        plan, memory = plan_of(source, Form(), trend="day"), 0
        whole = _in_turns(lambda: _plain(name, source, query), lambda: _sums(source, plan, rows))
        if processes:
            with _largest(processes) as largest:  # not in the turns, since the watch takes processor time
                _sums(source, plan, rows)
            memory = largest[0]
        table = PartitionedTable(answers="answers", engine=address, arrival="time", trend="day")
        limits = f" WHERE time >= {DAY.start_ms // 1000} AND time < {DAY.end_ms // 1000}"
        of_day = PLAIN.format(day=DAYS[name], where=limits)
        answers = sums_of_partition(table, DAY).rows.answers
        day = _in_turns(
            lambda: _plain(name, source, of_day, REPEATS),
            lambda: sums_of_partition(table, DAY),
            lambda: rows_by_day(table),
        )
        day[0] = {key: round(seconds / REPEATS, 4) for key, seconds in day[0].items()}
    return {
        "engine": name,
        "rows": rows,
        "plain": whole[0],
        "sums": whole[1],
        "ratio_of_processor_seconds": _ratio(whole),
        "peak_mib": round(memory / 2**20) or None,
        "day": {
            "rows": answers,
            "plain": day[0],
            "sums": day[1],
            "count_of_all_days": day[2],
            "ratio_of_processor_seconds": _ratio(day),
        },
    }


def _in_turns(*queries: Callable[[], object]) -> list[dict[str, float]]:
    """Run queries in turns, and return the medians of the seconds of each."""
    found: list[list[tuple[float, float]]] = [[] for _ in queries]
    for _ in range(TURNS):
        for own, query in zip(found, queries, strict=True):
            own.append(_seconds(query))
    medians = [[statistics.median(column) for column in zip(*own, strict=True)] for own in found]
    return [{"processor_s": round(processor, 3), "clock_s": round(clock, 3)} for processor, clock in medians]


def _ratio(medians: list[dict[str, float]]) -> float:
    plain, sums = medians[0]["processor_s"], medians[1]["processor_s"]
    return round(sums / max(plain, TICK / REPEATS), 2)


def _sums(source: TableSource, plan: ReadingPlan, rows: int) -> None:
    assert len(sums_by_plan(source, plan)) == rows


def _plain(name: str, source: TableSource, query: str, repeats: int = 1) -> None:
    connection = source.table.get_backend()
    for _ in range(repeats):
        if name == "pyspark":
            connection._session.sql(query).toArrow()
        elif name == "chdb":
            connection.con.query_arrow(query)
        else:
            with connection.con.transaction(), connection.con.cursor() as cursor:
                for setting in POSTGRES_SETTINGS:  # as the sums have them: with less memory it would sort all rows
                    cursor.execute(setting)
                cursor.execute(query)
                cursor.fetchall()


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
    """Return two rows for each database: the whole table, and a day of it."""
    head = ["| engine | rows | sums | plain query | ratio | memory |", "|---|---:|---:|---:|---:|---:|"]
    rows = []
    for case in result["cases"]:
        rows += [_row(case["engine"], case, _mib(case["peak_mib"])), _row(f"{case['engine']}, a day", case["day"], "")]
    seconds = ", ".join(
        f"{case['engine']} {case['day']['count_of_all_days']['processor_s']:.2f} s" for case in result["cases"]
    )
    return "\n".join(
        [*head, *rows, "", f"Count of the rows of all days, by which `--daily` finds late ones: {seconds}."]
    )


def _row(name: str, case: dict[str, Any], memory: str) -> str:
    sums, plain = (case[key]["processor_s"] for key in ("sums", "plain"))
    ratio = case["ratio_of_processor_seconds"]
    return f"| {name} | {case['rows']:,} | {sums:.2f} s | {plain:.3g} s | {ratio:.1f} | {memory} |"


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
