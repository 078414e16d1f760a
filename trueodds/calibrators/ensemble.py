"""Ensemble temperature scaling (Zhang, Kailkhura & Han 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.base import Calibrator, Labels, Logits, frozen_array, row_blocks
from trueodds.calibrators.checks import Number, OneOf, OptionCheck
from trueodds.calibrators.fitting.newton import minimise
from trueodds.calibrators.temperature import SHRINKAGE, Bound, Temperature, bound_notes, check_temperature
from trueodds.sums.inputs import Array, softmax
from trueodds.sums.losses import SMALLEST_PROBABILITY

LEAST_WEIGHT = 1e-9
"""Lower bound of a weight during the fit; weights at the bound are set to 0.

Optimising at 0 itself breaks down. A row that only this member allows would have an NLL of 708, too little among 20,000
rows for the search to avoid, and a slope of 1e300, from which no Newton step returns.
"""
NEGLIGIBLE = 1e-6
"""With less weight than this on the two softmaxes, rounding may turn their order into ties."""


@dataclass(frozen=True, eq=False)
class EnsembleTemperature(Calibrator):
    """Ensemble temperature scaling, p = w_1 softmax(z / T) + w_2 softmax(z) + w_3 / C with weights >= 0 and sum 1.

    T is fitted first, by the objective alone, then the weights by the same objective. The latter is a convex problem
    and solved exactly. Options of `fit`:

    - objective: "nll" (default) or "brier", which the authors' code uses.
    - shrinkage: Number of wrong pseudo-rows in the prior of "nll" (2), as in `Temperature`. As many pseudo-rows are
      drawn from softmax(z): -shrinkage ln w_2 is added to the NLL of all rows, a Dirichlet prior on w. 0 is the paper's
      formula.

    The order of the classes never changes, except that w_3 = 1 makes them equal. If nothing is better than the uniform
    distribution, `keeps_argmax` is false.

    References:
        Zhang, Kailkhura and Han 2020, Mix-n-Match, eq. 11.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "ensemble_temperature")([[2, 0]]).round(3)
        array([[0.757, 0.243]])
    """

    name: ClassVar[str] = "ensemble_temperature"
    is_regularised: ClassVar[bool] = True
    checks: ClassVar[Mapping[str, OptionCheck]] = {"objective": OneOf(("nll", "brier")), "shrinkage": Number(0.0, 1e6)}
    readers: ClassVar[Mapping[str, tuple[str, ...]]] = {"shrinkage": ("nll",)}

    temperature: float
    weight_3: npt.ArrayLike
    bound: Bound = None
    """End of its range at which T stopped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature, self.bound)
        weight_3 = frozen_array(self.weight_3, "weight_3", (3,))
        if (weight_3 < 0).any() or abs(weight_3.sum() - 1) > 1e-9:
            raise ValueError(f"weight_3 is {weight_3.tolist()}; allowed are three numbers >= 0 with sum 1")
        object.__setattr__(self, "weight_3", weight_3)

    @property
    def keeps_argmax(self) -> bool:
        return float(np.asarray(self.weight_3)[:2].sum()) > NEGLIGIBLE

    @classmethod
    def fit(
        cls,
        logits_NC: Logits,
        labels_N: Labels,
        *,
        objective: Literal["nll", "brier"] = "nll",
        shrinkage: float = SHRINKAGE,
    ) -> Self:
        cls.check_values(objective=objective, shrinkage=shrinkage)
        tempered = Temperature.fit(logits_NC, labels_N, objective=objective, shrinkage=shrinkage)
        temperature = tempered.temperature
        true_N3, gram_33 = _members(logits_NC, labels_N, temperature)
        if objective == "brier":
            weight_3 = _least_squares(gram_33, true_N3.mean(axis=0))
        else:
            weight_3 = minimise(_Mixture(true_N3, shrinkage), np.full(3, 1 / 3), LEAST_WEIGHT, np.inf, cls.name)
            weight_3 = np.where(weight_3 <= LEAST_WEIGHT, 0.0, weight_3)
        return cls(temperature, weight_3 / weight_3.sum(), tempered.bound)

    def _fit_warnings(self) -> list[str]:
        return bound_notes(self.temperature, self.bound, "objective")

    def _apply(self, logits_NC: Array) -> Array:
        tempered, plain, uniform = np.asarray(self.weight_3)
        p_NC: Array = tempered * softmax(logits_NC / self.temperature)
        p_NC += plain * softmax(logits_NC)
        p_NC += uniform / logits_NC.shape[1]
        return p_NC


def _members(logits_NC: Logits, labels_N: Labels, temperature: float) -> tuple[Array, Array]:
    """Return the true-class probability of each member (N x 3), and the mean products of the members' rows (3 x 3)."""
    rows, classes = logits_NC.shape
    true_N3, gram_33 = np.full((rows, 3), 1 / classes), np.full((3, 3), 1 / classes)
    gram_33[:2, :2] = 0.0
    for block in row_blocks(rows, classes):
        z_NC, index_N = logits_NC[block].astype(np.float64), np.arange(block.stop - block.start)
        members = softmax(z_NC / temperature), softmax(z_NC)
        for i, p_NC in enumerate(members):
            true_N3[block, i] = p_NC[index_N, labels_N[block]]
            for j, q_NC in enumerate(members):
                gram_33[i, j] += float(np.einsum("nc,nc->", p_NC, q_NC)) / rows
    return np.maximum(true_N3, SMALLEST_PROBABILITY), gram_33


def _least_squares(gram_33: Array, true_3: Array) -> Array:
    """Return the w of the simplex with the least w G w - 2 w t: the best stationary point of its seven faces."""
    best, least = np.zeros(3), np.inf
    for size in (1, 2, 3):
        for face in map(list, combinations(range(3), size)):
            system = np.ones((size + 1, size + 1))
            system[:size, :size] = 2 * gram_33[np.ix_(face, face)]
            system[size, size] = 0.0
            weight = np.linalg.lstsq(system, np.append(2 * true_3[face], 1.0), rcond=None)[0][:size]
            value = float(weight @ gram_33[np.ix_(face, face)] @ weight - 2 * weight @ true_3[face])
            if (weight >= 0).all() and value < least - 1e-15:
                best, least = np.zeros(3), value
                best[face] = weight
    return best


class _Mixture:
    """The loss -mean ln(w . p_n) - s ln w_2 + (1 + s) sum w over w >= 0, with s = shrinkage / N.

    Its minimum has sum w = 1 by itself, so no constraint is needed.
    """

    def __init__(self, true_N3: Array, shrinkage: float) -> None:
        self._true_N3, self._pull_3 = true_N3, np.array([0.0, shrinkage / len(true_N3), 0.0])
        self._hessian_33 = np.eye(3)

    def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
        chance_N = np.maximum(self._true_N3 @ theta_P, SMALLEST_PROBABILITY)
        share_N3 = self._true_N3 / chance_N[:, None]
        # 1e-9 on the diagonal: too few or too similar rows do not give full rank
        self._hessian_33 = share_N3.T @ share_N3 / len(chance_N) + np.diag(1e-9 + self._pull_3 / theta_P**2)
        total = 1 + self._pull_3.sum()
        loss = total * theta_P.sum() - np.log(chance_N).mean() - self._pull_3 @ np.log(theta_P)
        return float(loss), total - share_N3.mean(axis=0) - self._pull_3 / theta_P

    def hessian_times(self, direction_P: Array) -> Array:
        return self._hessian_33 @ direction_P

    def hessian_diagonal(self) -> Array:
        return self._hessian_33.diagonal()
