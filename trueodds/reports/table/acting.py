"""Acting alone by the answers of a table: all together, or by question, tag or predicted class."""

from __future__ import annotations

from typing import Literal

import numpy as np

from trueodds.files import FileError
from trueodds.metrics import Costs
from trueodds.metrics.decisions.acting import ActingThreshold, threshold
from trueodds.reports.schemas import NO_TAG
from trueodds.reports.table.answers import Answers
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass

By = Literal["question", "tag", "class"]
MOST_GROUPS = 1000
"""Most groups that get a threshold each; more are rather the names of single answers."""


def acting_threshold(
    answers: Answers,
    *,
    risk: float = 0.05,
    confidence: float = 0.95,
    by: By | None = None,
    costs: Costs | None = None,
    positive: str | None = None,
) -> ActingThreshold:
    """Find the confidence from which on the answers of a table may act alone, as `trueodds.threshold` does.

    Args:
        answers: all answers; those without a label count for the share only.
        risk: largest share of wrong answers that act; with costs, largest mean cost of one.
        confidence: probability with which that holds.
        by: what has a threshold of its own.
        costs: of a missed positive and of a false alarm, where the predicted class acts.
        positive: the class of two that `costs` are about.

    Raises:
        FileError: a table that does not say what `by` or `costs` asks for, or too many groups.
        ConfigError: a positive class that is none of two classes.
        ValueError: what `trueodds.threshold` refuses.
    """
    right_N = np.where(answers.labelled_N, answers.correct_N.astype(np.float64), np.nan)
    return threshold(
        answers.confidence_N,
        right_N,
        risk=risk,
        confidence=confidence,
        groups_N=None if by is None else _groups(answers, by),
        cost_N=None if costs is None else _costs(answers, costs, positive or ""),
    )


def _groups(answers: Answers, by: By) -> list[str]:
    columns = {"question": answers.groups.questions, "tag": answers.groups.tags, "class": answers.predicted}
    column = columns[by]
    if column is None:
        lacks = "names no predicted classes" if by == "class" else f"has no column {by}"
        raise FileError(f"{answers.source} {lacks}, which --by {by} needs")
    names = column.as_list()
    if (groups := len(set(names))) > MOST_GROUPS:
        problem = f"{answers.source} has {groups:,} groups by {by}; at most {MOST_GROUPS:,} get a threshold each"
        raise FileError(f"{problem}: give names that many answers share")
    return [name or NO_TAG.replace("tag", by) for name in names]


def _costs(answers: Answers, costs: Costs, positive: str) -> Array:
    """Return each answer's cost if it is wrong: a false alarm where it names the positive class, else a miss."""
    if answers.predicted is None:
        raise FileError(f"{answers.source} names no predicted classes, which --costs needs")
    classes = answers.predicted.values
    if answers.probabilities_NC is None:
        classes = tuple(dict.fromkeys((*classes, *answers.label_names)))
    PositiveClass.of(positive, classes)
    alarms_N = np.array([name == positive for name in answers.predicted.values])[answers.predicted.code_N]
    return np.where(alarms_N, costs.alarm, costs.miss)
