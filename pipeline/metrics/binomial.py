"""The exact interval of a share: Clopper and Pearson 1934."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from pipeline.metrics.inputs import Array


def binomial_interval(right: npt.ArrayLike, count: npt.ArrayLike, *, level: float = 0.95) -> tuple[Array, Array]:
    """Limits of the success probability after `right` successes in `count` trials, elementwise; (0, 1) for no trials.

    With q = (1 - level) / 2 they are the quantiles BetaInv(q; k, n-k+1) and BetaInv(1-q; k+1, n-k): the coverage is
    at least `level` for every n.

    Raises:
        ValueError: successes outside 0..count, or a level outside (0, 1).
    """
    right_B, count_B = np.asarray(right, dtype=np.float64), np.asarray(count, dtype=np.float64)
    if not ((right_B >= 0) & (right_B <= count_B)).all():
        raise ValueError("right must lie between 0 and count in every entry")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; allowed is (0, 1), such as 0.95")
    q, wrong_B = (1 - level) / 2, count_B - right_B
    low_B = np.where(right_B > 0, betaincinv(np.maximum(right_B, 1), wrong_B + 1, q), 0.0)
    high_B = np.where(wrong_B > 0, betaincinv(right_B + 1, np.maximum(wrong_B, 1), 1 - q), 1.0)
    return low_B, high_B
