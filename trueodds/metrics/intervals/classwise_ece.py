"""Confidence interval and noise floors of the classwise ECE, with the dependence between the classes of a row.

Notation: a cell k is a bin of one class's probability p. It has n_k rows and H_k hits (rows whose label is that class).
There are N rows and C classes. S_k = H_k - sum p, V_k = sum p (1-p) and K_k = sum (1-2p).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.intervals.binomial import mean_deviation
from trueodds.metrics.intervals.calibration_error import RARE, EceInterval, NoiseFloor, exact_gap_limits
from trueodds.sums.bins import bin_of, check_bins
from trueodds.sums.inputs import Array, as_matrix, check_labels, check_level
from trueodds.sums.label_forms import as_rows
from trueodds.sums.rows import checked_blocks, top_labels
from trueodds.sums.two_columns import as_columns

DRAWS = 512
"""Draws of all labels. The level of a limit then has a standard error of .7%."""
ROWS_AT_ONCE = 256  # rows whose draws fit into the cache together
SCAN = 24  # steps of the scan from above for an upper limit
HALVINGS = 16
CLEAR = 2.0  # standard deviations beyond which a gap is taken for real


@dataclass(frozen=True)
class ClassCells:
    """Sums over the rows of each of K = C x bins cells, and the noise of labels drawn from the probabilities."""

    count_K: Array
    probability_K: Array
    """Sum of p in each cell."""
    variance_K: Array
    noise_OR: Array
    """H_k - sum p of each draw R, for the occupied cells O only. With thousands of classes few cells are occupied."""
    rows: int
    classes: int

    @classmethod
    def of(cls, probabilities_NC: npt.ArrayLike, bins: int, draws: int = DRAWS) -> ClassCells:
        """Compute the cells of the probabilities.

        Raises:
            ValueError: The probabilities are invalid, or `bins` does not divide 3,000.
        """
        bins = check_bins(bins)
        classes = as_matrix(probabilities_NC, "probabilities").shape[1]
        moments_3K, hits_KR, rows = np.zeros((3, classes * bins)), np.zeros((classes * bins, draws)), 0
        rng = np.random.default_rng(20260101)
        for _, block in checked_blocks(probabilities_NC):
            wide = np.minimum(block.astype(np.float64, copy=False), 1.0)
            place = np.flatnonzero(wide > 1 / bins)
            value, column = wide.take(place), place % classes
            key = column * bins + bin_of(value, bins)
            for power, sums_K in enumerate(moments_3K):  # count, sum p, sum p^2
                np.add.at(sums_K, key, value**power)
                sums_K[::bins] += (wide**power).sum(axis=0) - np.bincount(column, value**power, classes)
            for start in range(0, len(wide) if draws else 0, ROWS_AT_ONCE):
                some = wide[start : start + ROWS_AT_ONCE]
                label_NR = _labels(some, draws, rng)
                key_NR = label_NR * bins + bin_of(np.take_along_axis(some, label_NR, axis=1), bins)
                np.add.at(hits_KR.ravel(), (key_NR * draws + np.arange(draws)).ravel(), 1.0)
            rows += len(wide)
        count_K, probability_K, square_K = moments_3K
        noise_OR = hits_KR[count_K > 0]  # untouched pages of the rest cost no memory
        noise_OR -= probability_K[count_K > 0][:, None]
        return cls(count_K, probability_K, probability_K - square_K, noise_OR, rows, classes)

    @property
    def deviation_K(self) -> Array:
        """`E|H_k - sum p|` of each cell."""
        return mean_deviation(self.probability_K, self.count_K, self.variance_K)

    def hits_K(self, probabilities_NC: npt.ArrayLike, labels_N: npt.ArrayLike) -> Array:
        """Count the hits H_k of labels of the same rows."""
        matrix_NC = as_matrix(probabilities_NC, "probabilities")
        label_N, bins = check_labels(labels_N, *matrix_NC.shape), len(self.count_K) // self.classes
        true_N = np.minimum(matrix_NC[np.arange(len(matrix_NC)), label_N].astype(np.float64), 1.0)
        hits_K: Array = np.bincount(label_N * bins + bin_of(true_N, bins), minlength=len(self.count_K)).astype(float)
        return hits_K

    @property
    def floor_C(self) -> Array:
        """Noise floor of each class (see `noise_floor_per_class`)."""
        floor_C: Array = self.deviation_K.reshape(self.classes, -1).sum(axis=1) / self.rows
        return floor_C

    @property
    def noise_floor(self) -> NoiseFloor:
        """Noise floor of the classwise ECE (see `classwise_noise_floor`)."""
        mean, drawn_R = float(self.floor_C.mean()), np.abs(self.noise_OR).sum(axis=0) / (self.rows * self.classes)
        return NoiseFloor(mean, max(mean, float(np.quantile(drawn_R, 0.95, method="inverted_cdf"))))


def _labels(p_NC: Array, draws: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Draw labels, shape (N, draws), in random order.

    Each class has its probability's share of a row's draws, to within one.

    So no draw must be looked up among the classes, and over the draws every row's labels match its probabilities. This
    does not make the quantiles of sums over rows more accurate (measured).
    """
    end_NC = p_NC.cumsum(axis=1)
    end_NC = np.floor(end_NC / end_NC[:, -1:] * draws + rng.random((len(p_NC), 1))).astype(np.intp)
    end_NC[:, -1] = draws
    count_NC = np.diff(np.minimum(end_NC, draws), axis=1, prepend=0)
    class_NC = np.broadcast_to(np.arange(p_NC.shape[1]), p_NC.shape)
    label_NR = np.repeat(class_NC.ravel(), count_NC.ravel()).reshape(len(p_NC), draws)
    return rng.permuted(label_NR, axis=1)


