"""No calibration: the softmax of the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from trueodds.calibrators.base import Calibrator, Labels, Logits
from trueodds.sums.inputs import Array, softmax


@dataclass(frozen=True, eq=False)
class Identity(Calibrator):
    """The uncalibrated softmax, p = softmax(z).

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "identity")([[2, 0]]).round(3)
        array([[0.881, 0.119]])
    """

    name: ClassVar[str] = "identity"
    is_regularised: ClassVar[bool] = True
    keeps_argmax = True

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        return cls()

    def _apply(self, logits_NC: Array) -> Array:
        return softmax(logits_NC)

    def affine(self, classes: int) -> tuple[Array, Array]:
        return np.eye(classes), np.zeros(classes)

    def _row_warnings(self, logits_NC: Logits, labels_N: Labels) -> tuple[str, ...]:
        return ()
