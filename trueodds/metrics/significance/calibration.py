"""Test of the null hypothesis that a model is calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from trueodds.metrics.ranked import whole_bins
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.processes.choices import Binning
from trueodds.sums.bins import check_bins
from trueodds.sums.inputs import Array

Pattern = Literal["shift", "smooth", "jagged", "impossible"]

WAVES = 16
EXACT_BELOW = 150.0  # bound of sum c(1-c), the expected squared gap; from 30 on normal draws are within 10%
EXACT_DRAWS, NORMAL_DRAWS = 1999, 19_999
SHRINK = 0.5  # variance added to each bin, so that one error where .01 were expected does not decide alone


@dataclass(frozen=True)
class CalibrationTest:
    """Result of `calibration_test`: the p-value, and the kind of error that contradicts the null most.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> metrics.calibration_test(sums).reading
        'The gaps are more than chance (p = 0.0005).'
    """

    p_value: float
    statistic: float
    pattern: Pattern
    """Kind of error: "shift", "smooth", "jagged" or "impossible".

    shift: the gap has one sign everywhere. smooth: a few waves along the confidences. jagged: it differs from bin to
    bin. impossible: an answer with a confidence of exactly 0 or 1 was wrong.
    """

    @property
    def reading(self) -> str:
        """The result as a sentence."""
        if self.p_value >= 0.05:
            return f"The gaps are no larger than chance makes them (p = {self.p_value:.2g})."
        if self.pattern == "impossible":
            return "An answer with a confidence of 0 or 1 was wrong, so the model is not calibrated."
        return f"The gaps are more than chance (p = {self.p_value:.2g})."


def calibration_test(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> CalibrationTest:
    """Test the null that every confidence is the probability of being right: a ~ Bernoulli(c), independent.

    This combines Neyman's smooth test, whose number of components the data choose, with a chi-square over bins. Let t
    run from 0 to 1 along the confidences in proportion to their variance c(1-c), with V = sum c(1-c). Let phi_1 = 1 and
    phi_j = sqrt(2) cos((j-1) pi t) be waves, averaged over each cell. Then

        Z_j = sum (a - c) phi_j(t) / sqrt(V),    S_m = sum_{j<=m} (Z_j^2 - 1) / sqrt(2 m),   m = 1..16
        S_bins = sum_b ((sum_b (a-c))^2 - V_b) / (V_b + 1/2) / sqrt(2 sum_b (V_b / (V_b + 1/2))^2)

    The statistic is the largest of these 17. S_1 detects a gap of one sign as well as a test designed for it. S_bins
    detects an error that alternates from bin to bin.

    The p-value comes from fixed draws of the null with the same confidences. If V < 150, these are binomial labels per
    cell, which is exact at any n and for rare errors. Otherwise they are normal components with their exact covariance.
    The number of draws bounds the p-value from below, by 1/2,000 and 1/20,000. A wrong answer with c = 1 refutes the
    null, so p = 0.

    Measured (benchmarks/evidence/significance.py): the false alarm rate at a nominal 5% is .021 to .062 in 16 settings
    with 50 to 50,000 rows, some with rare errors. Mean power in 40 settings is .56; a chi-square over the bins has .53
    (with false alarm rates up to .08) and the plug-in ECE has .50.

    The test is valid for one look at a fixed number of rows. For repeated looks use `EProcess` or `gap_sequence`.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The p-value, the statistic and the pattern.

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or `ece` does not accept the bins.

    References:
        Fan 1996, Test of significance based on wavelet thresholding and Neyman's truncation.

    Examples:
        >>> sums = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 25, [True, True, False, False] * 25)
        >>> metrics.calibration_test(sums).p_value < 0.001
        True
    """
    sums = as_sums(predictions, labels_N, classes)
    bins = check_bins(bins, binning)
    count_M, confidence_M, correct_M, edge_M = sums.groups()
    bin_M = np.searchsorted(whole_bins(sums, bins, binning).hi_B, edge_M)
    mean_M = np.clip(confidence_M / count_M, 0.0, 1.0)
    variance_M = count_M * mean_M * (1 - mean_M)
    gap_M = correct_M - confidence_M
    possible = variance_M > 0
    if (np.abs(gap_M[~possible]) > 0.5).any():  # a whole label; smaller gaps are rounding errors of subtracted sums
        return CalibrationTest(0.0, np.inf, "impossible")
    if not possible.any():
        return CalibrationTest(1.0, 0.0, "shift")
    count_M, mean_M, variance_M, gap_M = (v[possible] for v in (count_M, mean_M, variance_M, gap_M))
    load_MJ = _loadings(variance_M, bin_M[possible])
    bin_variance_B = np.square(load_MJ[:, WAVES:]).T @ variance_M
    if variance_M.sum() < EXACT_BELOW:
        rng = np.random.default_rng(20260101)
        right_MR = rng.binomial(count_M.astype(np.int64)[:, None], mean_M[:, None], (len(mean_M), EXACT_DRAWS))
        drawn_RJ = right_MR.T @ load_MJ - (count_M * mean_M) @ load_MJ
    else:
        covariance_JJ = load_MJ.T @ (variance_M[:, None] * load_MJ)
        value_J, vector_JJ = np.linalg.eigh(covariance_JJ)  # singular: sums over bins and waves share the shift
        # The symmetric root is unique. Eigenvectors are not where eigenvalues agree, and the p-value would depend on
        # them.
        root_JJ = (vector_JJ * np.sqrt(np.maximum(value_J, 0.0))) @ vector_JJ.T
        drawn_RJ = _normals(len(value_J)) @ root_JJ
    null_R = _scores(drawn_RJ, bin_variance_B).max(axis=1)
    score_K = _scores((gap_M @ load_MJ)[None], bin_variance_B)[0]
    observed, best = float(score_K.max()), int(score_K.argmax())
    p_value = (1 + int((null_R >= observed - 1e-9).sum())) / (1 + len(null_R))
    return CalibrationTest(p_value, observed, "shift" if best == 0 else "smooth" if best < WAVES else "jagged")


def _loadings(variance_M: Array, bin_M: npt.NDArray[np.intp]) -> Array:
    """Return the weights with which a label's (a - c) enters each wave (scaled by 1 / sqrt V) and its bin."""
    share_M = variance_M / variance_M.sum()
    middle_M, j = np.cumsum(share_M) - share_M / 2, np.arange(1, WAVES)
    # mean of cos(j pi t) over the interval of t that a cell covers
    wave_MJ = np.sqrt(2) * np.cos(np.pi * j * middle_M[:, None]) * np.sinc(j * share_M[:, None] / 2)
    waves = np.concatenate([np.ones((len(share_M), 1)), wave_MJ], axis=1) / np.sqrt(variance_M.sum())
    occupied = np.unique(bin_M)
    return np.concatenate([waves, (bin_M[:, None] == occupied).astype(np.float64)], axis=1)


def _scores(component_RJ: Array, bin_variance_B: Array) -> Array:
    """Compute S_1 .. S_16 and S_bins for each row of components."""
    square_RJ = np.square(component_RJ)
    m = np.arange(1, WAVES + 1)
    smooth_RW = np.cumsum(square_RJ[:, :WAVES] - 1, axis=1) / np.sqrt(2 * m)
    weight_B = 1 / (bin_variance_B + SHRINK)
    spread = np.sqrt(2 * np.square(bin_variance_B * weight_B).sum())
    jagged_R = (square_RJ[:, WAVES:] - bin_variance_B) @ weight_B / spread
    return np.concatenate([smooth_RW, jagged_R[:, None]], axis=1)


@lru_cache(maxsize=8)
def _normals(columns: int) -> Array:
    drawn: Array = np.random.default_rng(20260101).standard_normal((NORMAL_DRAWS, columns))
    drawn.flags.writeable = False  # cached, so shared
    return drawn
