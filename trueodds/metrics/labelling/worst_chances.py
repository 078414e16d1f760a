"""Chance of each group to be the worst calibrated one, by the labels so far: where the next labels should go."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.labelling.sampling import HIDDEN_GAP
from trueodds.sums.inputs import Array, as_numbers, check_top

PRIOR_GAP = 0.1
"""Standard deviation of a group's signed gap before any label."""
POINTS, FEWEST_POINTS = 2_001, 257
"""Points of the integral over the size of the largest gap: fewer where more than a thousand groups have labels."""
AT_ONCE = 500
"""Groups whose densities are held in memory together."""


@dataclass(frozen=True)
class WorstChance:
    """One group, its labels so far, and its chance to be the worst one.

    Examples:
        >>> metrics.worst_chances([0.9], [True], ["night"], ["night"])[0].chance
        1.0
    """

    group: str | None
    labels: int
    """Number of labels that count."""
    signed_gap: float | None
    """Accuracy minus mean confidence of these labels, weighted by 1 / propensity; None without a label."""
    chance: float
    """Probability that no other group has a larger gap. The chances of all groups sum to 1."""


def worst_chances(
    confidence_N: npt.ArrayLike,
    correct_N: npt.ArrayLike,
    groups_N: Sequence[str | None],
    names: Iterable[str | None],
    *,
    propensity_N: npt.ArrayLike | None = None,
) -> list[WorstChance]:
    """Compute how likely each group is to have the largest |signed gap|, by the labels so far.

    The signed gap of a group is its accuracy minus its mean confidence. A group with labels has the estimate

        d = sum w (a - c) / sum w,    v = sum w^2 (c (1 - c) + 0.1^2) / (sum w)^2,    w = 1 / propensity

    With the prior N(0, P), P = 0.1^2, its gap has the posterior N(d P / (P + v), P v / (P + v)); without a label it has
    the prior. The chance of group g is the probability that its |gap| is the largest,

        chance_g = int f_g(x) prod_{h != g} F_h(x) dx,

    with density f and distribution F of |gap|. A group that looks bad has a high chance, and so has one that is not
    known yet. This is top-arm probability matching: labels that are shared out by it explore first and then go to the
    worst group.

    The prior only steers the labels. Estimates that weight them by their propensities do not depend on it.

    Args:
        confidence_N: Confidence of each labelled answer.
        correct_N: Whether it is right.
        groups_N: Its group, such as its tag. None counts as a group.
        names: Groups to compare, those of the answers that may be labelled next. Labels of other groups do not count.
        propensity_N: Propensity of each labelled answer, NaN if unknown. If any is known, labels without one do not
            count, because they are not a random sample.

    Returns:
        The groups, most likely first.

    Raises:
        ValueError: There are no names, lengths differ, or a propensity is outside (0, 1].

    References:
        Thompson 1933, On the likelihood that one unknown probability exceeds another in view of the evidence of two
        samples. Russo 2020, Simple Bayesian algorithms for best-arm identification.

    Examples:
        >>> night = [0.9] * 20, [True, True, True, False] * 5, ["night"] * 20
        >>> [(one.group, round(one.chance, 2)) for one in metrics.worst_chances(*night, ["day", "night"])]
        [('night', 0.63), ('day', 0.37)]
    """
    listed = list(dict.fromkeys(names))
    if not listed:
        raise ValueError("names is empty; give at least one group")
    confidence = np.zeros(0)
    correct = np.zeros(0, np.bool_)
    if len(groups_N):
        confidence, correct = check_top(confidence_N, correct_N)
    if len(groups_N) != len(confidence):
        raise ValueError(f"groups has {len(groups_N):,} rows for {len(confidence):,} labels; give one for each")
    weight_N = _weights(propensity_N, len(confidence))
    place: dict[Hashable, int] = {name: number for number, name in enumerate(listed)}
    code_N = np.array([place.get(name, -1) for name in groups_N], np.intp)
    counts_N = (code_N >= 0) & (weight_N > 0)
    code_M, weight_M, c_M = code_N[counts_N], weight_N[counts_N], confidence[counts_N]
    count_G, total_G, gap_G, square_G = (
        np.bincount(code_M, some, len(listed))
        for some in (
            np.ones(len(code_M)),
            weight_M,
            weight_M * (correct[counts_N] - c_M),
            weight_M**2 * (c_M * (1 - c_M) + HIDDEN_GAP**2),
        )
    )
    known_G = count_G > 0
    mean_G, variance_G = np.zeros(len(listed)), np.full(len(listed), PRIOR_GAP**2)
    estimate_G = gap_G[known_G] / total_G[known_G]
    error_G = square_G[known_G] / total_G[known_G] ** 2
    mean_G[known_G] = estimate_G * PRIOR_GAP**2 / (PRIOR_GAP**2 + error_G)
    variance_G[known_G] = PRIOR_GAP**2 * error_G / (PRIOR_GAP**2 + error_G)
    chance_G = largest_chances(mean_G, np.sqrt(variance_G))
    found = [
        WorstChance(name, int(count_G[g]), float(gap_G[g] / total_G[g]) if known_G[g] else None, float(chance_G[g]))
        for g, name in enumerate(listed)
    ]
    return sorted(found, key=lambda one: -one.chance)


