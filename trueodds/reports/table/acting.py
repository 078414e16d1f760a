"""Acting alone by the answers of a table: a fair sample of its labels, the threshold, and the words on it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.metrics import Costs
from trueodds.metrics.decisions.acting import ActingThreshold, threshold
from trueodds.reports.schemas import NO_TAG, MayAct
from trueodds.reports.table.answers import Answers
from trueodds.reports.words import decimal, level, percent
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass
from trueodds.texts import plural, short

By = Literal["question", "tag", "class"]
MOST_GROUPS = 1000
"""Most groups that get a threshold each; more are rather the names of single answers."""
SEED = 0
"""Seed of the draw: the same table gives the same sample."""


def evenly_labelled(answers: Answers) -> tuple[Answers, str]:
    """Leave labels out until each answer has the same chance of one, by the columns propensity and audit.

    The service's own tables have them. Labels of acting answers that the audit had not asked for go. Of the others each
    stays with the probability least / p, where p is its answer's propensity, and `least` the smallest of all answers:
    then every answer has a label with the chance `least`. Answers without a propensity lose their labels, unless none
    has one. Whether a label stays does not depend on what it says.

    Returns:
        the answers with the labels that stay, and a sentence on it; "" where all do.

    Raises:
        FileError: a propensity outside (0, 1].
    """
    labelled_N, words = answers.labelled_N.copy(), []
    if answers.groups.audits is not None:
        unasked_N = labelled_N & np.isin(np.char.lower(np.array(answers.groups.audits.as_list(), str)), "false")
        if unasked_N.any():
            labelled_N &= ~unasked_N
            many = plural(int(unasked_N.sum()), "label is", "labels are")
            words.append(f"{many} left out that the audit had not asked for: they are no random sample.")
    propensity_N = _propensities(answers.source, answers.groups.propensities, len(answers))
    known_N = np.isfinite(propensity_N)
    if (labelled_N & known_N).any():
        least, most = float(propensity_N[known_N].min()), float(propensity_N[known_N].max())
        drawn_N = np.random.default_rng(SEED).random(len(answers)) * propensity_N < least  # false for NaN
        before, labelled_N = int(labelled_N.sum()), labelled_N & drawn_N
        after = int(labelled_N.sum())
        if after < before:
            words.append(
                f"Answers had unlike chances of a label (column propensity: {least:.3g} to {most:.3g}, or none). So"
                f" {after:,} of {before:,} labels count here, drawn so that each answer has the same chance of one."
            )
    if not words:
        return answers, ""
    return replace(answers, labelled_N=labelled_N, correct_N=answers.correct_N & labelled_N), " ".join(words)


def _propensities(source: str, cells: Texts | None, count: int) -> npt.NDArray[np.float64]:
    """The numbers of the column, NaN for an empty cell or where there is no column."""
    if cells is None:
        return np.full(count, np.nan)
    read = []
    for value in cells.values:
        try:
            number = float(value) if value else np.nan
        except ValueError:
            number = -1.0
        if number <= 0 or number > 1:
            raise FileError(
                f"{source}: propensity holds {short(value)}; allowed is a chance of a label in (0, 1], or an empty"
                " cell. If the column means something else, rename it"
            )
        read.append(number)
    return np.array(read, np.float64)[cells.code_N]


def acting_threshold(
    answers: Answers,
    *,
    risk: float = 0.05,
    confidence: float = 0.95,
    by: By | None = None,
    costs: Costs | None = None,
    positive: str | None = None,
) -> ActingThreshold:
    """Find the confidence from which on the answers of a table may act alone, as `trueodds.threshold` does.

    Args:
        answers: all answers; those without a label count for the share only.
        risk: largest share of wrong answers that act; with costs, largest mean cost of one.
        confidence: probability with which that holds.
        by: what has a threshold of its own.
        costs: of a missed positive and of a false alarm, where the predicted class acts.
        positive: the class of two that `costs` are about.

    Raises:
        FileError: a table that does not say what `by` or `costs` asks for, or too many groups.
        ConfigError: a positive class that is none of two classes.
        ValueError: what `trueodds.threshold` refuses.
    """
    right_N = np.where(answers.labelled_N, answers.correct_N.astype(np.float64), np.nan)
    return threshold(
        answers.confidence_N,
        right_N,
        risk=risk,
        confidence=confidence,
        groups_N=None if by is None else _groups(answers, by),
        cost_N=None if costs is None else _costs(answers, costs, positive or ""),
    )


def _groups(answers: Answers, by: By) -> list[str]:
    columns = {"question": answers.groups.questions, "tag": answers.groups.tags, "class": answers.predicted}
    column = columns[by]
    if column is None:
        lacks = "names no predicted classes" if by == "class" else f"has no column {by}"
        raise FileError(f"{answers.source} {lacks}, which --by {by} needs")
    names = column.as_list()
    if (groups := len(set(names))) > MOST_GROUPS:
        problem = f"{answers.source} has {groups:,} groups by {by}; at most {MOST_GROUPS:,} get a threshold each"
        raise FileError(f"{problem}: give names that many answers share")
    return [name or NO_TAG.replace("tag", by) for name in names]


def _costs(answers: Answers, costs: Costs, positive: str) -> Array:
    """Return each answer's cost if it is wrong: a false alarm where it names the positive class, else a miss."""
    if answers.predicted is None:
        raise FileError(f"{answers.source} names no predicted classes, which --costs needs")
    classes = answers.predicted.values
    if answers.probabilities_NC is None:
        classes = tuple(dict.fromkeys((*classes, *answers.label_names)))
    PositiveClass.of(positive, classes)
    alarms_N = np.array([name == positive for name in answers.predicted.values])[answers.predicted.code_N]
    return np.where(alarms_N, costs.alarm, costs.miss)


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
