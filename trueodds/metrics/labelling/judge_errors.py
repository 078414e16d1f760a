"""Error rates of a judge: its labels against human labels of the same answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds.metrics.labelling.weighted_share import (
    ByWeight,
    by_weight,
    stack,
    weight_steps,
    weighted_shares,
)
from trueodds.sums.inputs import Array, as_numbers, check_level

MOST_CELLS = 50_000
"""Largest number of pairs of a class and a weight that are computed at once. Bounds the memory."""


@dataclass(frozen=True)
class JudgeRate:
    """A share of answers on which a judge is right, with its interval. The value is None without such answers.

    Examples:
        >>> metrics.judge_errors([0, 0, 0], [0, 0, 0], 2).sensitivity_C[1]
        JudgeRate(value=None, lower=0.0, upper=1.0)
    """

    value: float | None
    lower: float
    upper: float


@dataclass(frozen=True)
class JudgeErrors:
    """Error rates of a judge, one entry for each class.

    Examples:
        >>> errors = metrics.judge_errors([0, 0, 1, 1] * 10, [0, 1, 1, 1] * 10, 2)
        >>> errors.confusion_CC.tolist(), errors.sensitivity_C[0].value, errors.specificity_C[0].value
        ([[10, 10], [0, 20]], 0.5, 1.0)
    """

    confusion_CC: npt.NDArray[np.int64]
    """Answers by human label (row) and judge's label (column), not weighted."""
    agreement: JudgeRate
    """Share of the answers on which both agree."""
    sensitivity_C: tuple[JudgeRate, ...]
    """Share of the answers with human label k that the judge calls k. None without such answers."""
    specificity_C: tuple[JudgeRate, ...]
    """Share of the answers with another human label that the judge does not call k."""


def judge_errors(
    human_L: npt.ArrayLike,
    judge_L: npt.ArrayLike,
    classes: int | Sequence[object],
    *,
    propensity_L: npt.ArrayLike | None = None,
    smallest_propensity: float | None = None,
    level: float = 0.95,
) -> JudgeErrors:
    """Compute how often a judge's labels agree with human labels, by class.

    With w = 1 / propensity, a share is p = sum w hit / sum w over the answers that it is about. Without propensities,
    or with equal ones, its limits are those of Clopper and Pearson, which are exact. Otherwise they are those of
    `weighted_share`. The human labels count as true. If people err too, some errors of the judge are theirs.

    Measured (benchmarks/evidence/judge_rates.py) with 2 to 100 classes, rare classes, 2 to 60 labels of a class on
    average, and propensities that differ by up to 20 times. Each interval is about one rate. With many classes, some of
    the intervals miss.

    Args:
        human_L: Human label of each answer, as the index of a class.
        judge_L: The judge's label of the same answers.
        classes: Number of the classes, or their names.
        propensity_L: Probability with which each answer was chosen for a human label, in (0, 1].
        smallest_propensity: Smallest propensity of any answer, also of those without a human label. An error that no
            label shows may have it. None: the smallest of `propensity_L`.
        level: Confidence level of both limits of one share together, inside (0, 1).

    Raises:
        ValueError: There are no labels, shapes differ, a label is not the index of a class, a propensity is outside (0,
            1], `smallest_propensity` is above one of them or given alone, or `level` is outside (0, 1).

    References:
        Clopper and Pearson 1934, The use of confidence or fiducial limits illustrated in the case of the binomial.

    Examples:
        >>> rate = metrics.judge_errors([0, 0, 1, 1] * 10, [0, 1, 1, 1] * 10, 2).sensitivity_C[0]
        >>> f"{rate.value:.2f}, {rate.lower:.2f} to {rate.upper:.2f}"
        '0.50, 0.27 to 0.73'
    """
    check_level(level)
    count = classes if isinstance(classes, int) else len(classes)
    human, judge = (_indices(values, name, count) for values, name in ((human_L, "human"), (judge_L, "judge")))
    if judge.shape != human.shape or not len(human):
        raise ValueError(
            f"judge has shape {judge.shape} and human {human.shape}; expected two equal ones, with at least one answer"
        )
    weight = np.ones(len(human))
    if propensity_L is not None:
        propensity = as_numbers(propensity_L, "propensity").astype(np.float64)
        if propensity.shape != human.shape or not ((propensity > 0) & (propensity <= 1)).all():
            raise ValueError(f"propensity must have shape {human.shape} and lie in (0, 1]; nan is not allowed")
        smallest = _smallest(smallest_propensity, float(propensity.min()))
        weight = smallest / propensity  # relative to the largest, within the range of float64
    elif smallest_propensity is not None:
        raise ValueError("smallest_propensity is given without propensity_L; give both, or none for a plain sample")
    confusion_CC = np.zeros((count, count), np.int64)
    np.add.at(confusion_CC, (human, judge), 1)
    return JudgeErrors(confusion_CC, *_rates(human, judge, weight, count, level))


