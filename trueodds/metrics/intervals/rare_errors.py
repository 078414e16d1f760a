"""Exact distribution of a calibrated model's ECE if few errors are expected."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from trueodds.sums.inputs import Array

MOST_RARE = 128
"""Largest count of wrong (or right) rows of a bin, plus one. With 20 expected, so many have probability 1e-50."""
STEPS = 8192
"""Steps of the grid on which the distances of the bins are added, each rounded up."""
NEGLIGIBLE = 1e-16


def rare_counts(count_I: Array, chance_I: Array, start_B: npt.NDArray[np.intp]) -> Array:
    """Compute P(X_b = k) for k < 128, where X_b is the number of successes in a bin (a Poisson binomial).

    Group I has `count_I` rows with success probability `chance_I` each, and `start_B` is the place of each bin's first
    group. The method is the discrete Fourier transform of prod_i (1 - p_i + p_i w)^n_i.
    """
    wave_F = np.exp(-2j * np.pi * np.arange(MOST_RARE // 2 + 1) / MOST_RARE)
    factor_IF = (1 + chance_I[:, None] * (wave_F - 1)) ** count_I[:, None]
    probability_BK: Array = np.fft.irfft(np.multiply.reduceat(factor_IF, start_B, axis=0), MOST_RARE, axis=1)
    return np.maximum(probability_BK, 0.0)


def exact_floor(probability_BK: Array, mean_B: Array, level: float) -> tuple[float, float]:
    """Compute the mean of `D = sum_b |X_b - mean_b|` and its quantile, for independent counts X_b.

    The quantile satisfies P(D > quantile) <= 1 - level. The distances of the bins are added on a grid that reaches to
    mean + sqrt(level / (1 - level)) sd, which is beyond the quantile by Cantelli's inequality. Each distance is rounded
    up. So the quantile is never too small, and too large by at most one step for each bin whose count is not its
    likeliest one.
    """
    away_BK = np.abs(np.arange(probability_BK.shape[1]) - mean_B[:, None])
    average_B = (probability_BK * away_BK).sum(axis=1)
    spread = math.sqrt(float((probability_BK * away_BK**2).sum() - (average_B**2).sum()))
    mean, least_B = float(average_B.sum()), away_BK.min(axis=1)
    least = float(least_B.sum())
    step = (mean + math.sqrt(level / (1 - level)) * spread - least) / STEPS
    place_BK = np.ceil((away_BK - least_B[:, None]) / step - 1e-9).astype(np.intp)
    sum_G = np.zeros(STEPS + 1)
    sum_G[0] = 1.0
    for place_K, probability_K in zip(place_BK, probability_BK, strict=True):
        added_G = np.zeros_like(sum_G)
        for k in np.flatnonzero((probability_K > NEGLIGIBLE) & (place_K <= STEPS)):
            place = place_K[k]
            added_G[place:] += probability_K[k] * sum_G[: len(sum_G) - place]
        sum_G = added_G
    # The relative margin keeps rounding errors of other sums from counting as an excess.
    return mean, (least + step * int((np.cumsum(sum_G) < level - 1e-12).sum())) * (1 + 1e-9)
