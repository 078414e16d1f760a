"""Bounded scores of a version's answers, and how far those of two versions can lie apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from trueodds.calibrators import Calibrator, Identity, Temperature
from trueodds.sums.inputs import Array
from trueodds.sums.losses import brier_of

SMOOTHING = 0.001
"""e: the log score is that of (1 - e) p + e / K, so that one answer cannot decide everything, and zeros are not
rewarded as they would be by a floor."""
BLOCK_VALUES = 4_000_000
GRID = 20_001
"""Points between log odds of -60 and 60."""


def scores(
    calibrator: Calibrator,
    logits_NC: npt.NDArray[np.floating],
    labels_N: npt.NDArray[np.integer],
    smoothing: float = SMOOTHING,
) -> tuple[Array, Array]:
    """ln((1 - e) p_y + e / K) of each row in nats, and the Brier score sum_k (p_k - [k = y])^2 of p itself."""
    rows, classes = logits_NC.shape
    log_N, brier_N = np.empty(rows), np.empty(rows)
    step = max(BLOCK_VALUES // max(classes, 1), 1)
    for first in range(0, rows, step):
        part = slice(first, first + step)
        p_NC = calibrator(logits_NC[part])
        true_N = p_NC[np.arange(len(p_NC)), labels_N[part]]
        log_N[part] = np.log((1 - smoothing) * true_N + smoothing / classes)
        brier_N[part] = brier_of(true_N, (p_NC**2).sum(axis=1))
    return log_N, brier_N


def gain_limits(
    served: Calibrator, candidate: Calibrator, classes: int, smoothing: float = SMOOTHING, *, same_logits: bool = False
) -> tuple[float, float]:
    """Smallest and largest possible gain ln((1 - e) q_y + e/K) - ln((1 - e) p_y + e/K), whatever the logits are.

    For any two versions they are -B and B, B = ln(1 + K (1 - e) / e): from probability 0 to 1. For two temperatures T
    and U of the same logits, q_k = p_k^b / sum_j p_j^b with b = T / U. The sum over j != k of p_j^b lies between
    (1 - p_k)^b and (K - 1)^(1 - b) (1 - p_k)^b. So q_k lies between two functions of p_k alone, and the gain's limits
    are their extremes over p_k, found on a grid of its log odds. The gain's slope in them is at most 1 + b, and the
    limits are widened by that times half a step. Narrow limits find small gains with far fewer labels.
    """
    widest = float(np.log1p(classes * (1 - smoothing) / smoothing))
    served_T, candidate_T = _temperature(served), _temperature(candidate)
    if not same_logits or served_T is None or candidate_T is None or classes < 2:
        return -widest, widest
    odds_G, step = np.linspace(-60.0, 60.0, GRID, retstep=True)  # beyond them a gain only falls back to 0
    b, many = served_T / candidate_T, np.log(classes - 1.0)
    ends_EG = b * odds_G - np.array([[0.0], [(1 - b) * many]])
    log_q_EG, log_p_G = (np.log((1 - smoothing) * expit(x) + smoothing / classes) for x in (ends_EG, odds_G))
    gain_EG, error = log_q_EG - log_p_G, float((1 + b) * step / 2)
    least, most = min(float(gain_EG.min()), 0.0) - error, max(float(gain_EG.max()), 0.0) + error
    return max(least, -widest), min(most, widest)


def _temperature(calibrator: Calibrator) -> float | None:
    if isinstance(calibrator, Identity):
        return 1.0
    return float(calibrator.temperature) if type(calibrator) is Temperature else None
