"""Costs of alerts by p(positive), and the saving of a better threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from trueodds.metrics.decisions.thresholds import Threshold, counts, positive_sums, threshold_at
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.sums.bins import CELLS, EDGES
from trueodds.sums.inputs import Array, check_level
from trueodds.sums.sums import CalibrationSums

FOLDS = 10
"""Number of folds of the rows, so that a threshold is judged by other rows than those that chose it."""


@dataclass(frozen=True)
class Costs:
    """Costs of a missed positive and of a false alarm, in one unit. Hits and true negatives cost nothing.

    Attributes:
        miss: Cost of a missed positive.
        alarm: Cost of a false alarm.

    Examples:
        >>> costs = metrics.Costs(miss=10, alarm=1)
        >>> round(costs.threshold, 4)
        0.0909
    """

    miss: float
    alarm: float

    def __post_init__(self) -> None:
        """Check the costs.

        Raises:
            ValueError: A cost is not positive and finite, or it is more than 2,999 times the other.
        """
        for name, cost in (("miss", self.miss), ("alarm", self.alarm)):
            if not (math.isfinite(cost) and cost > 0):
                raise ValueError(f"the cost {name} is {cost!r}; allowed are positive numbers")
        if max(self.miss, self.alarm) > (CELLS - 1) * min(self.miss, self.alarm):
            raise ValueError(
                f"the costs miss={self.miss:g} and alarm={self.alarm:g} call for an alert above {self.threshold:.6g};"
                f" p(positive) is counted in steps of 1/{CELLS:,}, so one may be at most {CELLS - 1:,} times the other"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse text such as `miss=10,alarm=1`. Colons are accepted too.

        Args:
            text: The two costs.

        Raises:
            ValueError: A name is unknown, missing or repeated, or a value is not a positive number.

        Examples:
            >>> metrics.Costs.parse("miss=10,alarm=1")
            Costs(miss=10.0, alarm=1.0)
        """
        parts = [part.replace(":", "=").partition("=") for part in text.split(",")]
        try:
            costs = {name.strip(): float(number) for name, _, number in parts}
        except ValueError:
            costs = {}
        if len(parts) != 2 or set(costs) != {"miss", "alarm"}:
            raise ValueError(
                f"costs are {text!r}; expected what a missed positive and a false alarm cost: miss=10,alarm=1"
            )
        return cls(**costs)

    @property
    def threshold(self) -> float:
        """alarm / (alarm + miss). If p(positive) is calibrated, an alert above it costs least (Elkan 2001, eq. 2)."""
        return self.alarm / (self.alarm + self.miss)


@dataclass(frozen=True)
class DecisionCost:
    """Cost per row of alerts at the threshold of the costs, beside the alternatives.

    Examples:
        >>> p, labels = [0.9, 0.8, 0.4, 0.2] * 25, [1, 0, 1, 0] * 25
        >>> cost = metrics.decision_cost(p, labels, metrics.Costs(miss=1, alarm=1))
        >>> print(f"{cost.cost:.2f} a row, {cost.lower:.2f} to {cost.upper:.2f}; never: {cost.never:.2f}")
        0.50 a row, 0.39 to 0.64; never: 0.50
    """

    costs: Costs
    at: Threshold
    """Threshold of the costs, which is best if p(positive) is calibrated."""
    cost: float
    """(miss x missed + alarm x false alarms) / rows, at that threshold."""
    lower: float
    upper: float
    never: float
    """Cost per row without any alert."""
    always: float
    """Cost per row with an alert at every row."""
    best_threshold: float
    """Threshold of the least cost on these same rows; among several, the nearest to that of the costs."""
    best_cost: float
    """Cost at `best_threshold`. It is too low, because the same rows choose the threshold and judge it."""
    saving: float
    """Cost of miscalibration per row.

    It is the saving on a tenth of the rows, with a threshold chosen on the other nine tenths.
    """
    saving_lower: float
    saving_upper: float


