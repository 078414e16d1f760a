"""How things stand: the verdict, by the figures that it is about."""

from __future__ import annotations

from typing import Literal

from trueodds.reports.alarm import Advice, Alarm
from trueodds.reports.figures import Figures
from trueodds.reports.schemas import Labelling, PositiveFigures, Verdict
from trueodds.sums.answers import AnswerSums

TOLERANCE = 0.02
"""A calibration error that is small enough, where no alarm names its own."""
SURE = 0.05
"""p-value of the test of a table below which its gaps are more than chance."""
PLAIN = 0.001
"""p-value below which they are called by their name, without "leans"."""
CERTAIN = 0.95
"""Level of the interval whose upper end must be within the tolerance, whatever level is asked for."""

Direction = Literal["over_confident", "under_confident", "uneven"]
LEANS: dict[Direction, Verdict] = {
    "over_confident": "leans_over_confident",
    "under_confident": "leans_under_confident",
    "uneven": "leans_uneven",
}
OF_POSITIVE = ("ece", "ece_lower", "ece_upper", "floor_p95", "calibration_p_value", "bins")
"""Figures that verdict and headline are about."""


def leads(figures: Figures, positive: PositiveFigures, *, one_look: bool) -> bool:
    """Whether p(positive) is what is spoken of: unless the more probable class alone shows more than chance.

    That one has half as many bins to fill: where both sides err alike, it shows it from fewer labels on.
    """
    if positive.ece is None or positive.floor_p95 is None:
        return False
    if one_look:
        return bool((positive.calibration_p_value or 0.0) < SURE or figures["calibration_p_value"] >= SURE)
    return bool(positive.ece > positive.floor_p95 or figures["ece"] <= figures["floor_p95"])


def of_positive(figures: Figures, positive: PositiveFigures) -> Figures:
    """Figures in which the errors are those of p(positive).

    Gap, accuracy and confidence stay: over-confident is who is too sure of either class.
    """
    return figures | {name: getattr(positive, name) for name in OF_POSITIVE}


def is_within(
    sums: AnswerSums,
    certain: Figures,
    labelling: Labelling,
    tolerance: float,
    positive: PositiveFigures | None = None,
) -> bool:
    """Whether the ECE is at most `tolerance`: the upper end of its 95% interval is, at this one look.

    Where the labelled answers are not like all answers, the weighted figures must be within it, too, and there must be
    some. `certain`: the figures at the level CERTAIN. `positive`: those of p(positive) at that level, which must be
    within it as well; weighted ones there are none of.
    """
    if not sums.labelled.n:
        return False
    uppers = [certain["ece_upper"]]
    if positive is not None and positive.ece_upper is not None:
        uppers.append(positive.ece_upper)
    if labelling.choice and labelling.choice.warning:
        if not labelling.weighted or positive is not None:
            return False
        uppers += [figures.ece_upper for figures in labelling.weighted]
    return bool(max(uppers) <= tolerance)


def verdict_of(
    sums: AnswerSums, figures: Figures, alarm: Alarm | None, advice: Advice | None, *, within: bool
) -> Verdict:
    """How things stand. Whatever is said without "leans" against a version holds however often one looks.

    That takes the alarm's evidence (`alarm`: None where the report is not about all labels so far); the direction
    is that of the sums. A look at which the ECE is above its floor's 95th percentile only leans: 1 look in 20 at a
    sound version does. So does one at which recalibrating is known to help, unless the ECE is within the tolerance.
    off_at_times: there is evidence, and all labels together show no more than chance: the error is over, or young.
    """
    if not sums.answers:
        return "no_answers"
    if not sums.labelled.n:
        return "no_labels"
    more = figures["ece"] > figures["floor_p95"]
    direction = direction_of(figures["signed_gap"], figures["ece"])
    if alarm is not None and alarm.state != "quiet":
        return direction if more else "off_at_times"
    if within:
        return "within_tolerance"
    if more or (advice is not None and advice.helps == "yes"):
        return LEANS[direction]
    return "cannot_tell"


def verdict_at_one_look(p_value: float, signed_gap: float, ece: float, *, within: bool) -> Verdict:
    """How labels that are looked at once stand, by the p-value of the test of calibration."""
    if within:
        return "within_tolerance"
    if p_value >= SURE:
        return "cannot_tell"
    direction = direction_of(signed_gap, ece)
    return direction if p_value < PLAIN else LEANS[direction]


def direction_of(signed_gap: float, ece: float) -> Direction:
    """Which way the confidences are off; uneven: less than half of the ECE is of one sign."""
    if abs(signed_gap) < ece / 2:
        return "uneven"
    return "over_confident" if signed_gap < 0 else "under_confident"
