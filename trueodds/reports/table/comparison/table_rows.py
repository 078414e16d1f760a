"""Scores of the rows that several tables of answers have in common."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from trueodds.evaluation.paired_differences import RowScores
from trueodds.reports.table.comparison.models import ModelRows
from trueodds.reports.table.table_content import Answers, positive_rows_of
from trueodds.sums.rounding import summing_to_1

Rows = npt.NDArray[np.intp]
NO_PROBABILITIES = (
    "One of the tables lacks the probabilities of all classes. So NLL and Brier score are computed from the confidence"
    " for all models."
)


def nets_of(
    tables: Mapping[str, Answers], rows: Mapping[str, Rows], positive: str | None = None
) -> tuple[dict[str, ModelRows], list[str]]:
    """Return the scores of the rows of each table, and a sentence if some have no probabilities of all classes.

    Args:
        tables: Answers by the name of their model.
        rows: Positions of the common labelled rows in each table; see `common_rows`.
        positive: The class of two whose probability is compared.
    """
    notes = []
    full = all(answers.probabilities_NC is not None for answers in tables.values())
    if not full and positive is None:
        notes.append(NO_PROBABILITIES)
    return {name: _net(answers, rows[name], positive, full) for name, answers in tables.items()}, notes


def _net(answers: Answers, row_N: Rows, positive: str | None, full: bool) -> ModelRows:
    """Build the scores of one table's rows."""
    if positive is not None:
        _, p_N, is_positive_N = positive_rows_of(answers, positive)
        return ModelRows(RowScores.of_positive(p_N[row_N], is_positive_N[row_N], answers.resolution))
    if not full or answers.probabilities_NC is None or answers.label_N is None:
        scores = RowScores.of_confidence(answers.confidence_N[row_N], answers.correct_N[row_N], answers.resolution)
        return ModelRows(scores)
    p_NC, label_N = answers.probabilities_NC[row_N].astype(np.float64), answers.label_N[row_N]
    return ModelRows(
        RowScores.of_probabilities(p_NC, label_N, answers.resolution), summing_to_1(p_NC, answers.resolution), label_N
    )
