"""Weighted estimates from labelled answers that are not a random choice of all answers.

Each label is weighted by the number of answers that it represents. This corrects any selection by confidence, as far as
cells (or the probabilities of being labelled) distinguish confidences. Nothing corrects a selection that depends on
whether the answer was right; `trueodds.metrics.labelling.coverage` warns if there are signs of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trueodds.metrics.intervals.calibration_error import EceInterval, interval_of
from trueodds.metrics.intervals.inversion import GapTerms
from trueodds.metrics.labelling.strata import Strata, answer_counts
from trueodds.metrics.scores import as_sums
from trueodds.sums.bins import CELLS, EDGES, cell_of, check_bins
from trueodds.sums.inputs import Array, as_numbers
from trueodds.sums.sums import CalibrationSums

TOO_CROWDED, CROWDED = 0.5, 0.2
"""Shares of the answers in one cell: above the first, no weighting by counts; above the second, there is a note."""
HEAVY = 0.02
"""A label's share of the total weight that counts as large, if it is also twice the share under equal weights."""


class CrowdedCellError(ValueError):
    """Error if more than half of the answers lie in one cell of confidence; counts cannot tell which have labels.

    Examples:
        >>> few = metrics.CalibrationSums.from_top([0.6, 0.7], [True, False])
        >>> answers = metrics.CalibrationSums.from_top([0.999] * 90 + [0.6, 0.7] * 5, [True] * 100)
        >>> try:
        ...     metrics.weighted_ece(few, answers.cells[0])
        ... except metrics.CrowdedCellError:
        ...     print("label some of the crowded cell")
        label some of the crowded cell
    """


@dataclass(frozen=True)
class FullestCell:
    """The cell with the most answers, among the cells in which some answers have no label.

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> labelled = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 100, [True, True, False, True] * 100)
        >>> metrics.fullest_cell(labelled, answers.cells[0]).share
        0.25
    """

    share: float
    """Share of all answers in the cell; 0 if every answer has a label."""
    lower: float
    upper: float

    @property
    def is_refused(self) -> bool:
        """Whether `weighted_ece` refuses such answers."""
        return self.share > TOO_CROWDED

    @property
    def is_crowded(self) -> bool:
        """Whether reports mention the cell."""
        return self.share > CROWDED

    @property
    def reading(self) -> str:
        """The result as a sentence."""
        where = f"{self.share:.1%} of the answers have confidences from {self.lower:.4f} to {self.upper:.4f}, one cell:"
        if self.is_refused:
            return (
                f"{where} counts do not tell which of them have labels, so weighting by counts is impossible. Give each"
                " answer's probability of getting a label (its propensity), or choose at random which get one."
            )
        return f"{where} a selection of labels within it is neither detected nor corrected."


@dataclass(frozen=True)
class WeightedEce:
    """Estimates for all answers, from the labelled ones.

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> labelled = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 100, [True, True, False, True] * 100)
        >>> round(metrics.weighted_ece(labelled, answers.cells[0]).accuracy, 4)
        0.75
    """

    interval: EceInterval
    accuracy: float
    mean_confidence: float
    effective_n: float
    """Effective number of labels, 1 / sum of squared weights: so many randomly chosen labels are as informative."""
    heaviest: float
    """Largest share of the total weight on one label."""
    unlabelled: float = 0.0
    """Share of the answers in strata without any label. The nearest stratum with labels represents them."""
    crowded: float = 0.0
    """Share of the answers in the fullest cell, where no selection can be corrected; 0 with known probabilities."""

    @property
    def signed_gap(self) -> float:
        """Accuracy - mean confidence."""
        return self.accuracy - self.mean_confidence

    @property
    def heavy(self) -> bool:
        """Whether a single label has much of the weight, so that the next labels may change the estimates a lot."""
        return self.heaviest >= max(HEAVY, 2 / self.effective_n)

    @property
    def reading(self) -> str:
        """The result as sentences."""
        notes = [f"These labels are as informative as {self.effective_n:,.0f} randomly chosen ones."]
        if self.heavy:
            notes.append(
                f"One label has {self.heaviest:.0%} of the weight, so the next ones may change the estimates a lot."
            )
        if self.unlabelled >= 0.01:
            notes.append(f"{self.unlabelled:.0%} of the answers have confidences without any label.")
        if self.crowded > CROWDED:
            notes.append(f"{self.crowded:.0%} of the answers share one cell, in which no selection can be corrected.")
        return " ".join(notes)


