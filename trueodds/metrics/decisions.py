"""Decisions by p(positive): what an alert threshold does, what it costs, and what a better one would save."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.sums.bins import CELLS, EDGES
from trueodds.sums.inputs import Array, as_numbers, check_level
from trueodds.sums.positive import PositiveClass
from trueodds.sums.sums import CalibrationSums

THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Those of a table that nobody chose."""
FOLDS = 10
"""Of the rows, for a threshold that is judged by rows it was not chosen by."""


@dataclass(frozen=True)
class Share:
    """k of n, with the exact binomial (Clopper-Pearson) interval; of none nothing is known.

    >>> precision = metrics.thresholds([0.9, 0.8, 0.2], [1, 0, 0], at=[0.5])[0].precision
    >>> print(f"{precision.value}, {precision.lower:.3f} to {precision.upper:.3f}")
    0.5, 0.013 to 0.987
    """

    value: float | None
    lower: float
    upper: float

    @classmethod
    def of(cls, k: float, n: float, level: float) -> Self:
        """The share k / n and its limits at `level`."""
        lower, upper = binomial_interval(k, n, level=level)
        return cls(float(k / n) if n else None, float(lower), float(upper))


@dataclass(frozen=True)
class Threshold:
    """What comes of an alert wherever p(positive) is above a threshold.

    >>> at = metrics.thresholds([0.9, 0.8, 0.4, 0.2], [1, 0, 1, 0], at=[0.5])[0]
    >>> at.precision.value, at.recall.value, at.alert_rate.value, at.false_alarm_rate.value
    (0.5, 0.5, 0.5, 0.5)
    """

    threshold: float
    """Rounded to 1/3,000."""
    alerts: int
    hits: int
    """Alerts whose label is positive."""
    alert_rate: Share
    """Alerts, of all rows."""
    precision: Share
    """Positive labels, of the alerts."""
    recall: Share
    """Alerts, of the positive labels (sensitivity)."""
    false_alarm_rate: Share
    """Alerts, of the negative labels (1 - specificity)."""


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


def positive_sums(predictions: npt.ArrayLike | CalibrationSums, labels_N: npt.ArrayLike | None) -> CalibrationSums:
    """Calibration sums by p(positive), of p(positive) of N rows and whether each is positive, or as they are.

    Raises:
        ValueError: vectors of different lengths, p(positive) outside [0, 1], labels other than 0 and 1, no rows.
    """
    if isinstance(predictions, CalibrationSums):
        if labels_N is not None:
            raise ValueError("sums hold their labels: give no labels beside them")
        sums = predictions
    else:
        p_N, label_N = (
            as_numbers(predictions, "p(positive)"),
            as_numbers([] if labels_N is None else labels_N, "labels"),
        )
        if p_N.ndim != 1 or label_N.shape != p_N.shape:
            problem = f"p(positive) {p_N.shape} and labels {label_N.shape} must be vectors of one length"
            raise ValueError(f"{problem}; of two columns give that of the positive class")
        bad_N = (label_N != 0) & (label_N != 1)
        if bad_N.any():
            raise ValueError(f"labels hold {label_N[bad_N][0]}; allowed are only 0 and 1: whether a row is positive")
        outside_N = ~((p_N >= 0) & (p_N <= 1))
        if outside_N.any():
            raise ValueError(f"p(positive) holds {p_N[outside_N][0]}; allowed is [0, 1]")
        sums = PositiveClass.sums_of(p_N, label_N.astype(bool))
    if not sums.n:
        raise ValueError("no rows: a decision is judged by labelled ones")
    return sums


