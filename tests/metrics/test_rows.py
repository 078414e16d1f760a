"""The pass over blocks of rows: what it checks, ties, and that neither layout nor block size shows."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest

from tests import reference
from tests.metrics.rows import drawn
from trueodds.metrics import COLUMNS, CalibrationSums, softmax
from trueodds.sums import rows
from trueodds.sums.rows import NARROW, checked_blocks, top_labels, top_rows

WIDTHS = [1, 2, 3, NARROW, NARROW + 1, 100, 1000]


def slow_sums(p: npt.NDArray[Any], y: npt.NDArray[np.intp]) -> CalibrationSums:
    wide = p.astype(np.float64)
    top = [reference.top(row) for row in wide.tolist()]
    true = wide[np.arange(len(y)), y]
    return CalibrationSums.from_top(
        np.minimum(wide.max(axis=1), 1),
        np.array(top) == y,
        nll_N=-np.log(np.clip(true, 2.2250738585072014e-308, 1)),
        brier_N=((wide - np.eye(wide.shape[1])[y]) ** 2).sum(axis=1),
    )


@pytest.mark.parametrize("classes", WIDTHS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "longdouble"])
def test_sums_of_every_width_and_precision(classes: int, dtype: str) -> None:
    p, y = drawn(60, classes)
    p = p.astype(dtype)
    p[:5] = np.eye(classes)[y[:5]]
    for layout in (p, np.asfortranarray(p), p[::-1].copy()[::-1], np.repeat(p, 2, axis=1)[:, ::2]):
        with mock.patch.object(rows, "ELEMENTS", 7 * classes):
            sums = CalibrationSums.from_probabilities(layout, y)
        np.testing.assert_allclose(sums.cells, slow_sums(p, y).cells, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("classes", WIDTHS)
def test_ties_go_to_the_smallest_class(classes: int) -> None:
    """Also where only one row of the block ties, in the first, the last and a middle column."""
    p, y = drawn(40, classes)
    p[7] = 1 / classes
    for label in {0, classes // 2, classes - 1}:
        y[7] = label
        _, correct = top_labels(p, y)
        assert correct[7] == (label == 0)
        assert correct.tolist() == [reference.top(row) == k for row, k in zip(p.tolist(), y, strict=True)]


def test_scores_may_be_left_out() -> None:
    p, y = drawn(300, 12)
    full, bare = (CalibrationSums.from_probabilities(p, y, scores=s) for s in (True, False))
    assert np.array_equal(full.cells[:3], bare.cells[:3])
    occupied = full.cells[0] > 0
    assert np.isnan(bare.cells[3:, occupied]).all()
    assert (bare.cells[3:, ~occupied] == 0).all()
    with pytest.raises(ValueError, match=f"hold no {COLUMNS[3]}"):
        bare.total("nll")


def test_what_is_wrong_in_a_late_block_is_named_by_its_row() -> None:
    good, y = drawn(50, 4)
    for place, value, message in (
        ((41, 2), np.nan, r"probabilities\[41, 2\] is nan"),
        ((47, 0), np.inf, r"probabilities\[47, 0\] is inf"),
        ((33, 1), good[33, 1] + 0.01, r"probabilities\[33\] sums to 1.01"),
        ((33, 1), -0.25, "probabilities holds -0.25; allowed is"),
    ):
        p = good.copy()
        p[place] = value
        for dtype in (np.float32, np.float64):
            with mock.patch.object(rows, "ELEMENTS", 4 * 8), pytest.raises(ValueError, match=message):
                list(top_rows(p.astype(dtype), y))


def test_huge_values_are_refused_without_a_warning() -> None:
    for bad in (1e38, 3e38, np.inf):
        with pytest.raises(ValueError, match=r"must be finite|If these are logits"):
            list(checked_blocks(np.full((3, 4), bad, np.float32)))


def test_the_limit_of_row_sums_is_the_exact_one() -> None:
    """The quick float32 sum only acquits; between .0009 and .001 the float64 sum decides."""
    for excess, accepted in ((0.00095, True), (-0.00095, True), (0.00101, False), (-0.00101, False)):
        p = np.array([[0.5 + excess, 0.5]] * 3)
        if accepted:
            assert len(list(checked_blocks(p))) == 1
        else:
            with pytest.raises(ValueError, match="every row must sum to 1"):
                list(checked_blocks(p))


def test_probabilities_come_before_labels() -> None:
    with pytest.raises(ValueError, match=r"sums to 1.5"):
        CalibrationSums.from_probabilities([[0.75, 0.75]], [9])


def test_blocks_are_views_where_they_can_be() -> None:
    p = np.full((10, 4), 0.25, np.float32)
    assert all(np.shares_memory(block, p) for _, block in checked_blocks(p))


def test_softmax_of_lists_and_half_precision() -> None:
    expected = np.array([[0.25, 0.75]])
    for z in ([[0.0, float(np.log(3))]], np.log(np.array([[1, 3]], np.float32)), [[-np.log(3), 0]]):
        np.testing.assert_allclose(softmax(z), expected, rtol=1e-6)
    assert softmax([[1, 2]]).dtype == softmax(np.ones((1, 2), np.float16)).dtype == np.float64
    assert softmax(np.ones((1, 2), np.float32)).dtype == np.float32
    assert softmax(np.array([[11.0, 0.0]], np.float16))[0, 1] == pytest.approx(np.exp(-11) / (1 + np.exp(-11)))


def test_softmax_of_extreme_logits_is_silent() -> None:
    assert softmax([[1.7e308, -1.7e308], [-np.inf, 3.0]]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_softmax_changes_no_argument() -> None:
    z = np.array([[1.0, 2.0]])
    softmax(z)
    assert z.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([[0.0, np.nan]], r"logits\[0, 1\] is nan"),
        ([[0.0, 1.0], [np.inf, 0.0]], r"logits\[1, 0\] is inf"),
        ([[-np.inf, -np.inf]], r"logits\[0, 0\] is -inf"),
        ([1.0, 2.0], r"logits has shape \(2,\)"),
        ([[1.0], [1.0, 2.0]], "logits is ragged"),
        ([["a"]], "logits has dtype"),
    ],
)
def test_softmax_refuses(logits: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        softmax(logits)
