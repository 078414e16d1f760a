"""Test of the plug-in ECE against the null of perfect calibration, accurate for very small p-values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.ranked import whole_bins
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.metrics.significance.kolmogorov_smirnov import binomial_probability
from trueodds.processes.choices import Binning
from trueodds.sums.inputs import Array

STEPS = 2048
"""Steps of the grid from 0 to the observed distance, on which the distances of the bins are added."""
NEGLIGIBLE = 1e-14
"""Probability at either end of a bin's counts that is left out."""


@dataclass(frozen=True)
class EceTest:
    """The plug-in ECE, and the probability of one at least as large under perfect calibration.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> round(metrics.ece_test(sums).ece, 4)
        0.4
    """

    ece: float
    p_value: float

    @property
    def reading(self) -> str:
        """The result as a sentence."""
        if self.p_value >= 0.05:
            return f"The calibration error is no larger than chance makes it (p = {self.p_value:.2g})."
        return f"The calibration error is more than chance (p = {self.p_value:.2g})."


def ece_test(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> EceTest:
    """Test whether the ECE is larger than chance makes it: the p-value of `n ECE = sum_b |A_b - C_b|`.

    A_b is the number of right rows of bin b, and C_b is the sum of its confidences.

        p = P(sum_b |X_b - C_b| >= sum_b |A_b - C_b|),    X_b ~ Binomial(n_b, C_b / n_b), independent

    The exact distances of the bins are convolved on a grid of 2,048 steps. The p-value is accurate to about 1e-10,
    small enough for thousands of tests at once. The test errs on the safe side for two reasons. Distances are rounded
    up to the grid. All rows of a bin count at its mean confidence, so X_b varies a little more than the true count.

    The null is that of `noise_floor`. `calibration_test` has more power, but its p-values end at 1/2,000. The function
    takes 1 to 3 ms.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The plug-in ECE and its p-value.

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or `ece` does not accept the bins.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> metrics.ece_test(sums).p_value < 1e-9
        True
    """
    table = whole_bins(as_sums(predictions, labels_N, classes), bins, binning)
    distance = float(np.abs(table.gap_B).sum())
    occupied = table.count_B > 0
    count_B, confidence_B = table.count_B[occupied], table.confidence_B[occupied]
    below = _probability_below(np.rint(count_B), np.clip(confidence_B, 0.0, count_B), distance - 1e-9 * table.n)
    return EceTest(distance / table.n, min(max(1 - below, 0.0), 1.0))


def _probability_below(count_B: Array, mean_B: Array, distance: float) -> float:
    """Compute `P(sum_b |X_b - mean_b| < distance)`."""
    if distance <= 0:
        return 0.0
    chance_B = mean_B / count_B
    # scipy.stats' ppf is avoided: importing scipy.stats takes longer than all other imports of this library.
    quantile_2B = np.where(chance_B > 0, scipy.special.bdtrik([[NEGLIGIBLE], [1 - NEGLIGIBLE]], count_B, chance_B), 0.0)
    low_B, high_B = np.floor(quantile_2B[0]), np.ceil(quantile_2B[1])
    sum_G = np.zeros(STEPS)
    sum_G[0] = 1.0
    for low, high, count, mean, chance in zip(low_B, high_B, count_B, mean_B, chance_B, strict=True):
        number_K = np.arange(low, high + 1)
        # Distances are rounded up, so that an equal distance never counts as a smaller one.
        place_K = np.ceil(np.abs(number_K - mean) * (STEPS / distance) - 1e-9).astype(np.intp)
        near_K = place_K < STEPS
        probability_K = binomial_probability(count, chance, number_K[near_K])
        mass_G = np.bincount(place_K[near_K], probability_K, minlength=STEPS)
        # The transform has twice the grid's length, so that mass beyond the observed distance does not wrap around.
        sum_G = np.fft.irfft(np.fft.rfft(sum_G, 2 * STEPS) * np.fft.rfft(mass_G, 2 * STEPS))[:STEPS]
    return float(sum_G.sum())
