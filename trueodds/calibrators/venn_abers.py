"""Venn-Abers prediction (Vovk, Petej & Fedorova 2015): two isotonic answers, and one probability between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.base import Calibrator, Labels, Logits, frozen_array
from trueodds.calibrators.sigmoid import log_odds
from trueodds.sums.inputs import Array, check_logits


@dataclass(frozen=True, eq=False)
class VennAbers(Calibrator):
    """Inductive Venn-Abers prediction, p_k ~ u / (1 - l + u).

    l and u are isotonic regressions on the fitted rows and the row itself, evaluated at the row. For l the row counts
    as not of class k, for u as of class k. The score is the log-odds of class k. With two classes only the order of z_1
    - z_0 matters, so a factor on the logits changes nothing, and p_1 + p_0 = 1. With more classes, each is fitted
    against the rest, then normalised.

    On exchangeable rows, however few, one of l and u is calibrated; `interval` returns both. p is the probability
    between them whose largest loss of log score is smallest. No probability is 0, because the row itself is among those
    averaged.

    References:
        Vovk, Petej and Fedorova 2015, Large-scale probabilistic predictors with and without guarantees of validity,
        sections 3 and 4.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "venn_abers")([[2, 0]]).round(3)
        array([[0.745, 0.255]])
    """

    name: ClassVar[str] = "venn_abers"
    keeps_argmax = False
    free_parameters = 0  # the rows determine the number of steps

    scores: Sequence[npt.ArrayLike]
    """Rising scores of each class at which l or u has a step."""
    lower: Sequence[npt.ArrayLike]
    """Values of l for each class, from a score up to the next one; below the first score l is 0."""
    upper: Sequence[npt.ArrayLike]
    """Values of u for each class, from beyond the previous score up to this one; above the last score u is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        scores = [frozen_array(score_K, "scores", (None,)) for score_K in self.scores]
        if not scores or any((np.diff(score_K) <= 0).any() for score_K in scores):
            raise ValueError("scores do not rise everywhere; allowed are rising scores of one class or more")
        object.__setattr__(self, "scores", scores)
        for name in ("lower", "upper"):
            values = getattr(self, name)
            if len(values) != len(scores):
                raise ValueError(f"{name} holds {len(values)} curves, scores {len(scores)}; expected one per class")
            values = [frozen_array(v, name, (len(s),)) for v, s in zip(values, scores, strict=True)]
            if any((v < 0).any() or (v > 1).any() or (np.diff(v) < -1e-12).any() for v in values):
                raise ValueError(f"{name} leaves [0, 1] or falls somewhere; allowed are rising curves within [0, 1]")
            object.__setattr__(self, name, values)

    @property
    def classes(self) -> int:
        return len(self.scores)

    @property
    def parameters(self) -> int:
        return sum(len(np.asarray(values)) for values in (*self.lower, *self.upper))

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        curves = [
            _steps(score_N, (labels_N == k).astype(np.float64))
            for k, score_N in enumerate(_scores(logits_NC.astype(np.float64, copy=False)).T)
        ]
        scores, lower, upper = zip(*curves, strict=True)
        return cls(list(scores), list(lower), list(upper))

    def interval(self, logits_NC: npt.ArrayLike) -> tuple[Array, Array]:
        """Compute l and u, one of which is calibrated. They are far apart if the fitted rows hold little information.

        Args:
            logits_NC: Logits, shape (N, C).

        Returns:
            l and u, shape (N, C) each.

        Raises:
            ValueError: The logits are not a finite array, or have another number of classes than the fit.

        Examples:
            >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
            >>> lower, upper = calibrators.fit(logits, labels, "venn_abers").interval([[2, 0]])
            >>> lower.round(3), upper.round(3)
            (array([[0.743, 0.248]]), array([[0.752, 0.257]]))
        """
        logits = check_logits(logits_NC)
        if logits.shape[1] != self.classes:
            raise ValueError(f"logits has shape {logits.shape}; this calibrator was fitted on {self.classes} classes")
        return self._limits(logits.astype(np.float64, copy=False))

    def _limits(self, logits_NC: Array) -> tuple[Array, Array]:
        score_NC = _scores(logits_NC)
        lower_NC, upper_NC = np.empty_like(score_NC), np.empty_like(score_NC)
        for k, score_N in enumerate(score_NC.T):
            score_K = np.asarray(self.scores[k])
            lower_NC[:, k] = np.append(0.0, np.asarray(self.lower[k]))[score_K.searchsorted(score_N, side="right")]
            upper_NC[:, k] = np.append(np.asarray(self.upper[k]), 1.0)[score_K.searchsorted(score_N, side="left")]
        return lower_NC, upper_NC

    def _apply(self, logits_NC: Array) -> Array:
        lower_NC, upper_NC = self._limits(logits_NC)
        p_NC: Array = upper_NC / (1 - lower_NC + upper_NC)
        p_NC /= p_NC.sum(axis=1, keepdims=True)
        return p_NC


