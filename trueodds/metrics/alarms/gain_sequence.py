"""Confidence sequence of a mean gain: limits that are valid after every label at once, even if the gain changes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array, as_numbers, check_level, is_number

STAKES = 0.98 * 1.5 ** -np.arange(14.0)
"""Stakes, as shares of the largest stake at which no label can cost more than the whole capital."""
SHARES = np.array([0.4, *(0.6 / (np.arange(1, 14) * (1 / np.arange(1, 14)).sum()))])
"""Initial capital of each stake. The largest stake gets most, because it detects small and steady gains."""
HELD = 10
"""Labels of gain 0 with which the running mean starts, so that the first labels do not move it far."""
BLOCK = 65_536
MOST_LABELS = 10_000_000
"""Largest number of labels that is predicted."""


@dataclass(frozen=True)
class GainSequence:
    """Mean gain of the labels so far, and anytime-valid limits of the mean of its conditional expectations.

    Examples:
        >>> sequence = metrics.gain_sequence([0.2, 0.1, 0.3, 0.2] * 50, least=-1, most=1)
        >>> 0 < sequence.lower < sequence.mean < sequence.upper
        True
    """

    labels: int
    mean: float
    """Mean gain. With weights it is weighted by `weight_N` and estimates the mean over all answers."""
    lower: float
    upper: float
    level: float
    more: int | None
    """Estimated number of further labels that would exclude 0, if they are like those so far.

    0 means that 0 is excluded already. None means that not even 10 million labels would.
    """


def gain_sequence(
    gain_N: npt.ArrayLike, *, least: float, most: float, level: float = 0.95, weight_N: npt.ArrayLike | None = None
) -> GainSequence:
    """Compute limits of m_N = (1/N) sum_n E[d_n | the labels before n] that are valid after every label, for ever.

    d_n in [least, most] is the gain of label n, in order of arrival. For a stake L and a number c_n that the labels
    before n determine,

        1 + L (d_n - c_n) has mean 1 + L (m - c_n) <= exp(L (m - c_n)),    m = E[d_n | the labels before n].

    So prod_n (1 + L (d_n - c_n)) exp(L c_n) / exp(L N m_N) never grows on average, however m changes. With probability
    1 - (1 - level) / 2 it stays below 2 / (1 - level) for ever (Ville 1939). `lower` solves, over fixed stakes,

        sum_k w_k exp(sum_n [log(1 + L_k (d_n - c_nk)) + L_k c_nk] - L_k N lower) = 2 / (1 - level)

    and `upper` is the same for -d. c_nk is the running mean, limited so that no bet can lose everything. This is the
    time-varying mean of Choe and Ramdas. They bound the payoffs by squares (Fan, Grama and Liu 2015), which gives the
    empirical Bernstein form. Here the payoffs themselves are used, which is no wider at equal stakes. The stakes of
    Waudby-Smith and Ramdas (2024) change with the labels, need a constant mean and are not used.

    With weights w_n = smallest / propensity in (0, 1], the sequence is that of w d over ALL answers, with 0 for an
    answer without a label. Then c is 0, so an answer without a label leaves the capital unchanged. `lower` > 0 and
    `upper` < 0 are then statements about the sign of the mean over all answers. The mean and its limits are divided by
    sum w, which estimates smallest x (number of all answers).

    The present limits are valid. Do not intersect them with earlier ones unless the mean is constant.

    Args:
        gain_N: Gains in the order of the labels.
        least: The smallest possible gain, below 0, fixed before the first label.
        most: The largest possible gain, above 0, fixed before the first label.
        level: Confidence level of both limits together.
        weight_N: Weight of each label. None: all labels have equal weight.

    Returns:
        The mean gain, its limits, and the number of labels still needed.

    Raises:
        ValueError: There is no label, a gain is outside [least, most], weights are outside (0, 1], or `level` is
            outside (0, 1).

    References:
        Choe and Ramdas, "Comparing sequential forecasters", Operations Research 2024, Theorem 2.

    Examples:
        >>> metrics.gain_sequence([0.2, 0.1, 0.3, 0.2] * 50, least=-1, most=1).more
        0
    """
    check_level(level)
    gain, weight = _check(gain_N, least, most, weight_N)
    threshold, labels = math.log(2 / (1 - level)), len(gain)
    paid_K = sum_of_bets(gain, least, weight)
    lost_K = sum_of_bets(-gain, -most, weight)
    size = labels if weight is None else float(weight.sum())
    lower = max(limit_of(paid_K, -least, threshold) / size, least)
    upper = min(-limit_of(lost_K, most, threshold) / size, most)
    mean = float(gain.mean() if weight is None else gain @ weight / size)
    more = _more(paid_K if mean > 0 else lost_K, labels, threshold)
    return GainSequence(labels, mean, lower, upper, level, 0 if lower > 0 or upper < 0 else more)


def gain_evidence(
    gain_N: npt.ArrayLike, *, least: float, most: float, weight_N: npt.ArrayLike | None = None
) -> tuple[Array, Array]:
    """Compute the evidence (log E) after each label that the mean gain so far is above 0, and that it is below 0.

    `lower` of `gain_sequence` is above 0 after exactly those labels at which the first is above log(2 / (1 - level)).

    Args:
        gain_N: Gains in the order of the labels.
        least: The smallest possible gain, below 0, fixed before the first label.
        most: The largest possible gain, above 0, fixed before the first label.
        weight_N: Weight of each label. None: all labels have equal weight.

    Returns:
        log E for a mean gain above 0, and log E for one below 0, shape (N,) each.

    Raises:
        ValueError: `gain_sequence` does not accept the input.

    Examples:
        >>> above_N, below_N = metrics.gain_evidence([0.2, 0.1, 0.3, 0.2] * 50, least=-1, most=1)
        >>> bool(above_N[-1] > np.log(40) > below_N[-1])
        True
    """
    gain, weight = _check(gain_N, least, most, weight_N)
    above_N, below_N = (
        scipy.special.logsumexp(np.cumsum(bets(d_N, limit, weight), axis=0) + np.log(SHARES), axis=1)
        for d_N, limit in ((gain, least), (-gain, -most))
    )
    return above_N, below_N


def bets(gain_N: Array, least: float, weight_N: Array | None = None, before: tuple[int, float] = (0, 0.0)) -> Array:
    """Compute log(1 + L (d - c)) + L c of each label and stake. `before` is the number and the sum of earlier gains."""
    stake_K = STAKES / -least
    if weight_N is not None:
        return np.log1p((weight_N * gain_N)[:, None] * stake_K)
    sum_N = before[1] + np.concatenate([[0.0], np.cumsum(gain_N)[:-1]])
    mean_N = sum_N / (before[0] + HELD + np.arange(len(gain_N)))
    return centred_bets(gain_N[:, None], mean_N[:, None], least, stake_K)


def centred_bets(gain_N1: Array, mean_N1: Array, least: float, stake_K: Array) -> Array:
    """Compute log(1 + L (d - c)) + L c with c the running mean, limited so that the smallest gain leaves .02."""
    centre_NK = np.minimum(mean_N1, least + 0.98 / stake_K)
    paid_NK: Array = np.log1p((gain_N1 - centre_NK) * stake_K) + centre_NK * stake_K
    return paid_NK


def sum_of_bets(gain_N: Array, least: float, weight_N: Array | None = None) -> Array:
    """Add `bets` over the labels for each stake, block by block."""
    total_K, seen = np.zeros(len(STAKES)), 0.0
    for first in range(0, len(gain_N), BLOCK):
        part = slice(first, first + BLOCK)
        weight = None if weight_N is None else weight_N[part]
        total_K += bets(gain_N[part], least, weight, (first, seen)).sum(axis=0)
        seen += float(gain_N[part].sum())
    return total_K


def limit_of(paid_K: Array, widest: float, threshold: float) -> float:
    """Return the sum of expectations below which all of them are refuted."""
    stake_K = STAKES / widest

    def excess(total: float) -> float:
        return float(scipy.special.logsumexp(paid_K - stake_K * total + np.log(SHARES))) - threshold

    low = float(((paid_K + np.log(SHARES) - threshold) / stake_K).max())
    high = float(((paid_K - threshold) / stake_K).max())
    return float(scipy.optimize.brentq(excess, low - 1e-9, high + 1e-9, xtol=1e-10 * max(1.0, abs(low))))


def _more(paid_K: Array, labels: int, threshold: float) -> int | None:
    """Return the number of labels until the evidence suffices, if each stake keeps earning at its average rate."""

    def enough(count: float) -> bool:
        return float(scipy.special.logsumexp(paid_K * (count / labels) + np.log(SHARES))) >= threshold

    if not enough(MOST_LABELS):
        return None
    low, high = float(labels), float(MOST_LABELS)
    while high - low > max(1.0, 0.001 * low):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(math.ceil(high) - labels, 1)


def _check(
    gain_N: npt.ArrayLike, least: float, most: float, weight_N: npt.ArrayLike | None
) -> tuple[Array, Array | None]:
    if not (is_number(least) and is_number(most) and -math.inf < least < 0 < most < math.inf):
        raise ValueError(f"gains from {least!r} to {most!r}; allowed are finite limits on both sides of 0")
    gain = as_numbers(gain_N, "gain").astype(np.float64)
    if gain.ndim != 1 or not len(gain):
        raise ValueError(f"gain has shape {gain.shape}; expected one number for each label, and one label at least")
    wrong = ~((gain >= least * (1 + 1e-9)) & (gain <= most * (1 + 1e-9)))
    if wrong.any():
        raise ValueError(
            f"gain holds {gain[wrong][0]}; allowed is [{least:g}, {most:g}]. State wider limits before the first label"
        )
    gain = np.clip(gain, least, most)
    if weight_N is None:
        return gain, None
    weight = as_numbers(weight_N, "weight").astype(np.float64)
    if weight.shape != gain.shape:
        raise ValueError(f"weight has shape {weight.shape}; expected {gain.shape}, one for each gain")
    if (wrong := ~((weight > 0) & (weight <= 1))).any():
        raise ValueError(
            f"weight holds {weight[wrong][0]}; allowed is (0, 1]: the smallest propensity divided by the label's own"
        )
    return gain, weight
