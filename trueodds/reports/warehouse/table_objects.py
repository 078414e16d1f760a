"""Sums of a table in memory or of a DuckDB connection, for programs and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trueodds.errors import MissingExtraError
from trueodds.processes.choices import LABEL, TrendUnit
from trueodds.reports.table.reading import Form
from trueodds.reports.table.summed import TableSums
from trueodds.sums.rounding import Given, Resolution

try:
    import ibis

    from trueodds.reports.warehouse.databases import SCHEMES, table_of
    from trueodds.reports.warehouse.parquet_source import allow_small_keys, check_spellings, connect, with_known_times
    from trueodds.reports.warehouse.plan import Expression
    from trueodds.reports.warehouse.summing import sums_of_source
    from trueodds.reports.warehouse.table_source import EMBEDDED, EngineError, TableSource, naming
except ModuleNotFoundError as error:
    raise MissingExtraError("trueodds.table_sums", (error.name or "ibis").partition(".")[0], "warehouse") from None


def table_sums(
    table: Any,
    *,
    label: str = LABEL,
    classes: Sequence[str] = (),
    positive: str | None = None,
    first_label: int | None = None,
    resolution: Given = None,
    trend: TrendUnit | None = None,
) -> TableSums:
    """Return the sums of a table of answers, made by its engine: all that metrics and reports need of it.

    The columns are those of the tables of `trueodds report`. The sums are those of
    `CalibrationSums.from_probabilities`: counts are equal, and sums differ by at most 1e-9 of the sum of absolute
    values.

    Args:
        table: A DataFrame of pandas or polars, a table of Arrow, a DuckDB relation, or anything else that offers its
            rows as an Arrow stream. DuckDB adds them up, and all rows are held in memory. A table of Ibis on DuckDB,
            PostgreSQL, ClickHouse, Spark, BigQuery, Snowflake or Trino stays there: that engine adds up its rows.
        label: Column of the labels.
        classes: Columns of the classes in the order of labels that are numbers. Empty: all columns without a meaning.
        positive: The positive class of two. The sums then have `positive(name)`.
        first_label: Number of the first class, 0 or 1, if labels are numbers. None: the labels show it.
        resolution: Step of rounded probabilities, or "exact". None: the rows show it.
        trend: Unit of the periods, if the table has a column `time`. None: the finest one that a trend shows.

    Returns:
        The sums. `total.labelled` is a `CalibrationSums`, which all functions of `trueodds.metrics` take. `by("tag")`
        and `by("class")` have the sums of each group.

    Raises:
        TypeError: It is no table.
        FileError: The table lacks a column, has no rows, or has a row that cannot be counted.
        EngineError: The engine cannot read the table, or computes otherwise than NumPy, or it is a table of Ibis on
            another engine.
        MissingExtraError: The extra `warehouse` is not installed.

    Examples:
        >>> import pandas, trueodds
        >>> p = pandas.DataFrame({"ham": [0.9, 0.8, 0.4, 0.3], "spam": [0.1, 0.2, 0.6, 0.7]})
        >>> sums = trueodds.table_sums(p.assign(label=["ham", "ham", "spam", "ham"], tag=["a", "b", "a", "b"]))
        >>> round(trueodds.metrics.accuracy(sums.total.labelled), 2)
        0.75
        >>> {tag: part.labelled.n for tag, part in sums.by("tag").items()}
        {'a': 2, 'b': 2}
    """
    form = Form(
        label=label,
        classes=tuple(classes),
        positive=positive,
        first_label=first_label,
        resolution=Resolution.of(resolution) if isinstance(resolution, float | int | str) else resolution,
    )
    return sums_of_source(source_of(table), form, trend=trend)


def source_of(table: Any) -> TableSource:
    """Return the source of a table in memory, or of a table of Ibis.

    Raises:
        TypeError: It is something else.
        EngineError: It is a table of Ibis on another engine than DuckDB, or cannot be read.
    """
    kind = f"{type(table).__module__.partition('.')[0]}.{type(table).__name__}"
    if isinstance(table, ibis.expr.types.Table):
        return _of_ibis(table)
    if not hasattr(table, "__arrow_c_stream__"):
        collect = "; collect() it first" if hasattr(table, "collect") else ""
        raise TypeError(
            f"table is a {kind}; allowed are a DataFrame of pandas or polars, a table of Arrow, a DuckDB relation and a"
            f" table of Ibis{collect}"
        )
    import pyarrow

    with naming(f"the {kind}", EMBEDDED):
        connection, rows = connect(), pyarrow.table(table)
        connection.con.register("answers", rows)
        answers = connection.table("answers")
        check_spellings(f"the {kind}", rows.column_names, answers)
        return TableSource(f"the {kind}", with_known_times(answers), EMBEDDED)


def _of_ibis(table: Expression) -> TableSource:
    """Return the source of a table of Ibis, whose connection keeps its own settings."""
    try:
        engine = ibis.get_backend(table).name
    except ibis.IbisError:
        engine = "none"
    if engine in SCHEMES.values():
        return table_of(table, "the table of Ibis")
    if engine != EMBEDDED:
        allowed = ", ".join([EMBEDDED, *dict.fromkeys(SCHEMES.values())])
        raise EngineError(
            f"the table of Ibis is on the engine {engine}; allowed are {allowed}. Write the table to Parquet files, and"
            " pass ibis.read_parquet(files)"
        )

    def execute(expression: Expression) -> Any:
        with _settings(ibis.get_backend(table)):
            return expression.to_pyarrow()

    return TableSource("the table of Ibis", with_known_times(table), EMBEDDED, execute=execute)


@contextmanager
def _settings(connection: Any) -> Iterator[None]:
    """Give a connection of the user the settings that the sums need, for a while (see `connect`)."""
    names = ("TimeZone", "disabled_optimizers", "perfect_ht_threshold")
    zone, disabled, bits = (connection.raw_sql(f"SELECT current_setting('{name}')").fetchone()[0] for name in names)
    disabled = disabled or ""
    both = ",".join(filter(None, [disabled, "statistics_propagation"]))
    try:
        connection.raw_sql("SET TimeZone = 'UTC'")
        connection.raw_sql(f"SET disabled_optimizers = '{both}'")
        allow_small_keys(connection)
        yield
    finally:
        connection.raw_sql(f"SET TimeZone = '{zone}'")
        connection.raw_sql(f"SET disabled_optimizers = '{disabled}'")
        connection.raw_sql(f"SET perfect_ht_threshold = {bits}")
