"""No calibration: the softmax of the logits as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from pipeline.calibrators.base import Calibrator
from pipeline.metrics.inputs import Array, softmax


@dataclass(frozen=True)
class Identity(Calibrator):
    """p = softmax(z)."""

    name: ClassVar[str] = "identity"
    keeps_argmax: ClassVar[bool] = True

    @classmethod
    def fit(cls, logits_NC: Array, labels_N: npt.NDArray[np.intp]) -> Self:
        return cls()

    def _apply(self, logits_NC: Array) -> Array:
        return softmax(logits_NC)
