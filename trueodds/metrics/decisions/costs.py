"""What alerts by p(positive) cost, and what a better threshold would save."""

from __future__ import annotations

import math
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
"""Of the rows, for a threshold that is judged by rows it was not chosen by."""


@dataclass(frozen=True)
class Costs:
    """What a missed positive and a false alarm cost, in one unit; hits and rightly silent answers cost nothing.

    >>> costs = metrics.Costs(miss=10, alarm=1)
    >>> round(costs.threshold, 4)
    0.0909
    """

    miss: float
    alarm: float

    def __post_init__(self) -> None:
        """
        Raises:
            ValueError: a cost that is not a positive finite number; one above 2,999 times the other.
        """
        for name, cost in (("miss", self.miss), ("alarm", self.alarm)):
            if not (math.isfinite(cost) and cost > 0):
                raise ValueError(f"the cost {name} is {cost!r}; allowed are positive numbers: what one costs")
        if max(self.miss, self.alarm) > (CELLS - 1) * min(self.miss, self.alarm):
            raise ValueError(
                f"the costs miss={self.miss:g} and alarm={self.alarm:g} call for an alert above {self.threshold:.6g};"
                f" p(positive) is counted in steps of 1/{CELLS:,}, so one may be at most {CELLS - 1:,} times the other"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """From words such as `miss=10,alarm=1`, or with colons.

        Raises:
            ValueError: other names, one missing or twice, what is no positive number.

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
        """alarm / (alarm + miss): of calibrated p(positive) an alert above it costs least (Elkan 2001, equation 2)."""
        return self.alarm / (self.alarm + self.miss)


@dataclass(frozen=True)
class DecisionCost:
    """What alerts at the threshold of the costs cost a row, beside the alternatives.

    >>> p, labels = [0.9, 0.8, 0.4, 0.2] * 25, [1, 0, 1, 0] * 25
    >>> cost = metrics.decision_cost(p, labels, metrics.Costs(miss=1, alarm=1))
    >>> print(f"{cost.cost:.2f} a row, {cost.lower:.2f} to {cost.upper:.2f}; never: {cost.never:.2f}")
    0.50 a row, 0.39 to 0.64; never: 0.50
    """

    costs: Costs
    at: Threshold
    """The threshold of the costs, which is best if p(positive) is calibrated."""
    cost: float
    """(miss x missed + alarm x false alarms) / rows, at that threshold."""
    lower: float
    upper: float
    never: float
    """Without any alert."""
    always: float
    """With an alert at every row."""
    best_threshold: float
    """Of the least cost on these same rows; of several the nearest to that of the costs."""
    best_cost: float
    """At it: too low by what choosing and judging on the same rows flatters."""
    saving: float
    """What a threshold chosen on nine tenths of the rows saves on the tenth, a row: the cost of miscalibration."""
    saving_lower: float
    saving_upper: float


def decision_cost(
    predictions: npt.ArrayLike | CalibrationSums,
    labels_N: npt.ArrayLike | None = None,
    costs: Costs = Costs(miss=1, alarm=1),
    *,
    level: float = 0.95,
) -> DecisionCost:
    """The cost a row of alerts above the threshold t* of the costs, and how much of it comes of miscalibration.

        cost(t) = (miss #{p <= t, positive} + alarm #{p > t, negative}) / n,    t* = alarm / (alarm + miss)

    Were p(positive) calibrated, no other threshold would cost less. The saving estimates cost(t*) - min cost, what a
    monotone recalibration saves in this decision (Brummer and du Preez 2006: isotonic regression attains the minimum
    at every t*). It is cost(t*) - cost(t') of each tenth of the rows, t' the threshold of least cost on the other nine
    (the split is drawn, always the same way), and 0 where that is less: low in the mean, for t' is chosen from rows
    that are not all there are. Its lower limit is that of this difference. Its upper limit is the largest of the upper
    limits of cost(t*) - cost(t) over all t: the threshold that is best in the population is one of them, and these rows
    need not show which. It is cut at the upper limit of cost(t*), which no saving exceeds.

    Limits of cost and saving add those of their counts (Clopper-Pearson) by the squares of their distances (Zou and
    Donner 2008), at one look, and are cut at what a row can cost: 0 to the dearer of both errors. The upper limit of
    the saving is wide where a dear error is rare: rows that show none cannot rule it out.
    benchmarks/intervals/decisions.py measures how often the limits hold.

    Raises:
        ValueError: what `positive_sums` refuses, a level outside (0, 1).

    >>> p, labels = [0.9, 0.8, 0.4, 0.2] * 25, [1, 0, 1, 0] * 25
    >>> metrics.decision_cost(p, labels, metrics.Costs(miss=10, alarm=1)).cost
    0.5
    """
    check_level(level)
    count_C, positive_C = counts(positive_sums(predictions, labels_N))
    n, k = int(count_C.sum()), round(costs.threshold * CELLS)
    cost_E = _cost_of_edges(count_C, positive_C, costs)
    best = _cheapest(cost_E, k)
    at = threshold_at(count_C, positive_C, k, level)
    price_2, event_2 = np.array([costs.miss, costs.alarm]), [positive_C.sum() - at.hits, at.alerts - at.hits]
    lower, upper = _limits(price_2, np.array(event_2), n, level)
    won_K, moved_K = _cross_fitted(count_C, positive_C, costs, k)
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
        saving_upper=min(max(_most_saved(count_C, positive_C, costs, k, level), 0.0), upper, most),
    )


def _cost_of_edges(count_C: Array, positive_C: Array, costs: Costs) -> Array:
    """The cost of all rows for a threshold at each of the 3,001 edges."""
    missed_E = np.concatenate([[0.0], np.cumsum(positive_C)])
    negative_E = np.concatenate([[0.0], np.cumsum(count_C - positive_C)])
    cost_E: Array = costs.miss * missed_E + costs.alarm * (negative_E[-1] - negative_E)
    return cost_E


def _cheapest(cost_E: Array, k: int) -> int:
    """The edge of least cost, of several the nearest to edge k."""
    least_M = np.flatnonzero(cost_E <= cost_E.min() * (1 + 1e-12))
    return int(least_M[np.abs(least_M - k).argmin()])


def _most_saved(count_C: Array, positive_C: Array, costs: Costs, k: int, level: float) -> float:
    """The largest upper limit of what any other edge saves.

    The edge that is best in the population is one of them, whichever it is. So the largest limit is above what it saves
    as often as a single limit is, which a limit of the edge that looks best on these rows is not.
    """
    n, negative_C = float(count_C.sum()), count_C - positive_C
    alerted = np.cumsum(positive_C[:k][::-1]), np.cumsum(negative_C[:k][::-1])
    silenced = np.cumsum(positive_C[k:]), np.cumsum(negative_C[k:])
    first_K = np.unique(alerted[0], return_index=True)[1]  # of equal gains the one that loses least
    last_L = len(silenced[0]) - 1 - np.unique(silenced[0][::-1], return_index=True)[1]  # of equal losses the best gain
    won_M = np.concatenate([alerted[0][first_K], silenced[1][last_L]])
    lost_M = np.concatenate([alerted[1][first_K], silenced[0][last_L]])
    price_M = np.repeat([costs.miss, costs.alarm], [len(first_K), len(last_L)])
    loss_M = np.repeat([costs.alarm, costs.miss], [len(first_K), len(last_L)])
    won_limit_M = binomial_interval(won_M, np.full(len(won_M), n), level=level)[1]
    lost_limit_M = binomial_interval(lost_M, np.full(len(lost_M), n), level=level)[0]
    above_M = np.hypot(price_M * (won_limit_M - won_M / n), loss_M * (lost_M / n - lost_limit_M))
    return float((price_M * won_M / n - loss_M * lost_M / n + above_M).max())


def _moved(count_C: Array, positive_C: Array, costs: Costs, k: int, to: int) -> tuple[Array, Array]:
    """What each kind of row wins that another edge decides otherwise, and how many there are.

    Silenced by a higher one: positive (now missed), negative; alerted by a lower one: positive, negative. A direction
    in which no row moves is left out.
    """
    between, sign = slice(min(k, to), max(k, to)), -1.0 if to > k else 1.0
    positives = positive_C[between].sum()
    moved_2 = np.array([positives, count_C[between].sum() - positives])
    won_2 = sign * np.array([costs.miss, -costs.alarm])
    return (won_2, moved_2) if moved_2.any() else (won_2[:0], moved_2[:0])


def _cross_fitted(count_C: Array, positive_C: Array, costs: Costs, k: int) -> tuple[Array, Array]:
    """As `_moved`, of each tenth of the rows by the edge that costs least on the others; both directions may occur."""
    rng, even_F = np.random.default_rng(20260101), np.full(FOLDS, 1 / FOLDS)
    positive_CF = rng.multinomial(positive_C.astype(np.int64), even_F)
    count_CF = positive_CF + rng.multinomial((count_C - positive_C).astype(np.int64), even_F)
    moved: dict[float, Array] = {}
    for fold_C, hit_C in zip(count_CF.T, positive_CF.T, strict=True):
        best = _cheapest(_cost_of_edges(count_C - fold_C, positive_C - hit_C, costs), k)
        won_2, moved_2 = _moved(fold_C, hit_C, costs, k, best)
        if len(won_2):
            direction = float(np.sign(won_2[0]))
            moved[direction] = moved.get(direction, np.zeros(2)) + moved_2
    prices = np.array([costs.miss, -costs.alarm])
    return np.concatenate([[], *(d * prices for d in moved)]), np.concatenate([[], *moved.values()])


def _limits(price_K: Array, count_K: Array, n: int, level: float) -> tuple[float, float]:
    """Limits of sum_k price_k p_k of K kinds of rows that came so often in n: distances of each, squared, are added."""
    share_K = count_K / n
    low_K, high_K = binomial_interval(count_K, np.full(len(count_K), n), level=level)
    below_K, above_K = np.abs(price_K) * (share_K - low_K), np.abs(price_K) * (high_K - share_K)
    down_K, up_K = (np.where(price_K > 0, *pair) for pair in ((below_K, above_K), (above_K, below_K)))
    value = float(price_K @ share_K)
    return value - float(np.sqrt(np.square(down_K).sum())), value + float(np.sqrt(np.square(up_K).sum()))
