"""Sums of p(positive) with finer cells near 0."""

from __future__ import annotations

import numpy as np
import pytest

from trueodds import metrics
from trueodds.metrics import CELLS, CalibrationSums
from trueodds.sums.fine import COARSE, EQUAL_F, FINE, FINE_EDGES, FineSums, equal_cell_of, fine_cell_of
from trueodds.sums.positive import PositiveClass

RNG = np.random.default_rng(0)
P = np.concatenate([RNG.gamma(0.5, 0.002, 3000), RNG.uniform(0, 1, 200), [0.0, 1e-9, 1 / 60, 1 / 3000, 1.0]])
Y = RNG.random(len(P)) < P


def test_every_fine_cell_lies_in_one_equal_cell() -> None:
    assert (np.diff(FINE_EDGES) > 0).all() and FINE_EDGES[0] == 0 and FINE_EDGES[-1] == 1 / 60
    assert set(np.arange(COARSE + 1) / CELLS) <= set(FINE_EDGES.tolist())
    wide = FINE_EDGES[1:] / np.maximum(FINE_EDGES[:-1], 1e-12)
    assert (wide[FINE_EDGES[:-1] >= 1e-6] < 1.05).all(), "narrow against its p"
    cell_N = fine_cell_of(P)
    assert (equal_cell_of(cell_N) == metrics.cell_of(P)).all()
    low_N = P <= 1 / 60
    assert (cell_N[~low_N] == metrics.cell_of(P[~low_N])).all() and ((cell_N >= CELLS) == low_N).all()
    slow = [max(k for k in range(FINE) if FINE_EDGES[k] < p or k == 0) for p in P[low_N][:200]]
    assert (cell_N[low_N][:200] - CELLS).tolist() == slow
    assert (np.diff(EQUAL_F) >= 0).all() and EQUAL_F[-1] == COARSE - 1


def test_they_add_subtract_and_merge() -> None:
    whole, half = PositiveClass.sums_of(P, Y), len(P) // 2
    one, other = PositiveClass.sums_of(P[:half], Y[:half]), PositiveClass.sums_of(P[half:], Y[half:])
    assert isinstance(whole, FineSums) and isinstance(one, FineSums)
    assert (one + other).cells[0].tolist() == whole.cells[0].tolist()
    for sums in (one + other, CalibrationSums.zero() + one + other, sum([one, other])):
        assert isinstance(sums, FineSums) and sums.fine == pytest.approx(whole.fine)
    left = (one + other) - other
    assert isinstance(left, FineSums) and left.fine == pytest.approx(one.fine, abs=1e-12)
    plain = CalibrationSums(whole.cells) + one
    assert not isinstance(plain, FineSums) and plain.n == whole.n + one.n, "what is not known stays coarse"
    for row in range(3):
        coarse = np.bincount(EQUAL_F, whole.fine[row], COARSE)
        assert coarse == pytest.approx(whole.cells[row, :COARSE])


def test_bins_of_equal_mass_are_narrow_near_0() -> None:
    """p of a thousandth: two equal cells hold nearly all rows, and 15 bins could not be made."""
    fine, coarse = PositiveClass.sums_of(P[:3000], Y[:3000]), None
    coarse = CalibrationSums(fine.cells)
    table = metrics.whole_bins(fine, 15, "mass")
    assert len(table.count_B) >= 12 > len(metrics.whole_bins(coarse, 15, "mass").count_B)
    order = np.argsort(P[:3000])
    ends = np.cumsum(table.count_B).astype(int)
    assert table.confidence_B == pytest.approx([part.sum() for part in np.split(P[:3000][order], ends[:-1])])
    assert (table.correct_B.sum(), table.n) == (Y[:3000].sum(), 3000)
    assert metrics.calibration_test(fine, binning="mass").p_value > 0.01
    off = PositiveClass.sums_of(P[:3000], RNG.random(3000) < 4 * P[:3000])
    assert metrics.calibration_test(off, binning="mass").p_value < 0.05
