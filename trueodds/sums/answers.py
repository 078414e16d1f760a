"""All answers of a model beside those of them that have labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from trueodds.sums.bins import CELLS
from trueodds.sums.sums import CalibrationSums


@dataclass(frozen=True, eq=False)
class AnswerSums:
    """The number of answers per confidence cell and, for the labelled ones, their calibration sums.

    Sums by class or by tag may be kept on fewer cells. Of 60, each lies here in the one of its 50 cells that holds its
    mean confidence, so binnings of a divisor of 60 (10, 12, 15, 20, 30, 60) are exact and all metrics apply.
    """

    answers_C: npt.NDArray[np.int64]
    labelled: CalibrationSums

    @classmethod
    def zero(cls) -> Self:
        """No answers."""
        return cls(np.zeros(CELLS, np.int64), CalibrationSums.zero())

    @property
    def answers(self) -> int:
        """Number of answers."""
        return int(self.answers_C.sum())
