"""Point values: error, proper scores and the ECE family. Sums first, division last.

Every function takes `(probabilities_NC, labels_N)` or one `CalibrationSums`; both give the same number.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.metrics.sums import CalibrationSums

Given = npt.ArrayLike | CalibrationSums
Norm = Literal["l1", "l2", "max"]


def as_sums(given: Given, labels: npt.ArrayLike | None = None) -> CalibrationSums:
    """`CalibrationSums` as they are, or made of probabilities and labels.

    Raises:
        ValueError: for sums with labels, probabilities without, or no rows at all.
    """
    if isinstance(given, CalibrationSums):
        if labels is not None:
            raise ValueError("labels given beside CalibrationSums, which hold the labels already")
        sums = given
    elif labels is None:
        raise ValueError("probabilities need labels; pass (probabilities_NC, labels_N) or CalibrationSums")
    else:
        sums = CalibrationSums.from_probabilities(given, labels)
    if sums.n == 0:
        raise ValueError("no labelled rows: a metric of nothing is not defined")
    return sums


def accuracy(given: Given, labels_N: npt.ArrayLike | None = None) -> float:
    """Share of rows whose top label is right, in [0, 1]."""
    sums = as_sums(given, labels_N)
    return sums.total("correct") / sums.n


def error(given: Given, labels_N: npt.ArrayLike | None = None) -> float:
    """1 - accuracy, in [0, 1]."""
    sums = as_sums(given, labels_N)
    return (sums.n - sums.total("correct")) / sums.n


def mean_confidence(given: Given, labels_N: npt.ArrayLike | None = None) -> float:
    """Mean of the top label's probability; an estimate of the accuracy if the model is calibrated."""
    sums = as_sums(given, labels_N)
    return sums.total("confidence") / sums.n


def signed_gap(given: Given, labels_N: npt.ArrayLike | None = None) -> float:
    """E[a - c] = accuracy - mean confidence: negative when over-confident."""
    sums = as_sums(given, labels_N)
    return (sums.total("correct") - sums.total("confidence")) / sums.n


def nll(given: Given, labels_N: npt.ArrayLike | None = None) -> float:
    """Negative log-likelihood -mean log p_y, in nats. p_y = 0 counts as 2.2e-308."""
    sums = as_sums(given, labels_N)
    return sums.total("nll") / sums.n


def brier(given: Given, labels_N: npt.ArrayLike | None = None) -> float:
    """Brier score: mean over rows of sum over classes (p_k - [k = y])^2, in [0, 2]."""
    sums = as_sums(given, labels_N)
    return sums.total("brier") / sums.n


def ece(given: Given, labels_N: npt.ArrayLike | None = None, *, bins: int = 15, norm: Norm = "l1") -> float:
    """Expected calibration error of the top label over equal-width bins (lo, hi].

    l1: sum_b n_b/n |acc_b - conf_b|  (Guo et al. 2017, eq. 3; the usual ECE)
    l2: sqrt(sum_b n_b/n (acc_b - conf_b)^2)
    max: max over occupied bins |acc_b - conf_b|

    Confidence 0 lies in the first bin and 1 in the last. Exact for every divisor of 3,000. The plug-in value of
    a calibrated model is not 0: see `noise_floor` and `ece_interval`.

    Raises:
        ValueError: bad input, `bins` that do not divide 3,000, an unknown norm.
    """
    table = as_sums(given, labels_N).bins(bins)
    gap_B = np.abs(table.gap_B)
    if norm == "l1":
        return float(gap_B.sum() / table.n)
    occupied = table.count_B > 0
    mean_B = gap_B[occupied] / table.count_B[occupied]
    if norm == "l2":
        return float(np.sqrt((table.count_B[occupied] * mean_B**2).sum() / table.n))
    if norm == "max":
        return float(mean_B.max())
    raise ValueError(f"norm is {norm!r}; allowed are 'l1', 'l2' and 'max'")


def mce(given: Given, labels_N: npt.ArrayLike | None = None, *, bins: int = 15) -> float:
    """Maximum calibration error: the largest |acc_b - conf_b| over occupied bins (Guo et al. 2017, eq. 5)."""
    return ece(given, labels_N, bins=bins, norm="max")
