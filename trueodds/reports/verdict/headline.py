"""The first words of a report, for somebody who sees it for the first time."""

from __future__ import annotations

from collections.abc import Mapping

from trueodds.reports import words
from trueodds.reports.figures import Figures
from trueodds.reports.options import Options
from trueodds.reports.schemas import PositiveFigures, Verdict
from trueodds.reports.verdict.examples import examples, examples_of_positive
from trueodds.reports.verdict.rules import LEANS, SURE
from trueodds.reports.verdict.shares import labelled, percent
from trueodds.sums.answers import AnswerSums
from trueodds.texts import plural

_ONE_LOOK = "At 1 look in 20 chance alone passes that limit, and who looks often will meet one:"
_SETTLES = "only the alarm's evidence settles it."
_ELSEWHERE = "only the alarm's evidence settles such a question, and it is about all labels so far."
_SEES = "It sees what does not cancel in the more probable class."
_ADVICE = "Scored one by one as they came, the labels say so."
MEANS: dict[str, str] = {
    "cannot_tell": "but errors that cancel out within a bin do not show, and an ECE of up to {upper:.3f} would fit"
    " these labels as well ({level}).",
    "within_tolerance": "it is within {tolerance:g} at 95%, for this one look ({level}).",
    "off_at_times": "but at some time there was an error: the alarm's evidence, label by label as they came, shows it.",
    "over_confident": "The model is over-confident: trust its percentages less than they say.",
    "under_confident": "The model is under-confident: it is right more often than it says.",
    "uneven": "The model is too sure in some ranges and not sure enough in others; the diagram shows where.",
    "leans_over_confident": "It leans to being over-confident.",
    "leans_under_confident": "It leans to being under-confident.",
    "leans_uneven": "It leans to being too sure in some ranges and not sure enough in others.",
}


def headline(
    verdict: Verdict,
    sums: AnswerSums,
    figures: Figures,
    options: Options,
    tolerance: float,
    next_steps: Mapping[Verdict, str] | None = None,
    positive: PositiveFigures | None = None,
) -> str:
    """The first thing that a newcomer should know.

    `next_steps`: how to get answers (no_answers), or labels (no_labels), while there are none. `positive`: where
    p(positive) is spoken of, and `figures` are `of_positive`.
    """
    window, next_step = options.window, (next_steps or {}).get(verdict)
    if verdict == "no_answers" and not window.is_everything:
        return f"There are no answers {window.words}: widen the window, or ask for another class or tag."
    if verdict == "no_answers":
        return " ".join(filter(None, ("Nothing has been asked yet.", next_step)))
    if verdict == "no_labels":
        answers = plural(sums.answers, "answer")
        unknown = f"{answers}, none with a label yet, so nobody knows how often the model is right."
        return " ".join(filter(None, (unknown, next_step)))
    n = sums.labelled.n
    if options.one_look:
        return _headline_at_one_look(verdict, sums, figures, tolerance, positive)
    counts = f"{labelled(n, sums.answers)}."
    if window.last is not None:
        counts = f"The {plural(n, 'label')} that arrived last."
    whose = f"The calibration error (ECE) of p({positive.label})" if positive else "Its calibration error (ECE)"
    ece, p95 = f"{whose} is {figures['ece']:.3f}", f"{figures['floor_p95']:.3f}"
    level = f"{100 * options.level:.6g}% interval {figures['ece_lower']:.3f} to {figures['ece_upper']:.3f}"
    if verdict in ("cannot_tell", "off_at_times", "within_tolerance"):
        chance = "no larger" if figures["ece"] <= figures["floor_p95"] else "larger"
        standing = (
            f"{counts} On them {_claims(figures, positive)}. {ece}, {chance} than chance alone would show (up to {p95})"
        )
        return f"{standing}; {MEANS[verdict].format(tolerance=tolerance, upper=figures['ece_upper'], level=level)}"
    shown = _examples(verdict, figures, positive)
    settles = _SETTLES if window.is_everything else _ELSEWHERE
    one_look = " ".join([_ONE_LOOK, settles, *([_SEES] if positive else [])])
    chance, reason = ("this is more", one_look) if figures["ece"] > figures["floor_p95"] else ("this is not", _ADVICE)
    means = f"{MEANS[verdict]} {reason}" if verdict in LEANS.values() else MEANS[verdict]
    return (
        f"{counts} {_sentence(shown)}{ece} ({level}); chance alone would show up to {p95} at 19 looks"
        f" in 20: {chance}. {means}"
    )


def _headline_at_one_look(
    verdict: Verdict, sums: AnswerSums, figures: Figures, tolerance: float, positive: PositiveFigures | None
) -> str:
    sentences = [
        f"{labelled(sums.labelled.n, sums.answers)}.",
        f"On them {_claims(figures, positive)}.",
        reading_at_one_look(verdict, figures["calibration_p_value"], figures["ece_upper"], tolerance),
    ]
    if verdict not in ("within_tolerance", "cannot_tell"):
        sentences.append(_sentence(_examples(verdict, figures, positive)))
    return " ".join(sentences).strip()


def _claims(figures: Figures, positive: PositiveFigures | None) -> str:
    if positive is None or positive.mean_probability is None or positive.prevalence is None:
        claimed, right = percent(figures["mean_confidence"]), percent(figures["accuracy"])
        return f"the model claims {claimed} on average and is right {right} of the time"
    mean, prevalence = percent(positive.mean_probability), percent(positive.prevalence)
    return f"p({positive.label}) is {mean} on average, and {prevalence} are {positive.label}"


def _examples(verdict: Verdict, figures: Figures, positive: PositiveFigures | None) -> str:
    bins = figures["bins"]
    return examples_of_positive(verdict, bins, positive.label) if positive else examples(verdict, bins)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}. " if words else ""


def reading_at_one_look(verdict: Verdict, p_value: float, ece_upper: float, tolerance: float) -> str:
    """What such a verdict means. `ece_upper`: the upper limit of its interval."""
    p = words.p_value(p_value)
    more = "more than chance" if p_value < SURE else "no larger than chance makes them"
    if verdict == "within_tolerance":
        return f"The calibration error is within {tolerance:g} at 95%. The gaps are {more} ({p})."
    if verdict == "cannot_tell":
        return f"The gaps are {more} ({p}), but an ECE of up to {ece_upper:.3f} would fit these rows as well."
    return f"The gaps are {more} ({p}). {MEANS[verdict]}"