def noise_floor_per_class(probabilities_NC: npt.ArrayLike, *, bins: int = 15) -> Array:
    """Compute the mean of `ece_per_class` (equal width) if every row's label were drawn from its probabilities.

        1/n sum_b E|H_bk - sum p_k|,  H_bk the hits of class k in bin b

    The expectation is `mean_deviation`. It agrees with draws of the labels within their error (200 draws; 600 x 10 to
    3,000 x 300). This includes bins with less than one expected hit, as in most bins of most classes, where the normal
    approximation sqrt(2 V / pi) is far from the truth.

    Args:
        probabilities_NC: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; each row sums to 1.
        bins: Number of bins; it must divide 3,000.

    Returns:
        One value per class, shape (C,).

    Raises:
        ValueError: The probabilities are invalid, or `bins` does not divide 3,000.

    Examples:
        >>> metrics.noise_floor_per_class([[0.9, 0.1], [0.8, 0.2]] * 100).round(4)
        array([0.0278, 0.0278])
    """
    probabilities_NC = as_columns(probabilities_NC)
    return ClassCells.of(probabilities_NC, bins, draws=0).floor_C


def classwise_noise_floor(probabilities_NC: npt.ArrayLike, *, bins: int = 15) -> NoiseFloor:
    """Compute the mean and 95th percentile of `classwise_ece` (equal width) of a perfectly calibrated model.

    The mean is that of `noise_floor_per_class`. The percentile comes from 512 draws of all labels from their rows'
    probabilities, so it includes the dependence between the classes of a row. For example, the errors of two classes
    mirror each other, so two classes scatter like one. The draws are the same every time. A percentile below the mean
    is replaced by the mean.

    Args:
        probabilities_NC: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; each row sums to 1.
        bins: Number of bins; it must divide 3,000.

    Returns:
        The mean and the 95th percentile.

    Raises:
        ValueError: The probabilities are invalid, or `bins` does not divide 3,000.

    Examples:
        >>> floor = metrics.classwise_noise_floor([[0.9, 0.1], [0.8, 0.2]] * 100)
        >>> round(floor.mean, 4), floor.p95 > floor.mean
        (0.0278, True)
    """
    probabilities_NC = as_columns(probabilities_NC)
    return ClassCells.of(probabilities_NC, bins).noise_floor


