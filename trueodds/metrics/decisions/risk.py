"""Tests of the null that the mean loss of some answers is above a limit, with the fewest assumptions."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array


def risk_p_value(loss: npt.ArrayLike, count: npt.ArrayLike, risk: float, *, binary: bool = True) -> Array:
    """Compute p-values of the null that the mean of losses in [0, 1] is at least `risk`, elementwise.

        0 or 1:    P(Bin(n, risk) <= loss)
        other:     min( exp(-n h(min(loss / n, risk), risk)),  e P(Bin(n, risk) <= ceil(loss)) )

    with h(a, b) = a ln(a / b) + (1 - a) ln((1 - a) / (1 - b)). The first is exact. The second is the bound of Hoeffding
    and Bentkus.

    Args:
        loss: Sums of the losses.
        count: Numbers n of independent losses, at least 1.
        risk: Mean loss of the null, inside (0, 1).
        binary: Whether each loss is 0 or 1.

    References:
        Angelopoulos et al. 2022, Learn then Test, section 3.2.

    Examples:
        >>> float(risk_p_value(0, 59, 0.05).round(4)), float(risk_p_value(0, 58, 0.05).round(4))
        (0.0485, 0.051)
    """
    loss_K, count_K = np.asarray(loss, np.float64), np.asarray(count).astype(np.int64)
    if binary:
        return np.asarray(scipy.special.bdtr(loss_K, count_K, risk), np.float64)
    mean_K = np.minimum(loss_K / count_K, risk)
    hoeffding_K = np.exp(
        -count_K * (scipy.special.rel_entr(mean_K, risk) + scipy.special.rel_entr(1 - mean_K, 1 - risk))
    )
    whole_K = np.minimum(np.ceil(loss_K - 1e-9), count_K)
    bentkus_K = np.e * scipy.special.bdtr(whole_K, count_K, risk)
    return np.asarray(np.minimum(hoeffding_K, bentkus_K), np.float64)


def least_counts(loss_K: Array, risk: float, alpha: float, most: int, *, binary: bool = True) -> Array:
    """Compute how many answers show a mean loss below `risk`, given their losses: the least n with p <= alpha.

    Args:
        loss_K: Sums of losses.
        risk: Mean loss of the null, inside (0, 1).
        alpha: Significance level of the test.
        most: Largest n that is considered; `most` + 1 stands for more.
        binary: Whether each loss is 0 or 1.

    Examples:
        >>> least_counts(np.arange(4.0), 0.05, 0.05, 1_000).tolist()
        [59.0, 93.0, 124.0, 153.0]
    """
    low_K, high_K = np.floor(loss_K), np.full(len(loss_K), most + 1.0)
    while (open_K := high_K - low_K > 1).any():
        middle_K = np.where(open_K, np.floor((low_K + high_K) / 2), high_K)
        shown_K = risk_p_value(loss_K, middle_K, risk, binary=binary) <= alpha
        high_K = np.where(open_K & shown_K, middle_K, high_K)
        low_K = np.where(open_K & ~shown_K, middle_K, low_K)
    return high_K


def least_count(risk: float, alpha: float) -> int:
    """Compute the smallest number of losses of 0 that shows a mean below `risk`: (1 - risk)^n <= alpha.

    Examples:
        >>> least_count(0.05, 0.05)
        59
    """
    about = math.ceil(math.log(alpha) / math.log1p(-risk)) + 1
    return int(least_counts(np.zeros(1), risk, alpha, about)[0])
