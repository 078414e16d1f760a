"""Acting alone, for the answers of a table: a fair sample of its labels, the threshold, and its description."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.metrics import Costs
from trueodds.metrics.decisions.acting import ActingThreshold, threshold
from trueodds.processes.choices import ActingBy
from trueodds.reports.schemas import NO_TAG, MayAct
from trueodds.reports.table.table_content import Answers, propensities_of
from trueodds.reports.words import decimal, level, percent
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass
from trueodds.texts import capitalise, plural

MOST_GROUPS = 1000
"""Largest number of groups with a threshold each. More groups are probably names of single answers."""
SEED = 20260713
"""Seed of the draw, so that the same table gives the same sample."""


def sample_evenly(answers: Answers) -> tuple[Answers, str]:
    """Drop labels until each answer has the same probability of a label, by the columns propensity and audit.

    The tables that the service writes have these columns. Labels of acting answers that the audit had not asked for are
    dropped. Every other label is kept with probability least / p. Here p is the propensity of its answer and `least` is
    the smallest propensity of all answers. Then every answer has a label with probability `least`. Answers without a
    propensity lose their labels, unless no answer has one. Whether a label is kept does not depend on its class.

    Args:
        answers: Answers of a table.

    Returns:
        The answers with the remaining labels, and a sentence about it ("" if all labels remain).

    Raises:
        FileError: A propensity is outside (0, 1].
    """
    labelled_N, said = asked_labels(answers)
    words = [said] if said else []
    propensity_N = propensities_of(answers)
    known_N = np.isfinite(propensity_N)
    if (labelled_N & known_N).any():
        least, most = float(propensity_N[known_N].min()), float(propensity_N[known_N].max())
        drawn_N = np.random.default_rng(SEED).random(len(answers)) * propensity_N < least  # false for NaN
        before, labelled_N = int(labelled_N.sum()), labelled_N & drawn_N
        after = int(labelled_N.sum())
        if after < before:
            words.append(
                f"Answers had different chances of a label (column propensity: {least:.3g} to {most:.3g}, or none). So"
                f" {after:,} of {before:,} labels count here, drawn so that each answer has the same chance of one."
            )
    if not words:
        return answers, ""
    return replace(answers, labelled_N=labelled_N, correct_N=answers.correct_N & labelled_N), " ".join(words)


def asked_labels(answers: Answers) -> tuple[npt.NDArray[np.bool_], str]:
    """Leave out labels of acting answers that the audit had not asked for, by the column audit.

    Returns:
        Whether each answer has a label that remains, and a sentence about the others ("" without any).
    """
    labelled_N = answers.labelled_N.copy()
    if answers.groups.audits is None:
        return labelled_N, ""
    unasked_N = labelled_N & np.isin(np.char.lower(np.array(answers.groups.audits.as_list(), str)), "false")
    if not unasked_N.any():
        return labelled_N, ""
    return labelled_N & ~unasked_N, unasked_words(int(unasked_N.sum()))


def unasked_words(labels: int) -> str:
    """Return a sentence about labels of acting answers that are left out."""
    many = plural(labels, "label is", "labels are")
    return f"{many} left out because the audit had not asked for them: they are not a random sample."


def acting_threshold(
    answers: Answers,
    *,
    risk: float = 0.05,
    confidence: float = 0.95,
    by: ActingBy | None = None,
    costs: Costs | None = None,
    positive: str | None = None,
) -> ActingThreshold:
    """Find the confidence from which on the answers of a table may act alone (see `trueodds.threshold`).

    Args:
        answers: All answers. Those without a label count only for the share of acting answers.
        risk: Largest share of wrong answers among those that act. With costs: largest mean cost of an acting answer.
        confidence: Probability with which this bound holds.
        by: Compute one threshold for each value of this column.
        costs: Costs of a missed positive and of a false alarm, if the predicted class acts.
        positive: The one of two classes that `costs` are about.

    Returns:
        The threshold, or the reason why there is none.

    Raises:
        FileError: The table lacks the column that `by` or `costs` needs, or there are too many groups.
        ConfigError: The positive class is not one of two classes.
        ValueError: `trueodds.threshold` refuses the arguments.
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


def _groups(answers: Answers, by: ActingBy) -> list[str]:
    """Return the name of each answer's group."""
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
    """Return each answer's cost if it is wrong: a false alarm if it names the positive class, else a miss."""
    if answers.predicted is None:
        raise FileError(f"{answers.source} names no predicted classes, which --costs needs")
    classes = answers.predicted.values
    if answers.probabilities_NC is None:
        classes = tuple(dict.fromkeys((*classes, *answers.label_names)))
    PositiveClass.of(positive, classes)
    alarms_N = np.array([name == positive for name in answers.predicted.values])[answers.predicted.code_N]
    return np.where(alarms_N, costs.alarm, costs.miss)


def may_act(result: ActingThreshold, sampling: str = "") -> MayAct:
    """Build the report's section: the threshold and its description. `sampling` says how the labels were sampled."""
    return MayAct(threshold=result, reading=" ".join(filter(None, [capitalise(reading(result)), sampling])))


def reading(result: ActingThreshold, *, costs: bool = False) -> str:
    """Describe in a few sentences what a threshold promises, or why there is none."""
    group = f"{result.group}: " if result.group else ""
    if result.threshold is None:
        return group + (_too_few(result) if result.reason == "too_few" else _none(result))
    span = f"{percent(result.share_lower)} to {percent(result.share_upper)}"
    per_answer = f", {decimal(result.loss)} each on average" if costs else ""
    return (
        f"{group}may act alone from {at_least(result.threshold)} on: {percent(result.share)} ({span}) of the answers."
        f" {result.wrong:,} of {plural(result.acted, 'such label is', 'such labels are')} wrong{per_answer}; with"
        f" {level(round(result.confidence, 4))} confidence {_bound(result, costs)}."
    )


def at_least(threshold: float) -> str:
    """Format a threshold with four decimals, or more if it is close to 1.

    It is rounded up, so that no lower confidence acts.

    >>> at_least(0.93120001), at_least(0.99999123), at_least(1.0)
    ('0.9313', '0.9999913', '1.0000')
    """
    digits = 4 if threshold >= 1 else min(max(4, math.ceil(-math.log10(1 - threshold)) + 1), 15)
    return f"{min(math.ceil(threshold * 10**digits) / 10**digits, 1.0):.{digits}f}"


def _bound(result: ActingThreshold, costs: bool) -> str:
    """Describe the bound on the acting answers."""
    if costs:
        return f"an answer that acts costs at most {result.risk:g} on average"
    return f"at most {level(result.risk)} of the answers that act are wrong"


def _too_few(result: ActingThreshold) -> str:
    """Explain that there are too few labels."""
    more = f": about {result.more_labels:,} more are needed" if result.more_labels else ""
    seen = ""
    if result.tried:
        seen = f" {_surest_answers(result)}"
    unsure = "" if result.more_labels else " Whether more would help is not clear."
    return f"too few labels ({result.labels:,}) to let answers act alone{more}.{seen}{unsure}"


def _none(result: ActingThreshold) -> str:
    """Explain that no threshold can be certified."""
    return (
        "no threshold can be certified: even the 5% most confident answers are wrong too often, and more labels will"
        f" not change that. {_surest_answers(result)}"
    )


def _surest_answers(result: ActingThreshold) -> str:
    """Describe the errors among the answers with the highest confidence."""
    verb = "is" if result.tried_wrong == 1 else "are"
    return f"Of the {plural(result.tried, 'most confident labelled answer')}, {result.tried_wrong:,} {verb} wrong."
