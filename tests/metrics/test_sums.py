"""CalibrationSums: what a cell is, that sums add and subtract, and that they survive JSON and bytes."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from tests.metrics.rows import drawn
from trueodds.metrics import CELLS, COLUMNS, CalibrationSums, cell_of, nll, noise_floor
from trueodds.sums.bins import EDGES, bin_of

Array = npt.NDArray[np.float64]
DIVISORS = (1, 10, 15, 20, 25, 50, 100, 200, 500, 1000, 3000)
confidences = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def random_sums(n: int, seed: int = 0) -> CalibrationSums:
    return CalibrationSums.from_probabilities(*drawn(n, 4, seed))


def assert_close(sums: CalibrationSums, expected: CalibrationSums) -> None:
    assert np.array_equal(sums.cells[[0, 2]], expected.cells[[0, 2]])  # counts and correct are integers: exact
    np.testing.assert_allclose(sums.cells, expected.cells, rtol=1e-12, atol=1e-12)


def test_edges_are_the_nearest_floats_to_k_over_3000() -> None:
    for k in range(CELLS + 1):
        exact = Fraction(k, CELLS)
        off = abs(Fraction(float(EDGES[k])) - exact)
        for neighbour in (np.nextafter(EDGES[k], -1), np.nextafter(EDGES[k], 2)):
            assert off <= abs(Fraction(float(neighbour)) - exact)


def test_every_edge_and_its_neighbours_one_ulp_away() -> None:
    for k in range(1, CELLS + 1):
        edge = k / CELLS
        at, below, above = cell_of([edge, np.nextafter(edge, 0), min(np.nextafter(edge, 1), 1.0)])
        assert (at, below) == (k - 1, k - 1), k  # cell k-1 is ((k-1)/3000, k/3000]
        assert above == min(k, CELLS - 1), k


def test_the_product_alone_is_wrong_at_edges() -> None:
    """Why cell_of compares: were this to hold no more, the comparison would be dead weight."""
    naive = np.clip(np.ceil(EDGES[1:] * CELLS) - 1, 0, CELLS - 1)
    above = np.clip(np.ceil(np.nextafter(EDGES[1:-1], 1) * CELLS) - 1, 0, CELLS - 1)
    assert (naive != np.arange(CELLS)).any() or (above != np.arange(1, CELLS)).any()


def test_ends() -> None:
    assert cell_of([0.0, 5e-324, 1.0, np.nextafter(1, 0)]).tolist() == [0, 0, CELLS - 1, CELLS - 1]


def test_a_confidence_rounded_above_one_is_one() -> None:
    assert cell_of(np.array([1.0000001, 1.0, -0.0], np.float32)).tolist() == [CELLS - 1, CELLS - 1, 0]


@given(st.floats(0, 1), st.sampled_from([1, 2, 3, 7, 10, 15, 100, 1001]))
def test_bins_of_any_number_equal_the_search_by_comparison(confidence: float, bins: int) -> None:
    assert bin_of([confidence], bins)[0] == reference.bin_of(confidence, bins)
    for b in range(1, bins):
        at, above = bin_of([b / bins, np.nextafter(b / bins, 1)], bins)
        assert (at, above) == (b - 1, b)


@given(st.floats(0, 1))
def test_cell_equals_the_search_by_comparison(confidence: float) -> None:
    assert cell_of([confidence])[0] == reference.cell(confidence)


def test_float32_confidences_are_compared_as_float64() -> None:
    third = np.float32(1 / 3)  # 0.33333334: above 1/3, so in the next cell and the next of 15 bins
    assert cell_of(np.array([third])).tolist() == [1000]
    assert CalibrationSums.from_top(np.array([third]), [1]).bins(15).count_B.argmax() == 5
    assert CalibrationSums.from_top([1 / 3], [1]).bins(15).count_B.argmax() == 4


@pytest.mark.parametrize("bins", DIVISORS)
def test_bins_are_those_of_the_raw_confidences(bins: int) -> None:
    rng = np.random.default_rng(bins)
    edges = np.arange(1, bins) / bins
    confidence = np.concatenate([rng.random(300), edges, np.nextafter(edges, 0), np.nextafter(edges, 1), [0, 1, 1]])
    correct = rng.integers(0, 2, len(confidence))
    table = CalibrationSums.from_top(confidence, correct).bins(bins)
    # an edge as comparison sees it; test_one_definition checks that b/bins and its cell's edge are the same float
    index = np.clip(np.searchsorted(np.arange(bins + 1) / bins, confidence, side="left") - 1, 0, bins - 1)
    assert np.array_equal(table.count_B, np.bincount(index, minlength=bins))
    assert np.array_equal(table.correct_B, np.bincount(index, correct, bins))
    np.testing.assert_allclose(table.confidence_B, np.bincount(index, confidence, bins), rtol=1e-12)
    exact = np.bincount(index, confidence * (1 - confidence), bins)
    assert (np.abs(table.variance_B - exact) <= table.count_B / (4 * CELLS**2) + 1e-12).all()


@pytest.mark.parametrize("bins", DIVISORS)
def test_one_definition_of_an_edge(bins: int) -> None:
    table = CalibrationSums.zero().bins(bins)
    assert table.hi_B.tolist() == [(b + 1) / bins for b in range(bins)]
    assert table.lo_B.tolist() == [b / bins for b in range(bins)]


@pytest.mark.parametrize("bins", [0, -15, 7, 16, 3001, 6000])
def test_bins_must_divide_3000(bins: int) -> None:
    with pytest.raises(ValueError, match=f"bins is {bins}; allowed are the divisors of 3000"):
        CalibrationSums.zero().bins(bins)


def test_means_of_bins_by_hand() -> None:
    table = CalibrationSums.from_top([0.6, 0.7, 0.25], [1, 0, 1]).bins(2)
    assert table.n == 3
    assert table.accuracy_B.tolist() == [1.0, 0.5]
    np.testing.assert_allclose(table.mean_confidence_B, [0.25, 0.65])
    np.testing.assert_allclose(table.gap_B, [0.75, -0.3])
    np.testing.assert_allclose(table.variance_B, [0.1875, 0.24 + 0.21])
    assert np.isnan(CalibrationSums.from_top([1.0], [1]).bins(2).accuracy_B[0])


def test_columns_by_hand() -> None:
    sums = CalibrationSums.from_probabilities([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]], [0, 2])
    losses = -np.log([0.7, 0.1])
    briers = np.array([0.09 + 0.04 + 0.01, 0.49 + 0.04 + 0.81])
    expected = (2, 1.4, 1, losses.sum(), (losses**2).sum(), briers.sum(), (briers**2).sum())
    for column, value in zip(COLUMNS, expected, strict=True):
        assert sums.total(column) == pytest.approx(value, rel=1e-14), column
    assert np.flatnonzero(sums.cells[0]).tolist() == [reference.cell(0.7)]


def test_ties_go_to_the_smallest_class() -> None:
    assert CalibrationSums.from_probabilities([[0.5, 0.5], [0.5, 0.5]], [0, 1]).total("correct") == 1


def test_merge_is_the_whole() -> None:
    probabilities, labels = drawn(500, 4)
    parts = [CalibrationSums.from_probabilities(probabilities[i::7], labels[i::7]) for i in range(7)]
    assert_close(sum(parts, CalibrationSums.zero()), CalibrationSums.from_probabilities(probabilities, labels))


def test_order_does_not_matter() -> None:
    probabilities, labels = drawn(500, 4)
    order = np.random.default_rng(1).permutation(500)
    assert_close(
        CalibrationSums.from_probabilities(probabilities[order], labels[order]),
        CalibrationSums.from_probabilities(probabilities, labels),
    )


def test_adding_nothing_changes_nothing() -> None:
    sums = random_sums(50)
    assert sums + CalibrationSums.zero() == sums
    assert sums != random_sums(50, seed=1)
    assert sums != "sums"


def test_subtraction_leaves_exact_zeros() -> None:
    first, second = random_sums(300), random_sums(300, seed=1)
    left = first + second - second
    assert_close(left, first)
    empty = first.cells[0] == 0
    assert empty.any()
    assert not left.cells[:, empty].any()
    assert first + second - second - first == CalibrationSums.zero()


@given(confidences, confidences)
def test_rounding_left_by_subtraction_never_becomes_nan(keep: list[float], drop: list[float]) -> None:
    kept, dropped = (CalibrationSums.from_top(c, [1] * len(c)) for c in (keep, drop))
    left = dropped + kept - dropped
    assert (left.bins(3000).variance_B >= 0).all()
    assert np.isfinite(noise_floor(left).p95)


def test_a_mean_above_one_is_no_negative_variance() -> None:
    """What the clip in bins() is for: 3 x 1 left over with a sum of confidences one ulp above 3."""
    cells = CalibrationSums.from_top([1.0, 1.0, 1.0], [1, 1, 1]).cells.copy()
    cells[1, -1] = np.nextafter(3.0, 4.0)
    assert CalibrationSums(cells).bins(15).variance_B.tolist() == [0.0] * 15
    assert noise_floor(CalibrationSums(cells)).mean == 0


def test_taking_out_what_is_not_there() -> None:
    wrong, right = CalibrationSums.from_top([0.5], [0]), CalibrationSums.from_top([0.5], [1])
    with pytest.raises(ValueError, match="cell 1499 would be left with 0 right of -1 rows"):
        CalibrationSums.zero() - wrong
    with pytest.raises(ValueError, match="-1 right of 1 rows"):
        wrong + wrong - right
    with pytest.raises(ValueError, match="1 right of 0 rows"):
        right - wrong


def test_json_round_trip_is_exact() -> None:
    sums = random_sums(400)
    assert CalibrationSums.from_json(json.dumps(sums.to_json(), allow_nan=False)) == sums
    assert CalibrationSums.from_json(sums.to_json()) == sums
    assert CalibrationSums.from_json(CalibrationSums.zero().to_json()) == CalibrationSums.zero()


def test_blob_round_trip_is_exact_and_small() -> None:
    sums = random_sums(400)
    assert CalibrationSums.from_bytes(sums.to_bytes()) == sums
    assert CalibrationSums.from_bytes(CalibrationSums.zero().to_bytes()) == CalibrationSums.zero()
    assert len(CalibrationSums.from_top([0.9] * 1000, [1] * 1000).to_bytes()) < 100


def test_damaged_blobs() -> None:
    blob = random_sums(40).to_bytes()
    for bad in (b"", b"tosu", b"nope" + blob[4:], blob[:4] + b"\x02" + blob[5:]):
        with pytest.raises(ValueError, match="not a blob of calibration sums"):
            CalibrationSums.from_bytes(bad)
    for bad in (blob[:-20], blob[:7], blob[:5] + b"\xff\xff" + blob[7:], blob[:5] + b"\x01\x00" + blob[7:]):
        with pytest.raises(ValueError, match="damaged blob"):
            CalibrationSums.from_bytes(bad)


def test_json_of_other_columns() -> None:
    for tree in ({"columns": ["cell"], "cells": []}, {}):
        with pytest.raises(ValueError, match="expected cell, count, confidence"):
            CalibrationSums.from_json(tree)


def test_cells_must_be_cells() -> None:
    row = (1.0, 7.5 / CELLS, 1.0, 0.0, 0.0, 0.0, 0.0)
    for cells in ([-1], [3000], [7, 7], [1.5], [True], ["7"]):
        with pytest.raises(ValueError, match="comes twice or lies outside"):
            CalibrationSums.from_cells([(cell, *row) for cell in cells])  # type: ignore[misc]
    assert CalibrationSums.from_cells([(7, *row)]).n == 1


def test_sums_without_scores_say_so() -> None:
    bare = CalibrationSums.from_top([0.4, 0.9], [True, False])
    for sums in (bare, bare + random_sums(5), CalibrationSums.from_json(json.dumps(bare.to_json()))):
        with pytest.raises(ValueError, match="hold no nll: it was not given"):
            nll(sums)
        with pytest.raises(ValueError, match="hold no brier"):
            sums.total("brier")
    assert bare.total("confidence") == pytest.approx(1.3)
    assert CalibrationSums.from_bytes(bare.to_bytes()) == bare


def test_removed_rows_without_scores_leave_no_trace() -> None:
    scored, bare = CalibrationSums.from_probabilities([[0.9, 0.1]], [0]), CalibrationSums.from_top([0.4], [1])
    assert nll(scored + bare - bare) == nll(scored)


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([1.1], [1], "confidence holds 1.1"),
        ([-0.1], [1], "confidence holds -0.1"),
        ([np.nan], [1], "confidence holds nan"),
        ([0.5], [0.5], "correct holds 0.5; allowed are only 0 and 1"),
        ([0.5], [np.nan], "correct holds nan; allowed are only 0 and 1"),
        (["0.5"], [1], "confidence has dtype <U3; expected numbers"),
        ([0.5], [None], r"correct\[0\] is None, a missing value; take these rows out of every argument"),
        ([[0.5], [0.5, 1]], [1, 1], "confidence is ragged"),
        ([0.5], [1, 0], "vectors of one length"),
        ([[0.5]], [[1]], "vectors of one length"),
    ],
)
def test_from_top_refuses(confidence: Any, correct: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CalibrationSums.from_top(confidence, correct)


def test_no_rows_from_top() -> None:
    assert CalibrationSums.from_top([], []) == CalibrationSums.zero()


IMPOSSIBLE: list[tuple[list[Any], str]] = [
    ([2, 500.0, 1, 0, 0, 0, 0], "cell 1500 holds count 2, confidence 500, correct 1"),
    ([2, 0.9, 1, 0, 0, 0, 0], "cell 1500 holds count 2, confidence 0.9"),
    ([-2, -1.0, 0, 0, 0, 0, 0], "cell 1500 holds count -2"),
    ([2, 1.0003, 5, 0, 0, 0, 0], "correct 5"),
    ([2, 1.0003, -1, 0, 0, 0, 0], "correct -1"),
    ([None, 1.0003, 1, 0, 0, 0, 0], "cell 1500 holds count nan"),
    ([2, None, 1, 0, 0, 0, 0], "confidence nan"),
    ([np.inf, np.inf, 1, 0, 0, 0, 0], "count inf"),
    ([2, 1.0003, 1, np.inf, 0, 0, 0], "nll inf"),
    ([2, 1.0003, 1, 0, 0, 0, -np.inf], "brier_squared -inf"),
    ([2, 1.0003, "1", 0, 0, 0, 0], "cell 1500 holds .*'1'.*; expected numbers: count"),
    ([2, 1.0003, [1], 0, 0, 0, 0], "cell 1500 holds "),
    ([2, 1.0003], "expected 8 numbers: cell, count"),
    ([2], "expected 8 numbers: cell, count"),
]


@pytest.mark.parametrize(("values", "message"), IMPOSSIBLE)
def test_sums_that_no_rows_give(values: list[Any], message: str) -> None:
    tree = {"columns": ["cell", *COLUMNS], "cells": [[1500, *values]]}
    with pytest.raises(ValueError, match=message):
        CalibrationSums.from_json(tree)


@pytest.mark.parametrize("tree", [[], 3, None, "[]"])
def test_json_must_be_an_object(tree: Any) -> None:
    with pytest.raises(ValueError, match="expected an object with columns and cells"):
        CalibrationSums.from_json(tree)


@pytest.mark.parametrize("cells", [{}, {"cells": None}, {"cells": 3}, {"cells": [3]}, {"cells": ["abcdefgh"]}])
def test_json_cells_must_be_rows(cells: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected a list of rows"):
        CalibrationSums.from_json({"columns": ["cell", *COLUMNS], **cells})


def test_blobs_of_impossible_sums() -> None:
    def blob(index: list[int], columns: list[list[float]]) -> bytes:
        body = np.array(index, "<u2").tobytes() + np.array(columns, "<f8").T.tobytes()
        return struct.pack("<4sBH", b"tosu", 1, len(index)) + zlib.compress(body)

    sound = [1, 0.50001, 1, 0, 0, 0, 0]
    assert CalibrationSums.from_bytes(blob([1500], [sound])).n == 1
    for bad, message in (
        (blob([1500], [[-1, *sound[1:]]]), "damaged blob of calibration sums: cell 1500 holds count -1"),
        (blob([1500, 1500], [sound, sound]), "damaged blob of calibration sums: a cell comes twice"),
        (blob([3000], [sound]), "damaged blob"),
    ):
        with pytest.raises(ValueError, match=message):
            CalibrationSums.from_bytes(bad)


def test_rounding_left_by_subtraction_is_restored() -> None:
    """One row of 1 - 6e-8 left of a million: its sum of confidences is rounding away from its cell."""
    confidence = 1 - 6e-8 - 1e-8 * np.random.default_rng(0).random(1_000_000)
    correct = np.ones(len(confidence), dtype=bool)
    left = CalibrationSums.from_top(confidence, correct) - CalibrationSums.from_top(confidence[:0:-1], correct[1:])
    assert left.n == 1 and abs(left.cells[1, -1] - confidence[0]) > 1e-9
    assert CalibrationSums.from_json(left.to_json()) == left
    assert CalibrationSums.from_bytes(left.to_bytes()) == left


@given(confidences, confidences)
def test_what_subtraction_leaves_is_restored(keep: list[float], drop: list[float]) -> None:
    kept, dropped = (CalibrationSums.from_top(c, [1] * len(c)) for c in (keep, drop))
    left = kept + dropped - dropped
    assert CalibrationSums.from_json(left.to_json()) == left
    assert CalibrationSums.from_bytes(left.to_bytes()) == left


def test_a_cell_without_rows_is_cleared() -> None:
    assert CalibrationSums.from_cells([[5, 0, 1e-17, 0, 1e-17, 0, 0, 0]]) == CalibrationSums.zero()


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ({"nll_N": [0.1]}, r"nll has shape \(1,\); expected \(2,\)"),
        ({"nll_N": 0.1}, r"nll has shape \(\); expected \(2,\)"),
        ({"nll_N": [0.1, np.nan]}, "nll holds nan"),
        ({"nll_N": [0.1, np.inf]}, "nll holds inf"),
        ({"nll_N": [0.1, -0.1]}, "nll holds -0.1"),
        ({"nll_N": ["a", "b"]}, "nll has dtype"),
        ({"brier_N": [0.1, 2.1]}, r"brier holds 2.1; allowed are finite numbers in \[0, 2.0\]"),
        ({"brier_N": [-1.0, 0.1]}, "brier holds -1.0"),
    ],
)
def test_scores_given_to_from_top_are_checked(losses: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CalibrationSums.from_top([0.5, 0.6], [0, 1], **losses)


def test_scores_given_to_from_top_are_summed() -> None:
    sums = CalibrationSums.from_top([0.5, 0.6], [0, 1], nll_N=[0.7, 0.5], brier_N=[2.0, 0.1])
    assert sums.total("nll") == pytest.approx(1.2) and sums.total("brier_squared") == pytest.approx(4.01)


def test_python_adds_them_up() -> None:
    sums: Any = random_sums(20)
    assert sum([sums, sums]) == sums + sums
    others: list[Callable[[], object]] = [
        lambda: sums + 1,
        lambda: 1 + sums,
        lambda: sums - 1,
        lambda: sum([sums], 0.5),
    ]
    for unknown in others:
        with pytest.raises(TypeError, match="unsupported operand"):
            unknown()


def test_totals_of_no_column() -> None:
    with pytest.raises(ValueError, match="unknown column 'foo'; allowed: count, confidence, correct, nll"):
        random_sums(3).total("foo")


@pytest.mark.parametrize("confidence", [[np.nan], [0.5, 1.1], [-0.1], ["0.5"]])
def test_no_cell_for_what_is_no_confidence(confidence: Any) -> None:
    with pytest.raises(ValueError, match="confidence h"):
        cell_of(confidence)
