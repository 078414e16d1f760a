"""Strata of confidence with equal numbers of answers, in which labels represent answers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trueodds.sums.bins import CELLS, EDGES
from trueodds.sums.inputs import Array, as_numbers

FEWEST, LABELS = 15, 20
"""Smallest number of strata, and the number of labels per stratum on average if there are more."""


def answer_counts(answers_C: npt.ArrayLike, labels_C: Array) -> Array:
    """Check the number of answers per cell and return it as float64.

    Raises:
        ValueError: The counts are not 3,000 whole numbers from 0 on, or a cell has more labels than answers.
    """
    answers = as_numbers(answers_C, "answers").astype(np.float64)
    if answers.shape != (CELLS,):
        raise ValueError(f"answers has shape {answers.shape}; expected ({CELLS},), the number of answers in each cell")
    whole = (answers >= 0) & (np.floor(answers) == answers) & np.isfinite(answers)
    if not whole.all():
        raise ValueError(f"answers holds {answers[~whole][0]}; allowed are whole numbers from 0 on")
    if (labels_C > answers).any():
        k = int((labels_C > answers).argmax())
        raise ValueError(
            f"confidences {EDGES[k]:.4f} to {EDGES[k + 1]:.4f} have {labels_C[k]:g} labels but {answers[k]:g} answers; "
            "answers must count every answer, the labelled ones too"
        )
    return answers


class Strata:
    """Unions of neighbouring cells that hold an equal share of the answers each.

    A cell that holds a share or more is a stratum of its own. Between such cells the others are cut into runs of about
    one share. A selection of labels within a stratum is not detected. So there are as many strata as `labels` allow:
    one for every 20 of them, at least 15 and at most `most`.
    """

    def __init__(self, answers_C: Array, labels: float, most: int = CELLS) -> None:
        total, strata = answers_C.sum(), min(max(labels // LABELS, FEWEST), most)
        cell_A = np.flatnonzero(answers_C)
        count_A = answers_C[cell_A]
        full_A = count_A * strata >= total
        run_A = np.cumsum(full_A) + np.cumsum(np.append(False, full_A[:-1]))  # full cells, and the runs between them
        mass_R = np.bincount(run_A, count_A)
        middle_A = np.cumsum(count_A) - count_A / 2 - (np.cumsum(mass_R) - mass_R)[run_A]
        pieces_A = np.where(full_A, 1, np.maximum(np.round(mass_R * strata / total), 1)[run_A])
        piece_A = middle_A * pieces_A // mass_R[run_A]
        new_A = (np.diff(run_A, prepend=run_A[0]) > 0) | (np.diff(piece_A, prepend=0.0) > 0)
        self.stratum_C = np.zeros(CELLS, np.intp)  # stratum of each cell with answers
        self.stratum_C[cell_A] = np.cumsum(new_A)
        self.answers_K = self.totals(answers_C)
        self.middle_K = self.totals(answers_C * np.arange(CELLS)) / self.answers_K

    def totals(self, values_C: Array) -> Array:
        """Add the values of each stratum's cells."""
        total_K: Array = np.bincount(self.stratum_C, values_C).astype(np.float64)
        return total_K

    def represented_answers(self, labels_K: Array) -> Array:
        """Return how many answers each stratum's labels represent: its own, and those of neighbours without labels."""
        known = np.flatnonzero(labels_K)
        middle = self.middle_K[known]
        nearest_K = known[np.searchsorted((middle[1:] + middle[:-1]) / 2, self.middle_K)]
        answers_K: Array = np.bincount(nearest_K, self.answers_K, len(self.answers_K)).astype(np.float64)
        return answers_K
