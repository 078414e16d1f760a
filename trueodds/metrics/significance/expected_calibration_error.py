"""The p-value of the expected calibration error: how large chance alone makes it, into the far tail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrik

from trueodds.metrics.ranked import whole_bins
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.metrics.significance.kolmogorov_smirnov import binomial_probability
from trueodds.sums.bins import Binning
from trueodds.sums.inputs import Array

STEPS = 2048
"""Of the grid between 0 and the observed distance on which the bins' distances are added."""
NEGLIGIBLE = 1e-14
"""Probability of the counts at either end that are left out of a bin."""


@dataclass(frozen=True)
class EceTest:
    """The plug-in ECE, and the chance of as large a one under perfect calibration.

    >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
    >>> round(metrics.ece_test(sums).ece, 4)
    0.4
    """

    ece: float
    p_value: float

    @property
    def reading(self) -> str:
        """In plain words."""
        if self.p_value >= 0.05:
            return f"The calibration error is no larger than chance makes it (p = {self.p_value:.2g})."
        return f"The calibration error is more than chance (p = {self.p_value:.2g})."


def ece_test(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, bins: int = 15, binning: Binning = "width"
) -> EceTest:
    """P-value of n ECE = sum_b |A_b - C_b|, A_b the right rows of a bin and C_b the sum of its confidences.

        p = P(sum_b |X_b - C_b| >= sum_b |A_b - C_b|),    X_b ~ Binomial(n_b, C_b / n_b), independent

    by convolution of the bins' exact distances on a grid of 2,048 steps, to about 1e-10: small enough for thousands of
    tests at once. Distances are rounded up to the grid, and a bin's rows count at their mean confidence, which makes
    X_b vary a little more than they do: the test errs on the safe side. It asks what `noise_floor` asks;
    `calibration_test` finds more, but its p-value ends at 1/2,000. 1 to 3 ms.

    Raises:
        ValueError: bad input, no rows, an unknown binning, or bins that `ece` refuses.

    >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
    >>> metrics.ece_test(sums).p_value < 1e-9
    True
    """
    table = whole_bins(as_sums(predictions, labels_N), bins, binning)
    distance = float(np.abs(table.gap_B).sum())
    occupied = table.count_B > 0
    count_B, confidence_B = table.count_B[occupied], table.confidence_B[occupied]
    below = _probability_below(np.rint(count_B), np.clip(confidence_B, 0.0, count_B), distance - 1e-9 * table.n)
    return EceTest(distance / table.n, min(max(1 - below, 0.0), 1.0))


def _probability_below(count_B: Array, mean_B: Array, distance: float) -> float:
    """P(sum_b |X_b - mean_b| < distance)."""
    if distance <= 0:
        return 0.0
    chance_B = mean_B / count_B
    # Not scipy.stats' ppf: importing scipy.stats takes longer than all else that this library imports.
    quantile_2B = np.where(chance_B > 0, bdtrik([[NEGLIGIBLE], [1 - NEGLIGIBLE]], count_B, chance_B), 0.0)
    low_B, high_B = np.floor(quantile_2B[0]), np.ceil(quantile_2B[1])
    sum_G = np.zeros(STEPS)
    sum_G[0] = 1.0
    for low, high, count, mean, chance in zip(low_B, high_B, count_B, mean_B, chance_B, strict=True):
        number_K = np.arange(low, high + 1)
        # Rounded up: an equal distance must not count as a smaller one.
        place_K = np.ceil(np.abs(number_K - mean) * (STEPS / distance) - 1e-9).astype(np.intp)
        near_K = place_K < STEPS
        probability_K = binomial_probability(count, chance, number_K[near_K])
        mass_G = np.bincount(place_K[near_K], probability_K, minlength=STEPS)
        # Twice the grid, so that what reaches beyond the observed distance does not come round again.
        sum_G = np.fft.irfft(np.fft.rfft(sum_G, 2 * STEPS) * np.fft.rfft(mass_G, 2 * STEPS))[:STEPS]
    return float(sum_G.sum())
