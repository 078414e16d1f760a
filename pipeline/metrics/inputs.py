"""What the metrics and calibrators accept, checked in one place with errors that name the cure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ROW_SUM_TOLERANCE = 1e-3


def check_labels(labels: npt.ArrayLike, rows: int, classes: int, name: str = "labels") -> npt.NDArray[np.intp]:
    """Labels as an intp vector of length `rows` with values 0..classes-1.

    Raises:
        ValueError: not one-dimensional, another length, not integer, or outside the classes.
    """
    labels_N = np.asarray(labels)
    if labels_N.shape != (rows,):
        raise ValueError(f"{name} has shape {labels_N.shape}; expected ({rows},), one class index for each row")
    if labels_N.dtype.kind not in "iu":
        raise ValueError(f"{name} has dtype {labels_N.dtype}; expected integer class indices 0..{classes - 1}")
    if rows and (labels_N.min() < 0 or labels_N.max() >= classes):
        bad = labels_N[(labels_N < 0) | (labels_N >= classes)][0]
        raise ValueError(f"{name} holds {bad}; allowed are the class indices 0..{classes - 1}")
    return labels_N.astype(np.intp, copy=False)


def check_matrix(values: npt.ArrayLike, name: str) -> npt.NDArray[np.floating]:
    """A finite, non-empty N x C floating array, in the dtype given (integers become float64).

    Raises:
        ValueError: empty, not two-dimensional, not numeric, NaN or infinite.
    """
    matrix_NC = np.asarray(values)
    if matrix_NC.ndim != 2 or 0 in matrix_NC.shape:
        raise ValueError(f"{name} has shape {matrix_NC.shape}; expected (rows, classes), both at least 1")
    if matrix_NC.dtype.kind not in "fiu":
        raise ValueError(f"{name} has dtype {matrix_NC.dtype}; expected floating-point numbers")
    if matrix_NC.dtype.kind != "f":
        matrix_NC = matrix_NC.astype(np.float64)
    if not np.isfinite(matrix_NC).all():
        row, column = np.argwhere(~np.isfinite(matrix_NC))[0]
        raise ValueError(f"{name}[{row}, {column}] is {matrix_NC[row, column]}; every value must be finite")
    return matrix_NC


def check_probabilities(values: npt.ArrayLike, name: str = "probabilities") -> npt.NDArray[np.floating]:
    """A finite N x C array with values in [0, 1] and rows that sum to 1 within 1e-3.

    Raises:
        ValueError: as `check_matrix`; a value outside [0, 1] or a row that does not sum to 1 (logits, perhaps).
    """
    probabilities_NC = check_matrix(values, name)
    low, high = float(probabilities_NC.min()), float(probabilities_NC.max())
    if low < 0 or high > 1 + ROW_SUM_TOLERANCE:
        worst = low if low < 0 else high
        raise ValueError(f"{name} holds {worst:.6g}; allowed is [0, 1]. If these are logits, apply a calibrator first")
    sums_N = probabilities_NC.sum(axis=1, dtype=np.float64)
    off = int(np.abs(sums_N - 1).argmax())
    if abs(sums_N[off] - 1) > ROW_SUM_TOLERANCE:
        raise ValueError(f"{name}[{off}] sums to {sums_N[off]:.6g}; every row must sum to 1 (within 1e-3)")
    return probabilities_NC


def softmax(logits_NC: Array) -> Array:
    """exp(z_k) / sum_j exp(z_j) per row, shifted by the row's maximum so that nothing overflows."""
    exponent_NC = np.exp(logits_NC - logits_NC.max(axis=1, keepdims=True))
    probabilities: Array = exponent_NC / exponent_NC.sum(axis=1, keepdims=True)
    return probabilities
