"""One word for how things stand, in an order in which the worst comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from service.report_schemas import Report

Name = Literal["alarm", "acknowledged", "off", "waiting", "fine"]
TOLERANCE = 0.02
"""A calibration error that is small enough, where no alarm names its own."""


@dataclass(frozen=True)
class State:
    """The name chooses colour and shape."""

    name: Name
    word: str
    text: str
    """One sentence for people who see this page for the first time."""


def state_of(report: Report) -> State:
    """An alarm speaks of all labels since the version was first served; everything else of the window shown."""
    if report.alarm is not None and report.alarm.state == "fired":
        return State("alarm", "Alarm", "Do not trust this model's percentages until somebody has looked into it.")
    if report.alarm is not None and report.alarm.state == "acknowledged":
        return State("acknowledged", "Alarm, acknowledged", "Its percentages are off; somebody knows and has said why.")
    if report.verdict == "no_answers":
        return State("waiting", "Nothing asked yet", "There is nothing to judge until the model has been asked.")
    if report.verdict == "no_labels":
        return State("waiting", "No labels yet", "Only true labels can tell whether the model's percentages hold.")
    tolerance, upper = tolerance_of(report), report.ece_upper
    if report.verdict == "cannot_tell":
        if upper is not None and upper <= tolerance:
            return State("fine", "Fine", f"Its percentages can be taken at their word, to within {tolerance:g}.")
        return State(
            "waiting", "Cannot tell yet", "No sign that anything is wrong, but too few labels to be sure of it."
        )
    word = {"over_confident": "Over-confident", "under_confident": "Under-confident"}.get(report.verdict, "Uneven")
    text = {
        "over_confident": "It is right less often than it says.",
        "under_confident": "It is right more often than it says.",
    }.get(report.verdict, "It is too sure in some ranges and not sure enough in others.")
    if upper is not None and upper <= tolerance:
        return State("fine", f"{word} by very little", f"{text} The error is real, but below {tolerance:g}.")
    return State("off", word, text)


def tolerance_of(report: Report) -> float:
    """The calibration error that is put up with: the alarm's."""
    if report.alarm is not None and report.alarm.nulls:
        return report.alarm.nulls[0].tolerance
    return TOLERANCE
