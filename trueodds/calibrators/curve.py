"""Calibrators that first calibrate the whole vector, and then the top label's confidence with a rising curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.calibrators.affine.structured import StructuredMatrix
from trueodds.calibrators.base import Calibrator, FitError, Labels, Logits, frozen_array, row_blocks
from trueodds.calibrators.checks import Number, OptionCheck
from trueodds.calibrators.fitting.newton import minimise
from trueodds.calibrators.held_out import FOLDS, stratified_folds
from trueodds.calibrators.score_curves import with_top
from trueodds.calibrators.sigmoid import Logistic
from trueodds.calibrators.temperature import Temperature
from trueodds.sums.inputs import Array
from trueodds.sums.losses import SMALLEST_PROBABILITY

PIECES = 8
RIDGE = 1.0
"""Weight, in rows, of (slope - 1)^2 of each piece. A piece without wrong rows stays near the base's own confidence."""
AHEAD = 1e-9
"""Relative lead that the top class keeps over the next one."""


@dataclass(frozen=True, eq=False)
class TopCurve(Calibrator):
    """Base of p_top = sigma(g(s)), where s = ln q_top - ln(1 - q_top) for the base's probabilities q.

    The other classes share 1 - p_top in the proportions of q. g is continuous, rising and linear in `pieces` (8) pieces
    between the quantiles of the fitted s. It minimises the top label's logistic loss plus (1/N) [sum over pieces (slope
    - 1)^2 + (g(first knot) - first knot)^2]. If the top label does not change, the NLL of a row is that loss plus a
    part that does not depend on g. The s of the fit are held out: the base's fit on the other rows scores each fifth of
    them, because the base is too confident about its own rows.

    The base's top class stays on top: p_top is never below the next one's share.
    """

    checks: ClassVar[Mapping[str, OptionCheck]] = {"pieces": Number(2, 100, whole=True)}
    base_kind: ClassVar[type[Calibrator]]
    free_parameters = 0  # the pull towards the base regularises all

    base: Calibrator
    """Base calibrator, fitted on all rows."""
    knot_K: npt.ArrayLike
    """Ascending log-odds at which the slope changes."""
    slope_P: npt.ArrayLike
    """Slope >= 0 of each piece; there is one more than there are knots."""
    height: float
    """Value of g at the first knot."""

    def __post_init__(self) -> None:
        super().__post_init__()
        base: Any = self.base
        if isinstance(base, Mapping):
            base = self.base_kind(**{key: value for key, value in base.items() if key != "calibrator"})
        if not isinstance(base, self.base_kind):
            raise ValueError(f"base is {base!r}; allowed is a calibrator {self.base_kind.name!r} or its to_json")
        object.__setattr__(self, "base", base)
        knot_K = frozen_array(self.knot_K, "knot_K", (None,))
        slope_P = frozen_array(self.slope_P, "slope_P", (len(knot_K) + 1,))
        if not len(knot_K) or (np.diff(knot_K) <= 0).any():
            raise ValueError(f"knot_K is {knot_K.tolist()}; allowed are one or more rising numbers")
        if (slope_P < 0).any():
            raise ValueError(f"slope_P holds {slope_P.min()}; allowed are numbers >= 0")
        object.__setattr__(self, "knot_K", knot_K)
        object.__setattr__(self, "slope_P", slope_P)
        object.__setattr__(self, "height", float(frozen_array(self.height, "height", ())))

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels, *, pieces: int = PIECES) -> Self:
        cls.check_values(pieces=pieces)
        base = cls.base_kind.fit(logits_NC, labels_N)
        score_N, hit_N = top_scores(base, logits_NC, labels_N)
        fold_N = stratified_folds(labels_N, FOLDS)
        for inside_N in (fold_N == fold for fold in range(FOLDS if len(labels_N) > 1 else 0)):
            if inside_N.any():
                part = cls.base_kind.fit(logits_NC[~inside_N], labels_N[~inside_N])
                score_N[inside_N], hit_N[inside_N] = top_scores(part, logits_NC[inside_N], labels_N[inside_N])
        return cls.of_scores(base, score_N, hit_N, pieces)

    @classmethod
    def of_scores(cls, base: Calibrator, score_N: Array, hit_N: Array, pieces: int = PIECES) -> Self:
        """Return the base with the curve of these scores, which come from fits without the row."""
        return cls(base, *solve(score_N, hit_N, pieces))

    @property
    def classes(self) -> int | None:
        return self.base.classes

    @property
    def parameters(self) -> int:
        """Number of the curve's parameters. The base's own prior or penalty regularises its parameters."""
        return super().parameters + 1

    def _fit_warnings(self) -> list[str]:
        return self.base._fit_warnings()

    def curve(self, score_N: Array) -> Array:
        """Compute g of log-odds."""
        knot_K = np.asarray(self.knot_K)
        value: Array = np.asarray(self.slope_P) @ ramps(score_N, knot_K) + self.height
        return value

    def _apply(self, logits_NC: Array) -> Array:
        q_NC = self.base._apply(logits_NC)
        if q_NC.shape[1] == 1:
            return q_NC
        score_N, top_N = log_odds_of_top(q_NC)
        odds_N = self.curve(score_N)
        return with_top(q_NC, top_N, scipy.special.expit(odds_N), scipy.special.expit(-odds_N), ahead=AHEAD)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"base": self.base.to_json()}


