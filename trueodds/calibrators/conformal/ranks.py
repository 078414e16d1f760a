"""Ranks of thresholds among calibration scores, and what their coverage is for one set of calibration rows."""

from __future__ import annotations

import math
from fractions import Fraction

import scipy

from trueodds.sums.inputs import check_level, is_whole

FLOOR_CHANCE = 0.05
"""Probability that a threshold's own coverage is below `coverage_floor`."""


MOST_ROWS = 2**53 - 1
"""Largest number of calibration rows that a caller may give. It is exact in float64 and in a store."""


def rank_of(rows: int, level: float, confidence: float | None = None) -> int:
    """Compute which of the sorted calibration scores is the threshold: the k-th smallest, k = ceil((n + 1) level).

    The next row of the same population then has a score up to the threshold with probability at least `level`, on
    average over calibration rows and the next row. For given calibration rows the probability follows Beta(k, n + 1 -
    k) if no scores are equal, so it is below `level` for about half of all calibrations. With a `confidence`, k is the
    smallest rank for which that probability is at least `level` in the share `confidence` of the calibrations:
    P(Beta(k, n + 1 - k) < level) <= 1 - confidence.

    Args:
        rows: Number n of calibration rows.
        level: Coverage, inside (0, 1).
        confidence: Share of calibrations, inside (0, 1). None: on average over calibrations.

    Returns:
        The rank, from 1 on. A rank of n + 1 stands for a threshold of infinity: every class is in the set.

    Raises:
        ValueError: `rows` is not a whole number from 0 on, or a level or confidence is outside (0, 1).

    References:
        Vovk, Gammerman and Shafer 2005, Algorithmic Learning in a Random World; Vovk 2012, Conditional validity of
        inductive conformal predictors; Angelopoulos and Bates 2023, Conformal Prediction: A Gentle Introduction, 1
        and 3.2.

    Examples:
        >>> conformal.rank_of(99, 0.9), conformal.rank_of(8, 0.9), conformal.rank_of(99, 0.9, confidence=0.95)
        (90, 9, 95)
    """
    if not (is_whole(rows) and rows >= 0):
        raise ValueError(f"rows is {rows!r}; allowed is a whole number from 0 on")
    check_level(level)
    exact = Fraction(repr(float(level)))  # 0.9 itself, because the product of floats may be just above a whole number
    rank = min(math.ceil((rows + 1) * exact), rows + 1)
    if confidence is None:
        return rank
    check_level(confidence)
    low, high = 0, rows + 1  # the probability falls with the rank; at rank n + 1 it is 0
    while high - low > 1:
        middle = (low + high) // 2
        if scipy.special.betainc(middle, rows + 1 - middle, level) <= 1 - confidence:
            high = middle
        else:
            low = middle
    return high


def coverage_floor(rank: int, rows: int, level: float, chance: float = FLOOR_CHANCE) -> float:
    """Compute the coverage that a sound threshold has in 95% of calibrations, at most the level itself.

    It is the 5% quantile of Beta(k, n + 1 - k), the law of the coverage over calibration rows. If scores are equal, the
    coverage is larger. So a live coverage below the level, but not below this floor, is no sign of a change.

    Args:
        rank: Rank k of the threshold, from 1 to n + 1.
        rows: Number n of calibration rows.
        level: Level of the sets.
        chance: Probability of a coverage below the floor.

    Raises:
        ValueError: The rank is outside 1..n + 1, or a level is outside (0, 1).

    Examples:
        >>> round(conformal.coverage_floor(90, 99, 0.9), 3), round(conformal.coverage_floor(900, 999, 0.9), 3)
        (0.847, 0.884)
    """
    check_level(level)
    check_level(chance)
    if not (is_whole(rank) and is_whole(rows) and 1 <= rank <= rows + 1):
        raise ValueError(f"rank is {rank!r}; allowed is 1 to {rows + 1}, the number of calibration rows plus 1")
    if rank > rows:
        return float(level)
    return float(min(level, scipy.special.betaincinv(rank, rows + 1 - rank, chance)))


def fewest_rows(level: float) -> int:
    """Return the smallest number of calibration rows with a finite threshold.

    >>> fewest_rows(0.9), fewest_rows(0.95)
    (9, 19)
    """
    exact = Fraction(repr(float(level)))
    return math.ceil(exact / (1 - exact))


def too_few_words(rows: int, level: float) -> str:
    """Say how many rows a threshold of this level needs, if a known number of rows is below it; else ""."""
    if not 0 < rows < fewest_rows(level):
        return ""
    return (
        f"A threshold of level {level:.6g} needs at least {fewest_rows(level):,} calibration rows, and these sets have"
        f" {rows:,}. Sound sets of so few rows hold every class, so the test is of the level itself."
    )
