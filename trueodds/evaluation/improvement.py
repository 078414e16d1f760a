"""What calibration can give and what it gave: the NLL that is left to refinement, and a calibrator's improvement."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from trueodds.calibrators.temperature import Temperature
from trueodds.sums.inputs import Array, check_labels, softmax
from trueodds.sums.losses import brier_of, nll_of
from trueodds.sums.sums import CalibrationSums


@dataclass(frozen=True)
class Improvement:
    """By how much a mean score fell, above 0: better, and the limits of its expectation."""

    value: float
    lower: float
    upper: float


def refinement_nll(logits_NC: npt.NDArray[np.floating], labels_N: npt.ArrayLike) -> float:
    """Mean -ln softmax(z / T)_y in nats, T that of the calibrator `temperature` fitted on the same rows.

    An estimate of the refinement error, which calibration cannot lower (Berta et al. 2025, Rethinking Early Stopping:
    Refine, Then Calibrate). One number is fitted, so the rows' optimism about it is slight.

    >>> logits, labels = np.array([[4.0, 0.0]] * 30 + [[0.0, 4.0]] * 10), np.zeros(40, int)
    >>> round(refinement_nll(logits, labels), 2), round(refinement_nll(3 * logits, labels), 2)
    (0.57, 0.57)
    """
    labels = check_labels(labels_N, *logits_NC.shape)
    temperature = Temperature.fit(logits_NC, labels).temperature
    sums = CalibrationSums.from_probabilities(softmax(logits_NC.astype(np.float64) / temperature), labels)
    return sums.total("nll") / sums.n


def post_hoc_improvement(
    before_NC: Array, after_NC: Array, labels_N: npt.ArrayLike, *, level: float = 0.95
) -> dict[str, Improvement]:
    """PHI of `nll` (nats) and `brier` (in [0, 2]): mean over rows of the score before less that after a calibrator.

    Proper scores count what a calibrator mends and what it spoils (Berta et al. 2026, CalArena, arXiv 2605.30188; the
    difference is the one of its public code, not divided by anything). The interval is Student's of the differences,
    row by row; 0 in it: what was measured may be chance.
    """
    labels = check_labels(labels_N, *before_NC.shape)
    scores = [_scores(p_NC, labels) for p_NC in (before_NC, after_NC)]
    return {name: _mean(scores[0][name] - scores[1][name], level) for name in scores[0]}


def _scores(p_NC: Array, labels_N: npt.NDArray[np.integer]) -> dict[str, Array]:
    true_N = p_NC[np.arange(len(p_NC)), labels_N]
    return {"nll": nll_of(true_N), "brier": brier_of(true_N, (p_NC**2).sum(axis=1))}


def _mean(differences_N: Array, level: float) -> Improvement:
    n, mean = len(differences_N), float(differences_N.mean())
    if n < 2:
        return Improvement(mean, -math.inf, math.inf)
    half = float(stdtrit(n - 1, (1 + level) / 2) * differences_N.std(ddof=1)) / math.sqrt(n)
    return Improvement(mean, mean - half, mean + half)
