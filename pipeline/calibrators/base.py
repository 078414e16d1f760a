"""What every calibrator is: a frozen object whose fields are the fitted numbers, callable on logits, JSON both ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from pipeline.metrics.inputs import Array, check_labels, check_matrix


@dataclass(frozen=True)
class Calibrator(ABC):
    """logits_NC -> probabilities_NC, in float64 whatever the input's dtype."""

    name: ClassVar[str]
    keeps_argmax: ClassVar[bool]
    """Whether the predicted class can never change (logits closer than 1e-16 may become a tie)."""

    @classmethod
    @abstractmethod
    def fit(cls, logits_NC: Array, labels_N: npt.NDArray[np.intp]) -> Self:
        """Fit on validation rows, already checked and in float64 (see `pipeline.calibrators.fit`)."""

    def __call__(self, logits_NC: npt.ArrayLike) -> Array:
        """Calibrated probabilities.

        Raises:
            ValueError: logits that are not a finite N x C array.
        """
        return self._apply(check_matrix(logits_NC, "logits").astype(np.float64, copy=False))

    @abstractmethod
    def _apply(self, logits_NC: Array) -> Array:
        """Probabilities of finite float64 logits."""

    def to_json(self) -> dict[str, Any]:
        """`{"calibrator": name, ...fitted numbers}`; `pipeline.calibrators.from_json` restores the object exactly."""
        return {"calibrator": self.name, **asdict(self)}

    def notes(self) -> list[str]:
        """Sentences a user must see about this fit (a bound that was hit, say); empty when there are none."""
        return []


def checked_fit_data(logits_NC: npt.ArrayLike, labels_N: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.intp]]:
    """Finite float64 logits and labels within their classes, or a ValueError that says which is wrong."""
    logits = check_matrix(logits_NC, "logits").astype(np.float64, copy=False)
    return logits, check_labels(labels_N, *logits.shape)
