"""Dirichlet calibration (Kull et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from trueodds.calibrators.affine.maps import UNSEEN, Matrix, odir
from trueodds.calibrators.base import Labels, Logits, check_classes_have_rows, softmax_over
from trueodds.calibrators.fitting.multinomial import Multinomial, check_matrix_size
from trueodds.calibrators.fitting.objectives import Rows
from trueodds.calibrators.temperature import solve_nll
from trueodds.sums.inputs import Array
from trueodds.sums.losses import SMALLEST_PROBABILITY

LEAST = float(np.log(SMALLEST_PROBABILITY))


@dataclass(frozen=True, eq=False)
class Dirichlet(Matrix):
    """Dirichlet calibration, p = softmax(W ln q + b) with the uncalibrated softmax q (the linear parametrisation).

    The penalty is that of `Matrix`, on W itself: NLL + off_diagonal / (C (C-1)) sum_{j != k} W_jk^2 + intercept / C sum
    b_k^2, with the same options of `fit` and defaults. ln q is at least -708.4 (q = 2.2e-308). The map is not affine in
    the logits, because the log-normaliser of q enters through W's row sums.

    References:
        Kull et al. 2019, Beyond temperature scaling, eq. 2.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "dirichlet")([[2, 0]]).round(3)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "dirichlet"

    @classmethod
    def fit(
        cls,
        logits_NC: Logits,
        labels_N: Labels,
        *,
        off_diagonal: float | None = None,
        intercept: float | None = None,
    ) -> Self:
        cls.check_values(off_diagonal=off_diagonal, intercept=intercept)
        check_matrix_size(logits_NC.shape[1], cls.name)
        classes = logits_NC.shape[1]
        check_classes_have_rows(labels_N, classes, cls.name, UNSEEN)
        penalty_P = odir(len(logits_NC), classes, off_diagonal, intercept)
        problem = Multinomial(log_softmax(logits_NC.astype(np.float64, copy=False)), labels_N, "full", penalty_P)
        problem.start_P[:-classes] /= solve_nll(Rows(logits_NC, labels_N))[0]
        weights, bias_C = problem.solve(-np.inf, np.inf, cls.name)
        return cls(weights.reshape(classes, classes), bias_C)

    def _apply(self, logits_NC: Array) -> Array:
        return softmax_over(log_softmax(logits_NC) @ self._weights().T + self._bias_C)

    def affine(self, classes: int) -> None:
        return None


def log_softmax(logits_NC: Array) -> Array:
    """Compute ln of the softmax, at least -708.4."""
    shifted_NC: Array = logits_NC - logits_NC.max(axis=1, keepdims=True)
    shifted_NC -= np.log(np.exp(shifted_NC).sum(axis=1, keepdims=True))
    np.maximum(shifted_NC, LEAST, out=shifted_NC)
    return shifted_NC
