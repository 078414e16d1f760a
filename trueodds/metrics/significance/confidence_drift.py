"""Drift of the confidences: a test without labels. It says nothing about whether the confidences are right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trueodds.sums.inputs import Array, as_numbers

SIGNIFICANT, LARGE = 0.01, 0.05
DRAWS = 1_999


@dataclass(frozen=True)
class ConfidenceDrift:
    """Comparison of two distributions of confidences.

    Examples:
        >>> drift = metrics.confidence_drift([10, 20, 70], [150, 250, 600])
        >>> round(drift.p_value, 3)
        0.052
    """

    distance: float
    """Largest difference of the two distribution functions at the cells' edges, in [0, 1]."""
    p_value: float

    @property
    def warning(self) -> bool:
        """Whether the difference is significant and large. With many answers, any difference is significant."""
        return self.p_value < SIGNIFICANT and self.distance >= LARGE


def confidence_drift(counts_K: npt.ArrayLike, reference_K: npt.ArrayLike) -> ConfidenceDrift:
    """Compare two counts of confidences with a two-sample Kolmogorov-Smirnov test on the same K cells.

        D = max_k |F(k) - G(k)|

    If both samples come from one distribution H, sqrt(n m / (n + m)) (F - G) is a Brownian bridge at the points H(k).
    The p-value comes from 1,999 fixed draws of the bridge at the pooled shares, so it is at least 1 / 2,000. The
    textbook distribution assumes confidences without ties. If one cell holds half of all answers, it would warn too
    seldom.

    A warning needs p < .01 and D >= .05, that is, one answer in twenty has crossed some confidence.

    Args:
        counts_K: Number of answers in each cell.
        reference_K: Number of answers in each cell of the reference.

    Returns:
        The distance and its p-value.

    Raises:
        ValueError: The counts are not whole numbers from 0 on, have different lengths, or are all 0.

    Examples:
        >>> round(metrics.confidence_drift([10, 20, 70], [150, 250, 600]).distance, 3)
        0.1
    """
    one_K, other_K = (_counts(v, name) for v, name in ((counts_K, "counts"), (reference_K, "reference")))
    if one_K.shape != other_K.shape:
        raise ValueError(f"counts {one_K.shape} and reference {other_K.shape} must be of one length")
    n, m = one_K.sum(), other_K.sum()
    distance = float(np.abs(np.cumsum(one_K) / n - np.cumsum(other_K) / m).max())
    share_K = (one_K + other_K) / (n + m)
    step_K = np.sqrt(share_K[share_K > 0])
    walk_RK = np.cumsum(_normals(len(step_K)) * step_K, axis=1)
    bridge_RK = walk_RK[:, :-1] - walk_RK[:, -1:] * np.cumsum(step_K**2)[:-1]
    largest_R = np.abs(bridge_RK).max(axis=1, initial=0.0)
    scaled = distance * float(np.sqrt(n * m / (n + m)))
    return ConfidenceDrift(distance, float((1 + (largest_R >= scaled - 1e-12).sum()) / (1 + DRAWS)))


def _counts(values: npt.ArrayLike, name: str) -> Array:
    counts_K = as_numbers(values, name).astype(np.float64)
    if counts_K.ndim != 1 or not ((counts_K >= 0) & (np.floor(counts_K) == counts_K) & np.isfinite(counts_K)).all():
        raise ValueError(f"{name} must be a vector of whole numbers from 0 on")
    if not counts_K.sum():
        raise ValueError(f"{name} holds no rows; nothing can be compared")
    return counts_K


@lru_cache(maxsize=8)
def _normals(cells: int) -> Array:
    drawn: Array = np.random.default_rng(20260101).standard_normal((DRAWS, cells))
    drawn.flags.writeable = False  # cached, so shared
    return drawn
