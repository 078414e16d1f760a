"""Class shares of answers under prior shift, and their withdrawal once labels contradict them.

The shares are those of all answers, and their labels are not used. Without the answers that have a label, the others
would be a selection: one by scores, if low confidences get labels first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy

from trueodds import metrics
from trueodds.metrics import CELLS, CalibrationSums, PriorShare, PriorShift
from trueodds.reports.schemas import ClassShare, ClassShares
from trueodds.reports.words import level, percent
from trueodds.sums.bins import cell_of
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass
from trueodds.texts import plural

FALSE_WITHDRAWAL = 0.05
"""Largest share of sound numbers that labels ever withdraw, if the labels are as the limits of the shares say."""
CONDITION = (
    "This holds only if nothing but the class shares has changed: the inputs of each class look as they did, p(x | y)."
)
SumsOfLabels = Callable[[int, float], CalibrationSums]
"""Returns the sums of the labelled answers by the corrected probability of a class, for a share of this class."""


def class_shares(
    shift: PriorShift,
    at_once: PriorShift,
    classes: Sequence[str],
    *,
    labels: int,
    sums_of_labels: SumsOfLabels,
    confidence: float,
    positive: int | None = None,
) -> ClassShares:
    """Describe class shares, or why there are none.

    Args:
        shift: Class shares of the answers.
        at_once: The same at a level that holds for all classes at once (Bonferroni).
        classes: Names of the classes.
        labels: Number of labelled answers of the same time.
        sums_of_labels: Sums of these by corrected probabilities, as evidence.
        confidence: Confidence level of each interval.
        positive: Index of the positive class of two, which the reading is about.
    """
    p_value = None if shift.test is None else shift.test.p_value
    refused = None if shift.refusal is None else _name_class(shift.refusal, classes)
    withdrawn = None if refused else contradiction(shift, classes, sums_of_labels) if labels else None
    rows = sum(shift.reference_rows)
    condition = _condition(p_value, 0 if refused else labels, withdrawn)
    changed: list[str] = []
    if refused is not None:
        reading = f"The class shares of {plural(shift.answers, 'answer')} are not estimated: {refused}."
    elif withdrawn is not None:
        reading = f"Withdrawn: there are no class shares, because labels contradict them. {withdrawn}"
    else:
        about = _largest_change(shift) if positive is None else positive
        told = (about,) if len(classes) == 2 else range(len(classes))
        z = float(scipy.special.ndtri(1 - (1 - confidence) / (2 if len(classes) == 2 else 2 * len(classes))))
        changed = [classes[k] for k in told if _has_changed(at_once, k, z)]
        reading = f"{_sentence(shift, about, classes[about], rows, confidence)} {_change(changed)} {condition}"
    fitted = shift.calibrator if refused is None and withdrawn is None else None
    return ClassShares(
        answers=shift.answers,
        reference_rows=rows,
        changed_classes=list(classes) if changed and len(classes) == 2 else changed,
        classes=[]
        if fitted is None
        else [
            ClassShare(name=name, reference=float(share), em=em, bbse=bbse, bias=bias)
            for name, share, em, bbse, bias in zip(
                classes, shift.reference_shares, shift.em, shift.bbse, fitted.bias, strict=True
            )
        ],
        slope=None if fitted is None else fitted.slope,
        p_value=p_value,
        condition=condition,
        refused=refused,
        withdrawn=withdrawn,
        reading=reading,
    )


def shares_of_rows(
    classes: Sequence[str],
    p_NC: Array,
    labelled: tuple[Array, npt.NDArray[np.intp]],
    reference: tuple[Array, npt.NDArray[np.intp]],
    *,
    confidence: float,
    positive: int | None = None,
) -> ClassShares:
    """Describe the class shares of the rows of a table.

    Args:
        classes: Names of the classes.
        p_NC: Probabilities of all answers.
        labelled: Probabilities and labels of the answers with one.
        reference: Probabilities and labels of the reference rows.
        confidence: Confidence level of each interval.
        positive: Index of the positive class of two.
    """
    labelled_LC, label_L = labelled
    shift = metrics.prior_shift(p_NC, *reference, level=confidence)

    def sums_of_labels(label: int, share: float) -> CalibrationSums:
        p_L = shift.correct(labelled_LC, label=label, share=share)[:, label]
        return PositiveClass.sums_of(p_L, label_L == label)

    return class_shares(
        shift,
        _at_once(shift, lambda level: metrics.prior_shift(p_NC, *reference, level=level), confidence),
        classes,
        labels=len(label_L),
        sums_of_labels=sums_of_labels,
        confidence=confidence,
        positive=positive,
    )


def shares_of_cells(
    classes: Sequence[str],
    positive: int,
    answers_C: npt.NDArray[np.int64],
    labelled: CalibrationSums,
    reference: tuple[Sequence[int], Sequence[int]],
    edges: Sequence[int],
    *,
    confidence: float,
) -> ClassShares:
    """Describe the class shares of answers that are counted by cells of p(positive).

    Args:
        classes: Names of both classes.
        positive: Index of the positive one.
        answers_C: All answers, by the 3,000 cells.
        labelled: Sums of the answers with a label, by p(positive).
        reference: Reference rows of the other class and of the positive one, by the cells between `edges`.
        edges: Ends of these cells, in 3,000ths, without 0 and 1.
        confidence: Confidence level of each interval.
    """
    cell_C = np.searchsorted(edges, np.arange(CELLS), side="right")
    p_SC, rows_SC = _cells(reference, edges)
    answers_S = np.bincount(cell_C, answers_C, len(p_SC))

    def at(level: float) -> PriorShift:
        return metrics.prior_shift_of_scores(p_SC, answers_S, rows_SC, level=level)

    shift = at(confidence)
    count_C, _, positives_C = labelled.cells[:3]
    occupied = np.flatnonzero(count_C)

    def sums_of_labels(label: int, share: float) -> CalibrationSums:
        p_G = shift.correct(p_SC, label=label, share=share)[cell_C[occupied], label]
        right_G = positives_C[occupied] if label else count_C[occupied] - positives_C[occupied]
        cells_KC = np.zeros_like(labelled.cells)
        for row, value_G in enumerate((count_C[occupied], count_C[occupied] * p_G, right_G)):
            cells_KC[row] = np.bincount(cell_of(p_G), value_G, CELLS)
        return CalibrationSums(cells_KC)

    names = [classes[1 - positive], classes[positive]]
    return class_shares(
        shift,
        shift,
        names,
        labels=int(labelled.n),
        sums_of_labels=sums_of_labels,
        confidence=confidence,
        positive=1,
    )


def _cells(reference: tuple[Sequence[int], Sequence[int]], edges: Sequence[int]) -> tuple[Array, Array]:
    """Return the probabilities that stand for the cells, and the reference rows in them, both (S, 2)."""
    # Any value inside a cell may stand for it. That of the log-odds' middle keeps a rare class apart from 0.
    middle_S = np.array([_middle(low / CELLS, high / CELLS) for low, high in pairwise([0, *edges, CELLS])])
    rows_SC = np.stack([np.asarray(reference[0], float), np.asarray(reference[1], float)], axis=1)
    return np.stack([1 - middle_S, middle_S], axis=1), rows_SC


def contradiction(shift: PriorShift, classes: Sequence[str], sums_of_labels: SumsOfLabels) -> str | None:
    """Return how labels contradict the shares, or None if they do not.

    The labels of a class are compared with its corrected probabilities, once with the upper limit of its share and once
    with the lower one. The limits of both gaps are valid after every label, and do not depend on which answers get a
    label, as long as this depends on their scores only.
    """
    tested = range(1, 2) if len(classes) == 2 else range(len(classes))
    confidence = 1 - FALSE_WITHDRAWAL / len(tested)
    for k in tested:
        for one in (shift.em[k], shift.bbse[k]):
            if one.lower is None or one.upper is None:
                continue
            most, least = sums_of_labels(k, one.upper), sums_of_labels(k, one.lower)
            is_more = metrics.gap_sequence(most, level=confidence).lower > 0
            if is_more or metrics.gap_sequence(least, level=confidence).upper < 0:
                sums, limit = (most, "at most") if is_more else (least, "at least")
                return (
                    f"Of {plural(int(sums.n), 'answer')} with a label, {percent(metrics.accuracy(sums))} are"
                    f" {classes[k]}, where the shares say {limit} {percent(metrics.mean_confidence(sums))}."
                )
    return None


def _at_once(shift: PriorShift, again: Callable[[float], PriorShift], confidence: float) -> PriorShift:
    classes = len(shift.em)
    return shift if classes <= 2 else again(1 - (1 - confidence) / classes)


def _middle(low: float, high: float) -> float:
    """Return the middle of a cell in log-odds; half or twice as far from the end in a cell at 0 or 1."""
    if low == 0:
        return high / 2
    if high == 1:
        return (1 + low) / 2
    odds = np.sqrt(low / (1 - low) * high / (1 - high))
    return float(odds / (1 + odds))


def _name_class(refusal: str, classes: Sequence[str]) -> str:
    """Name the class of a refusal, which the metric knows by its number."""
    for k, name in enumerate(classes):
        if refusal.startswith(f"class {k} "):
            return f"class {name} " + refusal.removeprefix(f"class {k} ")
    return refusal


def _has_changed(shift: PriorShift, k: int, z: float) -> bool:
    """Return whether the class has another share in the population of the answers than in that of the reference.

    The interval is for the share among these answers. So the two samples add their own variance.
    """
    one, share = shift.em[k], float(shift.reference_shares[k])
    if one.value is None or one.lower is None or one.upper is None:
        return False
    half = (one.upper if share > one.value else one.lower) - one.value
    sampling = share * (1 - share) * (1 / shift.answers + 1 / sum(shift.reference_rows))
    return (share - one.value) ** 2 > half**2 + z**2 * sampling


def _largest_change(shift: PriorShift) -> int:
    """Return the class whose share has changed most."""
    return int(np.abs(np.array([one.value for one in shift.em], float) - shift.reference_shares).argmax())


def _share(one: PriorShare, confidence: float) -> str:
    if one.value is None:
        return "unknown"
    return f"{percent(one.value)} ({level(confidence)} interval {percent(one.lower)} to {percent(one.upper)})"


def _sentence(shift: PriorShift, k: int, name: str, rows: int, confidence: float) -> str:
    return (
        f"Of {plural(shift.answers, 'answer')}, {_share(shift.em[k], confidence)} are {name} by EM and"
        f" {_share(shift.bbse[k], confidence)} by BBSE. Of {plural(rows, 'reference row')},"
        f" {percent(shift.reference_shares[k])} are."
    )


def _change(names: Sequence[str]) -> str:
    if not names:
        return "No change of the class shares is shown."
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    whose = f"share of {listed} has" if len(names) == 1 else f"shares of {listed} have"
    return (
        f"The {whose} changed, so the served probabilities do not hold on these answers. Nor does what is"
        " expected by them."
    )


def _condition(p_value: float | None, labels: int, withdrawn: str | None) -> str:
    """Return the condition, and what tests of the scores and of `labels` labels say of it."""
    tested = (
        ""
        if p_value is None
        else f" A test of the scores {'rejects it' if p_value < 0.05 else 'does not reject it'} (p = {p_value:.2g})."
    )
    if withdrawn is not None:
        return f"{CONDITION}{tested} Labels contradict it."
    known = (
        f"{plural(labels, 'label')} so far {'does' if labels == 1 else 'do'} not contradict it."
        if labels
        else "No label has tested it yet."
    )
    return f"{CONDITION}{tested} No test without labels can confirm it. {known}"
