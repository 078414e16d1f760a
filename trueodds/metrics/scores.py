"""Point values of rows, without bins: error, proper scores, mean gap, entropy. Sums first, division last.

A function with labels takes `(probabilities_NC, labels_N)` or one `CalibrationSums`; both give the same number.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from trueodds.sums.bins import CELLS, EDGES
from trueodds.sums.inputs import Array, is_number
from trueodds.sums.losses import SMALLEST_PROBABILITY, WORST_NLL
from trueodds.sums.rows import checked_blocks, top_labels
from trueodds.sums.sums import CalibrationSums

Predictions = npt.ArrayLike | CalibrationSums


@dataclass(frozen=True)
class FractionAbove:
    """Share of the rows above a confidence, and their accuracy.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> metrics.fraction_above(probabilities, labels, threshold=0.75)
    FractionAbove(fraction=0.5, accuracy=1.0)
    """

    fraction: float
    accuracy: float


def as_sums(predictions: Predictions, labels: npt.ArrayLike | None = None, *, scores: bool = False) -> CalibrationSums:
    """`CalibrationSums` as they are, or made of probabilities and labels (with NLL and Brier if `scores`).

    Raises:
        ValueError: for sums with labels, probabilities without, or no rows at all.
    """
    if isinstance(predictions, CalibrationSums):
        if labels is not None:
            raise ValueError("labels given beside CalibrationSums, which hold the labels already")
        sums = predictions
    elif labels is None:
        raise ValueError("probabilities need labels; pass (probabilities_NC, labels_N) or CalibrationSums")
    else:
        sums = CalibrationSums.from_probabilities(predictions, labels, scores=scores)
    if sums.n == 0:
        raise ValueError("no labelled rows: a metric of nothing is not defined")
    return sums


def accuracy(predictions: Predictions, labels_N: npt.ArrayLike | None = None) -> float:
    """Share of rows whose top label is right, in [0, 1].

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> metrics.accuracy(probabilities, labels)
    0.75
    """
    sums = as_sums(predictions, labels_N)
    return sums.total("correct") / sums.n


def error_rate(predictions: Predictions, labels_N: npt.ArrayLike | None = None) -> float:
    """1 - accuracy, in [0, 1].

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> metrics.error_rate(probabilities, labels)
    0.25
    """
    sums = as_sums(predictions, labels_N)
    return (sums.n - sums.total("correct")) / sums.n


def mean_confidence(predictions: Predictions, labels_N: npt.ArrayLike | None = None) -> float:
    """Mean of the top label's probability; an estimate of the accuracy if the model is calibrated.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.mean_confidence(probabilities, labels), 4)
    0.75
    """
    sums = as_sums(predictions, labels_N)
    return sums.total("confidence") / sums.n


def signed_gap(predictions: Predictions, labels_N: npt.ArrayLike | None = None) -> float:
    """E[a - c] = accuracy - mean confidence: negative when over-confident.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.signed_gap(probabilities, labels), 4)
    0.0
    """
    sums = as_sums(predictions, labels_N)
    return (sums.total("correct") - sums.total("confidence")) / sums.n


def nll(predictions: Predictions, labels_N: npt.ArrayLike | None = None) -> float:
    """Negative log-likelihood -mean log p_y, in nats.

    p_y = 0, and whatever lies below 2.2e-308, counts as that: such a row is clipped to 708.4 nats, so the mean says
    little more than how many of them there are. A UserWarning says their number; of sums, which do not keep it, the
    most that they allow (a cell with m of them has a sum of squares of at least 708.4^2 m).

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.nll(probabilities, labels), 4)
    0.4004
    """
    sums = as_sums(predictions, labels_N, scores=True)
    value, most = sums.total("nll") / sums.n, int(_clipped(sums).sum())
    if most:
        count, about = most, "up to "
        if labels_N is not None:
            true_N = np.take_along_axis(np.asarray(predictions), np.asarray(labels_N)[:, None], axis=1)
            count, about = int(np.count_nonzero(true_N <= SMALLEST_PROBABILITY)), ""
        if count:
            words = f"{about}{count:,} of {sums.n:,} rows gave the true class a probability of 0 and were clipped"
            warnings.warn(f"nll: {words}: each counts as {WORST_NLL:.1f} nats", UserWarning, stacklevel=2)
    return value


def _clipped(sums: CalibrationSums) -> Array:
    """Per cell the most rows whose NLL can be the largest there is, by the sums of NLL and of its squares."""
    total_C, squares_C, wrong_C = sums.cells[3], sums.cells[4], sums.cells[0] - sums.cells[2]
    most_C: Array = np.floor(np.minimum(np.minimum(total_C / WORST_NLL, squares_C / WORST_NLL**2) + 1e-6, wrong_C))
    return most_C


def brier(predictions: Predictions, labels_N: npt.ArrayLike | None = None) -> float:
    """Brier score: mean over rows of sum over classes (p_k - [k = y])^2, in [0, 2].

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.brier(probabilities, labels), 4)
    0.25
    """
    sums = as_sums(predictions, labels_N, scores=True)
    return sums.total("brier") / sums.n


def fraction_above(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, threshold: float = 0.99
) -> FractionAbove:
    """Share of rows with confidence > threshold, and the accuracy there (NaN if there are none).

    Sums know the thresholds that are multiples of 1/3000, such as .99, .995 and .999; probabilities any.

    Raises:
        ValueError: bad input, a threshold outside [0, 1], or one inside a cell of the sums.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> metrics.fraction_above(probabilities, labels, threshold=0.75).fraction
    0.5
    """
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
    """Compute the average uncertainty, the mean over rows of -sum_k p_k log p_k, in nats, in [0, log C].

    The horizontal axis of "ECE against average uncertainty" (Karandikar et al. 2021, figure 10): an ECE can be bought
    with answers that say nothing, and this is where that shows.

    Raises:
        ValueError: probabilities that cannot be used.

    >>> round(metrics.mean_entropy([[0.5, 0.5], [1.0, 0.0]]), 4)
    0.3466
    """
    total, rows = 0.0, 0
    for _, block in checked_blocks(probabilities_NC):
        wide = block.astype(np.float64, copy=False)
        total -= float(xlogy(wide, wide).sum())
        rows += len(wide)
    return total / rows
