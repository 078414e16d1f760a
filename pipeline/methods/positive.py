"""Functions that make the output of Gamma-Net positive. torch is imported where one is applied."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_RANGE = 1e-6  # of minmax, for rows that are all equal


def _softplus(raw_N: Tensor) -> Tensor:
    from torch.nn import functional as F

    return F.softplus(raw_N)


POSITIVE: dict[str, tuple[Callable[[Tensor], Tensor], float | None]] = {
    "abs": (lambda raw_N: raw_N.abs(), 1.0),
    "relu": (lambda raw_N: raw_N.relu(), 1.0),
    "softplus": (_softplus, math.log(math.e - 1)),
    "sigmoid": (lambda raw_N: 2 * raw_N.sigmoid(), 0.0),
    "minmax": (lambda raw_N: 2 * (raw_N - raw_N.min()) / (raw_N.max() - raw_N.min()).clamp_min(SMALLEST_RANGE), None),
}
"""Name -> (function that makes the output positive, input at which it is 1). None: it has no such input."""
