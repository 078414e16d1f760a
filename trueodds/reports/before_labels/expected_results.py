"""Expected precision and recall of the answers without a label, and their withdrawal once labels contradict them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueodds import metrics
from trueodds.metrics import CELLS, CalibrationRows, CalibrationSums, ExpectedDecision, ExpectedShare
from trueodds.metrics.labelling.expected import CENTRE_C
from trueodds.processes.choices import THRESHOLDS
from trueodds.reports.data import memoise
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import ExpectedClass, ExpectedDecisions
from trueodds.reports.words import level, percent
from trueodds.sums.answers import AnswerSums
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveSums
from trueodds.texts import plural

FALSE_WITHDRAWAL = 0.05
"""Largest share of sound versions that ever lose the numbers by the gaps of their labels; the alarm has its own."""
CONDITION = (
    "This holds only if the calibration holds on these answers. Without labels nobody can see a concept shift: that the"
    " same inputs have other labels now."
)
MOST_CLASSES = 100
"""Largest number of classes with a row of their own: those with the most answers."""


@dataclass(frozen=True)
class LabelEvidence:
    """Evidence of labels against the calibration of some probabilities."""

    labelled: CalibrationSums
    """Sums of all labels so far by these probabilities."""
    refuted_null: str | None = None
    """Null hypothesis that an alarm has refuted, in words."""
    p_value: float | None = None
    """p-value of the test of calibration at one look, for a table; None if labels keep arriving."""

    def contradiction(self, threshold: float) -> str | None:
        """Return why the labels contradict the calibration, or None if they do not.

        There are two tests beside the alarm: the signed gap of the labels above the threshold, and that of the others.
        Their limits are valid after every label.
        """
        if self.refuted_null is not None:
            return f"The alarm's evidence refutes this: {self.refuted_null.rstrip('.')}."
        if self.p_value is not None and self.p_value < FALSE_WITHDRAWAL / 2:
            return f"The test of calibration rejects it (p = {self.p_value:.2g})."
        error = FALSE_WITHDRAWAL / (2 if self.p_value is None else 4)
        k = math.ceil(threshold * CELLS - 1e-9)
        above_C = np.arange(CELLS) >= k
        for where, inside_C in (("above", above_C), ("up to", ~above_C)):
            part = CalibrationSums(np.where(inside_C, self.labelled.cells, 0.0))
            if not part.n:
                continue
            gap = metrics.gap_sequence(part, level=1 - error)
            if gap.lower > 0 or gap.upper < 0:
                says, is_so = percent(metrics.mean_confidence(part)), percent(metrics.accuracy(part))
                return (
                    f"{plural(part.n, 'answer')} with a label {where} {percent(threshold)} say {says} on average, and"
                    f" {is_so} came true."
                )
        return None


@memoise(128)
def _decisions(
    sums: AnswerSums, at: tuple[float, ...], calibration: CalibrationRows | None, confidence: float
) -> list[ExpectedDecision]:
    """Compute the expected decisions on the answers without a label, from their cells."""
    left_C = np.maximum(sums.answers_C - np.rint(sums.labelled.cells[0]).astype(np.int64), 0)
    occupied = left_C > 0
    return metrics.expected_decisions(
        CENTRE_C[occupied],
        at=at,
        counts=left_C[occupied],
        within=0.5 / CELLS,
        calibration=calibration,
        level=confidence,
    )


def expected_of_positive(
    positive: PositiveSums,
    options: ReportOptions,
    evidence: LabelEvidence,
    calibration: CalibrationRows | None = None,
    p_N: Array | None = None,
) -> ExpectedDecisions | None:
    """Return the expected decisions by p(positive); None if every answer has a label.

    Args:
        positive: Sums by p(positive) of the report's window.
        options: Confidence level, thresholds and costs.
        evidence: Evidence of all labels so far.
        calibration: Information of the rows that fitted the calibrator.
        p_N: p(positive) of the answers without a label, if the rows are known. Default: the cells of the sums.
    """
    extra = [options.alert_threshold, *([] if options.costs is None else [options.costs.threshold])]
    at = tuple(sorted({round(t * CELLS) / CELLS for t in (*THRESHOLDS, *extra)}))
    return _expected("positive", positive.name, positive.sums, at, options, evidence, calibration, p_N)


def expected_of_acting(
    sums: AnswerSums,
    threshold: float,
    options: ReportOptions,
    evidence: LabelEvidence,
    calibration: CalibrationRows | None = None,
) -> ExpectedDecisions | None:
    """Return the expected decisions of answers that act alone from a confidence on; None if every answer has a label.

    Args:
        sums: Sums of the report's window.
        threshold: Confidence from which on an answer acts. Its cell of 1/3,000 counts as acting.
        options: Confidence level.
        evidence: Evidence of all labels so far.
        calibration: Information of the rows that fitted the calibrator.
    """
    at = (max(math.ceil(threshold * CELLS - 1e-9) - 1, 0) / CELLS,)
    return _expected("acting", "right", sums, at, options, evidence, calibration)


def expected_of_classes(
    probabilities_NC: Array,
    classes: Sequence[str],
    options: ReportOptions,
    evidence: LabelEvidence,
    calibration: Sequence[CalibrationRows] | None = None,
) -> ExpectedDecisions | None:
    """Return the expected decisions of each class against the rest; None if there are no answers without a label."""
    answers = len(probabilities_NC)
    if not answers:
        return None
    withdrawn = evidence.contradiction(0.0)
    rows: list[ExpectedClass] = []
    if withdrawn is None:
        every = metrics.expected_class_decisions(probabilities_NC, calibration=calibration, level=options.level)
        named = sorted(zip(classes, every, strict=True), key=lambda pair: -pair[1].alerts)[:MOST_CLASSES]
        kept = {name for name, _ in named}
        rows = [
            ExpectedClass(name=name, decision=decision)
            for name, decision in zip(classes, every, strict=True)
            if name in kept
        ]
    fit_rows = calibration[0].rows if calibration else None
    conditions = _conditions(evidence, fit_rows, withdrawn)
    words = f"Of {_answers(answers, evidence)}, by class. {conditions}"
    return ExpectedDecisions(
        about="classes",
        label="",
        answers=answers,
        decisions=[],
        classes=rows,
        fit_rows=fit_rows,
        condition=conditions,
        withdrawn=withdrawn,
        reading=words if withdrawn is None else _withdrawn("the classes", withdrawn),
    )


def _expected(
    about: str,
    label: str,
    sums: AnswerSums,
    at: tuple[float, ...],
    options: ReportOptions,
    evidence: LabelEvidence,
    calibration: CalibrationRows | None,
    p_N: Array | None = None,
) -> ExpectedDecisions | None:
    answers = sums.answers - sums.labelled.n if p_N is None else len(p_N)
    if answers <= 0:
        return None
    chosen = at[0] if about == "acting" else round(options.alert_threshold * CELLS) / CELLS
    withdrawn, found = evidence.contradiction(chosen), []
    if withdrawn is None:
        found = (
            _decisions(sums, at, calibration, options.level)
            if p_N is None
            else metrics.expected_decisions(p_N, at=at, calibration=calibration, level=options.level)
        )
    fit_rows = None if calibration is None else calibration.rows
    condition = _conditions(evidence, fit_rows, withdrawn)
    what = f"alerts on {label}" if about == "positive" else "answers that act alone"
    reading = _withdrawn(what, withdrawn) if withdrawn else ""
    if found:
        one = next(one for one in found if one.threshold == chosen)
        reading = f"{_sentence(about, label, one, evidence, options.level)} {condition}"
    return ExpectedDecisions(
        about="acting" if about == "acting" else "positive",
        label=label,
        threshold=chosen,
        answers=answers,
        decisions=found,
        classes=[],
        fit_rows=fit_rows,
        condition=condition,
        withdrawn=withdrawn,
        reading=reading,
    )


def _answers(answers: int, evidence: LabelEvidence) -> str:
    return plural(answers, "answer") + (" without a label" if evidence.labelled.n else "")


def _share(share: ExpectedShare, confidence: float) -> str:
    limits = f"{level(confidence)} interval {percent(share.lower)} to {percent(share.upper)}"
    return f"{percent(share.value)} ({limits})"


def _sentence(about: str, label: str, one: ExpectedDecision, evidence: LabelEvidence, confidence: float) -> str:
    """Describe the result at the chosen threshold."""
    of = _answers(one.answers, evidence)
    if about == "acting":
        right = "none" if one.precision.value is None else f"{_share(one.precision, confidence)} of them right"
        return f"Of {of}, {percent(one.alert_share)} act alone, {right}."
    first = f"Of {of}, {percent(one.alert_share)} have a p({label}) above {percent(one.threshold)}."
    if one.precision.value is None:
        return first
    return (
        f"{first} Expected precision {_share(one.precision, confidence)}, expected recall"
        f" {_share(one.recall, confidence)}."
    )


def _conditions(evidence: LabelEvidence, fit_rows: int | None, withdrawn: str | None) -> str:
    """Return the condition of the numbers, whether labels contradict it, and what the limits cover."""
    labels = evidence.labelled.n
    if withdrawn is not None:
        return f"{CONDITION} Labels contradict it."
    tested = (
        f"{plural(labels, 'label')} so far {'does' if labels == 1 else 'do'} not contradict it."
        if labels
        else "No label has tested it yet."
    )
    covered = (
        "The limits do not allow for the rows that fitted the calibrator, because these are not known."
        if fit_rows is None
        else f"The limits allow for hidden labels and for a fit on {plural(fit_rows, 'row')} (intercept and slope of"
        " the log-odds)."
    )
    return f"{CONDITION} {tested} {covered}"


def _withdrawn(what: str, reason: str) -> str:
    return (
        f"Withdrawn: there is no expected precision or recall of {what}, because labels contradict the calibration."
        f" {reason} Use the figures of the answers with a label, and recalibrate."
    )
