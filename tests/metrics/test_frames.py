"""Names of columns and indexes of data frames: a frame that contradicts the order of rows or classes is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import trueodds
from trueodds import calibrators, metrics
from trueodds.calibrators import conformal
from trueodds.errors import ConfigError
from trueodds.evaluation.worst_group import worst_group
from trueodds.sums.frames import check_columns, check_index
from trueodds.sums.ordered import OrderedSums
from trueodds.sums.positive import PositiveClass

RNG = np.random.default_rng(5)
Z = RNG.normal(0, 2, (300, 3))
P = metrics.softmax(Z)
Y = (P.cumsum(axis=1) < RNG.random((300, 1))).sum(axis=1)
NAMES = ["cat", "dog", "hen"]
NAMED = np.array(NAMES)[Y]
P_CAT, IS_CAT = P[:, 0], (Y == 0).astype(int)
TRUTH = np.eye(3)[Y]
RIGHT = P.argmax(axis=1) == Y


def frame(values: Any, *columns: Any) -> Any:
    return pd.DataFrame(values, columns=columns or None)


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "report": lambda frame, series: trueodds.report(frame(P), series(Y)),
    "report of one column": lambda frame, series: trueodds.report(frame(P_CAT), series(IS_CAT)),
    "report of labels": lambda frame, series: trueodds.report(frame(P), series(TRUTH), multilabel=True),
    "compare": lambda frame, series: trueodds.compare({"a": frame(P), "b": frame(P)}, series(Y)),
    "models": lambda frame, series: trueodds.compare({"a": frame(P), "b": series(P)}, Y),
    "fit": lambda frame, series: trueodds.fit(frame(Z), series(Y), "temperature"),
    "fit of labels": lambda frame, series: trueodds.fit(frame(Z), series(TRUTH), multilabel=True),
    "select": lambda frame, series: calibrators.select(frame(Z), series(Y), candidates=["identity"]),
    "groups": lambda frame, series: trueodds.fit(frame(Z), Y, "group_temperature", groups=series(Y)),
    "groups of select": lambda frame, series: trueodds.fit(frame(Z), Y, candidates=["identity"], groups=series(Y)),
    "groups of a call": lambda frame, series: calibrators.Temperature(2.0)(frame(Z), groups=series(Y)),
    "sets": lambda frame, series: conformal.fit(frame(P), series(Y), "lac"),
    "threshold": lambda frame, series: trueodds.threshold(frame(P_CAT), series(IS_CAT)),
    "threshold by group": lambda frame, series: trueodds.threshold(frame(P_CAT), IS_CAT, groups_N=series(Y)),
    "audit": lambda frame, series: worst_group(frame(P_CAT), RIGHT, {"class": series(Y)}),
    "sums": lambda frame, series: trueodds.CalibrationSums.from_probabilities(frame(P), series(Y)),
    "sums of confidences": lambda frame, series: trueodds.CalibrationSums.from_top(frame(P_CAT), series(RIGHT)),
    "sums of levels": lambda frame, series: OrderedSums.from_probabilities(frame(P), series(Y)),
    "sums of p(positive)": lambda frame, series: PositiveClass("cat", 1).sums(frame(P[:, :2]), series(Y)),
    "metric": lambda frame, series: metrics.classwise_ece(frame(P), series(Y)),
    "alerts": lambda frame, series: metrics.thresholds(frame(P_CAT), series(IS_CAT)),
    "blocks": lambda frame, series: next(metrics.blocks(frame(P_CAT), series(RIGHT))),
    "alarm": lambda frame, series: metrics.EProcess.start().advance_each(frame(P_CAT), series(RIGHT)),
}


def _pandas(values: Any) -> Any:
    return pd.Series(values) if np.ndim(values) == 1 else pd.DataFrame(values)


def _backwards(values: Any) -> Any:
    return _pandas(values)[::-1]


@pytest.mark.parametrize("name", PAIRS)
def test_one_index_in_two_orders_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"has the entries of that of .* in another order; rows are paired by their"):
        PAIRS[name](_pandas, _backwards)


def test_other_indexes_are_paired_by_place() -> None:
    expected = trueodds.report(P, Y).to_dict()
    test_split = pd.Series(Y, index=RNG.permutation(3_000)[:300])  # as train_test_split leaves it
    for labels in (test_split, pd.Series(Y), pd.Series(Y, index=[7] * 300), list(Y), pa.array(Y)):
        assert trueodds.report(pd.DataFrame(P), labels).to_dict() == expected
    assert trueodds.report(pd.DataFrame(P)[::-1], pd.Series(Y)[::-1]).n == 300


def test_an_index_with_repeated_or_mixed_entries() -> None:
    check_index(a=pd.Series([1, 2, 3], index=[0, 0, 1]), b=pd.Series([1, 2, 3], index=[0, 1, 1]))
    with pytest.raises(ConfigError, match=r"place: pass b.to_numpy\(\) if"):  # loc would repeat rows
        check_index(a=pd.Series([1, 2, 3], index=[0, 0, 1]), b=pd.Series([1, 2, 3], index=[0, 1, 0]))
    with pytest.raises(ConfigError, match=r"pass b.loc\[a.index\] to pair them by index, or b.to_numpy\(\)"):
        check_index(a=pd.Series([1, 2], index=[0, "x"]), b=pd.Series([1, 2], index=["x", 0]))


@pytest.mark.parametrize("form", [lambda t: t.to_pandas(), lambda t: t], ids=["pandas", "Arrow"])
@pytest.mark.parametrize(
    "columns", [("hen", "cat", "dog"), ("p_hen", "p_cat", "p_dog"), ("p(hen)", "p(cat)", "p(dog)")]
)
def test_columns_in_another_order_than_the_classes_are_refused(form: Any, columns: tuple[str, ...]) -> None:
    table = form(pa.table(dict(zip(columns, P.T, strict=True))))
    with pytest.raises(ConfigError, match=r"probabilities has the columns .*hen.*, and classes is 'cat', 'dog', 'hen'"):
        trueodds.report(table, NAMED, classes=NAMES)
    with pytest.raises(ConfigError, match="columns are matched by their place"):
        metrics.ece(table, NAMED, classes=NAMES)
    with pytest.raises(ConfigError, match=r"^a has the columns"):
        trueodds.compare({"a": table, "b": P}, NAMED, classes=NAMES)
    turned = np.array(["dog", "hen", "cat"])[Y]  # what the columns mean is then right
    assert trueodds.report(table, NAMED, classes=["hen", "cat", "dog"]).n == trueodds.report(P, turned, classes=NAMES).n


def test_columns_that_name_no_class_are_taken_by_place() -> None:
    expected = trueodds.report(P, Y).to_dict()
    for columns in (("a", "b", "c"), ("dog", "hen", "cow"), (0, 1, 2), ("p_0", "p_1", "p_2"), (1, 2, 3), (10, 11, 12)):
        assert trueodds.report(frame(P, *columns), Y).to_dict() == expected
    assert trueodds.report(frame(P, "x", "y", "z"), NAMED, classes=NAMES).to_dict() == expected


@pytest.mark.parametrize("columns", [(0, 2, 1), ("2", "0", "1"), ("p_0", "p_2", "p_1")])
def test_labels_that_are_numbers_of_columns_in_another_order_are_refused(columns: tuple[Any, ...]) -> None:
    for call in (
        lambda table: trueodds.report(table, Y),
        lambda table: trueodds.fit(np.log(table), Y, "temperature"),
        lambda table: metrics.ece(table, Y),
        lambda table: conformal.fit(table, Y, "lac"),
    ):
        with pytest.raises(ConfigError, match="every label is one of these numbers; a label is read as the place"):
            call(frame(P, *columns))
    names = [str(name).removeprefix("p_") for name in columns]
    assert trueodds.report(frame(P, *columns), np.array(names)[Y], classes=names).n == 300


def test_numbers_sorted_as_text_and_numbers_from_one() -> None:
    eleven = [*map(str, sorted(range(11), key=str))]  # 0, 1, 10, 2, ..
    with pytest.raises(ConfigError, match="'10', '2'"):
        check_columns(pd.DataFrame(np.zeros((2, 11)), columns=eleven), [3, 10])
    from_one = pd.DataFrame(P, columns=[1, 2, 3])
    with pytest.raises(ConfigError, match="counted from 0"):
        trueodds.report(from_one[Y < 2], Y[Y < 2] + 1)  # without this check: every label is one column off
    assert trueodds.report(from_one, Y + 1, classes=[1, 2, 3]).nll == trueodds.report(P, Y).nll


def test_a_column_named_after_the_other_class_is_refused() -> None:
    table = pd.DataFrame({"cat": P_CAT, "dog": 1 - P_CAT})
    labels = np.where(IS_CAT, "cat", "dog")
    with pytest.raises(ConfigError, match=r"is the column 'cat', .* pass classes=\['dog', 'cat'\]"):
        trueodds.report(table["cat"], labels, classes=["cat", "dog"])
    with pytest.raises(ConfigError, match="is the column 'cat'"):
        metrics.thresholds(table["cat"], labels, classes=["cat", "dog"])
    assert trueodds.report(table["cat"], labels, classes=["dog", "cat"]).nll == trueodds.report(P_CAT, IS_CAT).nll
    assert trueodds.report(table["cat"].rename("score"), labels, classes=["dog", "cat"]).n == 300


def test_classes_need_an_order_and_names_of_their_own() -> None:
    unordered: list[Any] = [{"cat", "dog", "hen"}, dict.fromkeys(NAMES)]
    for classes in unordered:
        with pytest.raises(ConfigError, match="give a list of names, in the order of the columns"):
            trueodds.report(P, NAMED, classes=classes)
        with pytest.raises(ConfigError, match="give a list of names"):
            trueodds.fit(Z, TRUTH, multilabel=True, classes=classes)
    with pytest.raises(ConfigError, match="classes has the name 'cat' twice"):
        trueodds.report(P, ["cat"] * 300, classes=["cat", "cat", "hen"])
    with pytest.raises(ConfigError, match=r"the label '\d' is of the type str, and the class \d of the type int"):
        trueodds.report(P, (Y + 1).astype(str), classes=[1, 2, 3])


@pytest.mark.parametrize("dtype", ["Float64", "double[pyarrow]", object])
def test_nullable_and_arrow_columns_are_numbers(dtype: Any) -> None:
    expected = trueodds.report(P, Y).to_dict()
    assert trueodds.report(pd.DataFrame(P).astype(dtype), Y).to_dict() == expected
    assert trueodds.fit(pd.DataFrame(Z).astype(dtype), Y, "temperature") == trueodds.fit(Z, Y, "temperature")
    missing = pd.DataFrame(P).astype(dtype)
    missing.iloc[3, 1] = None
    with pytest.raises(ValueError, match=r"probabilities\[3, 1\] is "):
        trueodds.report(missing, Y)


def test_a_column_of_lists_is_a_matrix() -> None:
    expected = trueodds.report(P, Y).to_dict()
    for column in (pd.Series(P.tolist()), pd.Series(list(P)), pa.array(P.tolist())):
        assert trueodds.report(column, Y).to_dict() == expected
        assert trueodds.compare({"a": column, "b": P}, Y).models[0].nll == pytest.approx(expected["nll"])
    assert trueodds.fit(pd.Series(list(Z)), Y, "temperature") == trueodds.fit(Z, Y, "temperature")
    with pytest.raises(ValueError, match="dtype object; expected numbers"):
        trueodds.report(pd.Series([[0.5, 0.5], [1.0]]), [0, 1])
