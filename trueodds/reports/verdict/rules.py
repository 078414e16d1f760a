"""How things stand: the verdict, by the figures that it is about."""

from __future__ import annotations

from typing import Literal

from trueodds.reports.figures import Figures
from trueodds.reports.schemas import Labelling, PositiveFigures, Verdict
from trueodds.reports.schemas.alarm import Advice, Alarm
from trueodds.reports.verdict.in_the_large import RATIO_TOLERANCE, ratio_holds
from trueodds.sums.answers import AnswerSums

SURE = 0.05
"""p-value of the test of a table below which its gaps are more than chance."""
PLAIN = 0.001
"""p-value below which they are called by their name, without "leans"."""
CERTAIN = 0.95
"""Level of the interval whose upper end must be within the tolerance, whatever level is asked for."""

Direction = Literal["over_confident", "under_confident", "uneven", "too_high", "too_low"]
LEANS: dict[Direction, Verdict] = {
    "over_confident": "leans_over_confident",
    "under_confident": "leans_under_confident",
    "uneven": "leans_uneven",
    "too_high": "leans_too_high",
    "too_low": "leans_too_low",
}
OF_POSITIVE = ("signed_gap", "ece", "ece_lower", "ece_upper", "floor_p95", "calibration_p_value", "bins")
"""Figures that verdict and headline are about."""


def of_positive(positive: PositiveFigures) -> Figures:
    """Figures of p(positive), for its verdict."""
    return {name: getattr(positive, name) for name in OF_POSITIVE}


def room_of(positive: PositiveFigures, tolerance: float, ratio_tolerance: float) -> float:
    """Error of p(positive) that is put up with: `tolerance`, less where one class is rare.

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
    ratio_tolerance: float = RATIO_TOLERANCE,
) -> bool:
    """Whether the ECE is at most `tolerance`: the upper end of its 95% interval is, at this one look.

    Where the labelled answers are not like all answers, the weighted figures must be within it, too, and there must be
    some. `certain`: the figures at the level CERTAIN. `positive`: those of p(positive) at that level, which must be
    within it as well, and whose lower end must be within `room_of`; weighted ones there are none of. The whole interval
    of expected / observed positives must lie between 1 / `ratio_tolerance` and `ratio_tolerance`.
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
    """How things stand. Whatever is said without "leans" against a version holds however often one looks.

    That takes the alarm's evidence (`alarm`: None where the report is not about all labels so far); the direction
    is that of the sums. A look at which the ECE is above its floor's 95th percentile only leans: 1 look in 20 at a
    sound version does. So does one at which recalibrating is known to help, unless the ECE is within the tolerance.
    off_at_times: there is evidence, and all labels together show no more than chance: the error is over, or young.

    `positive`: the figures are those of p(positive). The alarm of the more probable class is evidence against it, too:
    where p(positive) is calibrated, so is the confidence. Where the alarm on p(positive) itself has fired, its
    direction is that of the sums, whatever chance could have made of them.
    """
    if not sums.answers:
        return "no_answers"
    if not sums.labelled.n:
        return "no_labels"
    more = figures["ece"] > figures["floor_p95"]
    direction = direction_of(figures["signed_gap"], figures["ece"], positive=positive)
    if alarm is not None and alarm.state != "quiet":
        return direction if more or (positive and alarm.of_positive_fired) else "off_at_times"
    if within:
        return "within_tolerance"
    if more or (advice is not None and advice.helps == "yes"):
        return LEANS[direction]
    return "cannot_tell"


def verdict_at_one_look(figures: Figures, *, within: bool, positive: bool = False) -> Verdict:
    """How labels that are looked at once stand, by the p-value of the test of calibration.

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
    """The verdict of the more probable class at one look beside that of p(positive): one test, not two.

    Where p(positive) is calibrated, so is the more probable class. So it is tested only if the test of p(positive) has
    rejected: of tables with a calibrated p(positive) at most 1 in 20 is told that either is off (closed testing:
    Marcus, Peritz and Gabriel 1976).
    """
    rejected = positive.calibration_p_value is not None and positive.calibration_p_value < SURE
    return of_top_label if rejected or of_top_label == "within_tolerance" else "cannot_tell"


def direction_of(signed_gap: float, ece: float, *, positive: bool = False) -> Direction:
    """Which way the confidences, or p(positive), are off; uneven: less than half of the ECE is of one sign."""
    if abs(signed_gap) < ece / 2:
        return "uneven"
    if positive:
        return "too_high" if signed_gap < 0 else "too_low"
    return "over_confident" if signed_gap < 0 else "under_confident"