def decision_cost(
    predictions: npt.ArrayLike | CalibrationSums,
    labels_N: npt.ArrayLike | None = None,
    costs: Costs = Costs(miss=1, alarm=1),
    *,
    level: float = 0.95,
    classes: Sequence[object] | None = None,
) -> DecisionCost:
    """Compute the cost per row of alerts above the threshold t* of the costs, and the cost of miscalibration.

        cost(t) = (miss #{p <= t, positive} + alarm #{p > t, negative}) / n,    t* = alarm / (alarm + miss)

    If p(positive) were calibrated, no other threshold would cost less. The saving estimates cost(t*) - min cost, the
    amount that a monotone recalibration saves in this decision (isotonic regression attains the minimum at every t*).
    The estimate is cross-fitted in ten folds: each tenth of the rows is scored by cost(t*) - cost(t'), where t' is the
    threshold of least cost on the other nine tenths. A negative estimate becomes 0. The folds are random but the same
    every time. The estimate is too low on average, because t' is chosen from fewer rows than there are.

    The lower limit of the saving is that of this cross-fitted difference. The upper limit is the largest upper limit of
    cost(t*) - cost(t) over all t, because any t may be the best threshold in the population. It is at most the upper
    limit of cost(t*), which no saving exceeds.

    The limits of cost and saving combine those of their counts (Clopper-Pearson) by adding squared distances. They are
    valid for one look and are cut to the possible cost of a row: 0 to the larger of the two costs. The upper limit of
    the saving is wide if an expensive error is rare, because rows without one cannot rule it out.
    benchmarks/intervals/decisions.py measures the coverage.

    Args:
        predictions: p(positive) of each row, shape (N,), or calibration sums by p(positive).
        labels_N: 1 for a positive row, 0 for a negative one. Leave it out with sums.
        costs: Costs of a missed positive and of a false alarm.
        level: Confidence level of both limits together, inside (0, 1).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The cost, its limits, and the saving of a better threshold.

    Raises:
        ValueError: The rows are invalid (see `positive_sums`), or `level` is outside (0, 1).

    References:
        Brümmer and du Preez 2006, Application-independent evaluation of speaker detection. Zou and Donner 2008,
        Construction of confidence limits about effect measures.

    Examples:
        >>> p, labels = [0.9, 0.8, 0.4, 0.2] * 25, [1, 0, 1, 0] * 25
        >>> metrics.decision_cost(p, labels, metrics.Costs(miss=10, alarm=1)).cost
        0.5
    """
    check_level(level)
    count_C, positive_C = counts(positive_sums(predictions, labels_N, classes))
    n, k = int(count_C.sum()), round(costs.threshold * CELLS)
    cost_E = _cost_of_edges(count_C, positive_C, costs)
    best = _cheapest(cost_E, k)
    at = threshold_at(count_C, positive_C, k, level)
    price_2, event_2 = np.array([costs.miss, costs.alarm]), [positive_C.sum() - at.hits, at.alerts - at.hits]
    lower, upper = _limits(price_2, np.array(event_2), n, level)
    won_K, moved_K = _cross_fitted_savings(count_C, positive_C, costs, k)
    most = max(costs.miss, costs.alarm)
    return DecisionCost(
        costs=costs,
        at=at,
        cost=float(cost_E[k] / n),
        lower=max(lower, 0.0),
        upper=min(upper, most),
        never=float(cost_E[-1] / n),
        always=float(cost_E[0] / n),
        best_threshold=float(EDGES[best]),
        best_cost=float(cost_E[best] / n),
        saving=max(float(won_K @ moved_K / n), 0.0),
        saving_lower=max(_limits(won_K, moved_K, n, level)[0], 0.0),
        saving_upper=min(max(_largest_saving_limit(count_C, positive_C, costs, k, level), 0.0), upper, most),
    )


def _cost_of_edges(count_C: Array, positive_C: Array, costs: Costs) -> Array:
    """Compute the cost of all rows for a threshold at each of the 3,001 edges."""
    missed_E = np.concatenate([[0.0], np.cumsum(positive_C)])
    negative_E = np.concatenate([[0.0], np.cumsum(count_C - positive_C)])
    cost_E: Array = costs.miss * missed_E + costs.alarm * (negative_E[-1] - negative_E)
    return cost_E


def _cheapest(cost_E: Array, k: int) -> int:
    """Return the edge of least cost; among several, the nearest to edge k."""
    least_M = np.flatnonzero(cost_E <= cost_E.min() * (1 + 1e-12))
    return int(least_M[np.abs(least_M - k).argmin()])