def fullest_cell(labelled: CalibrationSums, answers_C: npt.ArrayLike) -> FullestCell:
    """Find the cell with the most answers, in which a selection of labels cannot be detected.

    Args:
        labelled: Calibration sums of the labelled answers.
        answers_C: Number of all answers in each of the 3,000 cells, the labelled ones included.

    Returns:
        The cell and its share of the answers.

    Raises:
        ValueError: There are no labels, or `weighted_ece` does not accept the counts.

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> labelled = metrics.CalibrationSums.from_top([0.8, 0.6], [True, False])
        >>> round(metrics.fullest_cell(labelled, answers.cells[0]).lower, 4)
        0.5997
    """
    labels_C = as_sums(labelled).cells[0]
    answers = answer_counts(answers_C, labels_C)
    share_C = np.where(labels_C < answers, answers, 0.0) / answers.sum()
    k = int(share_C.argmax())
    return FullestCell(float(share_C[k]), float(EDGES[k]), float(EDGES[k + 1]))


def weighted_ece(
    labelled: CalibrationSums, answers_C: npt.ArrayLike, *, bins: int = 15, level: float = 0.95
) -> WeightedEce:
    """Estimate the ECE of all answers from labels whose selection depends on the confidence only.

    In each stratum k of confidence (`Strata`: equal shares of the answers, down to single cells), n_k labels represent
    N_k answers. Each of them has the weight N_k / (N n_k). The probabilities of being labelled need not be known. The
    interval is that of `ece_interval` with these weights.

    Measured (benchmarks/evidence/labelling.py) with 5% of 100,000 answers labelled, in three ways: in proportion to 1 -
    c; the upper half of the confidences 40 times less often; those above .999 10 times less often. The simulated nets
    were A, B and C (benchmarks/shapes.py), and W with 87% of its answers above 119/120. Coverage is .95 to 1.00. That
    of the unweighted interval falls to 0. For W labelled in proportion to 1 - c, the true ECE is .057, the unweighted
    estimate .226 and the weighted one .060. The price is a smaller effective number of labels: with labels in
    proportion to 1 - c, it is .2% of them for A, 3% for W and 58% for C.

    Args:
        labelled: Calibration sums of the labelled answers.
        answers_C: Number of all answers in each of the 3,000 cells, the labelled ones included.
        bins: Number of bins; it must divide 3,000.
        level: Confidence level of both limits together, inside (0, 1).

    Returns:
        The weighted estimates.

    Raises:
        CrowdedCellError: More than half of the answers lie in one cell, and not all of them have labels.
        ValueError: There are no labels, a cell has more labels than answers, the counts are not 3,000 whole numbers,
            `bins` does not divide 3,000, or `level` is outside (0, 1).

    Examples:
        >>> answers = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 300, [True, True, False, True] * 300)
        >>> labelled = metrics.CalibrationSums.from_top([0.9, 0.8, 0.6, 0.7] * 100, [True, True, False, True] * 100)
        >>> round(metrics.weighted_ece(labelled, answers.cells[0]).interval.estimate, 4)
        0.2998
    """
    sums, fullest = as_sums(labelled), fullest_cell(labelled, answers_C)
    if fullest.is_refused:
        raise CrowdedCellError(fullest.reading)
    cell = np.flatnonzero(sums.cells[0])
    estimate = _estimate_by_strata(
        answers_C, sums.cells[0], cell, np.ones(len(cell)), sums.cells[:3, cell], bins, level
    )
    return replace(estimate, crowded=fullest.share)


