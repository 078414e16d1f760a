"""Labelled answers one by one, for what sums do not hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds.sums.inputs import Array


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """L labelled answers in the order in which their labels arrived."""

    confidence_L: Array
    correct_L: npt.NDArray[np.bool_]
    propensity_L: Array
    """Each answer's chance of getting a label; NaN where it is not known."""
    delay_ms_L: npt.NDArray[np.int64]
    """From the answer to its first label."""

    def __len__(self) -> int:
        return len(self.confidence_L)
