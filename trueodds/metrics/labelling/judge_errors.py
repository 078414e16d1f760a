"""Error rates of a judge: its labels against human labels of the same answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.labelling.powered import degrees_of_freedom
from trueodds.sums.inputs import Array, as_numbers, check_level


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
    level: float = 0.95,
) -> JudgeErrors:
    """Compute how often a judge's labels agree with human labels, by class.

    With w = 1 / propensity, a share is p = sum w hit / sum w over the answers that it is about. Its limits are
    those of Clopper and Pearson for n answers with n p hits (Korn and Graubard). n is p (1 - p) / V with V = sum (w
    / sum w)^2 (hit - p)^2, at most (sum w)^2 / sum w^2, times (z / t)^2. t has
    (sum w^2)^2 / sum w^4 - 1 degrees of freedom (Satterthwaite). If p is 0 or 1, n = sum w / (largest w of
    any label), because an error that has not been seen may have this weight. Without propensities n is the number
    of answers, and the limits are exact. Measured (benchmarks/evidence/judged.py) in 8 settings: they cover in at
    least 95%. If kinds of answers differ much in propensity and in the judge's errors, a class with few labels of a
    kind has lower coverage. The human labels count as true. If people err too, some errors of the judge are theirs.

    Args:
        human_L: Human label of each answer, as the index of a class.
        judge_L: The judge's label of the same answers.
        classes: Number of the classes, or their names.
        propensity_L: Probability with which each answer was chosen for a human label, in (0, 1].
        level: Confidence level of both limits of one share together, inside (0, 1).

    Raises:
        ValueError: There are no labels, shapes differ, a label is not the index of a class, a propensity is outside (0,
            1], or `level` is outside (0, 1).

    References:
        Korn and Graubard 1998, Confidence intervals for proportions with small expected number of positive counts.

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
        weight = propensity.min() / propensity  # relative to the largest, within the range of float64
    confusion_CC = np.zeros((count, count), np.int64)
    np.add.at(confusion_CC, (human, judge), 1)
    largest = float(weight.max())
    return JudgeErrors(
        confusion_CC,
        weighted_share(human == judge, weight, level, largest),
        tuple(weighted_share(judge[human == k] == k, weight[human == k], level, largest) for k in range(count)),
        tuple(weighted_share(judge[human != k] != k, weight[human != k], level, largest) for k in range(count)),
    )


def weighted_share(hit_L: npt.NDArray[np.bool_], weight_L: Array, level: float, largest: float) -> JudgeRate:
    """Compute a weighted share with limits of Clopper and Pearson at the effective number of answers.

    Args:
        hit_L: Whether each answer counts.
        weight_L: Weights of the answers that the share is about.
        level: Confidence level of both limits together.
        largest: Largest weight of any human label. An error that has not been seen may have it.
    """
    if not len(hit_L):
        return JudgeRate(None, 0.0, 1.0)
    total = float(weight_L.sum())
    value = 1.0 if hit_L.all() else float(weight_L @ hit_L) / total
    is_mixed = hit_L.any() and not hit_L.all()
    n = _effective(hit_L, weight_L / total, value, level) if is_mixed else total / largest
    hits, q = value * n, (1 - level) / 2
    lower = float(scipy.special.betaincinv(hits, n - hits + 1, q)) if hit_L.any() else 0.0
    upper = float(scipy.special.betaincinv(hits + 1, n - hits, 1 - q)) if not hit_L.all() else 1.0
    return JudgeRate(value, lower, upper)


def _effective(hit_L: npt.NDArray[np.bool_], share_L: Array, value: float, level: float) -> float:
    """Return the number of equally weighted answers with the same variance; all answers if the weights are equal."""
    if (share_L == share_L[0]).all():
        return float(len(share_L))
    variance = float(share_L**2 @ (hit_L - value) ** 2)
    kish = 1 / float(share_L @ share_L)
    z, t = scipy.special.ndtri((1 + level) / 2), scipy.special.stdtrit(degrees_of_freedom(share_L), (1 + level) / 2)
    return min(value * (1 - value) / variance, kish) * float(z / t) ** 2


def _indices(values: npt.ArrayLike, name: str, count: int) -> npt.NDArray[np.intp]:
    array = as_numbers(values, name)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds nan or infinity, which are no index of a class; take these answers out")
    whole = array.astype(np.intp)
    if array.ndim != 1 or (whole != array).any() or (len(whole) and (whole.min() < 0 or whole.max() >= count)):
        raise ValueError(f"{name} must hold one index of a class for each answer, from 0 to {count - 1}")
    return whole
