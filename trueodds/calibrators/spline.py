"""Spline calibration (Gupta et al. 2021): the derivative of a spline through the cumulative gap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import scipy

from trueodds.calibrators.base import Labels, Logits
from trueodds.calibrators.checks import Number, OneOf, OptionCheck
from trueodds.calibrators.score_curves import ScoreCurves, columns, curve_fields
from trueodds.sums.inputs import Array

STORED = 1024
"""Largest number of points of the fitted curve that are stored; between them it is linear."""
LEAST = 1e-300
"""Smallest score; between smaller ones a slope leaves the range of float64."""


@dataclass(frozen=True, eq=False)
class Spline(ScoreCurves):
    """Spline calibration, f(c) = c + h'(t(c)).

    h is the natural cubic spline with `pieces` equidistant knots that is nearest, in least squares, to the cumulative
    gap H(t), the sum over the lowest t N scores of (hit - score) / N. Knots, ends and percentiles 0 .. 1 are those of
    the authors' code. t(c) is the rank of c among the fitted scores. Equal scores take their mean rank, and their hits
    are spread evenly over them, so that the order of the rows has no effect. f is linear between fitted scores (at most
    1,024 of them are stored), constant beyond them, and clipped to [0, 1]. It may fall somewhere; a note then reports
    this. Options of `fit`:

    - form: "top_label" (default) for the confidence, or "one_vs_rest" for every class.
    - pieces: Number of knots (6).

    References:
        Gupta et al. 2021, Calibration of neural networks using splines, section 4.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "spline")([[2, 0]]).round(3)
        array([[0.751, 0.249]])
    """

    name: ClassVar[str] = "spline"
    keeps_argmax = False
    at_bound = False  # its warning is about a falling curve
    checks: ClassVar[Mapping[str, OptionCheck]] = {
        "form": OneOf(("top_label", "one_vs_rest")),
        "pieces": Number(3, 100, whole=True),
    }

    @staticmethod
    def _size(knots: int) -> int:
        return knots

    def _curve(self, scores: Array, which: int) -> Array:
        values: Array = np.interp(scores, np.asarray(self.knots[which]), np.asarray(self.values[which]))
        return values

    @classmethod
    def fit(
        cls,
        logits_NC: Logits,
        labels_N: Labels,
        *,
        form: Literal["top_label", "one_vs_rest"] = "top_label",
        pieces: int = 6,
    ) -> Self:
        cls.check_values(form=form, pieces=pieces)
        fitted = [recalibration(*pair, pieces) for pair in columns(logits_NC, labels_N, form, cls.name)]
        return cls(form, **curve_fields(fitted, len(logits_NC)))

    def _fit_warnings(self) -> list[str]:
        falling = sum(bool((np.diff(np.asarray(values)) < 0).any()) for values in self.values)
        if not falling:
            return []
        which = (
            f"{falling} of {len(self.values)} fitted curves fall" if len(self.values) > 1 else "The fitted curve falls"
        )
        return [f"{which} somewhere: there a higher score gets a lower probability."]


def recalibration(score_N: Array, hit_N: Array, pieces: int) -> tuple[Array, Array]:
    """Return the scores and calibrated scores of one curve, ascending in the score."""
    score_U, first_N, count_U = np.unique(np.maximum(score_N, LEAST), return_inverse=True, return_counts=True)
    sorted_N, group_N = np.repeat(score_U, count_U), np.repeat(np.arange(len(score_U)), count_U)
    share_U = np.bincount(first_N, hit_N) / count_U
    gap_N = np.cumsum(share_U[group_N] - sorted_N) / len(sorted_N)
    rank_N, knots = np.linspace(0.0, 1.0, len(sorted_N)), np.linspace(0.0, 1.0, pieces)
    basis = scipy.interpolate.CubicSpline(knots, np.eye(pieces), bc_type="natural")
    height = np.linalg.lstsq(basis(rank_N), gap_N, rcond=None)[0]
    slope_N = basis(rank_N, 1) @ height
    value_U = np.clip(score_U + np.bincount(group_N, slope_N) / count_U, 0.0, 1.0)
    kept = np.unique(np.round(np.linspace(0, len(score_U) - 1, STORED)).astype(np.intp))
    return score_U[kept], value_U[kept]