def _largest_saving_limit(count_C: Array, positive_C: Array, costs: Costs, k: int, level: float) -> float:
    """Return the largest upper limit of the saving of any other edge.

    The edge that is best in the population is one of them. So the largest limit exceeds its saving as often as a single
    limit does. A limit of the edge that looks best on these rows does not.
    """
    n, negative_C = float(count_C.sum()), count_C - positive_C
    alerted = np.cumsum(positive_C[:k][::-1]), np.cumsum(negative_C[:k][::-1])
    silenced = np.cumsum(positive_C[k:]), np.cumsum(negative_C[k:])
    first_K = np.unique(alerted[0], return_index=True)[1]  # among equal gains, the smallest loss
    last_L = len(silenced[0]) - 1 - np.unique(silenced[0][::-1], return_index=True)[1]  # among equal losses, most gain
    won_M = np.concatenate([alerted[0][first_K], silenced[1][last_L]])
    lost_M = np.concatenate([alerted[1][first_K], silenced[0][last_L]])
    price_M = np.repeat([costs.miss, costs.alarm], [len(first_K), len(last_L)])
    loss_M = np.repeat([costs.alarm, costs.miss], [len(first_K), len(last_L)])
    won_limit_M = binomial_interval(won_M, np.full(len(won_M), n), level=level)[1]
    lost_limit_M = binomial_interval(lost_M, np.full(len(lost_M), n), level=level)[0]
    above_M = np.hypot(price_M * (won_limit_M - won_M / n), loss_M * (lost_M / n - lost_limit_M))
    return float((price_M * won_M / n - loss_M * lost_M / n + above_M).max())


def _savings_of_edge(count_C: Array, positive_C: Array, costs: Costs, k: int, to: int) -> tuple[Array, Array]:
    """Return the saving of each kind of row that another edge decides differently, and how many such rows there are.

    A higher edge silences positives (now missed) and negatives; a lower edge alerts on positives and negatives. A
    direction without such rows is left out.
    """
    between, sign = slice(min(k, to), max(k, to)), -1.0 if to > k else 1.0
    positives = positive_C[between].sum()
    moved_2 = np.array([positives, count_C[between].sum() - positives])
    won_2 = sign * np.array([costs.miss, -costs.alarm])
    return (won_2, moved_2) if moved_2.any() else (won_2[:0], moved_2[:0])


def _cross_fitted_savings(count_C: Array, positive_C: Array, costs: Costs, k: int) -> tuple[Array, Array]:
    """Return `_savings_of_edge` of each tenth of the rows, with the edge that costs least on the others.

    Both directions may occur.
    """
    rng, even_F = np.random.default_rng(20260101), np.full(FOLDS, 1 / FOLDS)
    positive_CF = rng.multinomial(positive_C.astype(np.int64), even_F)
    count_CF = positive_CF + rng.multinomial((count_C - positive_C).astype(np.int64), even_F)
    moved: dict[float, Array] = {}
    for fold_C, hit_C in zip(count_CF.T, positive_CF.T, strict=True):
        best = _cheapest(_cost_of_edges(count_C - fold_C, positive_C - hit_C, costs), k)
        won_2, moved_2 = _savings_of_edge(fold_C, hit_C, costs, k, best)
        if len(won_2):
            direction = float(np.sign(won_2[0]))
            moved[direction] = moved.get(direction, np.zeros(2)) + moved_2
    prices = np.array([costs.miss, -costs.alarm])
    return np.concatenate([[], *(d * prices for d in moved)]), np.concatenate([[], *moved.values()])


def _limits(price_K: Array, count_K: Array, n: int, level: float) -> tuple[float, float]:
    """Return limits of sum_k price_k p_k for K kinds of rows, given their counts in n rows.

    The squared distances of the single limits are added.
    """
    share_K = count_K / n
    low_K, high_K = binomial_interval(count_K, np.full(len(count_K), n), level=level)
    below_K, above_K = np.abs(price_K) * (share_K - low_K), np.abs(price_K) * (high_K - share_K)
    down_K, up_K = (np.where(price_K > 0, *pair) for pair in ((below_K, above_K), (above_K, below_K)))
    value = float(price_K @ share_K)
    return value - float(np.sqrt(np.square(down_K).sum())), value + float(np.sqrt(np.square(up_K).sum()))
