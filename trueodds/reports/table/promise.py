"""MayAct alone in plain words: from which confidence on, how many answers that is, and what the bound is worth."""

from __future__ import annotations

import math

from trueodds.metrics.decisions.acting import ActingThreshold
from trueodds.reports.schemas import MayAct
from trueodds.reports.words import decimal, level, percent
from trueodds.texts import plural


def may_act(found: ActingThreshold, drawn: str = "") -> MayAct:
    """Make the section of the report: the threshold beside its words; `drawn`: how its labels were chosen."""
    return MayAct(threshold=found, reading=" ".join(filter(None, [capitalised(reading(found)), drawn])))


def capitalised(text: str) -> str:
    """Write the first letter large.

    >>> capitalised("may act")
    'May act'
    """
    return text[0].upper() + text[1:]


def reading(found: ActingThreshold, *, costs: bool = False) -> str:
    """Say in a few sentences what a threshold promises, or why there is none."""
    group = f"{found.group}: " if found.group else ""
    if found.threshold is None:
        return group + (_too_few(found) if found.reason == "too_few" else _none(found))
    span = f"{percent(found.share_lower)} to {percent(found.share_upper)}"
    per_answer = f", {decimal(found.loss)} each on average" if costs else ""
    return (
        f"{group}may act alone from {at_least(found.threshold)} on: {percent(found.share)} ({span}) of the answers."
        f" {found.wrong:,} of {plural(found.acted, 'such label is', 'such labels are')} wrong{per_answer}; with"
        f" {level(round(found.confidence, 4))} confidence {_bound(found, costs)}."
    )


def at_least(threshold: float) -> str:
    """Write a threshold with four decimals or, close to 1, more; rounded up, so that no lower confidence acts.

    >>> at_least(0.93120001), at_least(0.99999123), at_least(1.0)
    ('0.9313', '0.9999913', '1.0000')
    """
    digits = 4 if threshold >= 1 else min(max(4, math.ceil(-math.log10(1 - threshold)) + 1), 15)
    return f"{min(math.ceil(threshold * 10**digits) / 10**digits, 1.0):.{digits}f}"


def _bound(found: ActingThreshold, costs: bool) -> str:
    if costs:
        return f"an answer that acts costs at most {found.risk:g} on average"
    return f"at most {level(found.risk)} of the answers that act are wrong"


def _too_few(found: ActingThreshold) -> str:
    more = f": about {found.more_labels:,} more are needed" if found.more_labels else ""
    seen = ""
    if found.tried:
        seen = f" {_tried(found)}"
    unsure = "" if found.more_labels else " Whether more would help is not clear."
    return f"too few labels ({found.labels:,}) to let answers act alone{more}.{seen}{unsure}"


def _none(found: ActingThreshold) -> str:
    return (
        "none can be certified: even the surest 5% of the answers are wrong too often, and more labels will not change"
        f" that. {_tried(found)}"
    )


def _tried(found: ActingThreshold) -> str:
    verb = "is" if found.tried_wrong == 1 else "are"
    return f"Of the surest {plural(found.tried, 'labelled answer')} {found.tried_wrong:,} {verb} wrong."