def largest_chances(mean_G: Array, deviation_G: Array) -> Array:
    """Compute the probability that each of independent normal numbers has the largest absolute value."""
    kinds_KM, kind_G, count_K = np.unique(
        np.stack([np.abs(mean_G), deviation_G], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    kind_G = kind_G.reshape(-1)
    points = max(FEWEST_POINTS, POINTS * min(1_000, len(kinds_KM)) // len(kinds_KM))
    x_P = np.linspace(0, float((kinds_KM[:, 0] + 8 * kinds_KM[:, 1]).max()), points)
    log_all_P = np.zeros(points)
    for start in range(0, len(kinds_KM), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        log_all_P += count_K[part] @ _log_distribution(x_P, *kinds_KM[part].T)
    chance_K = np.zeros(len(kinds_KM))
    for start in range(0, len(kinds_KM), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        mean_K, deviation_K = kinds_KM[part].T
        # The chance of a value between two points, times that of all others to be below the middle
        log_KP = _log_distribution(x_P, mean_K, deviation_K)
        below_KP = np.exp(np.minimum(log_all_P - log_KP, 0.0))
        mass_KP = np.diff(np.exp(log_KP), axis=1)
        chance_K[part] = (mass_KP * (below_KP[:, 1:] + below_KP[:, :-1]) / 2).sum(axis=1)
    chance_G: Array = chance_K[kind_G] / chance_K[kind_G].sum()
    return chance_G


def _log_distribution(x_P: Array, mean_K: Array, deviation_K: Array) -> Array:
    """Return ln P(|X| <= x) of normal numbers with means of 0 or more."""
    upper_KP = (x_P - mean_K[:, None]) / deviation_K[:, None]
    lower_KP = (-x_P - mean_K[:, None]) / deviation_K[:, None]
    log_upper_KP = scipy.special.log_ndtr(upper_KP)
    with np.errstate(divide="ignore"):
        ratio_KP = np.exp(np.minimum(scipy.special.log_ndtr(lower_KP) - log_upper_KP, 0.0))
        log_KP: Array = np.maximum(log_upper_KP + np.log1p(-ratio_KP), -700.0)
    return log_KP


def _weights(propensity_N: npt.ArrayLike | None, count: int) -> Array:
    """Return 1 / propensity; 0 for a label that does not count."""
    if propensity_N is None or not count:
        return np.ones(count)
    propensity = as_numbers(propensity_N, "propensity").astype(np.float64)
    if propensity.shape != (count,):
        raise ValueError(f"propensity has shape {propensity.shape}; expected ({count},), one for each label")
    known_N = ~np.isnan(propensity)
    if not known_N.any():
        return np.ones(count)
    good_N = ~known_N | ((propensity > 0) & (propensity <= 1))
    if not good_N.all():
        raise ValueError(f"propensity holds {propensity[~good_N][0]}; allowed is (0, 1], or NaN if it is unknown")
    return np.where(known_N, 1 / np.where(known_N, propensity, 1.0), 0.0)
