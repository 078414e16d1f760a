"""Classwise calibration: twins, by hand, at edges, across block borders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference_metrics as twin
from tests.metrics.rows import drawn
from trueodds.metrics import classwise_ece, ece_per_class, noise_floor_per_class, softmax
from trueodds.metrics.ranked import BINNINGS
from trueodds.processes.choices import Binning
from trueodds.sums import rows

Array = npt.NDArray[np.float64]
Table = tuple[list[list[float]], list[int]]


@st.composite
def classified(draw: st.DrawFn) -> Table:
    classes = draw(st.integers(1, 5))
    row = st.lists(st.integers(0, 6), min_size=classes, max_size=classes).filter(any)
    table = [[w / sum(weights) for w in weights] for weights in draw(st.lists(row, min_size=1, max_size=12))]
    return table, draw(st.lists(st.integers(0, classes - 1), min_size=len(table), max_size=len(table)))


@given(classified(), st.sampled_from([1, 2, 15]), st.sampled_from(BINNINGS), st.sampled_from([0.0, 0.01, 0.25, 0.5]))
def test_equals_its_twin(data: Table, bins: int, binning: Binning, threshold: float) -> None:
    options: dict[str, Any] = {"bins": bins, "binning": binning, "threshold": threshold}
    value, expected = ece_per_class(*data, **options), twin.ece_per_class(*data, **options)
    assert value.tolist() == pytest.approx(expected, abs=1e-12)
    assert classwise_ece(*data, **options) == pytest.approx(np.mean(expected), abs=1e-12)


def test_by_hand() -> None:
    """Class 0: .8 in one bin (right), .4 and .3 in another (one of two right); class 1 mirrors it."""
    data = [[0.8, 0.2], [0.4, 0.6], [0.3, 0.7]], [0, 0, 1]
    assert ece_per_class(*data, bins=2) == pytest.approx([(0.2 + 0.3) / 3, (0.2 + 0.3) / 3])
    assert classwise_ece(*data, bins=2) == pytest.approx(0.5 / 3)
    # at least .4: class 0 keeps .8 and .4 (both right), class 1 keeps .6 and .7 (one right)
    assert ece_per_class(*data, bins=2, threshold=0.4) == pytest.approx([(0.2 + 0.6) / 2, 0.3 / 2])


def test_classes_come_from_the_columns() -> None:
    """K = max(label) + 1 would divide by 2 here and miss the mass on the class that never occurs."""
    data = [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]], [0, 1]
    assert ece_per_class(*data) == pytest.approx([0.0, 0.2, 0.2])
    assert classwise_ece(*data) == pytest.approx(0.4 / 3)


def test_a_class_below_the_threshold_adds_nothing() -> None:
    assert ece_per_class([[0.99, 0.01]] * 3, [0, 0, 1], threshold=0.5, binning="mass")[1] == 0


@pytest.mark.parametrize("binning", BINNINGS)
def test_certain_rows_err_by_their_errors(binning: Binning) -> None:
    value = ece_per_class(np.eye(3)[[0, 0, 0, 1]], [0, 0, 1, 1], binning=binning)
    assert value == pytest.approx([1 / 4, 1 / 4, 0])


@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize("threshold", [0.0, 0.05])
def test_blocks_make_no_difference(binning: Binning, threshold: float) -> None:
    p, y = drawn(500, 7, spread=0.2)
    whole = ece_per_class(p, y, binning=binning, threshold=threshold)
    with mock.patch.object(rows, "ELEMENTS", 7 * 13):
        parts = ece_per_class(p, y, binning=binning, threshold=threshold)
    np.testing.assert_allclose(parts, whole, atol=1e-14)


@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize("change", [np.asfortranarray, lambda p: p[::-1].copy()[::-1], np.float32, np.float16])
def test_layout_and_precision_do_not_matter(binning: Binning, change: Callable[[Array], npt.NDArray[Any]]) -> None:
    p, y = drawn(400, 20, spread=0.2)
    changed = change(p)
    wide = changed.astype(np.float64)
    np.testing.assert_allclose(ece_per_class(changed, y, binning=binning), ece_per_class(wide, y, binning=binning))


def test_float32_probabilities_are_binned_as_float64() -> None:
    """float32(1/3) lies above 1/3: in the sixth of 15 bins, as its float64 value says."""
    third = np.array([[1 / 3, 2 / 3]], np.float32)
    assert ece_per_class(third, [0])[0] == pytest.approx(1 - float(third[0, 0]))
    rows_of = np.array([[1 / 3, 2 / 3], [1 / 3 - 1e-3, 2 / 3 + 1e-3]], np.float32)
    apart = ece_per_class(rows_of, [0, 1])[0]
    p = rows_of.astype(np.float64)[:, 0]
    assert apart == pytest.approx(((1 - p[0]) + p[1]) / 2)  # in one bin it would be |1 - p0 - p1| / 2


def test_a_thousand_classes() -> None:
    p, y = drawn(300, 1000, spread=0.2)
    columns = [(c, k) for k in (0, 999) for c in [ece_per_class(p, y)[k]]]
    for value, k in columns:
        expected = twin.ece(
            [(float(row[k]), int(label == k)) for row, label in zip(p, y, strict=True)], 15, "l1", "width"
        )
        assert value == pytest.approx(expected, abs=1e-12)
    assert classwise_ece(p.astype(np.float16), y) == pytest.approx(classwise_ece(p, y), abs=1e-4)


def test_classwise_of_two_classes_is_symmetric() -> None:
    p, y = drawn(500, 2, spread=0.2)
    for binning in BINNINGS:
        value = ece_per_class(p, y, binning=binning, bins=10)  # 10 divides 500: equal mass is symmetric too
        assert value[0] == pytest.approx(value[1], abs=1e-12)


GOOD = [[0.9, 0.1], [0.2, 0.8]]
REFUSED: list[tuple[Any, Any, dict[str, Any], str]] = [
    ([], [], {}, r"probabilities has shape \(0,\)"),
    ([[0.9, 0.2], [0.2, 0.8]], [0, 1], {}, r"probabilities\[0\] sums to 1.1; every row must sum to 1"),
    ([[np.nan, 0.1], [0.2, 0.8]], [0, 1], {}, r"probabilities\[0, 0\] is nan"),
    ([[3.0, -1.0], [0.2, 0.8]], [0, 1], {}, "holds -1; allowed is .* If these are logits"),
    (GOOD, [0, 2], {}, "labels holds 2; allowed are the class indices 0..1"),
    (GOOD, [0.0, 0.5], {}, r"labels\[1\] is 0.5; expected integer"),
    (GOOD, [0], {}, r"labels has shape \(1,\)"),
    (GOOD, [0, 1], {"bins": 0}, "bins is 0; allowed are"),
    (GOOD, [0, 1], {"threshold": 1.0}, r"threshold is 1.0; allowed is \[0, 1\)"),
    (GOOD, [0, 1], {"threshold": -0.1}, "threshold is -0.1"),
]


@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize(("p", "y", "options", "message"), REFUSED)
def test_what_is_refused(p: Any, y: Any, options: dict[str, Any], message: str, binning: Binning) -> None:
    with pytest.raises(ValueError, match=message):
        classwise_ece(p, y, binning=binning, **options)


def test_bins_and_binning_are_checked() -> None:
    with pytest.raises(ValueError, match="bins is 16; allowed are the divisors of 3000"):
        classwise_ece(GOOD, [0, 1], bins=16)
    with pytest.raises(ValueError, match="unknown binning 'mess'; allowed: width, mass"):
        classwise_ece(GOOD, [0, 1], binning="mess")  # type: ignore[arg-type]


def test_floor_per_class_against_drawn_labels() -> None:
    """The mean of `ece_per_class` over labels drawn from the probabilities themselves, in a world of rare hits too."""
    rng = np.random.default_rng(4)
    for n, classes, scale in ((400, 3, 1.0), (300, 40, 3.0)):
        p_NC = softmax(rng.normal(0, scale, (n, classes)))
        below_NC = p_NC.cumsum(axis=1)[:, :-1]
        drawn = [ece_per_class(p_NC, (below_NC < rng.random((n, 1))).sum(axis=1)) for _ in range(300)]
        error_C = np.std(drawn, axis=0) / math.sqrt(300)
        assert (np.abs(noise_floor_per_class(p_NC) - np.mean(drawn, axis=0)) < 4.5 * error_C).all()


def test_floor_per_class_by_hand() -> None:
    """Four coins in one bin: E|X - 2| = 3/4, over 4 rows. Certain rows leave nothing to chance."""
    assert noise_floor_per_class([[0.5, 0.5]] * 4) == pytest.approx([3 / 16, 3 / 16])
    assert (noise_floor_per_class([[1.0, 0.0], [0.0, 1.0]]) == 0).all()
    with pytest.raises(ValueError, match="divisors of 3000"):
        noise_floor_per_class([[0.5, 0.5]], bins=7)
