"""Changes of calibration over time: find the periods at which the gap of accuracy and confidence changes most."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array

SIGNIFICANT = 0.01


@dataclass(frozen=True)
class GapSegment:
    """A run of periods that begins with `first` and ends before the next segment."""

    first: int
    labels: int
    gap: float
    """Accuracy minus mean confidence; 0 without labels."""


@dataclass(frozen=True)
class GapChange:
    """The split at which the gap differs most. `first` is the first period after the split."""

    first: int
    p_value: float
    """Probability of so large a difference at any split if the gap never changed (Bonferroni)."""


def gap_segments(
    labels_T: npt.ArrayLike, accuracy_T: npt.ArrayLike, confidence_T: npt.ArrayLike, most: int = 3
) -> list[GapSegment]:
    """Split T periods into at most `most` segments of constant gap, by binary segmentation.

    A segment is split at its `gap_change` while that has p < .01. Among several possible splits, the one with the
    smallest p-value comes first. One segment means that no change is significant, for a single look. The accuracy and
    confidence of periods without labels are ignored.

    Args:
        labels_T: Number of labels in each period.
        accuracy_T: Accuracy of each period.
        confidence_T: Mean confidence of each period.
        most: Largest number of segments.

    Returns:
        The segments in order of time.

    Raises:
        ValueError: The arrays have different lengths.

    Examples:
        >>> segments = gap_segments([500] * 4, [0.90, 0.89, 0.71, 0.70], [0.9, 0.9, 0.9, 0.9])
        >>> [(segment.first, segment.labels, round(segment.gap, 3)) for segment in segments]
        [(0, 1000, -0.005), (2, 1000, -0.195)]
    """
    n_T, a_T, c_T = (np.asarray(v, float) for v in (labels_T, accuracy_T, confidence_T))
    if not len(n_T) == len(a_T) == len(c_T):
        raise ValueError(f"{len(n_T)} periods, {len(a_T)} accuracies, {len(c_T)} confidences")
    right_T, claimed_T = (np.where(n_T > 0, n_T * v, 0.0) for v in (a_T, c_T))
    ends = [0, len(n_T)]
    while len(ends) <= most:
        parts = [slice(i, j) for i, j in itertools.pairwise(ends)]
        changes = [(gap_change(n_T[part], right_T[part], claimed_T[part]), part.start) for part in parts]
        shown = [(c.p_value, start + c.first) for c, start in changes if c is not None and c.p_value < SIGNIFICANT]
        if not shown:
            break
        ends = sorted([*ends, min(shown)[1]])
    segments = []
    for i, j in itertools.pairwise(ends):
        n = float(n_T[i:j].sum())
        segments.append(GapSegment(i, round(n), float((right_T - claimed_T)[i:j].sum()) / max(n, 1.0)))
    return segments


def gap_change(labels_T: Array, right_T: Array, claimed_T: Array) -> GapChange | None:
    """Find the split that maximises z^2 = (g_after - g_before)^2 / (p (1 - p) (1 / n_before + 1 / n_after)).

    g is (right - claimed) / n over the labels of one side. p = (right + 1) / (n + 2) is the share of all labels that
    are right. The variance of being right, given the confidences, is at most p (1 - p) (Hoeffding 1956). So the test
    errs on the safe side.

    Args:
        labels_T: Number of labels in each period.
        right_T: Number of right answers in each period.
        claimed_T: Sum of the confidences in each period.

    Returns:
        The split, or None if fewer than two periods have labels.

    Examples:
        >>> change = gap_change(np.array([10, 0, 10]), np.array([5, 0, 9]), np.array([5.0, 0.0, 5.0]))
        >>> change.first, round(change.p_value, 3)
        (2, 0.055)
    """
    known_M = np.flatnonzero(labels_T)
    if len(known_M) < 2:
        return None
    n_M, right_M = labels_T[known_M], right_T[known_M]
    gap_M = right_M - claimed_T[known_M]
    n, before_M, after_M = n_M.sum(), n_M.cumsum()[:-1], n_M[::-1].cumsum()[-2::-1]
    difference_M = gap_M[::-1].cumsum()[-2::-1] / after_M - gap_M.cumsum()[:-1] / before_M
    p = (right_M.sum() + 1) / (n + 2)
    z_M = difference_M / np.sqrt(p * (1 - p) * (1 / before_M + 1 / after_M))
    k = int(np.abs(z_M).argmax())
    return GapChange(int(known_M[k + 1]), min(1.0, 2 * len(z_M) * float(scipy.special.ndtr(-abs(z_M[k])))))
