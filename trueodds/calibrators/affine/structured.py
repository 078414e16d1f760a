"""Structured vector and matrix scaling: temperature scaling first, then a ridge penalty towards it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.affine.maps import slope_notes
from trueodds.calibrators.base import Calibrator, Labels, LogAffine, Logits, frozen_array, softmax_over
from trueodds.calibrators.checks import Number, OptionCheck, check_number
from trueodds.calibrators.fitting.multinomial import Multinomial, check_matrix_size
from trueodds.calibrators.fitting.objectives import Rows
from trueodds.calibrators.temperature import SHRINKAGE, check_temperature, solve_nll
from trueodds.sums.inputs import Array

RIDGE = Number(1e-6, 1e6)
LEAST_UNIFORM = 1e-15
"""Least share of the uniform distribution. With 0, a probability of 0 would have no logarithm."""


@dataclass(frozen=True, eq=False)
class Structured(Calibrator):
    """Maps p = softmax(W x + b) of x = ln((1 - u) softmax(z / T) + u / C), where u is 1 / (N + 1) for a fit of N rows.

    The uniform part u bounds x, so that no row with a probability near 0 decides the fit.
    """

    keeps_argmax = False
    free_parameters = 0  # the penalty regularises all

    temperature: float
    """Temperature T of the first step."""
    uniform: float
    """Share u of the uniform distribution."""
    bias_C: npt.ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature, None)
        check_number("uniform", self.uniform, LEAST_UNIFORM, 1.0)
        object.__setattr__(self, "bias_C", frozen_array(self.bias_C, "bias_C", (None,)))

    @abstractmethod
    def _weights(self) -> Array:
        """Return W: its diagonal (C,) or the whole matrix (C, C)."""

    @property
    def classes(self) -> int:
        return len(np.asarray(self.bias_C))

    def _apply(self, logits_NC: Array) -> Array:
        x_NC, weights = features(logits_NC, self.temperature, self.uniform), self._weights()
        eta_NC = x_NC @ weights.T if weights.ndim == 2 else x_NC * weights
        eta_NC += np.asarray(self.bias_C)
        return softmax_over(eta_NC)

    def log_affine(self) -> LogAffine:
        weights = self._weights()
        matrix_CC = weights if weights.ndim == 2 else np.diag(weights)
        return LogAffine(self.temperature, self.uniform, matrix_CC, np.asarray(self.bias_C))


@dataclass(frozen=True, eq=False)
class StructuredVector(Structured):
    """Structured vector scaling (SVS), p = softmax((I + diag(v)) x + b), where x = ln q.

    q is the probability after temperature scaling, mixed with 1/(N+1) of the uniform distribution: q = (N softmax(z/T)
    + 1/C) / (N + 1). T is the fit of `Temperature` under the same `shrinkage`. Then the fit minimises `NLL + C/N
    (intercept |b|^2 + diagonal |v|^2)` over v and b, to a gradient of 1e-9. `weight_C` is 1 + v. The penalty
    regularises the parameters of a class without rows, so such a class is allowed. For two classes the map is that of
    `Beta`, with a penalty. Options of `fit`:

    - diagonal: Strength of the penalty on v (1).
    - intercept: Strength of the penalty on b (1).
    - shrinkage: Number of wrong pseudo-rows in the prior of T (2). 0: the T of least NLL, as in the paper.

    From the paper's second version and its package probmetrics 1.3 come the ridge, the strengths lambda C / N with
    lambda = 1, the global factor that the temperature fixes, and the mixture.

    References:
        Berta, Holzmueller, Jordan and Bach, Structured matrix scaling for multi-class calibration, AISTATS 2026,
        arXiv 2511.03685.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "structured_vector")([[2, 0]]).round(3)
        array([[0.751, 0.249]])
    """

    name: ClassVar[str] = "structured_vector"
    checks: ClassVar[Mapping[str, OptionCheck]] = {"diagonal": RIDGE, "intercept": RIDGE, "shrinkage": Number(0.0, 1e6)}

    weight_C: npt.ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "weight_C", frozen_array(self.weight_C, "weight_C", (self.classes,)))

    @classmethod
    def fit(
        cls,
        logits_NC: Logits,
        labels_N: Labels,
        *,
        diagonal: float = 1.0,
        intercept: float = 1.0,
        shrinkage: float = SHRINKAGE,
    ) -> Self:
        cls.check_values(diagonal=diagonal, intercept=intercept, shrinkage=shrinkage)
        rows, classes = logits_NC.shape
        penalty_P = np.repeat([diagonal * classes / rows, intercept * classes / rows], classes)
        temperature, uniform, x_NC = first_step(logits_NC, labels_N, shrinkage)
        weight_C, bias_C = Multinomial(x_NC, labels_N, "diagonal", penalty_P).solve(-np.inf, np.inf, cls.name)
        return cls(temperature, uniform, bias_C, weight_C)

    def _fit_warnings(self) -> list[str]:
        return slope_notes(self._weights(), None)

    def _weights(self) -> Array:
        return np.asarray(self.weight_C)


@dataclass(frozen=True, eq=False)
class StructuredMatrix(Structured):
    """Structured matrix scaling (SMS), p = softmax((I + diag(v) + M) x + b), where M has a zero diagonal.

    x is that of `StructuredVector`. The penalty is `C/N (intercept |b|^2 + diagonal |v|^2) + C (C-1)/N off_diagonal
    |M|^2`. `weight_CC` is the whole matrix. From 316 classes on, the fit stops after a Newton step that lowers the
    mean NLL by less than 1e-4 nats. Options of `fit` are those of `StructuredVector` and

    - off_diagonal: Strength of the penalty on M (1).

    References:
        Berta et al. 2026 (see `StructuredVector`).

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "structured_matrix")([[2, 0]]).round(3)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "structured_matrix"
    checks: ClassVar[Mapping[str, OptionCheck]] = {
        "diagonal": RIDGE,
        "off_diagonal": RIDGE,
        "intercept": RIDGE,
        "shrinkage": Number(0.0, 1e6),
    }

    weight_CC: npt.ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "weight_CC", frozen_array(self.weight_CC, "weight_CC", (self.classes, self.classes)))

    @classmethod
    def fit(
        cls,
        logits_NC: Logits,
        labels_N: Labels,
        *,
        diagonal: float = 1.0,
        off_diagonal: float = 1.0,
        intercept: float = 1.0,
        shrinkage: float = SHRINKAGE,
    ) -> Self:
        cls.check_values(diagonal=diagonal, off_diagonal=off_diagonal, intercept=intercept, shrinkage=shrinkage)
        check_matrix_size(logits_NC.shape[1], cls.name)
        rows, classes = logits_NC.shape
        matrix_CC = np.full((classes, classes), off_diagonal * classes * (classes - 1) / rows)
        np.fill_diagonal(matrix_CC, diagonal * classes / rows)
        penalty_P = np.concatenate([matrix_CC.ravel(), np.full(classes, intercept * classes / rows)])
        temperature, uniform, x_NC = first_step(logits_NC, labels_N, shrinkage)
        weights, bias_C = Multinomial(x_NC, labels_N, "full", penalty_P).solve(-np.inf, np.inf, cls.name)
        return cls(temperature, uniform, bias_C, weights.reshape(classes, classes))

    def _weights(self) -> Array:
        return np.asarray(self.weight_CC)


def first_step(logits_NC: Logits, labels_N: Labels, shrinkage: float) -> tuple[float, float, Array]:
    """Return T, u and the features x of the rows. T is the temperature of least NLL under this shrinkage."""
    temperature, uniform = solve_nll(Rows(logits_NC, labels_N), shrinkage)[0], 1 / (len(labels_N) + 1)
    return temperature, uniform, features(logits_NC.astype(np.float64, copy=False), temperature, uniform)


def features(logits_NC: Array, temperature: float, uniform: float) -> Array:
    """Compute x = ln((1 - u) softmax(z / T) + u / C)."""
    x_NC: Array = logits_NC - logits_NC.max(axis=1, keepdims=True)
    x_NC /= temperature
    x_NC = softmax_over(x_NC)
    x_NC *= 1 - uniform
    x_NC += uniform / x_NC.shape[1]
    return np.log(x_NC, out=x_NC)
