"""Calibrators of single scores: one curve per class, one curve for all classes, or one for the top label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.base import (
    Calibrator,
    Labels,
    Logits,
    check_classes_have_rows,
    frozen_array,
    row_blocks,
)
from trueodds.calibrators.checks import check_choice, check_number
from trueodds.sums.inputs import Array, softmax

Form = Literal["one_vs_rest", "top_label", "pooled"]
CURE = "use form='{form}', a calibrator that needs no row of each class ('temperature'), or add rows of that class"


@dataclass(frozen=True, eq=False)
class ScoreCurves(Calibrator):
    """Base of p_k = f(q_k) for scores q = softmax(z), normalised. f is a curve with knots x and values y.

    - form "one_vs_rest": one curve per class; the row is divided by its sum (a row of zeros keeps q).
    - form "pooled": one curve for the probabilities of all classes, normalised likewise.
    - form "top_label": one curve for the top probability; the other classes share the rest in the proportions of q.

    The result is (1 - mixed) times these probabilities plus `mixed` times q, with mixed = 1 / (N + 1). N rows of data
    do not justify a probability of 0. Where the curve is flat, q also keeps the order of the classes.
    """

    form: Form
    knots: Sequence[npt.ArrayLike]
    values: Sequence[npt.ArrayLike]
    mixed: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("form", self.form, ("one_vs_rest", "top_label", "pooled"))
        check_number("mixed", self.mixed, 0.0, 1.0)
        knots = [frozen_array(k, "knots", (None,)) for k in self.knots]
        if not knots or len(self.values) != len(knots) or (self.form != "one_vs_rest" and len(knots) > 1):
            raise ValueError(
                f"knots holds {len(knots)} curves, values {len(self.values)}; expected one per class or one"
            )
        values = [frozen_array(v, "values", (self._size(len(k)),)) for k, v in zip(knots, self.values, strict=True)]
        if any((np.diff(k) < 0).any() for k in knots):
            raise ValueError("knots fall somewhere; allowed are ascending scores")
        if any((v < 0).any() or (v > 1).any() for v in values):
            worst = next(float(x) for v in values for x in v if not 0 <= x <= 1)
            raise ValueError(f"values holds {worst}; allowed is [0, 1]")
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "values", values)

    @staticmethod
    def _size(knots: int) -> int:
        """Return the number of values for so many knots: a step to the left of each knot and one beyond the last."""
        return knots + 1

    def _curve(self, scores: Array, which: int) -> Array:
        """Return the values of curve `which`: values[i] on (knots[i-1], knots[i]]."""
        values: Array = np.asarray(self.values[which])[np.searchsorted(np.asarray(self.knots[which]), scores)]
        return values

    @property
    def classes(self) -> int | None:
        return len(self.knots) if self.form == "one_vs_rest" else self.fitted_classes

    @property
    def parameters(self) -> int:
        return sum(len(np.asarray(values)) for values in self.values)

    @property
    def free_parameters(self) -> int:
        """Always 0: the rows determine the number of stored steps or points."""
        return 0

    def _apply(self, logits_NC: Array) -> Array:
        q_NC = softmax(logits_NC)
        if self.form == "top_label":
            top_N = q_NC.argmax(axis=1)
            top = np.ones(len(q_NC)) if q_NC.shape[1] == 1 else self._curve(q_NC[np.arange(len(q_NC)), top_N], 0)
            p_NC = with_top(q_NC, top_N, top, 1 - top)
        else:
            p_NC = np.empty_like(q_NC)
            if self.form == "pooled":
                p_NC[:] = self._curve(q_NC.ravel(), 0).reshape(q_NC.shape)
            else:
                for k in range(q_NC.shape[1]):
                    p_NC[:, k] = self._curve(q_NC[:, k], k)
            total_N = p_NC.sum(axis=1, keepdims=True)
            p_NC = np.where(total_N > 0, p_NC / np.where(total_N > 0, total_N, 1.0), q_NC)
        return (1 - self.mixed) * p_NC + self.mixed * q_NC


def with_top(
    q_NC: Array, top_N: npt.NDArray[np.intp], own_N: Array, rest_N: Array, *, ahead: float | None = None
) -> Array:
    """Return rows with probability own_N for their top class, while the others share rest_N in the proportions of q.

    With `ahead`, own_N is raised to at least (1 + ahead) times the next class's share, and the rest is lowered.
    """
    rows, p_NC = np.arange(len(q_NC)), q_NC.copy()
    p_NC[rows, top_N] = 0.0
    total_N = p_NC.sum(axis=1)
    bare_N = total_N <= 0  # the others underflowed, so they share evenly
    p_NC[bare_N] = 1.0
    p_NC[rows, top_N] = 0.0
    total_N[bare_N] = max(q_NC.shape[1] - 1, 1)
    p_NC /= total_N[:, None]
    if ahead is not None:
        next_N = p_NC.max(axis=1) * (1 + ahead)
        behind_N = own_N < rest_N * next_N
        own_N, rest_N = np.where(behind_N, next_N / (1 + next_N), own_N), np.where(behind_N, 1 / (1 + next_N), rest_N)
    p_NC *= rest_N[:, None]
    p_NC[rows, top_N] = own_N
    return p_NC


def columns(logits_NC: Logits, labels_N: Labels, form: Form, name: str) -> list[tuple[Array, Array]]:
    """Return (scores, 0 or 1) to fit each curve on: one pair per class, or that of the top label.

    Raises:
        FitError: The form is "one_vs_rest" and a class has no rows.
    """
    if form == "one_vs_rest":
        other = "pooled" if name == "isotonic" else "top_label"
        check_classes_have_rows(labels_N, logits_NC.shape[1], name, CURE.format(form=other))
    rows, classes = logits_NC.shape
    score_CN = np.empty((1 if form == "top_label" else classes, rows))
    for block in row_blocks(rows, classes):
        q_NC = softmax(logits_NC[block].astype(np.float64))
        score_CN[:, block] = q_NC.max(axis=1) if form == "top_label" else q_NC.T
    if form == "top_label":
        return [(score_CN[0], (logits_NC.argmax(axis=1) == labels_N).astype(np.float64))]
    return [(score_N, (labels_N == k).astype(np.float64)) for k, score_N in enumerate(score_CN)]


def curve_fields(curves: Sequence[tuple[Array, Array]], rows: int) -> dict[str, Any]:
    """Return all fields except `form` of curves that were fitted on so many rows."""
    return {
        "knots": [knots for knots, _ in curves],
        "values": [values for _, values in curves],
        "mixed": 1 / (rows + 1),
    }
