"""Sums by SQL are the sums that Python makes of the same rows: equal counts, and sums equal to 1e-9."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.engines import duckdb_source
from tests.warehouse.tables import REFUSED, USED, arrow, rounded, usual
from trueodds import table_sums
from trueodds.errors import UserError
from trueodds.reports.table import reading
from trueodds.reports.table.reading import Form
from trueodds.reports.table.summed import TableSums
from trueodds.reports.table.table_content import Answers
from trueodds.reports.table.table_report import (
    positive_sums_of,
    report_of_answers,
    report_of_table,
    sums_by,
    sums_by_period,
    sums_of,
)
from trueodds.reports.warehouse import expression, terms
from trueodds.reports.warehouse.answer_rows import _floor_quotient
from trueodds.reports.warehouse.expression import sums_expression
from trueodds.reports.warehouse.parquet_source import TableSource
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.summing import sums_by_plan, sums_of_source
from trueodds.sums.answers import AnswerSums
from trueodds.sums.fine import FineSums

Make = Callable[[pa.Table], TableSource]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda table: duckdb_source(table, tmp_path)


def read(columns: dict[str, Any], folder: Path, form: Form) -> Answers:
    path = folder / "rows.parquet"
    pq.write_table(arrow(columns), path)
    return reading.read(path, form)


def assert_equal(found: AnswerSums, expected: AnswerSums) -> None:
    """Assert that counts are equal, and that sums differ by at most 1e-9 of the sum of absolute values."""
    assert (found.answers_C == expected.answers_C).all()
    mine, theirs = found.labelled.cells, expected.labelled.cells
    assert (mine[[0, 2]] == theirs[[0, 2]]).all()
    assert (np.isnan(mine) == np.isnan(theirs)).all()
    assert (np.nansum(abs(mine - theirs), axis=1) <= 1e-9 * np.nansum(abs(theirs), axis=1)).all()
    if isinstance(expected.labelled, FineSums):
        assert isinstance(found.labelled, FineSums)
        assert (found.labelled.fine[[0, 2]] == expected.labelled.fine[[0, 2]]).all()
        np.testing.assert_allclose(found.labelled.fine[1], expected.labelled.fine[1], rtol=1e-9)


def assert_equal_groups(found: TableSums, expected: Answers) -> None:
    columns = {"class": expected.predicted, "tag": expected.groups.tags, "version": expected.groups.versions}
    columns["confidence_source"] = expected.groups.confidence_sources
    for name, column in columns.items():
        groups, own = {} if column is None else sums_by(expected, column), found.by(name)
        assert own.keys() == groups.keys()
        for value, sums in groups.items():
            assert_equal(own[value], sums)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", USED)
def test_sums_of_an_engine_are_those_of_python(name: str, make: Make, tmp_path: Path) -> None:
    columns, positive = USED[name]
    form = Form(positive=positive)
    expected, found = read(columns, tmp_path, form), sums_of_source(make(arrow(columns)), form)
    assert_equal(found.total, sums_of(expected))
    assert_equal_groups(found, expected)
    assert found.resolution == expected.resolution and found.notes == expected.notes
    if positive:
        assert_equal(found.positive(positive).sums, positive_sums_of(expected, positive).sums)
    if expected.groups.time_ms_N is not None:
        unit, periods = sums_by_period(expected, "auto")
        own_unit, own = found.periods("auto")
        assert own_unit == unit and [start for start, _ in own] == [start for start, _ in periods]
        for (_, mine), (_, theirs) in zip(own, periods, strict=True):
            assert_equal(mine, theirs)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_python_refuses_are_refused(name: str, make: Make, tmp_path: Path) -> None:
    columns, words = REFUSED[name]
    with pytest.raises(UserError):
        read(columns, tmp_path, Form())
    with pytest.raises(UserError, match=words):
        sums_of_source(make(arrow(columns)))


@pytest.mark.few(3)
@pytest.mark.parametrize("trend", ["minute", "hour", "day", "month"])
@pytest.mark.parametrize("per_second", [1, 1000, 10**6])
def test_periods_are_those_of_python(trend: Any, per_second: int, make: Make, tmp_path: Path) -> None:
    columns = usual(300)
    times_N = np.asarray(columns["time"])[:300] * per_second
    if per_second == 10**6:
        times_N[:3] = [1_760_054_399_999_499, 1_760_054_399_999_500, 1_760_054_399_999_501]
    columns["time"] = times_N
    expected, found = read(columns, tmp_path, Form()), sums_of_source(make(arrow(columns)), trend=trend)
    (unit, periods), (own_unit, own) = sums_by_period(expected, trend), found.periods(trend)
    assert own_unit == unit and [start for start, _ in own] == [start for start, _ in periods]
    for (_, mine), (_, theirs) in zip(own, periods, strict=True):
        assert_equal(mine, theirs)


KINDS = (
    pa.timestamp("ns"),
    pa.timestamp("ns", tz="Europe/Berlin"),
    pa.timestamp("ms", tz="UTC"),
    pa.timestamp("us", tz="Europe/Berlin"),
    pa.date32(),
)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("trend", ["hour", "month"])
def test_times_of_every_type_have_the_periods_of_python(
    kind: pa.DataType, trend: Any, make: Make, tmp_path: Path
) -> None:
    table = arrow(usual(200))
    column = table.column("time").cast(pa.timestamp("s", tz=getattr(kind, "tz", None))).cast(kind)
    table = table.set_column(table.schema.get_field_index("time"), "time", column)
    pq.write_table(table, tmp_path / "rows.parquet")
    unit, periods = sums_by_period(reading.read(tmp_path / "rows.parquet", Form()), trend)
    own_unit, own = sums_of_source(make(table), trend=trend).periods(trend)
    assert own_unit == unit and [start for start, _ in own] == [start for start, _ in periods]
    for (_, mine), (_, theirs) in zip(own, periods, strict=True):
        assert_equal(mine, theirs)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")], ids=str)
def test_infinite_times_are_refused(kind: pa.DataType, make: Make, tmp_path: Path) -> None:
    """DuckDB writes them to Parquet as the largest number of its unit."""
    table = arrow(usual(60))
    moments = pa.array([2**63 - 1, *range(59)], pa.int64()).cast(kind)
    table = table.set_column(table.schema.get_field_index("time"), "time", moments)
    pq.write_table(table, tmp_path / "rows.parquet")
    words = "holds infinite times, or times outside of the years 1 to 9998, in 1 row"
    with pytest.raises(UserError, match=words):
        reading.read(tmp_path / "rows.parquet", Form())
    with pytest.raises(UserError, match=words):
        sums_of_source(make(table), trend="day")


def test_the_report_is_that_of_the_rows(tmp_path: Path) -> None:
    columns = usual(3_000)
    by_rows = report_of_answers(read(columns, tmp_path, Form()), by="tag", trend="day")
    sums = sums_of_source(duckdb_source(arrow(columns), tmp_path), trend="day")
    by_sums = report_of_table(sums, by="tag", trend="day")
    mine, theirs = by_sums.model_dump(), by_rows.model_dump()
    for tree in (mine, theirs):
        tree.pop("may_act")
        tree.pop("expected")  # by class, it needs the rows
        tree.pop("model")
        for text in ("reading", "headline"):
            tree.pop(text)
    assert_close(mine, theirs)


def assert_close(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        for name, value in theirs.items():
            assert_close(mine[name], value)
    elif isinstance(theirs, list | tuple):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one, other)
    elif isinstance(theirs, float):
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    else:
        assert mine == theirs


@pytest.mark.full
def test_sums_of_many_classes_are_those_of_python(make: Make, tmp_path: Path) -> None:
    columns = usual(150, 130)
    found = sums_of_source(make(arrow(columns)), trend="day")
    expected = read(columns, tmp_path, Form())
    assert_equal(found.total, sums_of(expected))
    assert_equal_groups(found, expected)


NEAR = {
    "a negative": (-1e-9, "1 row with a number outside"),
    "a sum": (0.5, "1 row with a sum other than 1"),
    "a gap": (float("nan"), "1 row with a gap"),
    "a large number": (2.0, "1 row with a number outside"),
}


@pytest.mark.full
@pytest.mark.parametrize(("value", "words"), NEAR.values(), ids=NEAR)
def test_rows_of_many_classes_that_need_the_rules_are_refused(value: float, words: str, make: Make) -> None:
    columns = usual(40, 101)
    columns["class 3"][5] = value
    with pytest.raises(UserError, match=words):
        sums_of_source(make(arrow(columns)))


def test_columns_that_differ_only_in_case_are_refused(make: Make) -> None:
    """DuckDB calls the second one `a_1`, and the labels of its class would count as those of the first one."""
    table = arrow({"A": [0.7, 0.2], "a": [0.3, 0.8], "label": ["A", "a"]})
    with pytest.raises(UserError, match=r"the columns 'A' and 'a'; .* rename one"):
        make(table)
    with pytest.raises(UserError, match=r"the columns 'A' and 'a'; .* rename one"):
        table_sums(table)


@pytest.mark.full
def test_another_predicted_class_of_many_is_named(make: Make) -> None:
    columns = usual(40, 101)
    columns["predicted"] = ["class 1"] * 40
    with pytest.raises(UserError, match="predict another class than that of the highest probability"):
        sums_of_source(make(arrow(columns)))


@pytest.mark.full
@pytest.mark.parametrize("classes", [3, 101])
def test_a_group_that_was_not_there_before_is_an_error(classes: int, make: Make) -> None:
    source = make(arrow(usual(60, classes)))
    plan = plan_of(source, Form())
    if not plan.group_codes:
        pytest.skip("this version of DuckDB adds up groups by their names")
    codes = tuple((name, values[:-1]) for name, values in plan.group_codes)
    with pytest.raises(UserError, match="not there before: the table changed"):
        sums_by_plan(source, replace(plan, group_codes=codes))


@pytest.mark.full
@pytest.mark.parametrize("per_table", [2, 21])
def test_periods_in_several_tables_are_those_of_one(
    per_table: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expression, "MOST_SMALL", per_table)
    columns = usual(60, 2)
    source = make(arrow(columns | {"time": [86_400 * (20_000 + k % 5) for k in range(60)]}))
    plan = plan_of(source, Form(), trend="day")
    assert plan.period_range == (20_000, 20_004)
    by_code, at_once = sums_by_plan(source, plan), sums_by_plan(source, replace(plan, period_range=None))
    mine, theirs = by_code.periods("day")[1], at_once.periods("day")[1]
    assert [start for start, _ in mine] == [start for start, _ in theirs] and len(mine) == 5
    for (_, one), (_, other) in zip(mine, theirs, strict=True):
        assert_equal(one, other)
    for other_range in ((20_000, 20_003), (20_001, 20_004)):
        with pytest.raises(UserError, match=r"tag or period that was not there before: .* run this again"):
            sums_by_plan(source, replace(plan, period_range=other_range))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, terms.MOST_PAIRED, terms.MOST_PAIRED + 1])
def test_the_largest_by_pairs_is_the_maximum(size: int) -> None:
    p_NC = np.random.default_rng(size).integers(0, 4, (40, size)) / 4  # with ties
    table = ibis.memtable({f"p{k}": p_NC[:, k] for k in range(size)})
    rows, found = terms.largest(table, list(table.columns), by_pairs=True)
    tops = ibis.duckdb.connect().to_pyarrow(rows.select(found=found))["found"]
    assert sorted(tops.to_pylist()) == sorted(p_NC.max(axis=1).tolist())


def test_a_label_that_was_not_there_before_is_an_error_with_a_cure(make: Make) -> None:
    source = make(arrow(usual(60)))
    plan = plan_of(source, Form())
    with pytest.raises(UserError, match=r"a label that was not there before: .* run this again"):
        sums_by_plan(source, replace(plan, labels=plan.labels[:-1]))


@pytest.mark.parametrize("numbers", [(2**64 - 2, 2**64 - 1), (3, 2**63)])
def test_labels_beyond_the_usual_whole_numbers_count(numbers: tuple[int, int], make: Make, tmp_path: Path) -> None:
    p_N = np.array([0.7, 0.2, 0.6, 0.9])
    labels = pa.array([numbers[k] for k in (0, 1, 1, 0)], pa.uint64())
    columns = {str(numbers[0]): p_N, str(numbers[1]): 1 - p_N, "label": labels}
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "rows.parquet")
    assert_equal(sums_of_source(make(table)).total, sums_of(reading.read(tmp_path / "rows.parquet", Form())))


def test_the_search_by_halves_and_the_list_find_each_value() -> None:
    table = ibis.memtable({"k": [-2, -1, 0, 1, 2, 3, 4], "text": ["d", None, "c", "b", "a", "", "A"]})
    values = [ibis.literal(float(k)) for k in range(5)]
    found = table.select(
        value=terms.value_at(table.k, values),
        code=terms.code(table.text, (("a", 0), ("b", 1), ("c", 2)), by_list=True),
        unseen=terms.code(table.text, (("a", 0), ("b", 1), ("c", 2), (None, 7)), by_list=True, unseen=9),
    )
    rows = ibis.duckdb.connect().to_pyarrow(found).to_pydict()
    assert rows["value"] == [None, None, 0.0, 1.0, 2.0, 3.0, 4.0]
    assert rows["code"] == [-2, -1, 2, 1, 0, -2, -2] and rows["unseen"] == [9, 7, 2, 1, 0, 9, 9]


@pytest.mark.full
def test_rounded_rows_of_many_classes_are_refused(make: Make) -> None:
    with pytest.raises(UserError, match=r"rounded to steps of 0\.001\. It has 101 columns"):
        sums_of_source(make(arrow(rounded(3, 101, 300))))


@pytest.mark.full
def test_order_of_many_numbered_classes_is_checked(make: Make) -> None:
    p_NC = np.random.default_rng(2).dirichlet(np.full(101, 0.1), 300)
    probabilities: dict[str, Any] = {f"{k} of 101": p_NC[:, k] for k in range(101)}
    right_N = p_NC.argmax(axis=1)
    sums = sums_of_source(make(arrow({**probabilities, "label": right_N})))
    assert sums.total.labelled.n == sums.total.labelled.cells[2].sum() == 300
    with pytest.raises(UserError, match="give the true order with --classes"):
        sums_of_source(make(arrow({**probabilities, "label": 100 - right_N})))


def test_rows_add_up_in_numpys_order() -> None:
    class Term(float):
        def __add__(self, other: float) -> Term:
            return Term(float(self) + float(other))

    rng = np.random.default_rng(0)
    for classes in (2, 7, 8, 9, 31, 128, 129, 300, 1_000):
        p_NC = rng.random((50, classes))
        own = [float(terms.total([Term(value) for value in row])) for row in p_NC]
        assert own == p_NC.sum(axis=1).tolist()


@pytest.mark.full
@pytest.mark.parametrize("name", ["usual", "two classes", "hundredths of two", "confidences", "ties"])
def test_one_aggregate_and_one_for_each_table_make_equal_sums(name: str, make: Make) -> None:
    columns, positive = USED[name]
    source = make(arrow(columns))
    plan = replace(plan_of(source, Form(positive=positive)), has_fan_out=True)
    by_table, at_once = sums_by_plan(source, plan), sums_by_plan(source, replace(plan, has_fan_out=False))
    assert_equal(by_table.total, at_once.total)
    for column in ("class", *plan.groups):
        mine, theirs = by_table.by(column), at_once.by(column)
        assert mine.keys() == theirs.keys()
        for value in theirs:
            assert_equal(mine[value], theirs[value])
    if positive:
        assert_equal(by_table.positive(positive).sums, at_once.positive(positive).sums)
    assert by_table.rounding(0.95) == at_once.rounding(0.95)


def test_the_engine_reads_the_table_once_and_copies_no_rows(make: Make) -> None:
    source = make(arrow(usual()))
    plan = plan_of(source, Form(), trend="day")
    if not plan.has_fan_out:
        pytest.skip("this version of DuckDB writes the rows of a WITH before it reads them")
    text = ibis.to_sql(sums_expression(source.table, plan, quick=True), dialect="duckdb")
    connection = source.table.get_backend()
    connection.raw_sql("SET enable_profiling = 'query_tree'")
    tree = connection.raw_sql(f"EXPLAIN ANALYZE {text}").fetchall()[0][1]
    assert tree.count("READ_PARQUET") == 1
    assert "Chunk Storage: NONE" in tree and "Buffered Consumers: 0" in tree


@pytest.mark.parametrize("size", [60, 86_400, 86_400_000])
def test_periods_of_numbers_beside_a_boundary_round_down(size: int) -> None:
    most = 2**53 // size
    starts = [k * size for k in (-most, -12_345_678, -1, 0, 1, 20_000, 987_654_321, most) if abs(k) <= most]
    values = [start + step for start in starts for step in (-1, 0, 1) if abs(start + step) < 2**53]
    table = ibis.memtable({"value": values})
    found = ibis.duckdb.connect().to_pyarrow(table.select(table.value, period=_floor_quotient(table.value, size)))
    rows = dict(zip(found["value"].to_pylist(), found["period"].to_pylist(), strict=True))
    assert rows == {value: value // size for value in values}