def inverse_probability_ece(
    confidence_N: npt.ArrayLike,
    correct_N: npt.ArrayLike,
    probability_N: npt.ArrayLike,
    answers_C: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    level: float = 0.95,
) -> WeightedEce:
    """Estimate the ECE of all answers from rows that were chosen for labelling with known probabilities.

    The weight of a label is 1 / probability, scaled so that all weights sum to 1 (Hajek's estimator). With `answers_C`,
    the weights in each stratum are scaled to sum to N_k / N. The probabilities may depend on anything that was known
    before the label.

    Answers that could not be chosen (probability 0) are not represented. Without `answers_C`, answers with very small
    probabilities are hardly represented either, if none was chosen. Such answers may outweigh all others if one label
    has at least 2% of the weight, and at least 2 / (effective number of labels). Then the lower limit is 0.

    Measured as for `weighted_ece`, and for V with 75% of its answers in one cell: coverage .95 to 1.00, with and
    without the counts. Labels in proportion to 1 - c give half of V's answers probabilities below 1 in 50,000, and an
    interval of width .6. So choose probabilities that are not that small.

    Args:
        confidence_N: Confidence of each labelled answer.
        correct_N: Whether each labelled answer is right.
        probability_N: Probability with which each was chosen for labelling, in (0, 1].
        answers_C: Number of all answers in each of the 3,000 cells, if known.
        bins: Number of bins; it must divide 3,000.
        level: Confidence level of both limits together, inside (0, 1).

    Returns:
        The weighted estimates.

    Raises:
        ValueError: Shapes differ, there are no rows, probabilities are outside (0, 1], or the counts or rows are
            invalid (see `weighted_ece` and `CalibrationSums.from_top`).


    Examples:
        >>> weighted = metrics.inverse_probability_ece([0.9, 0.6] * 100, [True, False] * 100, [0.2, 0.8] * 100)
        >>> round(weighted.accuracy, 4)
        0.8
    """
    sums = as_sums(CalibrationSums.from_top(confidence_N, correct_N))  # checks the rows
    columns = {"confidence": confidence_N, "correct": correct_N, "probability": probability_N}
    confidence, correct, probability = (as_numbers(v, name).astype(np.float64) for name, v in columns.items())
    if probability.shape != confidence.shape:
        raise ValueError(f"probability has shape {probability.shape}; expected {confidence.shape}, one for each label")
    if not ((probability > 0) & (probability <= 1)).all():
        bad = probability[~((probability > 0) & (probability <= 1))][0]
        raise ValueError(f"probability holds {bad}; allowed is (0, 1], the chance with which the row was chosen")
    rows, cell = np.stack([np.ones(len(confidence)), confidence, correct]), cell_of(confidence)
    if answers_C is None:
        estimate = _estimate(cell, 1 / probability, rows, bins, level)
        return replace(estimate, interval=replace(estimate.interval, lower=0.0)) if estimate.heavy else estimate
    return _estimate_by_strata(answers_C, sums.cells[0], cell, 1 / probability, rows, bins, level)


def _estimate_by_strata(
    answers_C: npt.ArrayLike,
    labels_C: Array,
    cell_I: npt.NDArray[np.intp],
    weight_I: Array,
    items_3I: Array,
    bins: int,
    level: float,
) -> WeightedEce:
    """Compute `_estimate` with weights scaled so that each stratum's labels weigh as much as its answers."""
    answers = answer_counts(answers_C, labels_C)
    strata = Strata(answers, float(labels_C.sum()))
    stratum_I = strata.stratum_C[cell_I]
    total_K = np.bincount(stratum_I, weight_I * items_3I[0], len(strata.answers_K)).astype(np.float64)
    share_K = np.divide(strata.represented_answers(total_K), total_K, out=np.zeros(len(total_K)), where=total_K > 0)
    estimate = _estimate(cell_I, weight_I * share_K[stratum_I], items_3I, bins, level)
    return replace(estimate, unlabelled=float(strata.answers_K[total_K == 0].sum() / answers.sum()))


def _estimate(cell_I: npt.NDArray[np.intp], weight_I: Array, items_3I: Array, bins: int, level: float) -> WeightedEce:
    """Compute the estimates from items (cells or rows).

    Each item has its cell, its weight per label, and its sums of count, confidence and correctness.
    """
    bins = check_bins(bins)
    count, confidence, correct = items_3I
    weight = weight_I / (weight_I @ count)
    mean, square = np.clip(confidence / count, 0.0, 1.0), weight**2
    of_items = (
        weight * (correct - confidence),
        weight * count,
        square * count * mean * (1 - mean),
        square * (count - 2 * confidence),
        square * count,
    )
    terms = GapTerms(*(np.bincount(cell_I // (CELLS // bins), values, bins).astype(np.float64) for values in of_items))
    accuracy = min(float(weight @ correct), 1.0)
    interval = interval_of(terms, float(np.abs(terms.gap_B).sum()), accuracy, level)
    return WeightedEce(interval, accuracy, float(weight @ confidence), terms.effective_n, float(weight.max()))
