"""Since when are confidences off? The one split of successive periods that tells before and after apart best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

SIGNIFICANT = 0.01


@dataclass(frozen=True)
class GapChange:
    """A split of periods into those before and those from `first` on, and the gap (accuracy - confidence) of each."""

    first: int
    """The period from which on the gap is `after`."""
    before: float
    after: float
    labels_before: int
    labels_after: int
    p_value: float
    """Of as large a difference at any of the splits if the gap never changed (Bonferroni)."""

    @property
    def shown(self) -> bool:
        """Whether it is more than chance, at one look."""
        return self.p_value < SIGNIFICANT


def gap_change(labels_T: npt.ArrayLike, accuracy_T: npt.ArrayLike, confidence_T: npt.ArrayLike) -> GapChange | None:
    """The split of T periods that maximises z^2 = (g_after - g_before)^2 / (p (1 - p) (1 / n_before + 1 / n_after)).

    g is accuracy minus mean confidence over the labels of a side, p = (right + 1) / (n + 2) the share of all labels
    that are right: the variance of being right under given confidences is at most that (Hoeffding 1956), so chance is
    rather over- than underrated. None where fewer than two periods have labels; their numbers are those of T.

    Raises:
        ValueError: arrays of different lengths.

    >>> change = gap_change([500, 500, 500, 500], [0.90, 0.89, 0.71, 0.70], [0.9, 0.9, 0.9, 0.9])
    >>> change.first, round(change.before, 3), round(change.after, 3), change.shown
    (2, -0.005, -0.195, True)
    """
    labels_T, accuracy_T, confidence_T = (np.asarray(v, float) for v in (labels_T, accuracy_T, confidence_T))
    if not len(labels_T) == len(accuracy_T) == len(confidence_T):
        raise ValueError(f"{len(labels_T)} periods, {len(accuracy_T)} accuracies, {len(confidence_T)} confidences")
    known_M = np.flatnonzero(labels_T)
    if len(known_M) < 2:
        return None
    n_M = labels_T[known_M]
    gap_M = n_M * (accuracy_T - confidence_T)[known_M]
    n, before_M, after_M = n_M.sum(), n_M.cumsum()[:-1], n_M[::-1].cumsum()[-2::-1]
    g_before_M, g_after_M = gap_M.cumsum()[:-1] / before_M, gap_M[::-1].cumsum()[-2::-1] / after_M
    p = (n_M @ accuracy_T[known_M] + 1) / (n + 2)
    z_M = (g_after_M - g_before_M) / np.sqrt(p * (1 - p) * (1 / before_M + 1 / after_M))
    k = int(np.abs(z_M).argmax())
    return GapChange(
        first=int(known_M[k + 1]),
        before=float(g_before_M[k]),
        after=float(g_after_M[k]),
        labels_before=round(before_M[k]),
        labels_after=round(after_M[k]),
        p_value=min(1.0, 2 * len(z_M) * float(ndtr(-abs(z_M[k])))),
    )
