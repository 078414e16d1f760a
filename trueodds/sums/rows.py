"""One pass over N x C probabilities, in checked blocks of rows that fit into the cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trueodds.sums.inputs import ROW_SUM_TOLERANCE, Array, as_matrix, check_labels, check_probabilities
from trueodds.sums.losses import brier_of, nll_of, rounded_losses
from trueodds.sums.rounding import EXACT, Resolution

ROWS = 32_768  # rows of a block that holds one number per row
NARROW = 32  # up to this many classes, maxima over columns are faster than argmax along rows (10: 6 ns a row, not 27)
ELEMENTS = 65_536  # numbers in a block of rows x classes: 512 KB in float64


class TopRows(NamedTuple):
    """Some rows by their top label. The scores are computed on request.

    For rounded rows, `true` and `squares` are those of `as_distributions`. Confidence and correctness are those of the
    values as they are, except that a confidence of 1 is 1 - s/4 (`Resolution.confidence`).
    """

    confidence: Array
    correct: npt.NDArray[np.bool_]
    true: Array
    """Probability of the label."""
    squares: Array
    """sum_k p_k^2."""
    nll: Array
    """NLL in nats."""
    brier: Array
    """Brier score."""
    least_nll: Array
    """Lower bound of the NLL. For exact rows it is the NLL."""


def checked_blocks(
    values: npt.ArrayLike, name: str = "probabilities", *, step: float | None = None
) -> Iterator[tuple[slice, npt.NDArray[np.floating]]]:
    """Yield the rows as contiguous float32 or float64 blocks, each within [0, 1] and summing to 1 within 1e-3.

    Rows of rounded probabilities may differ as far as their step explains.

    Raises:
        ValueError: `check_probabilities` does not accept the probabilities.
    """
    matrix_NC = as_matrix(values, name)
    rows, classes = matrix_NC.shape
    dtype = matrix_NC.dtype if matrix_NC.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    one_C, size, doubtful = np.ones(classes, dtype), max(ELEMENTS // classes, 1), True
    for start in range(0, rows, size):
        block = np.ascontiguousarray(matrix_NC[start : start + size], dtype=dtype)
        # Two passes instead of five: NaN and infinities carry over into the sum, and no value above 1 passes beside
        # others of at least 0. If the quick sum is near its limit or fails, the exact check decides and raises.
        with np.errstate(invalid="ignore", over="ignore"):
            sound = block.min() >= 0 and (np.abs(block @ one_C - 1) < 0.9 * ROW_SUM_TOLERANCE).all()
        if doubtful and not sound:
            matrix_NC = check_probabilities(matrix_NC, name, step=step)
            block, doubtful = np.ascontiguousarray(matrix_NC[start : start + size], dtype=dtype), False
        yield slice(start, start + len(block)), block


def top_rows(
    probabilities_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    scores: bool = False,
    resolution: Resolution = EXACT,
) -> Iterator[TopRows]:
    """Yield confidence, clipped to 1, and correctness of the top label, block by block. Ties go to the smallest class.

    Args:
        probabilities_NC: Probabilities, shape (N, C).
        labels_N: True classes, shape (N,).
        scores: Whether to compute the scores.
        resolution: Resolution of the probabilities.

    Raises:
        ValueError: `check_probabilities` or `check_labels` does not accept the input.
    """
    matrix_NC = as_matrix(probabilities_NC, "probabilities")
    step = resolution.step
    blocks = checked_blocks(matrix_NC, step=step)
    first = next(blocks)  # an error in the probabilities is reported before one in the labels
    labels, classes = check_labels(labels_N, *matrix_NC.shape), matrix_NC.shape[1]
    offset = np.arange(len(first[1])) * classes
    nothing = np.empty(0)
    for rows, block in chain([first], blocks):
        start, label = offset[: len(block)], labels[rows]
        highest, correct = _top(block, start, label)
        confidence = resolution.confidence(np.minimum(highest, 1).astype(np.float64))
        if not scores:
            yield TopRows(confidence, correct, *[nothing] * 5)
        elif step is None:
            wide = block.astype(np.float64, copy=False)
            true, squares = wide.take(start + label), np.vecdot(wide, wide)
            nll = nll_of(true)
            yield TopRows(confidence, correct, true, squares, nll, brier_of(true, squares), nll)
        else:
            losses = rounded_losses(block, label, step)
            of_rows = losses.true_N, losses.squares_N, losses.nll_N, losses.brier_N, losses.least_N
            yield TopRows(confidence, correct, *of_rows)


def _top(
    block: npt.NDArray[np.floating], start: npt.NDArray[np.intp], label: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.bool_]]:
    """Return the highest value of each row, and whether the label is the first to reach it.

    `start` is each row's place in the flat block.
    """
    if block.shape[1] <= NARROW:
        columns = np.ascontiguousarray(block.T)
        highest = columns.max(axis=0)
        if np.count_nonzero(columns == highest) == len(highest):  # no ties
            return highest, block.take(start + label) == highest
    top = block.argmax(axis=1)
    return block.take(start + top), top == label


def top_labels(probabilities_NC: npt.ArrayLike, labels_N: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return `top_rows` as two whole vectors: confidence_N and correct_N."""
    blocks = list(top_rows(probabilities_NC, labels_N))
    return np.concatenate([b.confidence for b in blocks]), np.concatenate([b.correct for b in blocks])
