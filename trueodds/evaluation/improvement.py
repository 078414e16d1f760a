"""Possible and actual gains of calibration: the refinement NLL, and the improvement by a calibrator."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.temperature import Temperature
from trueodds.evaluation.paired_differences import BRIER, NLL, RowScores, score_difference
from trueodds.sums.inputs import Array, check_labels, softmax
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
    anything. The interval is that of `score_difference`, from the differences row by row: Student's, and where few rows
    carry the variance also the wider one of Gaffke. If it contains 0, the improvement is not significant. If no row
    differs, both limits are 0.

    References:
        Berta et al. 2026, CalArena, arXiv 2605.30188.
    """
    labels = check_labels(labels_N, *before_NC.shape)
    before, after = (RowScores.of_probabilities(p_NC, labels) for p_NC in (before_NC, after_NC))
    return {measure: _improvement(before, after, measure, level) for measure in (NLL, BRIER)}


def _improvement(before: RowScores, after: RowScores, measure: str, level: float) -> Improvement:
    difference_N = before.nll_N - after.nll_N if measure == NLL else before.brier_N - after.brier_N
    if not difference_N.any():
        return Improvement(0.0, 0.0, 0.0)
    if len(difference_N) < 2:
        return Improvement(float(difference_N[0]), -math.inf, math.inf)
    found = score_difference([(before, after)], measure, level)
    assert found.lower is not None and found.upper is not None
    return Improvement(found.mean, found.lower, found.upper)
