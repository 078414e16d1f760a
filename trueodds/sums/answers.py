"""Counts of all answers of a model, with the calibration sums of the labelled ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from trueodds.sums.bins import CELLS
from trueodds.sums.sums import CalibrationSums


@dataclass(frozen=True, eq=False)
class AnswerSums:
    """Number of answers per confidence cell, and the calibration sums of the labelled ones.

    Sums by class or by tag may be stored on fewer cells. With 60 cells, the content of each is assigned to the one of
    its 50 small cells that contains its mean confidence. Then binnings of a divisor of 60 (10, 12, 15, 20, 30, 60) are
    exact, and all metrics apply.
    """

    answers_C: npt.NDArray[np.int64]
    labelled: CalibrationSums

    @classmethod
    def zero(cls) -> Self:
        """Return sums without answers."""
        return cls(np.zeros(CELLS, np.int64), CalibrationSums.zero())

    @property
    def answers(self) -> int:
        """Number of answers."""
        return int(self.answers_C.sum())
