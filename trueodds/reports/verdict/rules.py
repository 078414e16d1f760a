"""Rules of the verdict."""

from __future__ import annotations

from typing import Literal

from trueodds.processes.choices import MOST_RATIO
from trueodds.reports.figures import Figures
from trueodds.reports.schemas import Labelling, PositiveFigures, Verdict
from trueodds.reports.schemas.alarm import Advice, Alarm
from trueodds.reports.verdict.positive_ratio import ratio_holds
from trueodds.sums.answers import AnswerSums

SURE = 0.05
"""p-value of the test of a table below which its gaps are more than chance."""
PLAIN = 0.001
"""p-value below which a verdict is given without "leans"."""
CERTAIN = 0.95
"""Confidence level of the interval whose upper end must be within the tolerance, independent of the requested level."""

Direction = Literal["over_confident", "under_confident", "uneven", "too_high", "too_low"]
LEANS: dict[Direction, Verdict] = {
    "over_confident": "leans_over_confident",
    "under_confident": "leans_under_confident",
    "uneven": "leans_uneven",
    "too_high": "leans_too_high",
    "too_low": "leans_too_low",
}
"""Verdict of a single significant look, by the direction of the error."""
OF_POSITIVE = ("signed_gap", "ece", "ece_lower", "ece_upper", "floor_p95", "calibration_p_value", "bins")
"""Figures that verdict and headline use."""


def of_positive(positive: PositiveFigures) -> Figures:
    """Return the figures of p(positive) that its verdict uses."""
    return {name: getattr(positive, name) for name in OF_POSITIVE}


def room_of(positive: PositiveFigures, tolerance: float, ratio_tolerance: float) -> float:
    """Return the largest acceptable error of p(positive): `tolerance`, or less if one class is rare.

        room = min(tolerance, (ratio tolerance - 1) min(upper limit of the prevalence, 1 - its lower limit))

    An error of .01 is a fiftieth of a prevalence of one half. It is ten times a prevalence of .001.
    """
    rarer = min(positive.prevalence_upper or 0.0, 1 - (positive.prevalence_lower or 0.0))
    return min(tolerance, (ratio_tolerance - 1) * rarer)


def is_within(
    sums: AnswerSums,
    certain: Figures,
    labelling: Labelling,
    tolerance: float,
    positive: PositiveFigures | None = None,
    ratio_tolerance: float = MOST_RATIO,
) -> bool:
    """Return whether the upper end of the ECE's 95% interval is at most `tolerance`, at this one look.

    If the labelled answers differ from all answers, there must be weighted figures, and they must be within the
    tolerance too.

    With `positive`, three more conditions apply. The upper end of the ECE of p(positive) must be within the tolerance.
    Its lower end must be within `room_of`. The whole interval of expected / observed positives must lie between 1 /
    `ratio_tolerance` and `ratio_tolerance`. There are no weighted figures of p(positive), so a difference between
    labelled and all answers then makes the result False.

    Args:
        sums: Sums of the answers and their labels.
        certain: Figures at the level CERTAIN.
        labelling: Checks of the labels.
        tolerance: Largest acceptable ECE.
        positive: Figures of p(positive) at the level CERTAIN.
        ratio_tolerance: Largest acceptable expected / observed positives.
    """
    if not sums.labelled.n:
        return False
    uppers = [certain["ece_upper"]]
    if positive is not None and positive.ece_upper is not None:
        uppers.append(positive.ece_upper)
        if not ratio_holds(positive, ratio_tolerance):
            return False
        if (positive.ece_lower or 0.0) > room_of(positive, tolerance, ratio_tolerance):
            return False
    if labelling.choice and labelling.choice.warning:
        if not labelling.weighted or positive is not None:
            return False
        uppers += [figures.ece_upper for figures in labelling.weighted]
    return bool(max(uppers) <= tolerance)


def verdict_of(
    sums: AnswerSums,
    figures: Figures,
    alarm: Alarm | None,
    advice: Advice | None,
    *,
    within: bool,
    positive: bool = False,
) -> Verdict:
    """Return the verdict of a service's report.

    A verdict against a version without "leans" is valid at any number of looks. It requires the alarm's evidence; its
    direction is that of the sums. A look at which the ECE exceeds the 95th percentile of its noise floor only leans:
    this happens at 1 look in 20 at a calibrated version. If recalibrating is known to help, the verdict leans as well,
    unless the ECE is within the tolerance. `off_at_times` means that there is evidence, but all labels together show no
    more than chance: the error is over, or recent.

    With `positive`, the alarm of the more probable class is evidence against p(positive) too, because a calibrated
    p(positive) implies a calibrated confidence. If the alarm on p(positive) itself has fired, the direction is that of
    the sums, even if chance could explain them. An alarm on levels only is no evidence on the confidences, so an error
    of these beyond chance still leans.

    Args:
        sums: Sums of the answers and their labels.
        figures: Figures that the verdict is about.
        alarm: The alarm; None if the report is not about all labels so far.
        advice: Whether recalibrating would help.
        within: Result of `is_within`.
        positive: The figures are those of p(positive).
    """
    if not sums.answers:
        return "no_answers"
    if not sums.labelled.n:
        return "no_labels"
    more = figures["ece"] > figures["floor_p95"]
    direction = direction_of(figures["signed_gap"], figures["ece"], positive=positive)
    if alarm is not None and alarm.state != "quiet":
        if not more and not (positive and alarm.is_positive_refuted):
            return "off_at_times"
        return LEANS[direction] if alarm.is_about_levels_only else direction
    if within:
        return "within_tolerance"
    if more or (advice is not None and advice.helps == "yes"):
        return LEANS[direction]
    return "cannot_tell"


def verdict_at_one_look(figures: Figures, *, within: bool, positive: bool = False) -> Verdict:
    """Return the verdict on labels that are looked at once, by the p-value of the test of calibration.

    `positive`: the figures are those of p(positive).
    """
    p_value = figures["calibration_p_value"]
    if within:
        return "within_tolerance"
    if p_value >= SURE:
        return "cannot_tell"
    direction = direction_of(figures["signed_gap"], figures["ece"], positive=positive)
    return direction if p_value < PLAIN else LEANS[direction]


def beside(positive: PositiveFigures, of_top_label: Verdict) -> Verdict:
    """Return the verdict on the more probable class at one look, beside that on p(positive).

    If p(positive) is calibrated, so is the more probable class. So the class is tested only if the test of p(positive)
    has rejected (closed testing: Marcus, Peritz and Gabriel 1976). Then at most 1 in 20 tables with a calibrated
    p(positive) gets the verdict that either is off.
    """
    rejected = positive.calibration_p_value is not None and positive.calibration_p_value < SURE
    return of_top_label if rejected or of_top_label == "within_tolerance" else "cannot_tell"


def direction_of(signed_gap: float, ece: float, *, positive: bool = False) -> Direction:
    """Return the direction of the error. It is "uneven" if the signed gap is less than half of the ECE."""
    if abs(signed_gap) < ece / 2:
        return "uneven"
    if positive:
        return "too_high" if signed_gap < 0 else "too_low"
    return "over_confident" if signed_gap < 0 else "under_confident"