def classwise_ece_interval(
    probabilities_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    bins: int = 15,
    level: float = 0.95,
    classes: Sequence[object] | None = None,
) -> EceInterval:
    """Compute a confidence interval for the population's `classwise_ece` (equal width) in the same bins.

    The interval inverts the test of the plug-in value.

    If the true gaps of the cells are s, the plug-in value is distributed as

        T*(s) = 1/(NC) sum_k |s_k + sqrt(v_k(s) / V_k) X_k|,  v_k(s) = max(V_k + g_k K_k, g_k^2 n_k),  g_k = s_k / n_k

    X_k is H_k - sum p for labels drawn from the probabilities (512 draws of all labels, the same every time). Unlike
    normal draws they have the dependence between a row's classes and describe bins with less than one expected hit.
    Along a direction u, with q = (1 - level) / 2:

        lower:     the smallest theta with P(T*(theta u) <= T) <= 1 - q
        estimate:  the smallest theta with P(T*(theta u) <= T) <= 1/2
        upper:     the last theta with P(T*(theta u) <= T) > q

    The estimate uses u ~ S. The lower limit is the smaller of two directions: u ~ S, and u ~ S only in cells where it
    exceeds sqrt(2 log K) standard deviations of K cells (or in the most significant cell). The upper limit is the
    larger of two: u ~ S raised to at least one standard deviation everywhere, and u ~ S where it exceeds 2 of them. In
    the other cells, this last direction points towards certainty: by one standard deviation, or by the remaining hits
    or misses if these are fewer.

    The last direction is that of an under-confident model. Its rarest classes occur even less often than stated, so
    there is less noise than the probabilities imply, and the plug-in value may lie below the noise floor.

    With fewer than 20 wrong (or right) rows, the interval covers 2/C times the exact binomial limits of `|accuracy -
    mean confidence|`, because errors go to other classes. Without this, only 35% of the intervals contain the truth,
    for 50 rows with half an error expected. The upper limit never exceeds 2/C, the maximum of a classwise ECE.

    The estimate is too high if few classes carry the error; with 100 classes mostly by a third of the noise floor.

    Measured coverage at a nominal 95% (benchmarks/intervals/classwise.py): at least 94.7% in 60 settings, 2 to 100
    classes, 50 to 10,000 rows. The lower limit alone is too high in up to 3.3%, the upper limit alone too low in up to
    5.3%. The function takes .2 s for 10,000 x 100.

    Args:
        probabilities_NC: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; each row sums to 1.
        labels_N: True classes, shape (N,): indices, or names with `classes`.
        bins: Number of bins; it must divide 3,000.
        level: Confidence level of both limits together, inside (0, 1).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The plug-in value, the estimate and the limits.

    Raises:
        ValueError: `classwise_ece` does not accept the input, or `level` is outside (0, 1).

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]] * 25, [0, 0, 1, 1] * 25
        >>> interval = metrics.classwise_ece_interval(probabilities, labels)
        >>> round(interval.lower, 2), round(interval.ece, 2), round(interval.upper, 2)
        (0.22, 0.3, 0.39)
    """
    probabilities_NC, labels_N = as_rows(probabilities_NC, labels_N, classes)
    return interval_of_cells(ClassCells.of(probabilities_NC, bins), probabilities_NC, labels_N, level)


