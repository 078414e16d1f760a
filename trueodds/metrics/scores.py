"""Point metrics without bins: accuracy, proper scores, mean gap, entropy. Sums are added first and divided last.

A function with labels takes `(probabilities_NC, labels_N)` or one `CalibrationSums`; both give the same value.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.bins import CELLS, EDGES
from trueodds.sums.inputs import Array, is_number
from trueodds.sums.label_forms import as_rows
from trueodds.sums.losses import SMALLEST_PROBABILITY, WORST_NLL
from trueodds.sums.rounding import Given
from trueodds.sums.rows import checked_blocks, top_labels
from trueodds.sums.sums import CalibrationSums
from trueodds.sums.two_columns import as_columns

Predictions = npt.ArrayLike | CalibrationSums


@dataclass(frozen=True)
class FractionAbove:
    """Share of the rows above a confidence, and their accuracy.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> metrics.fraction_above(probabilities, labels, threshold=0.75)
        FractionAbove(fraction=0.5, accuracy=1.0)
    """

    fraction: float
    accuracy: float


def as_sums(
    predictions: Predictions,
    labels: npt.ArrayLike | None = None,
    classes: Sequence[object] | None = None,
    *,
    scores: bool = False,
    resolution: Given = None,
) -> CalibrationSums:
    """Return `CalibrationSums` unchanged, or build them from probabilities and labels (with NLL and Brier if `scores`).

    Probabilities and labels may have the forms of `as_rows`.

    Raises:
        ConfigError: `classes` and the labels or the columns do not fit together.
        ValueError: Sums come with labels, probabilities come without, or there are no rows.
    """
    predictions, labels = as_rows(predictions, labels, classes)
    if isinstance(predictions, CalibrationSums):
        if labels is not None:
            raise ValueError("CalibrationSums already hold their labels; pass no labels with them")
        sums = predictions
    elif labels is None:
        raise ValueError("probabilities need labels; pass (probabilities_NC, labels_N) or CalibrationSums")
    else:
        sums = CalibrationSums.from_probabilities(predictions, labels, scores=scores, resolution=resolution)
    if sums.n == 0:
        raise ValueError("there are no labelled rows; give at least one")
    return sums


def accuracy(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, classes: Sequence[object] | None = None
) -> float:
    """Compute the share of rows whose top label is right.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The accuracy, in [0, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, or there are no rows.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> metrics.accuracy(probabilities, labels)
        0.75
    """
    sums = as_sums(predictions, labels_N, classes)
    return sums.total("correct") / sums.n


def error_rate(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, classes: Sequence[object] | None = None
) -> float:
    """Compute the error rate of the top label, 1 - accuracy.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The error rate, in [0, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, or there are no rows.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> metrics.error_rate(probabilities, labels)
        0.25
    """
    sums = as_sums(predictions, labels_N, classes)
    return (sums.n - sums.total("correct")) / sums.n


def mean_confidence(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, classes: Sequence[object] | None = None
) -> float:
    """Compute the mean confidence, which estimates the accuracy if the model is calibrated.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The mean probability of the top label, in [0, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, or there are no rows.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.mean_confidence(probabilities, labels), 4)
        0.75
    """
    sums = as_sums(predictions, labels_N, classes)
    return sums.total("confidence") / sums.n


def signed_gap(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, classes: Sequence[object] | None = None
) -> float:
    """Compute the signed gap, accuracy - mean confidence. It is negative if the model is over-confident.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The mean of a - c, in [-1, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, or there are no rows.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.signed_gap(probabilities, labels), 4)
        0.0
    """
    sums = as_sums(predictions, labels_N, classes)
    return (sums.total("correct") - sums.total("confidence")) / sums.n


def nll(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    classes: Sequence[object] | None = None,
    resolution: Given = None,
) -> float:
    """Compute the negative log-likelihood, -mean log p_y.

    A probability p_y of 0, or below 2.2e-308, is clipped, so that such a row costs 708.4 nats. The mean then mostly
    counts these rows. A UserWarning states their number. Sums do not store it, so for them the warning states the
    largest number that they allow: a cell with m such rows has a sum of squares of at least 708.4^2 m.

    Rounded probabilities are known to half a step. The zeros of a row share the mass that its other values leave
    (`trueodds.sums.losses.rounded_losses`). The result is then an estimate. If the true class of a row was rounded to
    0, that row bounds it only from below. `trueodds.report` gives the bound.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].
        resolution: Step of rounded probabilities, such as 0.01, or "exact". None: the step is inferred if rows do not
            sum to 1; else exact.

    Returns:
        The mean negative log-likelihood, in nats.

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or the step is above 0.02, which is too
            coarse for an NLL.

    Warns:
        UserWarning: Some rows gave the true class a probability of 0.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.nll(probabilities, labels), 4)
        0.4004
    """
    predictions, labels_N = as_rows(predictions, labels_N, classes)
    sums = as_sums(predictions, labels_N, scores=True, resolution=resolution)
    value, most = sums.total("nll") / sums.n, int(_clipped_rows(sums).sum())
    if most:
        count, about = most, "up to "
        if labels_N is not None:
            true_N = np.take_along_axis(np.asarray(predictions), np.asarray(labels_N)[:, None], axis=1)
            count, about = int(np.count_nonzero(true_N <= SMALLEST_PROBABILITY)), ""
        if count:
            words = f"{about}{count:,} of {sums.n:,} rows gave the true class a probability of 0 and were clipped"
            warnings.warn(f"nll: {words}: each counts as {WORST_NLL:.1f} nats", UserWarning, stacklevel=2)
    return value


def _clipped_rows(sums: CalibrationSums) -> Array:
    """Return for each cell the largest number of clipped rows that its sums of NLL and of squared NLL allow."""
    total_C, squares_C, wrong_C = sums.cells[3], sums.cells[4], sums.cells[0] - sums.cells[2]
    most_C: Array = np.floor(np.minimum(np.minimum(total_C / WORST_NLL, squares_C / WORST_NLL**2) + 1e-6, wrong_C))
    return most_C


def brier(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    classes: Sequence[object] | None = None,
    resolution: Given = None,
) -> float:
    """Compute the Brier score: the mean over rows of sum_k (p_k - [k = y])^2.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].
        resolution: Step of rounded probabilities, such as 0.01, or "exact". None: the step is inferred if rows do not
            sum to 1; else exact.

    Returns:
        The Brier score, in [0, 2].

    Raises:
        ValueError: The probabilities or labels are invalid, or there are no rows.

    References:
        Brier 1950, Verification of forecasts expressed in terms of probability.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.brier(probabilities, labels), 4)
        0.25
    """
    sums = as_sums(predictions, labels_N, classes, scores=True, resolution=resolution)
    return sums.total("brier") / sums.n


def fraction_above(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    threshold: float = 0.99,
    classes: Sequence[object] | None = None,
) -> FractionAbove:
    """Compute the share of rows with confidence > threshold, and their accuracy.

    From probabilities any threshold is possible. Sums know only the multiples of 1/3000, such as .99, .995 and .999.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        threshold: Confidence, in [0, 1].
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The share and the accuracy there, which is NaN if there are no such rows.

    Raises:
        ValueError: The input is invalid, the threshold is outside [0, 1], or it lies inside a cell of the sums.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> metrics.fraction_above(probabilities, labels, threshold=0.75).fraction
        0.5
    """
    predictions, labels_N = as_rows(predictions, labels_N, classes)
    if not (is_number(threshold) and 0 <= threshold <= 1):
        raise ValueError(f"threshold is {threshold!r}; allowed is [0, 1], such as 0.99")
    if isinstance(predictions, CalibrationSums) or labels_N is None:
        sums = as_sums(predictions, labels_N)
        cell = round(threshold * CELLS)
        if EDGES[cell] != threshold:
            raise ValueError(f"threshold is {threshold}; sums know multiples of 1/{CELLS} only: pass probabilities")
        n, count, right = sums.n, *(float(sums.cells[row, cell:].sum()) for row in (0, 2))
    else:
        confidence, correct = top_labels(predictions, labels_N)
        above = confidence > threshold
        n, count, right = len(above), float(above.sum()), float(correct[above].sum())
    return FractionAbove(count / n, right / count if count else float("nan"))


def mean_entropy(probabilities_NC: npt.ArrayLike) -> float:
    """Compute the mean entropy of the rows, -sum_k p_k log p_k.

    It is the horizontal axis of "ECE against average uncertainty". A model can reach a low ECE with uninformative
    answers; a high entropy shows this.

    Args:
        probabilities_NC: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; each row sums to 1.

    Returns:
        The mean entropy in nats, in [0, log C].

    Raises:
        ValueError: The probabilities are invalid.

    References:
        Karandikar et al. 2021, Soft calibration objectives for neural networks, figure 10.

    Examples:
        >>> round(metrics.mean_entropy([[0.5, 0.5], [1.0, 0.0]]), 4)
        0.3466
    """
    probabilities_NC = as_columns(probabilities_NC)
    total, rows = 0.0, 0
    for _, block in checked_blocks(probabilities_NC):
        wide = block.astype(np.float64, copy=False)
        total -= float(scipy.special.xlogy(wide, wide).sum())
        rows += len(wide)
    return total / rows
