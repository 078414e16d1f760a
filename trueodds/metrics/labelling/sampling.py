"""Propensities of answers to label next, and samples with these propensities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trueodds.errors import unknown
from trueodds.processes.choices import (
    LABEL_FLOOR,
    LABEL_GOALS,
    SAMPLING_METHODS,
    LabelGoal,
    SamplingMethod,
)
from trueodds.sums.inputs import Array, as_numbers, is_number, is_whole, range_error

Indices = npt.NDArray[np.intp]
HIDDEN_GAP = 0.1
"""Least standard deviation of a label that the design assumes, because a very confident answer may be wrong."""


def label_propensities(
    confidence_N: npt.ArrayLike,
    budget: int,
    *,
    goal: LabelGoal = "ece",
    threshold: float | None = None,
    groups_N: Sequence[str | None] | None = None,
    group: str | None = None,
    chances: Mapping[str | None, float] | None = None,
    floor: float = LABEL_FLOOR,
) -> Array:
    """Compute the probability with which each answer should be drawn for labelling.

    The expected number of labels is the budget n. Each answer of N has a weight w, and its propensity is

        pi = min(1, f + lambda w),    f = floor n / N,    with lambda such that all pi sum to n

    So no propensity is below f, and none is 0. A larger floor costs precision of the goal. It protects all other
    figures, because no label then stands for more than N / (floor n) answers.

    The spread of an answer is s = sqrt(c (1 - c) + 0.1^2): the standard deviation of a label at the confidence c, with
    an allowance for a confidence that is off. The goals have these weights:

        plain      w = 1: every answer has the same propensity, n / N
        ece        w = s: the variance of all calibration sums together is as small as possible
        threshold  w = s min(1, odds(c) / odds(threshold)): the answers that act alone, and those just below
        group      w = s / (sum of s over the group) * (mean of s^2 over the group); with `chances`:
                   w = s / (sum of s over the group) * chance of the group; with `group`: w = s within this group and 0
                   outside

    `ece` is Neyman's allocation: it minimises sum_b V_b, where V_b is the variance of the weighted gap of bin b.
    `group` brings the standard errors of the groups' gaps closer together. They are not equal: the floor gives large
    groups more labels, and a group with few answers may have most of them labelled. With `chances`, each group has so
    large a share of the labels beyond the floor. `worst_chances` computes them from earlier labels, so that labels go
    to the group that may be the worst. Weighted sums stay unbiased if an answer's own label is not among those.

    Measured (benchmarks/evidence/label_samples.py) on six nets: where the ECE is at most .03, an interval as narrow
    needs 1.18 times as many plain labels (median). Where it is larger, the factor is 1.03. The weighted
    interval covers in at least 95% of the samples.

    Args:
        confidence_N: Confidence of each answer that may be drawn.
        budget: Expected number of labels, from 1 to N.
        goal: "ece", "threshold", "group" or "plain".
        threshold: For the goal "threshold": the confidence from which on answers act alone, in (0, 1).
        groups_N: For the goal "group": the group of each answer, such as its tag. None counts as a group.
        group: For the goal "group": the only group to label, beside the floor. None: all groups.
        chances: For the goal "group" without `group`: the chance of each group to be the worst one.
        floor: Smallest propensity as a share of n / N, in (0, 1]. 1 is the same as the goal "plain".

    Returns:
        The propensity of each answer, in (0, 1]. They sum to the budget.

    Raises:
        ValueError: Confidences are outside [0, 1], the budget is not a whole number from 1 to N, the goal is unknown,
            or an argument is missing, outside its range, or belongs to another goal.

    References:
        Neyman 1934, On the two different aspects of the representative method.
        Hesterberg 1995, Weighted average importance sampling and defensive mixture distributions.

    Examples:
        >>> metrics.label_propensities([0.6, 0.99, 0.99, 0.99], 2).round(3).tolist()
        [0.792, 0.403, 0.403, 0.403]
        >>> metrics.label_propensities([0.6, 0.99, 0.99, 0.99], 2, goal="plain").tolist()
        [0.5, 0.5, 0.5, 0.5]
    """
    confidence = _confidences(confidence_N)
    count = len(confidence)
    _check_options(count, budget, goal, threshold, groups_N, group, floor)
    _check_chances(groups_N, group, chances)
    spread_N = np.sqrt(confidence * (1 - confidence) + HIDDEN_GAP**2)
    if goal == "ece":
        weight_N = spread_N
    elif goal == "threshold":
        assert threshold is not None
        odds_N = confidence * (1 - threshold)  # odds(c) / odds(t) = c (1 - t) / (t (1 - c)), without a division by 0
        weight_N = spread_N * np.where(
            confidence >= threshold, 1.0, odds_N / np.maximum(threshold * (1 - confidence), 1e-300)
        )
    elif goal == "group":
        assert groups_N is not None
        weight_N = spread_N * _group_weights(spread_N, groups_N, group, chances)
    else:
        weight_N = np.ones(count)
    return _fill(weight_N, budget, floor * budget / count)


def draw_labels(
    propensity_N: npt.ArrayLike, *, method: SamplingMethod = "systematic", seed: int | None = None
) -> Indices:
    """Draw a sample in which each answer is with its propensity.

    Both methods keep every weighted sum unbiased: the expectation of sum y / pi over the sample is the sum of y over
    all answers (Horvitz and Thompson). Ratios of two such sums are consistent.

        poisson     each answer is drawn on its own. The size of the sample varies: its variance is sum pi (1 - pi).
        systematic  one random number u in [0, 1) draws every answer within whose span of cumulated propensities one of
                    u, u + 1, u + 2, .. lies. The size is within 1 of the sum of the propensities. If the answers are
                    sorted by confidence, the sample is spread evenly over confidence.

    Use `poisson` if an alarm will use the labels: its evidence assumes that each answer is drawn on its own.

    Args:
        propensity_N: Propensity of each answer, in (0, 1]. For `systematic` in the order in which to spread the sample.
        method: "systematic" or "poisson".
        seed: Seed of the draw, a whole number from 0 on. None draws differently each time.

    Returns:
        The indices of the drawn answers, in ascending order.

    Raises:
        ValueError: A propensity is outside (0, 1], or the method is unknown.

    References:
        Horvitz and Thompson 1952, A generalization of sampling without replacement from a finite universe.
        Madow 1949, On the theory of systematic sampling, II.

    Examples:
        >>> metrics.draw_labels([0.5, 0.25, 0.25, 1.0], seed=3).tolist()
        [0, 3]
    """
    propensity = as_numbers(propensity_N, "propensity").astype(np.float64)
    if propensity.ndim != 1:
        raise ValueError(f"propensity has shape {propensity.shape}; expected (N,), one for each answer")
    good = (propensity > 0) & (propensity <= 1)
    if not good.all():
        raise ValueError(
            f"propensity holds {propensity[~good][0]}; allowed is (0, 1], so that every answer has a chance"
        )
    if method not in SAMPLING_METHODS:
        raise unknown("method", method, SAMPLING_METHODS)
    rng = np.random.default_rng(seed)
    if method == "poisson":
        return np.flatnonzero(rng.random(len(propensity)) < propensity)
    reached = np.floor(np.cumsum(propensity) - rng.random())
    return np.flatnonzero((np.diff(reached, prepend=-1.0) > 0) | (propensity == 1))


def _fill(weight_N: Array, budget: int, floor: float) -> Array:
    """Return min(1, floor + lambda w), with lambda such that the sum is the budget.

    If the answers with w > 0 cannot take the budget, they get 1 and the others share the rest equally.
    """
    weighted_N = weight_N > 0
    others = int((~weighted_N).sum())
    rest = budget - int(weighted_N.sum())
    if rest >= floor * others:
        return np.where(weighted_N, 1.0, min(rest / max(others, 1), 1.0))
    # With lambda = (1 - floor) / w an answer reaches 1. In this order, the k with the largest weights are at 1, and the
    # others share the rest in proportion to their weights.
    order_N = np.argsort(-weight_N, kind="stable")
    sorted_N = weight_N[order_N]
    tail_N = np.cumsum(sorted_N[::-1])[::-1]
    k_N = np.arange(len(weight_N))
    spare_N = budget - k_N - floor * (len(weight_N) - k_N)
    at_one_N = spare_N * sorted_N >= (1 - floor) * tail_N  # the k-th would exceed 1 too
    k = int(np.argmin(at_one_N)) if not at_one_N.all() else len(weight_N)
    if k == len(weight_N):
        return np.ones(len(weight_N))
    propensity_N = floor + spare_N[k] / tail_N[k] * weight_N
    propensity_N[order_N[:k]] = 1.0
    bounded_N: Array = np.minimum(propensity_N, 1.0)
    return bounded_N


def _group_weights(
    spread_N: Array,
    groups_N: Sequence[str | None],
    group: str | None,
    chances: Mapping[str | None, float] | None,
) -> Array:
    """Return the weights per spread: by the variance or chance of each group, or 1 in one group and 0 outside."""
    if group is not None:
        chosen_N = np.array([name == group for name in groups_N], np.float64)
        if not chosen_N.any():
            names = sorted({name for name in groups_N if name is not None})
            raise unknown("group", group, names)
        return chosen_N
    place: dict[str | None, int] = {}
    code_N = np.array([place.setdefault(name, len(place)) for name in groups_N], np.intp)
    total_G, square_G, count_G = (np.bincount(code_N, some) for some in (spread_N, spread_N**2, np.ones(len(code_N))))
    share_G = square_G / count_G if chances is None else np.array([chances[name] for name in place], np.float64)
    weight_G: Array = share_G / total_G
    return weight_G[code_N]


def _confidences(confidence_N: npt.ArrayLike) -> Array:
    confidence = as_numbers(confidence_N, "confidence").astype(np.float64)
    if confidence.ndim != 1 or not len(confidence):
        raise ValueError(f"confidence has shape {confidence.shape}; expected (N,), one for each of at least one answer")
    good = (confidence >= 0) & (confidence <= 1)
    if not good.all():
        raise range_error(confidence, "confidence")
    return confidence


def _check_chances(
    groups_N: Sequence[str | None] | None, group: str | None, chances: Mapping[str | None, float] | None
) -> None:
    if chances is None:
        return
    if groups_N is None or group is not None:
        raise ValueError("chances are for the goal 'group' without a group; leave them out")
    if missing := [name for name in dict.fromkeys(groups_N) if name not in chances]:
        raise ValueError(f"chances lack the group {missing[0]!r}; give one for each group of the answers")
    if bad := [value for value in chances.values() if not (is_number(value) and 0 <= value <= 1)]:
        raise ValueError(f"chances hold {bad[0]!r}; allowed is [0, 1]")


def _check_options(
    count: int,
    budget: int,
    goal: LabelGoal,
    threshold: float | None,
    groups_N: Sequence[str | None] | None,
    group: str | None,
    floor: float,
) -> None:
    """Check all arguments but the confidences."""
    if not (is_whole(budget) and 1 <= budget <= count):
        raise ValueError(f"budget is {budget!r}; allowed is a whole number from 1 to the number of answers, {count:,}")
    if goal not in LABEL_GOALS:
        raise unknown("goal", goal, [*LABEL_GOALS])
    if not (is_number(floor) and 0 < floor <= 1):
        raise ValueError(
            f"floor is {floor!r}; allowed is (0, 1], such as {LABEL_FLOOR:g}: without one, sums are biased"
        )
    if (threshold is None) == (goal == "threshold"):
        needs = "needs a threshold, such as 0.93" if threshold is None else "takes no threshold; leave it out"
        raise ValueError(f"the goal {goal!r} {needs}")
    if threshold is not None and not (is_number(threshold) and 0 < threshold < 1 and math.isfinite(threshold)):
        raise ValueError(f"threshold is {threshold!r}; allowed is (0, 1), such as 0.93")
    if (groups_N is None) == (goal == "group"):
        needs = "needs the group of each answer" if groups_N is None else "takes no groups; leave them out"
        raise ValueError(f"the goal {goal!r} {needs}")
    if groups_N is not None and len(groups_N) != count:
        raise ValueError(f"groups has {len(groups_N):,} rows for {count:,} answers; give one for each answer")
    if group is not None and groups_N is None:
        raise ValueError(f"the goal {goal!r} takes no group; leave {group!r} out")