def interval_of_cells(
    cells: ClassCells, probabilities_NC: npt.ArrayLike, labels_N: npt.ArrayLike, level: float
) -> EceInterval:
    """Compute the interval of `classwise_ece_interval` from the cells of its probabilities.

    Raises:
        ValueError: The labels are invalid, or `level` is outside (0, 1).
    """
    check_level(level)
    test, q = Inversion(cells, cells.hits_K(probabilities_NC, labels_N)), (1 - level) / 2
    size_K = np.divide(np.abs(test.gap_K), test.spread_K, out=np.zeros_like(test.gap_K), where=test.spread_K > 0)
    clear_K = size_K > max(np.sqrt(2 * np.log(len(size_K))), CLEAR)
    kept_K = np.where(clear_K if clear_K.any() else np.arange(len(size_K)) == size_K.argmax(), test.gap_K, 0.0)
    raised_K = np.where(test.gap_K < 0, -1.0, 1.0) * np.maximum(np.abs(test.gap_K), test.spread_K)
    lower = min(test.first(test.gap_K, 1 - q), test.first(kept_K, 1 - q))
    estimate = test.first(test.gap_K, 0.5)
    upper = max(test.last(raised_K, q), test.last(np.where(size_K > CLEAR, test.gap_K, test.quiet_K), q))
    upper = max(upper, estimate, -float(scipy.special.ndtri(q)) * float(np.sqrt(cells.variance_K.sum())))
    confidence_N, correct_N = top_labels(probabilities_NC, labels_N)
    accuracy, rows, classes = float(correct_N.mean()), cells.rows, cells.classes
    if min(accuracy, 1 - accuracy) * rows < RARE - 1e-6:
        least, most = exact_gap_limits(accuracy, float(confidence_N.mean()), rows, q)
        lower, upper = min(lower, 2 * rows * least), max(upper, 2 * rows * most)
    observed, estimate, lower, upper = (value / (rows * classes) for value in (test.observed, estimate, lower, upper))
    return EceInterval(observed, estimate, lower, min(upper, 2 / classes, 1.0), level)


class Inversion:
    """The distribution of T* (times NC) over the draws, and the search for theta along a direction.

    K counts the occupied cells.
    """

    def __init__(self, cells: ClassCells, hits_K: Array) -> None:
        some_K = cells.count_K > 0
        self.count_K, self.variance_K, probability_K = (
            values[some_K] for values in (cells.count_K, cells.variance_K, cells.probability_K)
        )
        self.noise_KR = cells.noise_OR
        self.gap_K: Array = hits_K[some_K] - probability_K
        self.skew_K = self.count_K - 2 * probability_K
        self.observed = float(np.abs(self.gap_K).sum())
        self.spread_K: Array = np.sqrt(np.maximum(self.variance(self.gap_K), self.variance_K))
        rarer_K = np.minimum(probability_K, self.count_K - probability_K)
        towards_certainty_K = np.where(self.skew_K < 0, 1.0, -1.0)
        self.quiet_K: Array = towards_certainty_K * np.minimum(np.sqrt(np.maximum(self.variance_K, 0.0)), rarer_K)
        self.at_zero_R = np.abs(self.noise_KR).sum(axis=0)
        self.most = 2 * self.observed + float(self.at_zero_R.max())

    def variance(self, shift_K: Array) -> Array:
        """Return v_k(s)."""
        gap_K = shift_K / self.count_K
        variance_K: Array = np.maximum(self.variance_K + gap_K * self.skew_K, gap_K**2 * self.count_K)
        return variance_K

    def share(self, shift_K: Array) -> float:
        """Compute P(T*(s) <= T)."""
        some_K = self.variance_K > 1e-12  # smaller values are rounding errors
        growth_K = np.divide(self.variance(shift_K), self.variance_K, out=np.zeros_like(shift_K), where=some_K)
        away_KR = self.noise_KR * np.sqrt(growth_K)[:, None]
        away_KR += shift_K[:, None]
        total_R = np.abs(away_KR, out=away_KR).sum(axis=0)
        return float((total_R <= self.observed * (1 + 1e-12)).mean())

    def first(self, direction_K: Array, target: float) -> float:
        """Find the smallest theta at which at most `target` of the draws have T* <= T."""
        length = float(np.abs(direction_K).sum())
        if length == 0 or self.share(np.zeros_like(direction_K)) <= target:
            return 0.0
        return self._between(direction_K / length, 0.0, self.most, target)

    def last(self, direction_K: Array, target: float) -> float:
        """Find the last theta at which more than `target` of the draws have T* <= T.

        The scan comes from above, because the share may be small at 0 and larger farther on.
        """
        length = float(np.abs(direction_K).sum())
        step = self.most / SCAN
        for theta in np.arange(SCAN, -1, -1) * step if length > 0 else ():
            if self.share(theta / length * direction_K) > target:
                return self._between(direction_K / length, float(theta), float(theta) + step, target)
        return 0.0

    def _between(self, unit_K: Array, low: float, high: float, target: float) -> float:
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self.share(middle * unit_K) > target:
                low = middle
            else:
                high = middle
        return low
