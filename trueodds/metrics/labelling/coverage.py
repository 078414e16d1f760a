"""Warnings that the labelled answers may not represent all answers, and the effect that this could have.

A selection that depends on whether the answer was right, but shows in neither confidence nor delay, cannot be detected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.labelling.strata import Strata, answer_counts
from trueodds.metrics.scores import as_sums
from trueodds.sums.bins import CELLS
from trueodds.sums.inputs import Array, is_number
from trueodds.sums.sums import CalibrationSums

SIGNIFICANT = 0.01
DRAWS = 4999
AT_FIRST, SETTLED = 999, 0.1
LARGE = 5.0
"""Smallest number of expected labels, and of answers without a label, in a stratum for the chi-square distribution."""
MOST_STRATA = 100


@dataclass(frozen=True)
class ChoiceOfLabels:
    """Comparison of the labelled answers' confidences with those of all answers.

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> labelled = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 100, [True, True, False, True] * 100)
        >>> metrics.choice_of_labels(labelled, answers.cells[0]).reading
        'The labelled answers are as confident as a random choice of all answers.'
    """

    chi_square: float
    p_value: float

    @property
    def warning(self) -> bool:
        return self.p_value < SIGNIFICANT

    @property
    def reading(self) -> str:
        """The result as a sentence."""
        if self.warning:
            return (
                "The labelled answers may not represent all answers: their confidences differ, significantly at the 1%"
                " level."
            )
        return "The labelled answers are as confident as a random choice of all answers."


@dataclass(frozen=True)
class LabelDelay:
    """Comparison of labels that arrive fast with labels that arrive slowly.

    Examples:
        >>> fast = metrics.CalibrationSums.from_top([0.9] * 200, [True] * 140 + [False] * 60)
        >>> slow = metrics.CalibrationSums.from_top([0.9] * 200, [True] * 180 + [False] * 20)
        >>> round(metrics.label_delay(fast, slow).difference, 2)
        -0.2
    """

    difference: float
    """Mean of (right - confidence) of the fast labels minus that of the slow ones, at equal confidence."""
    z: float
    p_value: float

    @property
    def warning(self) -> bool:
        return self.p_value < SIGNIFICANT

    @property
    def reading(self) -> str:
        """The result as a sentence."""
        if not self.warning:
            return "Fast and slow labels show no significant difference."
        sooner = "wrong" if self.difference < 0 else "right"
        return (
            f"The labels so far may not represent all labels: labels of {sooner} answers arrive sooner,"
            " significantly at the 1% level."
        )


@dataclass(frozen=True)
class Sensitivity:
    """Estimates for all answers, assuming that a wrong one is `ratio` times as likely to be labelled as a right one.

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> labelled = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 100, [True, True, False, True] * 100)
        >>> even = metrics.sensitivity(labelled, answers.cells[0])
        >>> round(even.lowest_accuracy, 2), round(even.highest_accuracy, 2)
        (0.25, 0.92)
    """

    ratio: float
    ece: float
    accuracy: float
    signed_gap: float
    lowest_accuracy: float
    """Accuracy on all answers, if those without a label are all wrong."""
    highest_accuracy: float
    """Accuracy on all answers, if those without a label are all right."""
    impossible: float
    """Share of the answers in strata with too few unlabelled ones for the ratio.

    The nearest possible ratio is used there.
    """

    @property
    def reading(self) -> str:
        """The result as a sentence."""
        if self.ratio == 1:
            return f"If labels do not depend on whether the answer was right, the ECE is {self.ece:.3f}."
        bound = ", as far as there are answers without labels" if self.impossible >= 0.01 else ""
        return (
            f"If wrong answers are {self.ratio:g} times as likely to be labelled{bound}, accuracy is"
            f" {self.accuracy:.1%} and the ECE {self.ece:.3f}. Whatever the missing labels are, accuracy lies"
            f" between {self.lowest_accuracy:.1%} (all wrong) and {self.highest_accuracy:.1%} (all right)."
        )


def choice_of_labels(labelled: CalibrationSums, answers_C: npt.ArrayLike) -> ChoiceOfLabels:
    """Test whether the labelled answers are a random choice of all answers, by their confidences.

    The statistic is a chi-square over strata of equal mass,

        sum_k (n_k - n N_k / N)^2 / (n N_k / N),    n_k labels and N_k answers in stratum k

    There are 15 to 100 strata (`Strata`): one for every 20 labels, or for every 20 answers without a label if these are
    fewer. The p-value is that of the chi-square distribution, with the factor (N - 1) / (N - n) for drawing without
    replacement. If a stratum has fewer than 5 expected labels, or fewer than 5 expected answers without one, the
    p-value comes from 4,999 draws of n answers. It is then at least 1 / 5,000. (999 draws are enough if they give more
    than .1.) The warning is at p < .01, so 1% of looks warn by chance.

    Measured (benchmarks/evidence/labelling.py, which defines shape V) on 400 labels of 8,000 answers: .4 to 1.5% of
    random choices warn. If in each of 15 bins the upper half is labelled a third as often as the lower half, over 99%
    warn; for shape V, with 75% of its answers in one cell, 90% warn. A selection within a cell is not detected;
    `fullest_cell` reports how many answers share one.

    Args:
        labelled: Calibration sums of the labelled answers.
        answers_C: Number of all answers in each of the 3,000 cells, the labelled ones included.

    Returns:
        The chi-square and its p-value.

    Raises:
        ValueError: There are no labels, a cell has more labels than answers, or the counts are not 3,000 whole numbers.

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> labelled = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 100, [True, True, False, True] * 100)
        >>> round(metrics.choice_of_labels(labelled, answers.cells[0]).p_value, 4)
        1.0
    """
    labels_C = as_sums(labelled).cells[0]
    answers = answer_counts(answers_C, labels_C)
    n = int(labels_C.sum())
    strata = Strata(answers, min(n, float(answers.sum()) - n), MOST_STRATA)
    label_K, answer_K = strata.totals(labels_C), strata.answers_K
    expected_K = n * answer_K / answer_K.sum()

    def chi_square(drawn_K: npt.NDArray[np.number]) -> Array:
        value: Array = ((drawn_K - expected_K) ** 2 / expected_K).sum(axis=-1)
        return value

    observed, total = float(chi_square(label_K)), float(answer_K.sum())
    if len(answer_K) > 1 and min(expected_K.min(), (answer_K - expected_K).min()) >= LARGE:
        return ChoiceOfLabels(
            observed, float(scipy.special.chdtrc(len(answer_K) - 1, observed * (total - 1) / (total - n)))
        )
    rng = np.random.default_rng(20260101)

    def as_large(draws: int) -> int:
        drawn = rng.multivariate_hypergeometric(answer_K.astype(np.int64), n, draws, method="marginals")
        return int((chi_square(drawn) >= observed * (1 - 1e-12)).sum())

    p_value = (1 + (exceeding := as_large(AT_FIRST))) / (1 + AT_FIRST)
    if p_value <= SETTLED:
        p_value = (1 + exceeding + as_large(DRAWS - AT_FIRST)) / (1 + DRAWS)
    return ChoiceOfLabels(observed, p_value)


def label_delay(fast: CalibrationSums, slow: CalibrationSums, *, bins: int = 15) -> LabelDelay:
    """Compare the faster half of the labels with the slower half, bin by bin.

    Let g be the mean of (a - c) in bin b and half f or s, and w_b = n_f n_s / (n_f + n_s). Then

        difference = sum w_b (g_f - g_s) / sum w_b,    z = sum w_b (g_f - g_s) / sqrt(sum w_b v_b)

    v_b is the variance of one label: the larger of the mean of c(1-c) and of a(1-a), with the accuracy a of both halves
    together. The warning is at `|z| > 2.58`.

    Measured (benchmarks/evidence/labelling.py) on 5,000 labels of shapes A, B and C (benchmarks/shapes.py): harmless
    delays warn in .5 to 1.3% of runs, whether the model is calibrated or its logits are 2.5 times too large. With
    c(1-c) alone as variance, 12% of the runs of A and 20% of those of B would warn at the latter. If labels of wrong
    answers arrive twice as fast, all runs warn. If they arrive 1.2 times as fast, 38% of the calibrated runs of A warn,
    12% of B and 91% of C.

    Args:
        fast: Calibration sums of the faster half of the labels.
        slow: Calibration sums of the slower half.
        bins: Number of bins; it must divide 3,000.

    Returns:
        The difference, z and its p-value.

    Raises:
        ValueError: One half has no labels, or no bin has labels of both.

    Examples:
        >>> fast = metrics.CalibrationSums.from_top([0.9] * 200, [True] * 140 + [False] * 60)
        >>> slow = metrics.CalibrationSums.from_top([0.9] * 200, [True] * 180 + [False] * 20)
        >>> round(metrics.label_delay(fast, slow).difference, 4)
        -0.2
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
    return LabelDelay(sum_of_differences / float(weight.sum()), z, float(scipy.special.erfc(abs(z) / np.sqrt(2))))


