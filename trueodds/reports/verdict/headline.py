"""Headline of a report, for first-time readers."""

from __future__ import annotations

from collections.abc import Mapping

from trueodds.processes.choices import MOST_RATIO
from trueodds.reports import words
from trueodds.reports.figures import Figures
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import PositiveFigures, Verdict
from trueodds.reports.verdict.examples import examples
from trueodds.reports.verdict.positive_ratio import allowed_range, not_yet_known, ratio_words
from trueodds.reports.verdict.rules import LEANS, SURE
from trueodds.reports.words import labelled, shares, whole_percent
from trueodds.sums.answers import AnswerSums
from trueodds.texts import capitalise, plural

_ONE_LOOK = "Chance alone passes that limit at 1 look in 20, so with many looks it will:"
_SETTLES = "only the alarm's evidence settles it."
_ELSEWHERE = "only the alarm's evidence settles such a question, and it is about all labels so far."
_REARMED = (
    "The alarm had found an error before it was re-armed: only the evidence of later labels settles whether it lasts."
)
_ADVICE = "Scored in the order of their arrival, the labels show that recalibrating helps."
MEANS: dict[str, str] = {
    "cannot_tell": "but errors that cancel out within a bin do not show, and an ECE of up to {upper:.3f} would fit"
    " these labels as well ({level}).",
    "within_tolerance": "it is within {tolerance:g} at 95%, for this one look ({level}).",
    "off_at_times": "but there was an error at some time: the alarm's evidence, label by label, shows it.",
    "over_confident": "The model is over-confident: it is right less often than it says.",
    "under_confident": "The model is under-confident: it is right more often than it says.",
    "uneven": "The model is too sure in some ranges and not sure enough in others; the diagram shows where.",
    "leans_over_confident": "It is perhaps over-confident.",
    "leans_under_confident": "It is perhaps under-confident.",
    "leans_uneven": "It is perhaps too sure in some ranges and not sure enough in others.",
}
"""Sentences on each verdict."""
_UNTESTED = "The more probable class is not tested beside it: one look, one test."
MEANS_OF_POSITIVE: dict[str, str] = MEANS | {
    "within_tolerance": "it is within {tolerance:g} at 95%, for this one look ({level}), and expected / observed"
    " {allowed}.",
    "too_high": "p({label}) is too high: fewer answers are {label} than it says.",
    "too_low": "p({label}) is too low: more answers are {label} than it says.",
    "uneven": "p({label}) is too high in some ranges and too low in others; the diagram shows where.",
    "leans_too_high": "p({label}) is perhaps too high.",
    "leans_too_low": "p({label}) is perhaps too low.",
    "leans_uneven": "p({label}) is perhaps too high in some ranges and too low in others.",
}
OF_TOP_LABEL: dict[str, str] = {
    "cannot_tell": "Over both classes together, the more probable class shows no more than chance.",
    "within_tolerance": "The more probable class is within {tolerance:g} at 95%.",
    "off_at_times": "The more probable class was off at some time, which all labels together do not show.",
    "over_confident": "The more probable class is over-confident: it is right less often than its confidence says.",
    "under_confident": "The more probable class is under-confident: it is right more often than its confidence says.",
    "uneven": "The more probable class is too sure in some ranges and not sure enough in others.",
    "leans_over_confident": "The more probable class is perhaps over-confident.",
    "leans_under_confident": "The more probable class is perhaps under-confident.",
    "leans_uneven": "The more probable class is perhaps too sure in some ranges and not sure enough in others.",
}
"""Sentences on the more probable class, beside those of p(positive), by its verdict."""


def headline(
    verdict: Verdict,
    sums: AnswerSums,
    figures: Figures,
    options: ReportOptions,
    tolerance: float,
    next_steps: Mapping[Verdict, str] | None = None,
    positive: PositiveFigures | None = None,
    of_top_label: Verdict | None = None,
    was_rearmed: bool = False,
    ratio_tolerance: float = MOST_RATIO,
) -> str:
    """Return the first sentences of a report, for first-time readers.

    Args:
        verdict: Verdict of the report.
        sums: Sums of the answers and their labels.
        figures: Figures that the verdict is about.
        options: Window and confidence level.
        tolerance: Largest acceptable ECE.
        next_steps: Sentences on how to get answers (no_answers) or labels (no_labels).
        positive: Figures of p(positive), if the verdict is about it.
        of_top_label: Verdict on the more probable class, if `verdict` is about p(positive).
        was_rearmed: An alarm had fired before the current watch.
        ratio_tolerance: Largest acceptable expected / observed positives.
    """
    window, next_step = options.window, (next_steps or {}).get(verdict)
    if verdict == "no_answers" and not window.is_everything:
        return f"There are no answers {window.words}: choose a longer window, or another class or tag."
    if verdict == "no_answers":
        return " ".join(filter(None, ("The model has given no answers yet.", next_step)))
    if verdict == "no_labels":
        answers = plural(sums.answers, "answer")
        unknown = f"{answers}, none with a label yet, so the accuracy is unknown."
        return " ".join(filter(None, (unknown, next_step)))
    if options.one_look:
        sentences = [_at_one_look(verdict, sums, figures, tolerance, positive, ratio_tolerance)]
    else:
        words_ = _after_many_looks(verdict, sums, figures, options, tolerance, positive, was_rearmed, ratio_tolerance)
        sentences = [words_]
    if of_top_label:
        sentences.append(reading_of_top_label(of_top_label, tolerance, positive, one_look=options.one_look))
    return " ".join(sentences)


