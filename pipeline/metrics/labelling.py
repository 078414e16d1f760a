"""Warnings: signs that the labelled answers are not a fair choice of all answers, and what that could do.

A choice that depends on whether the answer was right, without a trace in confidence or delay, cannot be seen at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, erfc

from pipeline.metrics.bins import CELLS
from pipeline.metrics.inputs import Array, is_number
from pipeline.metrics.scores import as_sums
from pipeline.metrics.sums import CalibrationSums
from pipeline.metrics.weighted import answer_counts

SIGNIFICANT = 0.01
DRAWS = 4999
AT_FIRST, SETTLED = 999, 0.1
LARGE = 100.0
"""Expected labels of a bin, and answers without one, from which on the law of chi-square holds well enough."""


@dataclass(frozen=True)
class ChoiceOfLabels:
    """Are the labelled answers as confident as all answers?"""

    chi_square: float
    p_value: float

    @property
    def warning(self) -> bool:
        return self.p_value < SIGNIFICANT

    @property
    def reading(self) -> str:
        """In plain words."""
        if self.warning:
            return "The labelled answers are not as confident as all answers are; use the weighted figures."
        return "The labelled answers are as confident as a fair choice of all answers would be."


@dataclass(frozen=True)
class LabelDelay:
    """Do labels that come fast tell the same as labels that come slowly?"""

    difference: float
    """Mean of (right - confidence) of the fast labels minus that of the slow ones, at equal confidence."""
    z: float
    p_value: float

    @property
    def warning(self) -> bool:
        return self.p_value < SIGNIFICANT

    @property
    def reading(self) -> str:
        """In plain words."""
        if not self.warning:
            return "Labels that came fast and labels that came slowly tell the same."
        sooner = "wrong" if self.difference < 0 else "right"
        return f"Labels of {sooner} answers come sooner, so what is known today is not yet the whole truth."


@dataclass(frozen=True)
class Sensitivity:
    """What would be true if a wrong answer were `ratio` times as likely to be labelled as a right one."""

    ratio: float
    ece: float
    accuracy: float
    signed_gap: float

    @property
    def reading(self) -> str:
        """In plain words."""
        if self.ratio == 1:
            return f"If labels do not depend on whether the answer was right, the ECE is {self.ece:.3f}."
        return (
            f"If wrong answers are {self.ratio:g} times as likely to be labelled, "
            f"accuracy is {self.accuracy:.1%} and the ECE {self.ece:.3f}."
        )


def choice_of_labels(labelled: CalibrationSums, answers_C: npt.ArrayLike, *, bins: int = 15) -> ChoiceOfLabels:
    """Chi-square of the labelled answers' confidences against those of all answers, over bins.

    sum_b (n_b - n N_b / N)^2 / (n N_b / N), n_b labels and N_b answers per bin; `answers_C` counts all answers per
    cell, labelled ones included. Its p-value is by 4,999 draws of n answers without replacement, so at least 1 / 5,000;
    999 where these put it above .1. Where every bin has 100 expected labels, and as many answers expected without, it
    is by the law of chi-square, (N - 1) / (N - n) being the correction for drawing without replacement. A warning at
    p < .01: 1% of the time by chance.

    Raises:
        ValueError: no labels, more labels than answers in a bin, counts that are not 3,000 whole numbers, bins that do
            not divide 3,000.
    """
    label_B = as_sums(labelled).bins(bins).count_B
    answer_B = answer_counts(answers_C).reshape(bins, -1).sum(axis=1)
    if (label_B > answer_B).any():
        b = int((label_B > answer_B).argmax())
        raise ValueError(f"bin {b} has {label_B[b]:g} labels but {answer_B[b]:g} answers; answers must count them all")
    answer_B, label_B = answer_B[answer_B > 0], label_B[answer_B > 0]
    n = int(label_B.sum())
    expected_B = n * answer_B / answer_B.sum()

    def chi_square(found_B: npt.NDArray[np.number]) -> Array:
        value: Array = ((found_B - expected_B) ** 2 / expected_B).sum(axis=-1)
        return value

    observed, total = float(chi_square(label_B)), float(answer_B.sum())
    if len(answer_B) > 1 and min(expected_B.min(), (answer_B - expected_B).min()) >= LARGE:
        return ChoiceOfLabels(observed, float(chdtrc(len(answer_B) - 1, observed * (total - 1) / (total - n))))
    # Tables of so few expected labels per bin are common (shape B: .2 in the first) that the asymptotic law fails.
    rng = np.random.default_rng(20260101)

    def as_large(draws: int) -> int:
        drawn = rng.multivariate_hypergeometric(answer_B.astype(np.int64), n, draws, method="marginals")
        return int((chi_square(drawn) >= observed * (1 - 1e-12)).sum())

    p_value = (1 + (found := as_large(AT_FIRST))) / (1 + AT_FIRST)
    if p_value <= SETTLED:
        p_value = (1 + found + as_large(DRAWS - AT_FIRST)) / (1 + DRAWS)
    return ChoiceOfLabels(observed, p_value)


def label_delay(fast: CalibrationSums, slow: CalibrationSums, *, bins: int = 15) -> LabelDelay:
    """Compare the faster half of the labels with the slower half, bin by bin.

    With g the mean of (a - c) in bin b and half f or s, and w_b = n_f n_s / (n_f + n_s):

        difference = sum w_b (g_f - g_s) / sum w_b,    z = sum w_b (g_f - g_s) / sqrt(sum w_b v_b)

    v_b, the variance of one label, is the larger of the mean of c(1-c) and of a(1-a), a being the accuracy of both
    halves together. A warning at |z| > 2.58. Measured on 5,000 labels of A, B, C (benchmarks/labelling.py): harmless
    delays warn in .5 to 1.3% of runs, calibrated or at T = 2.5 (with c(1-c) alone in 12% of A's and 20% of B's at
    T = 2.5); wrong answers told twice as fast in all, 1.2 times as fast in 38, 12 and 91% (calibrated).

    Raises:
        ValueError: no labels in one half, or no bin that has labels of both.
    """
    f, s = as_sums(fast).bins(bins), as_sums(slow).bins(bins)
    both = (f.count_B > 0) & (s.count_B > 0)
    if not both.any():
        raise ValueError("fast and slow labels share no bin of confidence, so nothing can be compared; use fewer bins")
    n_f, n_s = f.count_B[both], s.count_B[both]
    weight, total = n_f * n_s / (n_f + n_s), n_f + n_s
    accuracy = (f.correct_B + s.correct_B)[both] / total
    variance = np.maximum((f.variance_B + s.variance_B)[both] / total, accuracy * (1 - accuracy))
    sum_of_differences = float(weight @ (f.gap_B[both] / n_f - s.gap_B[both] / n_s))
    spread = float(np.sqrt(weight @ variance))
    z = sum_of_differences / spread if spread > 0 else 0.0
    return LabelDelay(sum_of_differences / float(weight.sum()), z, float(erfc(abs(z) / np.sqrt(2))))


def sensitivity(labelled: CalibrationSums, *, ratio: float = 2.0, bins: int = 15) -> Sensitivity:
    """The plug-in ECE if a wrong answer was `ratio` times as likely to be labelled as a right one of its confidence.

    Each wrong label then stands for 1 / ratio as many answers; show ratio 1 beside 2. Right and wrong labels of a cell
    are taken to have its mean confidence: exact to 1/3000 for ratios other than 1.

    Raises:
        ValueError: no labels, or a ratio that is not above 0 and finite.
    """
    if not (is_number(ratio) and 0 < ratio < np.inf):
        raise ValueError(f"ratio is {ratio!r}; allowed is any number above 0, such as 2")
    sums = as_sums(labelled)
    table = CalibrationSums.zero()
    count, confidence, correct = sums.cells[:3]
    standing = correct + (count - correct) / ratio
    share = np.divide(standing, count, out=np.zeros(CELLS), where=count > 0)
    table.cells[:3] = standing, share * confidence, correct
    weighed = table.bins(bins)
    accuracy, confident = float(weighed.correct_B.sum() / weighed.n), float(weighed.confidence_B.sum() / weighed.n)
    return Sensitivity(ratio, float(np.abs(weighed.gap_B).sum() / weighed.n), accuracy, accuracy - confident)
