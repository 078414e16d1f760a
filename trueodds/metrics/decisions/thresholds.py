"""Results of alerts above thresholds of p(positive): precision, recall, alert rate and false alarm rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.processes.choices import THRESHOLDS
from trueodds.sums.bins import CELLS, EDGES
from trueodds.sums.frames import check_columns, check_index
from trueodds.sums.inputs import Array, as_numbers, as_vector, check_level, range_error, without_noise
from trueodds.sums.positive import PositiveClass
from trueodds.sums.sums import CalibrationSums
from trueodds.sums.two_columns import label_indices


@dataclass(frozen=True)
class Share:
    """The share k / n with its exact binomial (Clopper-Pearson) interval. For n = 0 the value is None.

    Examples:
        >>> precision = metrics.thresholds([0.9, 0.8, 0.2], [1, 0, 0], at=[0.5])[0].precision
        >>> print(f"{precision.value}, {precision.lower:.3f} to {precision.upper:.3f}")
        0.5, 0.013 to 0.987
    """

    value: float | None
    lower: float
    upper: float

    @classmethod
    def of(cls, k: float, n: float, level: float) -> Self:
        """Compute the share k / n and its limits at `level`."""
        lower, upper = binomial_interval(k, n, level=level)
        return cls(float(k / n) if n else None, float(lower), float(upper))


@dataclass(frozen=True)
class Threshold:
    """Results of alerts wherever p(positive) is above a threshold.

    Examples:
        >>> at = metrics.thresholds([0.9, 0.8, 0.4, 0.2], [1, 0, 1, 0], at=[0.5])[0]
        >>> at.precision.value, at.recall.value, at.alert_rate.value, at.false_alarm_rate.value
        (0.5, 0.5, 0.5, 0.5)
    """

    threshold: float
    """Threshold, rounded to 1/3,000."""
    alerts: int
    hits: int
    """Number of alerts whose label is positive."""
    alert_rate: Share
    """Share of all rows with an alert."""
    precision: Share
    """Share of the alerts whose label is positive."""
    recall: Share
    """Share of the positive labels with an alert (sensitivity)."""
    false_alarm_rate: Share
    """Share of the negative labels with an alert (1 - specificity)."""


def positive_sums(
    predictions: npt.ArrayLike | CalibrationSums,
    labels_N: npt.ArrayLike | None,
    classes: Sequence[object] | None = None,
) -> CalibrationSums:
    """Return calibration sums by p(positive), unchanged or built from p(positive) and labels of N rows.

    Raises:
        ConfigError: A label is not one of the classes, or p(positive) is a column of pandas that has the name of the
            negative class or the index of the labels in another order.
        ValueError: Lengths differ, p(positive) is outside [0, 1], labels are not 0 or 1, or there are no rows.
    """
    if labels_N is not None:
        check_index(predictions=predictions, labels=labels_N)
        check_columns(predictions, labels_N, classes, "predictions")
        labels_N = labels_N if classes is None else label_indices(labels_N, classes, 2)
    if isinstance(predictions, CalibrationSums):
        if labels_N is not None:
            raise ValueError("sums already hold their labels; pass no labels with them")
        sums = predictions
    else:
        p_N, label_N = (
            as_vector(as_numbers(predictions, "p(positive)")),
            as_vector(as_numbers([] if labels_N is None else labels_N, "labels")),
        )
        if p_N.ndim != 1 or label_N.shape != p_N.shape:
            problem = f"p(positive) {p_N.shape} and labels {label_N.shape} must be vectors of one length"
            raise ValueError(f"{problem}; if there are two columns, give that of the positive class")
        bad_N = (label_N != 0) & (label_N != 1)
        if bad_N.any():
            cure = "give 1 where the row is positive, else 0, and leave out rows without a label"
            raise ValueError(f"labels hold {label_N[bad_N][0]}; allowed are only 0 and 1; {cure}")
        p_N = without_noise(p_N)
        if not ((p_N >= 0) & (p_N <= 1)).all():
            raise range_error(p_N, "p(positive)")
        sums = PositiveClass.sums_of(p_N, label_N.astype(bool))
    if not sums.n:
        raise ValueError("there are no labelled rows; give at least one")
    return sums


def thresholds(
    predictions: npt.ArrayLike | CalibrationSums,
    labels_N: npt.ArrayLike | None = None,
    *,
    at: Sequence[float] = THRESHOLDS,
    level: float = 0.95,
    classes: Sequence[object] | None = None,
) -> list[Threshold]:
    """Count alerts where p(positive) > t, the share of them that are right, and the share of positives that they find.

    The intervals are exact binomial ones: for precision given the number of alerts, for recall given the number of
    positives. Each is valid for one threshold that was chosen beforehand. Thresholds are rounded to 1/3,000, the width
    of a cell. At 0 every row is an alert, also one with p(positive) = 0.

    Args:
        predictions: p(positive) of each row, shape (N,), or calibration sums by p(positive).
        labels_N: 1 for a positive row, 0 for a negative one. Leave it out with sums.
        at: Thresholds, in [0, 1].
        level: Confidence level of both limits together, inside (0, 1).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The results of each threshold.

    Raises:
        ValueError: The rows are invalid (see `positive_sums`), a threshold is outside [0, 1], or `level` is outside (0,
            1).

    Examples:
        >>> [(t.threshold, t.alerts) for t in metrics.thresholds([0.9, 0.8, 0.4, 0.2], [1, 0, 1, 0], at=[0.3, 0.5])]
        [(0.3, 3), (0.5, 2)]
    """
    check_level(level)
    bad = [t for t in at if not 0 <= t <= 1]
    if bad:
        raise ValueError(f"threshold {bad[0]!r}; allowed is [0, 1]")
    count_C, positive_C = counts(positive_sums(predictions, labels_N, classes))
    return [threshold_at(count_C, positive_C, round(t * CELLS), level) for t in at]


def counts(sums: CalibrationSums) -> tuple[Array, Array]:
    """Return the numbers of rows and of positive labels per cell of p(positive), as whole numbers."""
    count_C, positive_C = np.rint(sums.cells[0]), np.rint(sums.cells[2])
    return count_C, positive_C


def threshold_at(count_C: Array, positive_C: Array, k: int, level: float) -> Threshold:
    """Compute the results at edge k, which is above the first k cells."""
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
