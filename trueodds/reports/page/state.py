"""One word for how things stand, in an order in which the worst comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trueodds.reports.schemas import Report, Verdict

Name = Literal["alarm", "acknowledged", "off", "leans", "waiting", "fine"]


@dataclass(frozen=True)
class State:
    """The name chooses colour and shape."""

    name: Name
    word: str
    text: str
    """One sentence for people who see this page for the first time."""


_LESS, _MORE = "it is right less often than it says", "it is right more often than it says"
_BOTH = "it is too sure in some ranges and not sure enough in others"
_LOOK = "In these labels {}. One look does not settle it."
_STATES: dict[Verdict, State] = {
    "no_answers": State("waiting", "Nothing asked yet", "There is nothing to judge until the model has been asked."),
    "no_labels": State("waiting", "No labels yet", "Only true labels can tell whether the model's percentages hold."),
    "cannot_tell": State("waiting", "Cannot tell yet", "No more than chance has shown, in too few labels to be sure."),
    "within_tolerance": State(
        "fine",
        "Within {tolerance}",
        "At 95%, for this one look, its percentages are off by {tolerance} at most on average.",
    ),
    "leans_over_confident": State("leans", "Leans over-confident", _LOOK.format(_LESS)),
    "leans_under_confident": State("leans", "Leans under-confident", _LOOK.format(_MORE)),
    "leans_uneven": State("leans", "Leans uneven", _LOOK.format(_BOTH)),
    "over_confident": State("off", "Over-confident", f"{_LESS.capitalize()}."),
    "under_confident": State("off", "Under-confident", f"{_MORE.capitalize()}."),
    "uneven": State("off", "Uneven", f"{_BOTH.capitalize()}."),
    "off_at_times": State(
        "off", "Off at times", "At some time its percentages were off; all labels together do not show it."
    ),
}


def state_of(report: Report) -> State:
    """An alarm speaks of all labels since the version was first served; everything else of the window shown."""
    alarm = "quiet" if report.alarm is None else report.alarm.state
    if alarm == "fired":
        return State("alarm", "Alarm", "Do not trust this model's percentages until somebody has looked into it.")
    if alarm == "acknowledged":
        return State(
            "acknowledged",
            "Alarm, acknowledged",
            "Its percentages were found to be off; somebody knows and has said why.",
        )
    state, tolerance = _STATES[report.verdict], f"{report.tolerance:g}"
    words = (text.replace("{tolerance}", tolerance) for text in (state.word, state.text))
    return State(state.name, *words)
