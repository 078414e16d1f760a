"""Structured vector and matrix scaling: temperature scaling first, then a ridge penalty towards it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from trueodds.calibrators.affine.maps import Matrix, Vector, scale_logits
from trueodds.calibrators.base import Labels, Logits
from trueodds.calibrators.checks import Number, OptionCheck
from trueodds.calibrators.fitting.multinomial import Multinomial
from trueodds.calibrators.temperature import SHRINKAGE

RIDGE = Number(1e-6, 1e6)


@dataclass(frozen=True, eq=False)
class StructuredVector(Vector):
    """Structured vector scaling (SVS), p = softmax((I + diag(v)) z~ / T + b).

    T is the fit of `Temperature` under the same `shrinkage`. Then the fit minimises
    `NLL + C/N (intercept |b|^2 + diagonal |v|^2)` over v and b, to a gradient of 1e-9. `weight_C` is (1 + v) / T. The
    penalty regularises the parameters of a class without rows, so such a class is allowed. Options of `fit`:

    - diagonal: Strength of the penalty on v (1).
    - intercept: Strength of the penalty on b (1).
    - shrinkage: Number of wrong pseudo-rows in the prior of T (2). 0: the T of least NLL, as in the paper.

    From the paper's second version and its package probmetrics 1.3 come the ridge, the strengths lambda C / N with
    lambda = 1, and the global factor that the temperature fixes. One step of the package is left out: it mixes 1/(N+1)
    of the uniform distribution into the tempered probabilities and uses their logarithms. Here the features are centred
    logits, so that the map is affine in z and can be folded into a net.

    References:
        Berta, Holzmueller, Jordan and Bach, Structured matrix scaling for multi-class calibration, AISTATS 2026,
        arXiv 2511.03685.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "structured_vector")([[2, 0]]).round(3)
        array([[0.751, 0.249]])
    """

    name: ClassVar[str] = "structured_vector"
    free_parameters = 0  # the penalty regularises all
    checks: ClassVar[Mapping[str, OptionCheck]] = {"diagonal": RIDGE, "intercept": RIDGE, "shrinkage": Number(0.0, 1e6)}

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
        scale, x_NC, _ = scale_logits(logits_NC, labels_N, shrinkage)
        weight_C, bias_C = Multinomial(x_NC, labels_N, "diagonal", penalty_P).solve(-np.inf, np.inf, cls.name)
        return cls(weight_C / scale, bias_C)


@dataclass(frozen=True, eq=False)
class StructuredMatrix(Matrix):
    """Structured matrix scaling (SMS), p = softmax((I + diag(v) + M) z~ / T + b), where M has a zero diagonal.

    The penalty is `C/N (intercept |b|^2 + diagonal |v|^2) + C (C-1)/N off_diagonal |M|^2`. `weight_CC` is the whole
    matrix, divided by T. Options of `fit` are those of `StructuredVector` and

    - off_diagonal: Strength of the penalty on M (1).

    References:
        Berta et al. 2026 (see `StructuredVector`).

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "structured_matrix")([[2, 0]]).round(3)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "structured_matrix"
    free_parameters = 0  # the penalty regularises all
    checks: ClassVar[Mapping[str, OptionCheck]] = {
        "diagonal": RIDGE,
        "off_diagonal": RIDGE,
        "intercept": RIDGE,
        "shrinkage": Number(0.0, 1e6),
    }

    @classmethod
    def fit(  # type: ignore[override]  # every calibrator has keyword options of its own
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
        rows, classes = logits_NC.shape
        matrix_CC = np.full((classes, classes), off_diagonal * classes * (classes - 1) / rows)
        np.fill_diagonal(matrix_CC, diagonal * classes / rows)
        penalty_P = np.concatenate([matrix_CC.ravel(), np.full(classes, intercept * classes / rows)])
        scale, x_NC, _ = scale_logits(logits_NC, labels_N, shrinkage)
        weights, bias_C = Multinomial(x_NC, labels_N, "full", penalty_P).solve(-np.inf, np.inf, cls.name)
        return cls(weights.reshape(classes, classes) / scale, bias_C)
