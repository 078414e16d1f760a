"""Labelled answers that are not a random choice of all answers: weigh them by how many answers each stands for.

This mends labelling that depends on the confidence, however strongly. Nothing mends labelling that depends on whether
the answer was right; `pipeline.metrics.labelling` warns of what can be seen of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipeline.metrics.bins import CELLS, cell_of, check_bins
from pipeline.metrics.honesty import EceInterval, interval_of
from pipeline.metrics.inputs import Array, as_numbers
from pipeline.metrics.inversion import GapTerms
from pipeline.metrics.scores import as_sums
from pipeline.metrics.sums import CalibrationSums

STRATA = 120


@dataclass(frozen=True)
class WeightedEce:
    """Estimates for all answers, from those that are labelled."""

    interval: EceInterval
    accuracy: float
    mean_confidence: float
    effective_n: float
    """1 / sum of squared weights: as many labels chosen at random would say as much."""
    unlabelled: float
    """Share of the answers whose stratum has no label at all; the nearest stratum with labels speaks for them."""

    @property
    def signed_gap(self) -> float:
        """Accuracy - mean confidence."""
        return self.accuracy - self.mean_confidence

    @property
    def reading(self) -> str:
        """In plain words."""
        worth = f"These labels say as much as {self.effective_n:,.0f} chosen at random would."
        if self.unlabelled < 0.01:
            return worth
        return f"{worth} {self.unlabelled:.0%} of the answers have confidences of which no label is known."


def answer_counts(answers_C: npt.ArrayLike) -> Array:
    """The number of answers per cell, as float64.

    Raises:
        ValueError: not 3,000 whole numbers from 0 on.
    """
    answers = as_numbers(answers_C, "answers").astype(np.float64)
    if answers.shape != (CELLS,):
        raise ValueError(f"answers has shape {answers.shape}; expected ({CELLS},), the number of answers in each cell")
    whole = (answers >= 0) & (np.floor(answers) == answers) & np.isfinite(answers)
    if not whole.all():
        raise ValueError(f"answers holds {answers[~whole][0]}; allowed are whole numbers from 0 on")
    return answers


def weighted_ece(
    labelled: CalibrationSums, answers_C: npt.ArrayLike, *, bins: int = 15, level: float = 0.95
) -> WeightedEce:
    """The ECE of all answers from labels whose choice depends on the confidence only.

    `answers_C` holds the number of ALL answers per cell, the labelled ones included (3,000 counts). In each of 120
    equal strata k of confidence the n_k labels stand for its N_k answers: weight N_k / (N n_k) each. No probability of
    being labelled need be known. The interval is that of `ece_interval` with these weights.

    Measured (benchmarks/labelling.py, 5% of 100,000 answers labelled in proportion to 1 - c): coverage .96 to .99 for
    shapes A, B and C, where the unweighted interval's falls to 0 (B: true ECE .022, unweighted .060, weighted .022).
    The price is the effective number of labels: a seventh for A, a third for B.

    Raises:
        ValueError: no labels, more labels than answers in a stratum, counts that are not 3,000 whole numbers, bins
            that do not divide 3,000, a level outside (0, 1).
    """
    sums = as_sums(labelled)
    labels_K, answers_K = (v.reshape(STRATA, -1).sum(axis=1) for v in (sums.cells[0], answer_counts(answers_C)))
    if (labels_K > answers_K).any():
        k = int((labels_K > answers_K).argmax())
        raise ValueError(
            f"confidences {k / STRATA:.4f} to {(k + 1) / STRATA:.4f} have {labels_K[k]:g} labels but {answers_K[k]:g} "
            "answers; answers must count every answer, the labelled ones too"
        )
    known = np.flatnonzero(labels_K)
    nearest_K = known[np.abs(np.arange(STRATA)[:, None] - known).argmin(axis=1)]
    weight_K = np.bincount(nearest_K, answers_K, STRATA) / np.maximum(labels_K, 1)
    cell = np.flatnonzero(sums.cells[0])
    found = _weighted(cell, weight_K[cell // (CELLS // STRATA)], sums.cells[:3, cell], bins, level)
    return replace(found, unlabelled=float(answers_K[labels_K == 0].sum() / answers_K.sum()))


def inverse_probability_ece(
    confidence_N: npt.ArrayLike,
    correct_N: npt.ArrayLike,
    probability_N: npt.ArrayLike,
    *,
    bins: int = 15,
    level: float = 0.95,
) -> WeightedEce:
    """As `weighted_ece`, from rows that were each chosen for labelling with a known probability.

    Weight per label: 1 / probability, scaled to sum 1 (Hajek's estimator). The probabilities may depend on anything
    that was known before the label was; an answer that could not be chosen (probability 0) is not spoken for.

    Raises:
        ValueError: shapes that disagree, no rows, probabilities outside (0, 1], or as in `CalibrationSums.from_top`.
    """
    as_sums(CalibrationSums.from_top(confidence_N, correct_N))  # refuses bad rows, and none
    given = {"confidence": confidence_N, "correct": correct_N, "probability": probability_N}
    confidence, correct, probability = (as_numbers(v, name).astype(np.float64) for name, v in given.items())
    if probability.shape != confidence.shape:
        raise ValueError(f"probability has shape {probability.shape}; expected {confidence.shape}, one for each label")
    if not ((probability > 0) & (probability <= 1)).all():
        bad = probability[~((probability > 0) & (probability <= 1))][0]
        raise ValueError(f"probability holds {bad}; allowed is (0, 1], the chance with which the row was chosen")
    rows = np.stack([np.ones(len(confidence)), confidence, correct])
    return _weighted(cell_of(confidence), 1 / probability, rows, bins, level)


def _weighted(cell_I: npt.NDArray[np.intp], weight_I: Array, items_3I: Array, bins: int, level: float) -> WeightedEce:
    """From items (cells, or rows) with their cell, weight per label, and sums of count, confidence and correctness."""
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
    return WeightedEce(interval, accuracy, float(weight @ confidence), terms.effective_n, 0.0)