@dataclass(frozen=True, eq=False)
class TemperatureCurve(TopCurve):
    """Temperature scaling followed by a rising curve g for the top label: p_top = sigma(g(s)).

    s is the top label's log-odds after `Temperature`. g is linear in `pieces` (8, an option of `fit`) pieces with equal
    numbers of rows; `trueodds.calibrators.curve.TopCurve` states the loss. The order of the classes never changes, so
    the predicted class does not either.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "temperature_curve")([[2, 0]]).round(3)
        array([[0.749, 0.251]])
    """

    name: ClassVar[str] = "temperature_curve"
    base_kind: ClassVar[type[Calibrator]] = Temperature
    keeps_argmax = True


@dataclass(frozen=True, eq=False)
class StructuredCurve(TopCurve):
    """`StructuredMatrix` followed by a rising curve g for the top label: p_top = sigma(g(s)).

    s = ln q_top - ln(1 - q_top) for the probabilities q of the matrix. g is linear in `pieces` (8, an option of `fit`)
    pieces with equal numbers of rows; `trueodds.calibrators.curve.TopCurve` states the loss. The matrix corrects errors
    of single classes, and the curve corrects the confidence as a whole, which a matrix cannot bend.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "structured_curve")([[2, 0]]).round(3)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "structured_curve"
    base_kind: ClassVar[type[Calibrator]] = StructuredMatrix
    keeps_argmax = False


def log_odds_of_top(q_NC: Array) -> tuple[Array, npt.NDArray[np.intp]]:
    """Return the log-odds and the number of each row's top class.

    The log-odds are ln q minus ln of the sum of the others, which keeps the digits that 1 - q loses.
    """
    rows, top_N = np.arange(len(q_NC)), q_NC.argmax(axis=1)
    own_N = q_NC[rows, top_N]
    others_NC = q_NC.copy()
    others_NC[rows, top_N] = 0.0
    return np.log(own_N) - np.log(np.maximum(others_NC.sum(axis=1), SMALLEST_PROBABILITY)), top_N


def top_scores(calibrator: Calibrator, logits_NC: Logits, labels_N: Labels) -> tuple[Array, Array]:
    """Return the log-odds of each row's top label, and whether it is right (0 or 1)."""
    score_N, hit_N = np.empty(len(labels_N)), np.empty(len(labels_N))
    for block in row_blocks(*logits_NC.shape):
        score_N[block], top_N = log_odds_of_top(calibrator(logits_NC[block]))
        hit_N[block] = top_N == labels_N[block]
    return score_N, hit_N


def ramps(score_N: Array, knot_K: Array) -> Array:
    """Compute the features of the pieces, P x N, all 0 at the first knot.

    Their combination by the slopes is g minus its height at the first knot.
    """
    low_P, high_P = np.append(-np.inf, knot_K), np.append(knot_K, np.inf)
    below_N = np.minimum(score_N, knot_K[0]) - knot_K[0]
    above = [np.clip(score_N, low, high) - low for low, high in zip(low_P[1:], high_P[1:], strict=True)]
    return np.stack([below_N, *above])


def solve(score_N: Array, hit_N: Array, pieces: int) -> tuple[Array, Array, float]:
    """Fit the penalised logistic loss. Return the knots, the slopes and the height at the first knot.

    Raises:
        FitError: There are no rows, or numbers leave the range of float64.
    """
    if not len(score_N):
        raise FitError("a curve cannot be fitted on no rows; add rows")
    knot_K = np.unique(np.quantile(score_N, np.arange(1, pieces) / pieces))
    target_P = np.append(np.ones(len(knot_K) + 1), knot_K[0])
    problem = _Held(np.vstack([ramps(score_N, knot_K), np.ones(len(score_N))]), hit_N, target_P)
    low_P = np.append(np.zeros(len(knot_K) + 1), -np.inf)
    theta_P = minimise(problem, target_P, low_P, np.full(len(low_P), np.inf), "the curve of the top label")
    return knot_K, theta_P[:-1], float(theta_P[-1])


class _Held(Logistic):
    """The logistic loss with a pull of RIDGE rows towards `goal_P`."""

    def __init__(self, x_PN: Array, target_N: Array, goal_P: Sequence[float] | Array) -> None:
        super().__init__(x_PN, target_N)
        self._goal_P, self._pull = np.asarray(goal_P), RIDGE / x_PN.shape[1]

    def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
        value, gradient_P = super().value_and_gradient(theta_P)
        off_P = theta_P - self._goal_P
        self._hessian_FF = self._hessian_FF + 2 * self._pull * np.eye(len(theta_P))
        return value + self._pull * float(off_P @ off_P), gradient_P + 2 * self._pull * off_P
