"""The exact distribution of a calibrated model's ECE where so few errors are expected that no smooth law fits it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from trueodds.sums.inputs import Array

MOST_RARE = 128
"""Wrong (or right) rows of a bin from which on none are counted: with 20 expected, as many have probability 1e-50."""
STEPS = 8192
"""Of the grid on which the bins' distances are added, each rounded up."""
NEGLIGIBLE = 1e-16


def rare_counts(count_I: Array, chance_I: Array, start_B: npt.NDArray[np.intp]) -> Array:
    """P(X_b = k) for k < 128, X_b the successes of a bin's rows: of `count_I` each with `chance_I` (Poisson binomial).

    start_B: the place of each bin's first group I. By the discrete Fourier transform of prod_i (1 - p_i + p_i w)^n_i.
    """
    wave_F = np.exp(-2j * np.pi * np.arange(MOST_RARE // 2 + 1) / MOST_RARE)
    factor_IF = (1 + chance_I[:, None] * (wave_F - 1)) ** count_I[:, None]
    probability_BK: Array = np.fft.irfft(np.multiply.reduceat(factor_IF, start_B, axis=0), MOST_RARE, axis=1)
    return np.maximum(probability_BK, 0.0)


def exact_floor(probability_BK: Array, mean_B: Array, level: float) -> tuple[float, float]:
    """Mean of D = sum_b |X_b - mean_b| and its quantile, of independent counts X_b: P(D > quantile) <= 1 - level.

    The distances of the bins are added on a grid that reaches to mean + sqrt(level / (1 - level)) sd, by Cantelli's
    inequality beyond the quantile; each is rounded up, so the quantile is too large by at most a step for each bin
    whose count is not its likeliest one, and never too small.
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
    # What the sums of others leave in the last digits must not count as more.
    return mean, (least + step * int((np.cumsum(sum_G) < level - 1e-12).sum())) * (1 + 1e-9)