def sensitivity(
    labelled: CalibrationSums, answers_C: npt.ArrayLike, *, ratio: float = 2.0, bins: int = 15
) -> Sensitivity:
    """Compute the ECE of all answers, if a wrong one is `ratio` times as likely to be labelled as a right one.

    The assumption holds at equal confidence. In a stratum (as in `weighted_ece`), r right and w wrong labels stand for
    N answers, u of them unlabelled. The share of right answers is then r / (r + w / ratio). It is at least r / N (all
    unlabelled answers are wrong) and at most (r + u) / N (all are right). Compare ratio 2 with ratio 1, the plug-in
    value of `weighted_ece`. Right and wrong labels of a cell count at its mean confidence, which is exact to 1/3000.

    Args:
        labelled: Calibration sums of the labelled answers.
        answers_C: Number of all answers in each of the 3,000 cells, the labelled ones included.
        ratio: How much likelier a label is for a wrong answer, above 0.
        bins: Number of bins; it must divide 3,000.

    Returns:
        The estimates under this assumption.

    Raises:
        ValueError: There are no labels, `weighted_ece` does not accept the counts, or the ratio is not finite and above
            0.

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> labelled = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 100, [True, True, False, True] * 100)
        >>> round(metrics.sensitivity(labelled, answers.cells[0], ratio=2).accuracy, 4)
        0.75
    """
    if not (is_number(ratio) and 0 < ratio < np.inf):
        raise ValueError(f"ratio is {ratio!r}; allowed is any number above 0, such as 2")
    sums = as_sums(labelled)
    count, confidence, correct = sums.cells[:3]
    answers = answer_counts(answers_C, count)
    strata = Strata(answers, sums.n)
    right_K, wrong_K = strata.totals(correct), strata.totals(count - correct)
    answers_K = strata.represented_answers(right_K + wrong_K)
    known = answers_K > 0
    right_K, wrong_K, answers_K = right_K[known], wrong_K[known], answers_K[known]
    target_K = right_K / (right_K + wrong_K / ratio)
    share_K = np.clip(target_K, right_K / answers_K, 1 - wrong_K / answers_K)
    weights = []  # weight of a right label and of a wrong label, per cell
    for labels_K, part_K in ((right_K, share_K), (wrong_K, 1 - share_K)):
        weight_K = np.zeros(len(known))
        weight_K[known] = np.divide(part_K * answers_K, labels_K, out=np.zeros(len(labels_K)), where=labels_K > 0)
        weights.append(weight_K[strata.stratum_C])
    table = CalibrationSums.zero()
    right = weights[0] * correct
    mass = right + weights[1] * (count - correct)
    table.cells[:3] = mass, mass * np.divide(confidence, count, out=np.zeros(CELLS), where=count > 0), right
    weighed = table.bins(bins)
    gap, total, labels_right = float(weighed.gap_B.sum()), float(answers.sum()), float(correct.sum())
    return Sensitivity(
        ratio=ratio,
        ece=float(np.abs(weighed.gap_B).sum() / total),
        accuracy=float(weighed.correct_B.sum() / total),
        signed_gap=gap / total,
        lowest_accuracy=labels_right / total,
        highest_accuracy=(labels_right + total - sums.n) / total,
        impossible=float(answers_K[np.abs(target_K - share_K) > 1e-9].sum() / total),
    )