def _scores(logits_NC: Array) -> Array:
    """Compute each class's log-odds. With two classes it is a subtraction, which keeps the order at any size."""
    if logits_NC.shape[1] == 2:
        difference_N = logits_NC[:, 1] - logits_NC[:, 0]
        return np.stack([-difference_N, difference_N], axis=1)
    return log_odds(logits_NC)


def _steps(score_N: Array, hit_N: Array) -> tuple[Array, Array, Array]:
    """Return the scores, l and u of one class, without the scores at which neither has a step."""
    score_K, place_N = np.unique(score_N, return_inverse=True)
    rows_K, hits_K = np.bincount(place_N).astype(np.float64), np.bincount(place_N, hit_N).astype(np.float64)
    upper_K = upper_values(rows_K, hits_K)
    lower_K = 1 - upper_values(rows_K[::-1], (rows_K - hits_K)[::-1])[::-1]
    kept_K = (np.diff(lower_K, prepend=0.0) > 0) | (np.diff(upper_K, append=1.0) > 0)
    return score_K[kept_K], lower_K[kept_K], upper_K[kept_K]


def upper_values(rows_K: Array, hits_K: Array) -> Array:
    """Compute u at each of K rising scores with so many rows and hits: isotonic values with one more hit at that score.

    This implements algorithms 1 and 2 of the paper. It finds the greatest convex minorant of the points (rows, hits so
    far), which begin at (-1, -1) for the added hit, and updates it as that hit moves from each score to the next. O(K)
    in all.
    """
    x_P = np.concatenate([[-1.0, 0.0], np.cumsum(rows_K)]).tolist()
    y_P = np.concatenate([[-1.0, 0.0], np.cumsum(hits_K)]).tolist()
    points = list(zip(x_P, y_P, strict=True))
    corners: list[tuple[float, float]] = []
    for point in points:
        while len(corners) > 1 and not _left(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    corners.reverse()  # the lowest is last, on top of the paper's second stack
    values = []
    for k in range(len(rows_K)):
        (x, y), (x_next, y_next) = corners[-1], corners[-2]
        values.append((y_next - y) / (x_next - x))
        # Remove the added hit's row from the points up to score k: the hit is now behind score k
        before, here, behind = points[k], points[k + 1], points[k + 2]
        moved = before[0] + behind[0] - here[0], before[1] + behind[1] - here[1]
        points[k + 1] = moved
        if (moved[1] - y) * (x_next - x) >= (y_next - y) * (moved[0] - x):  # at or above the line through the corners
            continue
        corners.pop()
        while len(corners) > 1 and not _left(moved, corners[-1], corners[-2]):
            corners.pop()
        corners.append(moved)
    value_K: Array = np.clip(np.array(values), 0.0, 1.0)
    return value_K


def _left(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Return whether the path from a over b to c turns left."""
    return (b[0] - a[0]) * (c[1] - b[1]) > (b[1] - a[1]) * (c[0] - b[0])
