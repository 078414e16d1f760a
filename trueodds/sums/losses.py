"""NLL and Brier score of a row: the only definition in the project."""

from __future__ import annotations

import math

import numpy as np

from trueodds.sums.inputs import Array

SMALLEST_PROBABILITY = float(np.finfo(np.float64).tiny)
"""Replacement for a probability of 0 of the true class. Its NLL is 708.4, so sums stay finite."""
WORST_NLL = -math.log(SMALLEST_PROBABILITY)


def nll_of(true_N: Array) -> Array:
    """Compute -ln p_y of each row in nats, in [0, 708.4]. `true_N` is p_y, the probability of the true class."""
    nll_N: Array = -np.log(np.clip(true_N, SMALLEST_PROBABILITY, 1.0))
    return nll_N


def brier_of(true_N: Array, squares_N: Array) -> Array:
    """Compute sum_k (p_k - [k = y])^2 of each row, in [0, 2]. `true_N` is p_y, and `squares_N` is sum_k p_k^2."""
    brier_N: Array = np.maximum(squares_N - 2 * true_N + 1, 0.0)
    return brier_N
