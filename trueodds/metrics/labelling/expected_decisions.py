"""Expected precision and recall of alerts on answers without labels, from calibrated probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.processes.choices import THRESHOLDS
from trueodds.sums.bins import CELLS
from trueodds.sums.inputs import Array, as_numbers, check_level, check_probabilities

DRAWS = 2_000
"""Number of draws of the hidden labels. The chance to miss on one side is then exact within 0.4 points (one sigma)."""
SEED = 20261126
LOGIT_STEP = 0.1
"""Width of a group of answers in log-odds. The draws treat the probabilities of a group as equal."""
SMALLEST = 1e-9
"""Probabilities nearer to 0 or 1 count as this near in log-odds."""
PRIOR = np.diag([1 / 3.0**2, 1 / 1.0**2])
"""Precision of the weak prior on intercept and slope: standard deviations 3 and 1 around 0 and 1.

Without it, calibration rows that hardly tell anything would allow unlimited log-odds.
"""
MOST_CLASSES = 1_000


@dataclass(frozen=True)
class CalibrationRows:
    """Information of the rows that fitted a calibrator about the intercept and the slope of its log-odds.

    Let z = log(p / (1 - p)) of a fitted row. If the true log-odds are a + b z, the Fisher information of n rows about
    (a, b) at (0, 1) is the sum of p (1 - p) [[1, z], [z, z^2]].

    Examples:
        >>> rows = metrics.CalibrationRows.of([0.2, 0.5, 0.6] * 100)
        >>> rows.rows, [round(value, 1) for value in rows.information]
        (300, [65.0, -12.4, 34.7])
    """

    rows: int
    information: tuple[float, float, float]
    """Sum of p (1 - p), of p (1 - p) z and of p (1 - p) z^2."""

    @classmethod
    def of(cls, probabilities: npt.ArrayLike) -> Self:
        """Sum the information of the calibration rows.

        Args:
            probabilities: Calibrated probability of the event on each row that fitted the calibrator, shape (N,).

        Raises:
            ValueError: A probability is outside [0, 1], or there are no rows.
        """
        p_N = _probabilities(probabilities)
        if not len(p_N):
            raise ValueError("there are no calibration rows; give at least one, or leave calibration rows out")
        z_N, weight_N = _logit(p_N), p_N * (1 - p_N)
        return cls(len(p_N), tuple(float(weight_N @ z_N**k) for k in range(3)))  # type: ignore[arg-type]

    def draws(self, rng: np.random.Generator, number: int) -> Array:
        """Draw (intercept, slope) around (0, 1) from the normal law of the information and the weak prior.

        The draws are antithetic: for each one, that on the other side of the centre is there too. A slope is at least
        0, because a calibrator keeps the order of probabilities.
        """
        first, mixed, second = self.information
        covariance = np.linalg.inv(np.array([[first, mixed], [mixed, second]]) + PRIOR)
        half_D2 = rng.standard_normal((number // 2, 2)) @ np.linalg.cholesky(covariance).T
        draw_D2: Array = np.concatenate([half_D2, -half_D2]) + np.array([0.0, 1.0])
        draw_D2[:, 1] = np.maximum(draw_D2[:, 1], 0.0)
        return draw_D2


@dataclass(frozen=True)
class ExpectedShare:
    """Expected value of a share of hidden labels, with an interval for the share. None: the share has no denominator.

    Examples:
        >>> expected = metrics.expected_decisions([0.9, 0.8, 0.2] * 100, at=[0.5])[0]
        >>> round(expected.precision.value, 2), expected.precision.lower < 0.85 < expected.precision.upper
        (0.85, True)
    """

    value: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class ExpectedDecision:
    """Expected results of alerts on answers without labels.

    Examples:
        >>> expected = metrics.expected_decisions([0.9, 0.8, 0.2] * 100, at=[0.5])[0]
        >>> expected.alerts, round(expected.alert_share, 3), round(expected.recall.value, 3)
        (200, 0.667, 0.895)
    """

    threshold: float | None
    """Threshold, rounded to 1/3,000. None: an alert is the most probable class."""
    answers: int
    alerts: int
    alert_share: float
    """Share of the answers with an alert. It is known, so it has no interval."""
    precision: ExpectedShare
    """Share of the alerts that are positive."""
    recall: ExpectedShare
    """Share of the positives with an alert (sensitivity)."""
    specificity: ExpectedShare
    """Share of the negatives without an alert (1 - false alarm rate)."""
    f1: ExpectedShare
    """Harmonic mean of precision and recall: 2 hits / (alerts + positives)."""


def expected_decisions(
    probabilities: npt.ArrayLike,
    *,
    at: Sequence[float] = THRESHOLDS,
    counts: npt.ArrayLike | None = None,
    within: float = 0.0,
    calibration: CalibrationRows | None = None,
    level: float = 0.95,
) -> list[ExpectedDecision]:
    """Compute the expected precision, recall, specificity and F1 of alerts where p > t, without labels.

    Let m answers have an alert. Their hidden positives are A = sum of y over alerts, and B is that over the others:

        precision = E A / m,    recall = E A / (E A + E B),    F1 = 2 E A / (m + E A + E B)
        specificity = (n - m - E B) / (n - E A - E B),    E A = sum of p over alerts,    E B = sum of p over the others

    This assumes that every answer is positive with its stated probability, independently: the calibration holds on
    these answers. Nothing without labels can show that it does. A concept shift breaks it, and the interval with it.

    The interval is for the share among these answers, whose labels are hidden. It holds 95% of 2,000 draws, with a
    fixed seed. Each draw has two parts:

    1. With `calibration`: an intercept a and a slope b of the log-odds, from the normal law that the calibration rows
       determine. It covers that the calibrator was fitted on so many rows. It does not cover errors of another shape,
       such as the steps of an isotonic calibrator or classes that are mixed up.
    2. Hidden labels: A and B are sums of independent Bernoulli variables with the probabilities sigma(a + b z).

    Args:
        probabilities: Calibrated p(positive) of the answers without a label, shape (N,).
        at: Thresholds, in [0, 1]. They are rounded to 1/3,000, as in `thresholds`.
        counts: Number of answers with each probability. Default: one.
        within: Largest distance of a probability from its true one, if it is the centre of a cell. The limits allow for
            it.
        calibration: Information of the rows that fitted the calibrator. None: the probabilities count as exact.
        level: Confidence level of both limits together, inside (0, 1).

    Returns:
        The expected results of each threshold, in the order of `at`.

    Raises:
        ValueError: A probability or a threshold is outside [0, 1], counts are not whole numbers from 0 on, there are no
            answers, or `level` is outside (0, 1).

    References:
        NannyML's documentation: Confidence-based performance estimation (CBPE). Its band is that of past chunks, and
        its point is the same ratio of sums.

    Examples:
        >>> for one in metrics.expected_decisions([0.95, 0.6, 0.3, 0.05] * 50, at=[0.5]):
        ...     print(f"{one.precision.value:.3f}, {one.precision.lower:.2f} to {one.precision.upper:.2f}")
        0.775, 0.70 to 0.85
    """
    p_N = _probabilities(probabilities)
    count_N = _counts(counts, len(p_N))
    bad = [t for t in at if not 0 <= t <= 1]
    if bad:
        raise ValueError(f"threshold {bad[0]!r}; allowed is [0, 1]")
    edges_T = np.array([round(t * CELLS) / CELLS for t in at])
    # An answer of region r lies above the r lowest different thresholds.
    edges_R = np.unique(edges_T)
    region_N = np.searchsorted(edges_R, p_N, side="left")
    groups = _Groups(p_N, count_N, region_N, len(edges_R) + 1, calibration, within, level)
    return [groups.expected(float(t), int(np.searchsorted(edges_R, t)) + 1) for t in edges_T]


def expected_class_decisions(
    probabilities: npt.ArrayLike,
    *,
    calibration: Sequence[CalibrationRows] | None = None,
    level: float = 0.95,
) -> list[ExpectedDecision]:
    """Compute the expected precision, recall, specificity and F1 of each class against the rest, without labels.

    An answer is an alert of the class that is its most probable one. For alerts by a threshold of one class, pass its
    column to `expected_decisions`, which has the formulas and the condition.

    Args:
        probabilities: Calibrated probabilities of the answers without a label, shape (N, C).
        calibration: Information of each class's column on the rows that fitted the calibrator. None: the probabilities
            count as exact.
        level: Confidence level of both limits together, inside (0, 1). It holds for each share, not for all at once.

    Returns:
        The expected results of each class, in the order of the columns.

    Raises:
        ValueError: The rows are no probabilities, there are no rows or more than 1,000 classes, `calibration` has
            another number of classes, or `level` is outside (0, 1).

    Examples:
        >>> p = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]] * 50
        >>> [round(one.recall.value, 2) for one in metrics.expected_class_decisions(p)]
        [0.88, 0.8, 0.0]
    """
    p_NC = check_probabilities(probabilities)
    classes = p_NC.shape[1]
    if classes > MOST_CLASSES:
        raise ValueError(f"there are {classes:,} classes; at most {MOST_CLASSES:,} are compared with the rest")
    if calibration is not None and len(calibration) != classes:
        raise ValueError(f"calibration has {len(calibration)} classes, the probabilities have {classes}")
    top_N, count_N = p_NC.argmax(axis=1), np.ones(len(p_NC))
    return [
        _Groups(
            np.clip(p_NC[:, k].astype(np.float64), 0.0, 1.0),
            count_N,
            (top_N == k).astype(np.intp),
            2,
            None if calibration is None else calibration[k],
            0.0,
            level,
        ).expected(None, 1)
        for k in range(classes)
    ]


class _Groups:
    """Answers by region between thresholds and by log-odds, with draws of the positives in each region."""

    def __init__(
        self,
        p_N: Array,
        count_N: Array,
        region_N: npt.NDArray[np.intp],
        regions: int,
        calibration: CalibrationRows | None,
        within: float,
        level: float,
    ) -> None:
        check_level(level)
        if not 0 <= within < 1:
            raise ValueError(f"within is {within!r}; allowed is [0, 1)")
        if not count_N.any():
            raise ValueError("there are no answers; give at least one")
        self._q = (1 - level) / 2
        self._count_R = np.bincount(region_N, count_N, regions)
        self._expected_R = np.bincount(region_N, count_N * p_N, regions)
        rng = np.random.default_rng(SEED)
        self._map_D2 = None if calibration is None else calibration.draws(rng, DRAWS)
        cell_N = np.rint(_logit(p_N) / LOGIT_STEP).astype(np.int64)
        key_N = region_N * 10**6 + cell_N
        _, first_G, group_N = np.unique(key_N, return_index=True, return_inverse=True)
        count_G = np.bincount(group_N, count_N)
        self._of_group_G = region_N[first_G]
        kept = count_G > 0
        mean_G = np.divide(np.bincount(group_N, count_N * p_N), count_G, out=np.zeros(len(count_G)), where=kept)
        self._rng, self._number_G, self._mean_G = rng, count_G.astype(np.int64), mean_G
        self._draws_DR = [self._draw(shift, regions) for shift in ([0.0] if within == 0 else [-within, within])]

    def _draw(self, shift: float, regions: int) -> Array:
        """Draw the number of positives of each region. `shift` is added to all probabilities."""
        p_G = np.clip(self._mean_G + shift, 0.0, 1.0)
        p_DG = np.broadcast_to(p_G, (DRAWS, len(p_G)))
        if self._map_D2 is not None:
            p_DG = scipy.special.expit(self._map_D2[:, :1] + self._map_D2[:, 1:] * _logit(p_G))
        drawn_DG = self._rng.binomial(self._number_G, p_DG)
        draws_DR: Array = np.zeros((DRAWS, regions))
        for region in range(regions):
            draws_DR[:, region] = drawn_DG[:, self._of_group_G == region].sum(axis=1)
        return draws_DR

    def expected(self, threshold: float | None, first: int) -> ExpectedDecision:
        """Return the results of alerts at all answers of the regions from `first` on."""
        n, alerts = float(self._count_R.sum()), float(self._count_R[first:].sum())
        # All shares rise with the positives among alerts and fall with those among the others.
        low_DR, high_DR = self._draws_DR[0], self._draws_DR[-1]
        least_4D = _shares(low_DR[:, first:].sum(axis=1), high_DR[:, :first].sum(axis=1), alerts, n)
        most_4D = _shares(high_DR[:, first:].sum(axis=1), low_DR[:, :first].sum(axis=1), alerts, n)
        hits, missed = self._expected_R[first:].sum(keepdims=True), self._expected_R[:first].sum(keepdims=True)
        value_41 = _shares(hits, missed, alerts, n)
        precision, recall, specificity, f1 = (
            self._share(float(value_1[0]), least_D, most_D)
            for value_1, least_D, most_D in zip(value_41, least_4D, most_4D, strict=True)
        )
        return ExpectedDecision(threshold, int(n), int(alerts), alerts / n, precision, recall, specificity, f1)

    def _share(self, value: float, least_D: Array, most_D: Array) -> ExpectedShare:
        """Return a share with the quantiles of its draws. Draws without a denominator have no share."""
        least_D, most_D = np.sort(least_D[~np.isnan(least_D)]), np.sort(most_D[~np.isnan(most_D)])
        if np.isnan(value) or not len(least_D) or not len(most_D):
            return ExpectedShare(None, None, None)
        lower = float(least_D[int(self._q * len(least_D))])
        upper = float(most_D[len(most_D) - 1 - int(self._q * len(most_D))])
        return ExpectedShare(value, min(lower, value), max(upper, value))


def _shares(hits_D: Array, missed_D: Array, alerts: float, n: float) -> tuple[Array, Array, Array, Array]:
    """Return precision, recall, specificity and F1 of some numbers of positives; NaN without a denominator."""
    positives_D = hits_D + missed_D
    return (
        _ratio(hits_D, np.full(len(hits_D), alerts)),
        _ratio(hits_D, positives_D),
        _ratio(n - alerts - missed_D, n - positives_D),
        _ratio(2 * hits_D, alerts + positives_D),
    )


def _ratio(above_D: Array, below_D: Array) -> Array:
    ratio_D: Array = np.divide(above_D, below_D, out=np.full(len(above_D), np.nan), where=below_D > 0)
    return ratio_D


def _logit(p_N: Array) -> Array:
    z_N: Array = scipy.special.logit(np.clip(p_N, SMALLEST, 1 - SMALLEST))
    return z_N


def _probabilities(probabilities: npt.ArrayLike) -> Array:
    """Check probabilities of one event and return them as float64.

    Raises:
        ValueError: They are not a vector, or one is outside [0, 1].
    """
    p_N = as_numbers(probabilities, "probabilities").astype(np.float64)
    if p_N.ndim != 1:
        raise ValueError(
            f"probabilities has shape {p_N.shape}; expected (N,), the probability of one event; of several columns,"
            " give that of the positive class"
        )
    outside_N = ~((p_N >= 0) & (p_N <= 1))
    if outside_N.any():
        k = int(outside_N.argmax())
        raise ValueError(f"row {k} has the probability {p_N[k]}; allowed is [0, 1]")
    return p_N


def _counts(counts: npt.ArrayLike | None, n: int) -> Array:
    """Check the numbers of answers and return them as float64.

    Raises:
        ValueError: Their number differs from that of the probabilities, or one is not a whole number from 0 on.
    """
    if counts is None:
        return np.ones(n)
    count_N = as_numbers(counts, "counts").astype(np.float64)
    if count_N.shape != (n,):
        raise ValueError(f"counts has shape {count_N.shape}; expected ({n},), one for each probability")
    whole_N = (count_N >= 0) & (np.floor(count_N) == count_N) & np.isfinite(count_N)
    if not whole_N.all():
        k = int((~whole_N).argmax())
        raise ValueError(f"counts holds {count_N[k]} in row {k}; allowed are whole numbers from 0 on")
    return count_N
