"""The accuracy that confidences promise: a slow twin, the binomial, its coverage, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from tests import reference_metrics as twin
from trueodds.metrics import CELLS, CalibrationSums, expected_accuracy

NONE = CalibrationSums.zero()


def counts(confidence_N: np.ndarray) -> np.ndarray:
    count_C: np.ndarray = CalibrationSums.from_top(confidence_N, np.zeros(len(confidence_N))).cells[0]
    return count_C


@pytest.mark.parametrize("n", [1, 2, 12, 60])
def test_twin(n: int) -> None:
    """Of confidences in the centres of cells, where the cell is all there is to know."""
    rng = np.random.default_rng(n)
    confidence = (rng.integers(900, CELLS, n) + 0.5) / CELLS
    for level in (0.8, 0.95):
        expected = expected_accuracy(NONE, counts(confidence), level=level)
        assert expected.accuracy == pytest.approx(confidence.mean())
        assert (expected.lower, expected.upper) == pytest.approx(twin.calibrated_limits(confidence.tolist(), level))


@pytest.mark.parametrize("n", [400, 20_000])
def test_of_one_confidence_it_is_binomial(n: int) -> None:
    """Exactly below a variance of 150, to an answer above."""
    c = (2400 + 0.5) / CELLS
    expected = expected_accuracy(NONE, counts(np.full(n, c)))
    wanted = binom.ppf([0.025, 0.975], n, c) / n
    assert (expected.lower, expected.upper) == pytest.approx(wanted, abs=0 if n == 400 else 1 / n)


def test_only_answers_without_a_label_count() -> None:
    sure, unsure = np.full(300, 0.9), np.full(100, 0.6)
    labelled = CalibrationSums.from_top(sure, np.ones(300))
    expected = expected_accuracy(labelled, counts(np.concatenate([sure, unsure])))
    assert (expected.answers, round(expected.accuracy, 3)) == (100, 0.6)
    with pytest.raises(ValueError, match="every answer has a label"):
        expected_accuracy(labelled, counts(sure))
    with pytest.raises(ValueError, match="level"):
        expected_accuracy(NONE, counts(sure), level=1.0)


@pytest.mark.parametrize(("n", "concentration"), [(20, 6.0), (300, 6.0), (300, 60.0), (20_000, 6.0)])
def test_coverage(n: int, concentration: float) -> None:
    """Labels drawn by the confidences lie inside in 95% of 400 runs and more; 361 or fewer have a chance of .03%."""
    rng = np.random.default_rng(n)
    inside = 0
    for _ in range(40):
        confidence = rng.beta(concentration, 1, n)
        expected = expected_accuracy(NONE, counts(confidence))
        for _ in range(10):
            share = (rng.random(n) < confidence).mean()
            inside += expected.lower - 1e-9 <= share <= expected.upper + 1e-9
    assert inside >= 362
