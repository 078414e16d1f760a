"""Sums of a table's answers: of all of them, by what they belong to, and by the time they were given."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.reports.schemas import MOST_MINUTES, Unit
from trueodds.reports.table.answers import Answers
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import CELLS, cell_of
from trueodds.sums.hours import MINUTE_MS
from trueodds.sums.inputs import Array
from trueodds.sums.positive import CLASSES, PositiveClass, PositiveSums
from trueodds.sums.sums import CalibrationSums

TrendUnit = Literal["minute", "hour", "day", "month", "auto"]
UNITS: tuple[Unit, ...] = get_args(Unit)
_CODES: dict[Unit, Literal["m", "h", "D", "M"]] = {"minute": "m", "hour": "h", "day": "D", "month": "M"}
MAX_POINTS = 120
"""Most points of a trend whose unit is left to us, unless it is by month."""


def sums_of(answers: Answers) -> AnswerSums:
    """Of all answers: with NLL and Brier score where all probabilities are known."""
    answers_C = np.bincount(cell_of(answers.confidence_N), minlength=CELLS)
    labelled_N = answers.labelled_N
    if not labelled_N.any():
        return AnswerSums(answers_C, CalibrationSums.zero())
    if answers.probabilities_NC is None or answers.label_N is None:
        rows = answers.confidence_N[labelled_N], answers.correct_N[labelled_N]
        return AnswerSums(answers_C, CalibrationSums.from_top(*rows))
    return AnswerSums(answers_C, CalibrationSums.from_probabilities(*labelled_rows(answers)))


def positive_sums_of(answers: Answers, name: str) -> PositiveSums:
    """Of all answers by the probability of the class of that name: its column, or from the predicted class's.

    Raises:
        FileError: nothing names the classes of the answers.
        ConfigError: not two classes, or none of that name.
    """
    positive, p_N, is_positive_N = positive_rows_of(answers, name)
    known_N = answers.labelled_N
    answers_C = np.bincount(cell_of(p_N), minlength=CELLS)
    labelled = positive.sums_of(p_N[known_N], is_positive_N[known_N]) if known_N.any() else CalibrationSums.zero()
    return PositiveSums(name, AnswerSums(answers_C, labelled))


def positive_rows_of(answers: Answers, name: str) -> tuple[PositiveClass, Array, npt.NDArray[np.bool_]]:
    """The positive class, its probability in each answer, and whether that is the true class of a labelled one.

    Raises:
        FileError, ConfigError: as `positive_sums_of`.
    """
    if answers.predicted is None:
        raise FileError(f"{answers.source} names no predicted classes, which a positive class needs")
    classes = answers.predicted.values
    if answers.probabilities_NC is None or answers.label_N is None:
        classes = tuple(dict.fromkeys((*classes, *answers.label_names)))
        if name in classes or len(classes) < CLASSES:  # perhaps no answer and no label names it
            classes = (*(other for other in classes if other != name), name)
        positive = PositiveClass.of(name, classes)
        is_top_N = np.array([value == name for value in answers.predicted.values])[answers.predicted.code_N]
        p_N = positive.probability_of_top(answers.confidence_N, is_top_N)
        return positive, p_N, is_top_N == answers.correct_N
    positive = PositiveClass.of(name, classes)
    p_N = np.clip(positive.probability(answers.probabilities_NC), 0, 1).astype(np.float64)
    return positive, p_N, answers.label_N == positive.index


def labelled_rows(answers: Answers) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.intp]]:
    """Probabilities and labels of the labelled answers of a table that has all probabilities."""
    assert answers.probabilities_NC is not None and answers.label_N is not None
    if answers.labelled_N.all():
        return answers.probabilities_NC, answers.label_N
    return answers.probabilities_NC[answers.labelled_N], answers.label_N[answers.labelled_N]


def sums_by(answers: Answers, names: Texts) -> dict[str, AnswerSums]:
    """By name, in the order of the names; without NLL and Brier score."""
    groups = _grouped(answers, names.code_N, len(names.values))
    return {name: sums for name, sums in zip(names.values, groups, strict=True) if sums.answers}


def sums_by_period(answers: Answers, unit: TrendUnit) -> tuple[Unit, list[tuple[int, AnswerSums]]]:
    """Each minute, hour, day or month with answers, by its start in Unix milliseconds.

    auto: the finest unit that needs no more than 120 points, minutes within 3 hours only; else the month.
    """
    assert answers.groups.time_ms_N is not None
    time_N = answers.groups.time_ms_N.astype("datetime64[ms]")
    is_short = np.ptp(answers.groups.time_ms_N) < MOST_MINUTES * MINUTE_MS
    units = UNITS if is_short else UNITS[1:]
    for chosen in units if unit == "auto" else (unit,):
        start_P, period_N = np.unique(time_N.astype(f"datetime64[{_CODES[chosen]}]"), return_inverse=True)
        most = MOST_MINUTES if chosen == "minute" else MAX_POINTS
        if unit != "auto" or chosen == units[-1] or len(start_P) <= most:
            break
    starts_ms = start_P.astype("datetime64[ms]").astype(np.int64).tolist()
    return chosen, list(zip(starts_ms, _grouped(answers, period_N, len(start_P)), strict=True))


def _grouped(answers: Answers, group_N: npt.NDArray[np.intp], groups: int) -> list[AnswerSums]:
    order_N = group_N.argsort(kind="stable")
    ends = np.bincount(group_N, minlength=groups).cumsum()[:-1]
    parts = []
    for rows in np.split(order_N, ends):
        known = rows[answers.labelled_N[rows]]
        labelled = CalibrationSums.from_top(answers.confidence_N[known], answers.correct_N[known])
        parts.append(AnswerSums(np.bincount(cell_of(answers.confidence_N[rows]), minlength=CELLS), labelled))
    return parts
