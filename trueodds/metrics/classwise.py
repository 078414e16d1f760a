"""Calibration errors of every class's probability, not only that of the top label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trueodds.errors import unknown
from trueodds.metrics.ranked import BINNINGS, mass_bins, rank
from trueodds.processes.choices import Binning
from trueodds.sums.bins import bin_of, check_bins
from trueodds.sums.inputs import Array, as_matrix, check_labels, is_number
from trueodds.sums.label_forms import as_rows
from trueodds.sums.rows import checked_blocks

COLUMNS_AT_ONCE = 16  # columns copied together, so that each cache line of row-major input is read once


def classwise_ece(
    probabilities_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    bins: int = 15,
    binning: Binning = "width",
    threshold: float = 0.0,
    classes: Sequence[object] | None = None,
) -> float:
    """Compute the classwise ECE: the mean of `ece_per_class` over the classes.

        1/C sum_k sum_b n_bk/n |freq_bk - mean p_bk|

    C is the number of columns. A class that never occurs counts; public code that takes max(label) + 1 drops it. With
    `binning="mass"` and a threshold this is the adaptive calibration error of the gamma-net paper's eq. 15 and the
    thresholded ACE of Nixon et al. (The column "ACE" of the gamma-net paper's table is `adaptive_ece`.)

    Args:
        probabilities_NC: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; each row sums to 1.
        labels_N: True classes, shape (N,): indices, or names with `classes`.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        threshold: Only probabilities of at least this value are counted, in [0, 1).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The classwise ECE. Without a threshold it is at most 2/C.

    Raises:
        ValueError: The input is invalid (see `ece_per_class`).

    References:
        Kull et al. 2019, Beyond temperature scaling. Nixon et al. 2019, Measuring calibration in deep learning (the
        static calibration error). The gamma-net paper, eq. 14.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.classwise_ece(probabilities, labels), 4)
        0.3
    """
    probabilities_NC, labels_N = as_rows(probabilities_NC, labels_N, classes)
    return float(ece_per_class(probabilities_NC, labels_N, bins=bins, binning=binning, threshold=threshold).mean())


def ece_per_class(
    probabilities_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    bins: int = 15,
    binning: Binning = "width",
    threshold: float = 0.0,
    classes: Sequence[object] | None = None,
) -> Array:
    """Compute for each class k the ECE of p_k as a probability of y = k.

        sum_b n_b/n |freq_b - mean p_b|

    The bins are those of `ece`; equal mass cuts each class separately. Only rows with p_k >= threshold are counted, and
    n is their number; the value is 0 if there are none. With many classes most probabilities are near zero and would
    dominate the result without a threshold.

    Args:
        probabilities_NC: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; each row sums to 1.
        labels_N: True classes, shape (N,): indices, or names with `classes`.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        threshold: Only probabilities of at least this value are counted, in [0, 1).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        One value per class, shape (C,).

    Raises:
        ValueError: The input is invalid, equal-width `bins` do not divide 3,000, `bins` is below 1, the binning is
            unknown, or `threshold` is outside [0, 1).

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> metrics.ece_per_class(probabilities, labels).round(4)
        array([0.3, 0.3])
    """
    probabilities_NC, labels_N = as_rows(probabilities_NC, labels_N, classes)
    if not (is_number(threshold) and 0 <= threshold < 1):
        raise ValueError(f"threshold is {threshold!r}; allowed is [0, 1), such as 0.01")
    if binning not in BINNINGS:
        raise unknown("binning", binning, BINNINGS)
    per_class = _equal_width if binning == "width" else _equal_mass
    return per_class(probabilities_NC, labels_N, check_bins(bins, binning), threshold)


def _equal_width(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int, threshold: float) -> Array:
    """Compute the values in equal-width bins.

    At most `bins` probabilities of a row exceed 1/bins, so only these are binned. The first bin is the rest of the
    column.
    """
    matrix_NC = as_matrix(probabilities, "probabilities")
    classes = matrix_NC.shape[1]
    label_N, gap_K, kept_C = None, np.zeros(classes * bins), np.zeros(classes)
    for rows, block in checked_blocks(matrix_NC):
        if label_N is None:
            label_N = check_labels(labels, *matrix_NC.shape)
        wide = block.astype(np.float64, copy=False)
        place = np.flatnonzero(wide >= threshold) if threshold > 0 else np.flatnonzero(wide > 1 / bins)
        value, column = np.minimum(wide.take(place), 1.0), place % classes
        np.add.at(gap_K, column * bins + bin_of(value, bins), -value)
        if threshold > 0:
            kept_C += np.bincount(column, minlength=classes)
        else:
            kept_C += len(block)
            gap_K[::bins] -= np.ones(len(block)) @ wide - np.bincount(column, value, classes)
        label = label_N[rows]
        true = np.minimum(wide[np.arange(len(block)), label], 1.0)
        kept = true >= threshold
        np.add.at(gap_K, label[kept] * bins + bin_of(true[kept], bins), 1.0)
    return _share(np.abs(gap_K).reshape(classes, bins).sum(axis=1), kept_C)


def _equal_mass(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int, threshold: float) -> Array:
    matrix_NC = as_matrix(probabilities, "probabilities")
    for _ in checked_blocks(matrix_NC):
        pass
    label_N, classes = check_labels(labels, *matrix_NC.shape), matrix_NC.shape[1]
    gap_C, kept_C = np.zeros(classes), np.zeros(classes)
    for start in range(0, classes, COLUMNS_AT_ONCE):
        columns = np.ascontiguousarray(matrix_NC[:, start : start + COLUMNS_AT_ONCE].T).astype(np.float64)
        for k, p_N in enumerate(np.minimum(columns, 1.0), start):
            kept_N = p_N >= threshold
            kept_C[k] = np.count_nonzero(kept_N)
            if kept_C[k]:
                rows = rank(p_N[kept_N], label_N[kept_N] == k)
                gap_C[k] = np.abs(mass_bins(rows, bins).gap_B).sum()
    return _share(gap_C, kept_C)


def _share(gap_C: Array, kept_C: Array) -> Array:
    share: Array = np.divide(gap_C, kept_C, out=np.zeros_like(gap_C), where=kept_C > 0)
    return share