def _rates(
    human_L: npt.NDArray[np.intp], judge_L: npt.NDArray[np.intp], weight_L: Array, classes: int, level: float
) -> tuple[JudgeRate, tuple[JudgeRate, ...], tuple[JudgeRate, ...]]:
    """Compute the agreement, and sensitivity and specificity of all classes.

    Limits of many shares take hardly more time than those of one.

    A row is about the sensitivity of one class and about the specificity of all others. Rows of the others are
    therefore the sums of all rows, without those of the class and those that the judge calls it.
    """
    code_L, steps = weight_steps(weight_L)
    is_right_L, unequal_L = human_L == judge_L, weight_L != 1
    one_L = np.zeros(len(human_L), np.intp)
    whole, agreeing, others = (
        by_weight(one_L[at], code_L[at], weight_L[at], 1, steps) for at in (slice(None), is_right_L, ~is_right_L)
    )
    rates = list[JudgeRate](), list[JudgeRate](), list[JudgeRate]()
    block = max(1, MOST_CELLS // steps)
    for start in range(0, classes, block):
        size = min(block, classes - start)

        def of(
            class_L: npt.NDArray[np.intp], chosen_L: npt.NDArray[np.bool_], first: int = start, size: int = size
        ) -> ByWeight:
            at_L = chosen_L & (class_L >= first) & (class_L < first + size)
            return by_weight(class_L[at_L] - first, code_L[at_L], weight_L[at_L], size, steps)

        right, missed, false = of(human_L, is_right_L), of(human_L, ~is_right_L), of(judge_L, ~is_right_L)
        spared_CW = whole.count_CW - right.count_CW - missed.count_CW - false.count_CW
        sum_CW = whole.sum_CW - right.sum_CW - missed.sum_CW - false.sum_CW
        spared = ByWeight(spared_CW, np.where(spared_CW > 0, sum_CW, 0.0))
        unequal_C = np.bincount(human_L[unequal_L], minlength=classes)[start : start + size]
        all_C = unequal_L.sum()
        equal = np.concatenate(([all_C == 0], unequal_C == 0, unequal_C == all_C))
        shares = weighted_shares(stack(agreeing, right, spared), stack(others, missed, false), equal, level)
        found = [
            JudgeRate(None if value != value else value, lower, upper)
            for value, lower, upper in zip(*(limit_C.tolist() for limit_C in shares), strict=True)
        ]
        for kind, part in zip(rates, (found[:1], found[1 : size + 1], found[size + 1 :]), strict=True):
            kind += part
    return rates[0][0], tuple(rates[1]), tuple(rates[2])


def _smallest(value: float | None, of_labels: float) -> float:
    """Check the smallest propensity of any answer."""
    if value is None:
        return of_labels
    if not 0 < value <= of_labels:
        raise ValueError(
            f"smallest_propensity is {value:g}; allowed is more than 0 and at most {of_labels:g}, the smallest"
            " propensity of a label; give the smallest of all answers, or leave it out"
        )
    return float(value)


def _indices(values: npt.ArrayLike, name: str, count: int) -> npt.NDArray[np.intp]:
    array = as_numbers(values, name)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds nan or infinity, which are no index of a class; take these answers out")
    whole = array.astype(np.intp)
    if array.ndim != 1 or (whole != array).any() or (len(whole) and (whole.min() < 0 or whole.max() >= count)):
        raise ValueError(f"{name} must hold one index of a class for each answer, from 0 to {count - 1}")
    return whole