def thresholds(
    predictions: npt.ArrayLike | CalibrationSums,
    labels_N: npt.ArrayLike | None = None,
    *,
    at: Sequence[float] = THRESHOLDS,
    level: float = 0.95,
) -> list[Threshold]:
    """Alerts where p(positive) > t: how many there are, how many are right, and how many positives they find.

    Exact binomial intervals: for precision given the number of alerts, for recall given that of the positives. Each
    holds for one threshold that was chosen beforehand. Thresholds are rounded to 1/3,000, the width of a cell; at 0
    every row is an alert, also one with p(positive) = 0.

    Raises:
        ValueError: what `positive_sums` refuses, a threshold outside [0, 1], a level outside (0, 1).

    >>> [(t.threshold, t.alerts) for t in metrics.thresholds([0.9, 0.8, 0.4, 0.2], [1, 0, 1, 0], at=[0.3, 0.5])]
    [(0.3, 3), (0.5, 2)]
    """
    check_level(level)
    bad = [t for t in at if not 0 <= t <= 1]
    if bad:
        raise ValueError(f"threshold {bad[0]!r}; allowed is [0, 1]")
    count_C, positive_C = _counts(positive_sums(predictions, labels_N))
    return [_at(count_C, positive_C, round(t * CELLS), level) for t in at]


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
    that are not all there are. Its lower limit is that of this difference; the upper one is that of cost(t*) -
    cost(best) on the rows themselves, which is high in the mean: so the truth lies between them, also where it is 0.

    Limits of cost and saving add those of their counts (Clopper-Pearson) by the squares of their distances (Zou and
    Donner 2008), at one look. Measured at a nominal 95% (benchmarks/decisions.py, 36 settings, 300 to 20,000 rows):
    those of the cost hold in 94.1% or more, those of the saving in 91.5% (94% of the settings: 93%).

    Raises:
        ValueError: what `positive_sums` refuses, a level outside (0, 1).

    >>> p, labels = [0.9, 0.8, 0.4, 0.2] * 25, [1, 0, 1, 0] * 25
    >>> metrics.decision_cost(p, labels, metrics.Costs(miss=10, alarm=1)).cost
    0.5
    """
    check_level(level)
    count_C, positive_C = _counts(positive_sums(predictions, labels_N))
    n, k = int(count_C.sum()), round(costs.threshold * CELLS)
    cost_E = _cost_of_edges(count_C, positive_C, costs)
    best = _cheapest(cost_E, k)
    at = _at(count_C, positive_C, k, level)
    price_2, event_2 = np.array([costs.miss, costs.alarm]), [positive_C.sum() - at.hits, at.alerts - at.hits]
    lower, upper = _limits(price_2, np.array(event_2), n, level)
    won_K, moved_K = _cross_fitted(count_C, positive_C, costs, k)
    return DecisionCost(
        costs=costs,
        at=at,
        cost=float(cost_E[k] / n),
        lower=lower,
        upper=upper,
        never=float(cost_E[-1] / n),
        always=float(cost_E[0] / n),
        best_threshold=float(EDGES[best]),
        best_cost=float(cost_E[best] / n),
        saving=max(float(won_K @ moved_K / n), 0.0),
        saving_lower=max(_limits(won_K, moved_K, n, level)[0], 0.0),
        saving_upper=max(_limits(*_moved(count_C, positive_C, costs, k, best), n, level)[1], 0.0),
    )


def _counts(sums: CalibrationSums) -> tuple[Array, Array]:
    """Rows, and those with a positive label, by cell of p(positive); whole numbers."""
    count_C, positive_C = np.rint(sums.cells[0]), np.rint(sums.cells[2])
    return count_C, positive_C


def _at(count_C: Array, positive_C: Array, k: int, level: float) -> Threshold:
    """The threshold at edge k, which is above the first k cells."""
    n, positives, alerts, hits = count_C.sum(), positive_C.sum(), count_C[k:].sum(), positive_C[k:].sum()
    return Threshold(
        threshold=float(EDGES[k]),
        alerts=int(alerts),
        hits=int(hits),
        alert_rate=Share.of(alerts, n, level),
        precision=Share.of(hits, alerts, level),
        recall=Share.of(hits, positives, level),
        false_alarm_rate=Share.of(alerts - hits, n - positives, level),
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
