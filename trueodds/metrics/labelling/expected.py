"""Expected accuracy of unlabelled answers, computed from their confidences, if these are calibrated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.labelling.strata import answer_counts
from trueodds.sums.bins import CELLS
from trueodds.sums.inputs import Array, check_level
from trueodds.sums.sums import CalibrationSums

EXACT_BELOW = 150.0
"""Bound of sum c(1-c). Below it the distribution of the number of wrong answers is exact, otherwise normal."""
ROUNDING = 1e-9
"""Rounding error of a share times a number of labels."""
CENTRE_C: Array = (np.arange(CELLS) + 0.5) / CELLS


@dataclass(frozen=True)
class ExpectedAccuracy:
    """Accuracy that the confidences imply for some answers, with an interval.

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> labelled = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 100, [True, True, False, True] * 100)
        >>> expected = metrics.expected_accuracy(labelled, answers.cells[0])
        >>> expected.answers, round(expected.accuracy, 3), round(expected.lower, 3), round(expected.upper, 3)
        (800, 0.75, 0.72, 0.779)
    """

    accuracy: float
    lower: float
    upper: float
    answers: int


def expected_accuracy(labelled: CalibrationSums, answers_C: npt.ArrayLike, *, level: float = 0.95) -> ExpectedAccuracy:
    """Compute the expected accuracy of the answers without a label: the mean of their confidences.

    Cell i has u_i answers without a label, and c_i is its centre (within 1/6,000 of every confidence in it):

        accuracy = sum u_i c_i / u,    number of right answers ~ Poisson binomial with variance sum u_i c_i (1 - c_i)

    This assumes that every answer is right with the probability that it states, independently. So the model must be
    calibrated on these answers, without concept drift. The interval then contains the true share of right answers. Its
    limits are the (1 - level)/2 quantiles of that distribution. They are exact (coverage at least `level`) if the
    variance is below 150; otherwise they are normal, with half an answer added on either side. The interval does not
    include errors of the calibrator.

    Args:
        labelled: Calibration sums of the labelled answers.
        answers_C: Number of all answers in each of the 3,000 cells, the labelled ones included.
        level: Confidence level of both limits together, inside (0, 1).

    Returns:
        The expected accuracy, its limits and the number of answers without a label.

    Raises:
        ValueError: `weighted_ece` does not accept the counts, `level` is outside (0, 1), or every answer has a label.

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> round(metrics.expected_accuracy(metrics.CalibrationSums.zero(), answers.cells[0]).accuracy, 2)
        0.75
    """
    labels_C = labelled.cells[0]
    left_C = answer_counts(answers_C, labels_C) - labels_C
    if not left_C.any():
        raise ValueError("every answer has a label; give counts that include answers without one")
    low, high = calibrated_range(left_C, CENTRE_C, level)
    return ExpectedAccuracy(float(left_C @ CENTRE_C / left_C.sum()), low, high, int(left_C.sum()))


def calibrated_range(count_C: Array, confidence_C: Array, level: float) -> tuple[float, float]:
    """Return limits of a calibrated model's accuracy on answers with these confidences: P(inside) >= level.

    Raises:
        ValueError: `level` is outside (0, 1).
    """
    check_level(level)
    occupied = count_C > 0
    count_M, wrong_M = count_C[occupied], np.clip(1 - confidence_C[occupied], 0.0, 1.0)
    n, mean = float(count_M.sum()), float(count_M @ wrong_M)
    variance, q = float(count_M @ (wrong_M * (1 - wrong_M))), (1 - level) / 2
    if variance >= EXACT_BELOW:
        reach = float(scipy.special.ndtri(1 - q)) * variance**0.5 + 0.5
        least, most = mean - reach, mean + reach
    else:
        first, probability_K = _wrong_answers(count_M, wrong_M, mean, variance)
        below_K = np.cumsum(probability_K)
        least = first + int(np.searchsorted(below_K, q, side="right"))
        most = first + int(np.searchsorted(below_K, 1 - q - 1e-12))
    return min(max(1 - most / n, 0.0), 1.0), min(max(1 - least / n, 0.0), 1.0)


def misses_p_value(misses: int, ranges: int, level: float) -> float:
    """Return the probability that so many independent `calibrated_range`s miss, if all answers are calibrated.

    It is P(X >= misses) for X ~ Binomial(ranges, 1 - level). The true probability is at most that, because a range's
    coverage is at least `level`.

    Raises:
        ValueError: `level` is outside (0, 1).
    """
    check_level(level)
    return float(scipy.special.bdtrc(misses - 1, ranges, 1 - level)) if misses else 1.0


def visible_gaps(
    lower: float, upper: float, expected: float, labels: int, power: float = 0.8
) -> tuple[float | None, float | None]:
    """Return (less, more): the smallest gaps below and above `expected` that would probably show.

    A gap shows if the share of right answers among `labels` labels falls outside [lower, upper] with probability
    `power`. `less` is the smallest d with P(X / n < lower) = power for X ~ Binomial(n, expected - d); `more` is the
    same above. The binomial is the widest distribution with this mean (Hoeffding 1956), so unequal confidences show a
    gap a little sooner. None means that no gap shows on that side.

    Raises:
        ValueError: `power` is outside (0, 1).

    Examples:
        >>> [round(gap, 3) for gap in visible_gaps(0.75, 0.97, 0.88, 50)]
        [0.185, 0.103]
    """
    check_level(power)
    least, most = math.ceil(lower * labels - ROUNDING) - 1, math.floor(upper * labels + ROUNDING)
    less = more = None
    if least >= 0:
        less = expected - float(scipy.optimize.brentq(lambda p: scipy.special.bdtr(least, labels, p) - power, 0.0, 1.0))
    if most < labels:
        more = float(scipy.optimize.brentq(lambda p: scipy.special.bdtrc(most, labels, p) - power, 0.0, 1.0)) - expected
    return less, more


def _wrong_answers(count_M: Array, wrong_M: Array, mean: float, variance: float) -> tuple[int, Array]:
    """Compute the distribution of the number W of wrong answers, by a Fourier transform.

    The result is P(W = first + k), 20 deviations to either side.
    """
    side = int(20 * variance**0.5) + 20
    first, size = int(mean) - side, 2 * side + 2
    wave_F = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    factor_MF = (1 + wrong_M[:, None] * (wave_F - 1)) ** count_M[:, None]
    law_F = factor_MF.prod(axis=0) * wave_F ** (-first % size)
    return first, np.maximum(np.fft.irfft(law_F, size), 0.0)
