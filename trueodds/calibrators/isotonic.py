"""Isotonic regression: one rising step function per class, or one for all classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import scipy

from trueodds.calibrators.base import Labels, Logits, row_blocks
from trueodds.calibrators.checks import OneOf, OptionCheck
from trueodds.calibrators.score_curves import ScoreCurves, columns, curve_fields
from trueodds.sums.inputs import Array, softmax


@dataclass(frozen=True, eq=False)
class Isotonic(ScoreCurves):
    """Isotonic regression: the rising step function of least squared error, by pool-adjacent-violators.

    Options of `fit`:

    - form: "one_vs_rest" (default) fits per class, then normalises. "pooled" (IRM) fits one function to the N C pairs
      of probability and [k = y]. It keeps every row's order, so the accuracy does not change.

    The authors of IRM add 1e-9 q against ties and zeros. Here q is mixed in at 1 / (N + 1): a true class in a zero
    block then costs ln N nats beyond q's own, not 20.

    A step begins half-way between the two fitted scores that it separates. scikit-learn's function agrees at every
    fitted score and is linear between. Below the lowest fitted score the curve is constant.

    References:
        Zadrozny and Elkan 2002, Transforming classifier scores into accurate multiclass probability estimates (one
        against the rest). Zhang, Kailkhura and Han 2020, Mix-n-Match, section 3.2 (pooled).

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "isotonic")([[2, 0]]).round(3)
        array([[0.751, 0.249]])
    """

    name: ClassVar[str] = "isotonic"
    checks: ClassVar[Mapping[str, OptionCheck]] = {"form": OneOf(("one_vs_rest", "pooled"))}

    def __post_init__(self) -> None:
        super().__post_init__()
        if any((np.diff(np.asarray(v)) < 0).any() for v in self.values):
            raise ValueError("values fall somewhere; allowed is a rising curve")

    @property
    def keeps_argmax(self) -> bool:
        """True for form "pooled". Probabilities closer than 1e-13 may become a tie or change places."""
        return self.form == "pooled"

    @classmethod
    def fit(
        cls, logits_NC: Logits, labels_N: Labels, *, form: Literal["one_vs_rest", "pooled"] = "one_vs_rest"
    ) -> Self:
        cls.check_values(form=form)
        if form == "pooled":
            fitted = [_fit_pools(logits_NC, labels_N)]
        else:
            fitted = [
                _steps(np.sort(score_N[hit_N > 0]), len(score_N), [score_N])
                for score_N, hit_N in columns(logits_NC, labels_N, form, cls.name)
            ]
        return cls(form, **curve_fields(fitted, len(logits_NC)))


def _fit_pools(logits_NC: Logits, labels_N: Labels) -> tuple[Array, Array]:
    def scores(block: slice) -> Array:
        return softmax(logits_NC[block].astype(np.float64))

    # Blocks of 32 times the cache, because each is sorted and every true score is looked up in each
    rows, classes = logits_NC.shape
    blocks = list(row_blocks(rows, max(classes // 32, 1)))
    true_N = np.concatenate([scores(b)[np.arange(b.stop - b.start), labels_N[b]] for b in blocks])
    return _steps(np.sort(true_N), rows * classes, (scores(b).ravel() for b in blocks))


def _steps(true_N: Array, total: int, parts: Iterable[Array]) -> tuple[Array, Array]:
    """Return the knots and values.

    Args:
        true_N: Sorted scores of the true cases.
        total: Number of all cases.
        parts: Scores of all cases, in parts.

    Only cases with target 1 can begin a block: a 0 after a 1 is a violation and joins the block. So each distinct score
    of a true case represents itself and all false cases up to the next one. N values are pooled instead of N C.
    """
    start_U, hits_U = np.unique(true_N, return_counts=True)
    below_U, last_U = np.zeros(len(start_U), np.intp), np.full(len(start_U), -np.inf)
    for part in parts:
        sorted_N = np.sort(part)
        place_U = np.searchsorted(sorted_N, start_U)
        below_U += place_U
        last_U = np.maximum(last_U, np.where(place_U > 0, sorted_N[place_U - 1], -np.inf))
    cases_U = np.diff(below_U, append=total)
    steps = scipy.optimize.isotonic_regression(hits_U / cases_U, weights=cases_U.astype(np.float64))
    first_B = steps.blocks[:-1]
    value_B = steps.x[first_B]
    if below_U[0] > 0:
        value_B = np.concatenate([[0.0], value_B])
    else:
        first_B = first_B[1:]
    # (knot, ...] is open on the left, and a step contains its own start, even if no float lies between
    middle_B = np.minimum((last_U[first_B] + start_U[first_B]) / 2, np.nextafter(start_U[first_B], -1.0))
    return middle_B, value_B
