"""State of a report in a few words, with the worst state first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trueodds.reports.schemas import Report, Verdict

Name = Literal["alarm", "acknowledged", "off", "leans", "waiting", "fine"]


@dataclass(frozen=True)
class State:
    """State of a report. Its name selects colour and shape."""

    name: Name
    word: str
    text: str
    """Explanation in one sentence, for first-time readers."""


_LESS, _MORE = "it is right less often than it says", "it is right more often than it says"
_BOTH = "it is too sure in some ranges and not sure enough in others"
_LOOK = "In these labels {}. One look does not settle it."
_NO_MORE = "The labels show no more than chance, which is not enough to be sure."
_STATES: dict[Verdict, State] = {
    "no_answers": State("waiting", "No answers yet", "There is nothing to judge until the model has given answers."),
    "no_labels": State("waiting", "No labels yet", "Only true labels can show whether the model's percentages hold."),
    "cannot_tell": State("waiting", "Cannot tell yet", _NO_MORE),
    "within_tolerance": State(
        "fine",
        "Within {tolerance}",
        "With 95% confidence, for this one look, its percentages are off by at most {tolerance} on average.",
    ),
    "leans_over_confident": State("leans", "Perhaps over-confident", _LOOK.format(_LESS)),
    "leans_under_confident": State("leans", "Perhaps under-confident", _LOOK.format(_MORE)),
    "leans_uneven": State("leans", "Perhaps uneven", _LOOK.format(_BOTH)),
    "over_confident": State("off", "Over-confident", f"{_LESS.capitalize()}."),
    "under_confident": State("off", "Under-confident", f"{_MORE.capitalize()}."),
    "uneven": State("off", "Uneven", f"{_BOTH.capitalize()}."),
    "off_at_times": State(
        "off",
        "Miscalibrated at times",
        "At some time its percentages were off, although all labels together do not show it.",
    ),
}
_FEWER, _SOME_MORE = "fewer answers are {label} than it says", "more answers are {label} than it says"
_BOTH_WAYS = "p({label}) is too high in some ranges and too low in others"
_STATES_OF_POSITIVE: dict[Verdict, State] = _STATES | {
    "cannot_tell": State("waiting", "Not yet known", f"For p({{label}}), {_NO_MORE[0].lower()}{_NO_MORE[1:]}"),
    "within_tolerance": State(
        "fine",
        "Within {tolerance} and a factor of {ratio}",
        "With 95% confidence, for this one look, p({label}) is off by at most {tolerance} on average, and the number of"
        " {label} is as expected up to a factor of {ratio}.",
    ),
    "off_at_times": State(
        "off",
        "Miscalibrated at times",
        "At some time its percentages were off, although p({label}) of all labels together does not show it.",
    ),
    "leans_too_high": State("leans", "p({label}) is perhaps too high", _LOOK.format(_FEWER)),
    "leans_too_low": State("leans", "p({label}) is perhaps too low", _LOOK.format(_SOME_MORE)),
    "leans_uneven": State("leans", "p({label}) is perhaps uneven", _LOOK.format(_BOTH_WAYS)),
    "too_high": State("off", "p({label}) is too high", f"{_FEWER.capitalize()}."),
    "too_low": State("off", "p({label}) is too low", f"{_SOME_MORE.capitalize()}."),
    "uneven": State("off", "p({label}) is uneven", f"{_BOTH_WAYS}."),
}


def state_of(report: Report) -> State:
    """Return the state of a report.

    An alarm is about all labels since the version was first served. All other states are about the window shown.
    """
    alarm = "quiet" if report.alarm is None else report.alarm.state
    if alarm == "fired":
        return State("alarm", "Alarm", "Do not trust this model's percentages until somebody has found the cause.")
    if report.acting is not None and report.acting.alarm.state == "fired":
        return State(
            "alarm", "Promise broken", "Answers that act alone were wrong more often than this version promises."
        )
    if report.sets is not None and report.sets.fired_levels:
        return State(
            "alarm", "Sets do not cover", "Sets of classes missed the true class more often than they promise."
        )
    if alarm == "acknowledged":
        return State(
            "acknowledged",
            "Alarm, acknowledged",
            "Its percentages are off. Somebody has acknowledged it and given a reason.",
        )
    positive = report.positive
    state = (_STATES if positive is None else _STATES_OF_POSITIVE)[report.verdict]
    ratio = "" if report.ratio_tolerance is None else f"{report.ratio_tolerance:g}"
    values = {"tolerance": f"{report.tolerance:g}", "ratio": ratio, "label": positive.label if positive else ""}
    return State(state.name, state.word.format(**values), state.text.format(**values))