def _after_many_looks(
    verdict: Verdict,
    sums: AnswerSums,
    figures: Figures,
    options: ReportOptions,
    tolerance: float,
    positive: PositiveFigures | None,
    was_rearmed: bool,
    ratio_tolerance: float,
) -> str:
    """Word the headline of a service's report, which is looked at again and again."""
    n, window = sums.labelled.n, options.window
    counts = f"{labelled(n, sums.answers)}."
    if window.last is not None:
        counts = f"The {plural(n, 'label')} that arrived last."
    whose = f"The calibration error (ECE) of p({positive.label})" if positive else "Its calibration error (ECE)"
    ece, p95 = f"{whose} is {figures['ece']:.3f}", f"{figures['floor_p95']:.3f}"
    level = f"{100 * options.level:.6g}% interval {figures['ece_lower']:.3f} to {figures['ece_upper']:.3f}"
    means = _means(verdict, positive, ratio_tolerance, tolerance=tolerance, upper=figures["ece_upper"], level=level)
    if verdict in ("cannot_tell", "off_at_times", "within_tolerance"):
        chance = "no larger" if figures["ece"] <= figures["floor_p95"] else "larger"
        standing = (
            f"{counts} On them {_claims(figures, positive)}. {ece}, {chance} than chance alone would show (up to {p95})"
        )
        return f"{standing}; {means}"
    shown = _examples(verdict, figures, positive)
    settles = _SETTLES if window.is_everything else _ELSEWHERE
    more = figures["ece"] > figures["floor_p95"]
    if verdict in LEANS.values():
        reason = _REARMED if was_rearmed and window.is_everything else f"{_ONE_LOOK} {settles}" if more else _ADVICE
        means = f"{means} {reason}"
    if positive and positive.ratio_lower is not None:
        shown = f"On them {_claims(figures, positive)}" + (f". {capitalise(shown)}" if shown else "")
    return (
        f"{counts} {_sentence(shown)}{ece} ({level}); chance alone would show up to {p95} at 19 looks"
        f" in 20: {'this is more' if more else 'this is not'}. {means}"
    )


def _at_one_look(
    verdict: Verdict,
    sums: AnswerSums,
    figures: Figures,
    tolerance: float,
    positive: PositiveFigures | None,
    ratio_tolerance: float,
) -> str:
    """Word the headline of a table's report."""
    sentences = [
        f"{labelled(sums.labelled.n, sums.answers)}.",
        f"On them {_claims(figures, positive)}.",
        reading_at_one_look(verdict, figures, tolerance, positive, ratio_tolerance),
    ]
    if verdict not in ("within_tolerance", "cannot_tell"):
        sentences.append(_sentence(_examples(verdict, figures, positive)))
    return " ".join(sentences).strip()


def _claims(figures: Figures, positive: PositiveFigures | None) -> str:
    if positive is None or positive.mean_probability is None or positive.prevalence is None:
        claimed, right = whole_percent(figures["mean_confidence"]), whole_percent(figures["accuracy"])
        return f"the model claims {claimed} on average and is right {right} of the time"
    mean, prevalence = shares(positive.mean_probability, positive.prevalence)
    return f"p({positive.label}) is {mean} on average, and {prevalence} are {positive.label}: {ratio_words(positive)}"


def _examples(verdict: Verdict, figures: Figures, positive: PositiveFigures | None) -> str:
    return examples(verdict, figures["bins"], positive.label if positive else None)


def _means(verdict: Verdict, positive: PositiveFigures | None, ratio_tolerance: float, **values: object) -> str:
    if positive is None:
        return MEANS[verdict].format(**values)
    values |= {"label": positive.label, "allowed": allowed_range(ratio_tolerance)}
    means = MEANS_OF_POSITIVE[verdict].format(**values)
    missing = not_yet_known(positive, ratio_tolerance) if verdict == "cannot_tell" else ""
    return f"{means} {capitalise(missing)}." if missing else means


def _sentence(words: str) -> str:
    return f"{capitalise(words)}. " if words else ""


def reading_of_top_label(
    verdict: Verdict, tolerance: float, positive: PositiveFigures | None, *, one_look: bool
) -> str:
    """Explain the verdict on the more probable class, beside that on p(positive)."""
    p_value = positive.calibration_p_value if positive else None
    if one_look and verdict == "cannot_tell" and p_value is not None and p_value >= SURE:
        return _UNTESTED
    return OF_TOP_LABEL[verdict].format(tolerance=tolerance)


def reading_at_one_look(
    verdict: Verdict,
    figures: Figures,
    tolerance: float,
    positive: PositiveFigures | None = None,
    ratio_tolerance: float = MOST_RATIO,
) -> str:
    """Explain a verdict on these figures at one look. `positive`: the figures are those of p(positive)."""
    p_value, whose = figures["calibration_p_value"], f" of p({positive.label})" if positive else ""
    p = words.p_value(p_value)
    more = "more than chance" if p_value < SURE else "no larger than chance alone makes them"
    if verdict == "within_tolerance":
        ratio = f", and expected / observed {allowed_range(ratio_tolerance)}" if positive else ""
        return f"The calibration error{whose} is within {tolerance:g} at 95%{ratio}. The gaps are {more} ({p})."
    if verdict == "cannot_tell":
        upper = f"{figures['ece_upper']:.3f}"
        if positive and (missing := not_yet_known(positive, ratio_tolerance)):
            return f"The gaps{whose} are {more} ({p}), but {missing}."
        return f"The gaps{whose} are {more} ({p}), but an ECE of up to {upper} would fit these rows as well."
    return f"The gaps{whose} are {more} ({p}). {_means(verdict, positive, ratio_tolerance)}"
