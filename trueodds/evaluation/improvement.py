"""Possible and actual gains of calibration: the refinement NLL, and the improvement by a calibrator."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.calibrators.temperature import Temperature
from trueodds.sums.inputs import Array, check_labels, softmax
from trueodds.sums.losses import brier_of, nll_of
from trueodds.sums.sums import CalibrationSums


@dataclass(frozen=True)
class Improvement:
    """Decrease of a mean score (above 0 is better), and confidence limits of its expectation."""

    value: float
    lower: float
    upper: float


def refinement_nll(logits_NC: npt.NDArray[np.floating], labels_N: npt.ArrayLike) -> float:
    """Compute the refinement NLL: mean -ln softmax(z / T)_y in nats, with `Temperature` fitted on the same rows.

    It estimates the refinement error, which calibration cannot lower. Only one number is fitted, so the estimate is
    only slightly optimistic.

    References:
        Berta et al. 2025, Rethinking early stopping: refine, then calibrate.

    Examples:
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
    """Compute the post-hoc improvement (PHI) of `nll` (nats) and `brier` (in [0, 2]).

    It is the mean over rows of the score before a calibrator minus the score after it. Proper scores count both what a
    calibrator corrects and what it makes worse. The difference is that of CalArena's public code, not divided by
    anything. The interval is Student's, from the differences row by row. If it contains 0, the improvement is not
    significant.

    References:
        Berta et al. 2026, CalArena, arXiv 2605.30188.
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
    half = float(scipy.special.stdtrit(n - 1, (1 + level) / 2) * differences_N.std(ddof=1)) / math.sqrt(n)
    return Improvement(mean, mean - half, mean + half)
