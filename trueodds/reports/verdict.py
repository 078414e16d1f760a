"""The verdict of a report and its words: how things stand, and what to keep in mind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trueodds.reports import words
from trueodds.reports.alarm import Advice, Alarm
from trueodds.reports.figures import Figures
from trueodds.reports.labelling_schemas import Labelling
from trueodds.reports.options import Options
from trueodds.reports.schemas import Bin, Slice, Verdict
from trueodds.sums.answers import AnswerSums
from trueodds.texts import plural

MEASURED_FROM = 500
"""Labels from which the coverage of the ECE interval was measured."""
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
_ONE_LOOK = "At 1 look in 20 chance alone passes that limit, and who looks often will meet one:"
_SETTLES = "only the alarm's evidence settles it."
_ELSEWHERE = "only the alarm's evidence settles such a question, and it is about all labels so far."
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


def is_within(sums: AnswerSums, certain: Figures, labelling: Labelling, tolerance: float) -> bool:
    """Whether the ECE is at most `tolerance`: the upper end of its 95% interval is, at this one look.

    Where the labelled answers are not like all answers, the weighted figures must be within it, too, and there must be
    some. `certain`: the figures at the level CERTAIN.
    """
    if not sums.labelled.n:
        return False
    uppers = [certain["ece_upper"]]
    if labelling.choice and labelling.choice.warning:
        if not labelling.weighted:
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


def reading_at_one_look(verdict: Verdict, p_value: float, ece_upper: float, tolerance: float) -> str:
    """What such a verdict means. `ece_upper`: the upper limit of its interval."""
    p = words.p_value(p_value)
    more = "more than chance" if p_value < SURE else "no larger than chance makes them"
    if verdict == "within_tolerance":
        return f"The calibration error is within {tolerance:g} at 95%. The gaps are {more} ({p})."
    if verdict == "cannot_tell":
        return f"The gaps are {more} ({p}), but an ECE of up to {ece_upper:.3f} would fit these rows as well."
    return f"The gaps are {more} ({p}). {MEANS[verdict]}"


def direction_of(signed_gap: float, ece: float) -> Direction:
    """Which way the confidences are off; uneven: less than half of the ECE is of one sign."""
    if abs(signed_gap) < ece / 2:
        return "uneven"
    return "over_confident" if signed_gap < 0 else "under_confident"


def headline(
    verdict: Verdict,
    sums: AnswerSums,
    figures: Figures,
    options: Options,
    tolerance: float,
    next_steps: Mapping[Verdict, str] | None = None,
) -> str:
    """The first thing that a newcomer should know.

    `next_steps`: how to get answers (no_answers), or labels (no_labels), while there are none.
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
        return _headline_at_one_look(verdict, sums, figures, tolerance)
    counts = f"{labelled(n, sums.answers)}."
    if window.last is not None:
        counts = f"The {plural(n, 'label')} that arrived last."
    ece, p95 = f"Its calibration error (ECE) is {figures['ece']:.3f}", f"{figures['floor_p95']:.3f}"
    level = f"{100 * options.level:.6g}% interval {figures['ece_lower']:.3f} to {figures['ece_upper']:.3f}"
    if verdict in ("cannot_tell", "off_at_times", "within_tolerance"):
        chance = "no larger" if figures["ece"] <= figures["floor_p95"] else "larger"
        standing = (
            f"{counts} On them the model claims {percent(figures['mean_confidence'])} on average and is right"
            f" {percent(figures['accuracy'])} of the time. {ece}, {chance} than chance alone would show (up to {p95})"
        )
        return f"{standing}; {MEANS[verdict].format(tolerance=tolerance, upper=figures['ece_upper'], level=level)}"
    shown = _examples(verdict, figures)
    one_look = f"{_ONE_LOOK} {_SETTLES if window.is_everything else _ELSEWHERE}"
    chance, reason = ("this is more", one_look) if figures["ece"] > figures["floor_p95"] else ("this is not", _ADVICE)
    means = f"{MEANS[verdict]} {reason}" if verdict in LEANS.values() else MEANS[verdict]
    return (
        f"{counts} {shown[0].upper()}{shown[1:]}. {ece} ({level}); chance alone would show up to {p95} at 19 looks"
        f" in 20: {chance}. {means}"
    )


def _headline_at_one_look(verdict: Verdict, sums: AnswerSums, figures: Figures, tolerance: float) -> str:
    claims = f"the model claims {percent(figures['mean_confidence'])} on average"
    sentences = [
        f"{labelled(sums.labelled.n, sums.answers)}.",
        f"On them {claims} and is right {percent(figures['accuracy'])} of the time.",
        reading_at_one_look(verdict, figures["calibration_p_value"], figures["ece_upper"], tolerance),
    ]
    if verdict not in ("within_tolerance", "cannot_tell") and (shown := _examples(verdict, figures)):
        sentences.append(f"{shown[0].upper()}{shown[1:]}.")
    return " ".join(sentences)


def _examples(verdict: Verdict, figures: Figures) -> str:
    """Ranges that bear the verdict out."""
    signs = {"over_confident": (-1,), "under_confident": (1,)}.get(verdict.removeprefix("leans_"), (-1, 1))
    examples = [clearest_range(figures["bins"], sign) for sign in signs]
    return "; ".join(_example(example) for example in examples if example)


@dataclass(frozen=True)
class Range:
    """Labelled answers of neighbouring bins."""

    lo: float
    hi: float
    count: int
    mean_confidence: float
    accuracy: float


def clearest_range(bins: Sequence[Bin], sign: int) -> Range | None:
    """The neighbouring bins whose error a person would feel: the largest gap that is left after three standard errors.

    By its part of the ECE it would be half a point among thousands of answers that are all but certain, rather than
    twenty in the middle; by the gap alone, chance in a handful of answers. The variance is the larger one of being
    right as often as claimed, c (1 - c), and as often as seen, (right + 1) / (n + 2). `sign`: of the gap, -1 where more
    is claimed than kept. None where no neighbouring bins have such a gap.
    """
    occupied = [b for b in bins if b.count]
    count_M, claimed_M, right_M = (
        np.array([b.count * (getattr(b, name) if name else 1.0) for b in occupied], float)
        for name in ("", "mean_confidence", "accuracy")
    )
    columns = count_M, claimed_M, right_M, claimed_M * (1 - claimed_M / count_M)
    ends = (np.concatenate([[0.0], values_M.cumsum()]) for values_M in columns)
    count_MM, claimed_MM, right_MM, chance_MM = (np.triu(end[None, 1:] - end[:-1, None]) for end in ends)
    n_MM, seen_MM = np.maximum(count_MM, 1), (right_MM + 1) / (count_MM + 2)
    gap_MM = sign * (right_MM - claimed_MM) / n_MM
    error_MM = np.sqrt(np.maximum(chance_MM / n_MM, seen_MM * (1 - seen_MM)) / n_MM)
    score_MM = np.where((count_MM > 0) & (gap_MM > 0), gap_MM - 3 * error_MM, -np.inf)
    first, last = np.unravel_index(int(score_MM.argmax()), score_MM.shape)
    if not np.isfinite(score_MM[first, last]):
        return None
    count = float(count_MM[first, last])
    means = float(claimed_MM[first, last]) / count, float(right_MM[first, last]) / count
    return Range(occupied[first].lo, occupied[last].hi, round(count), *means)


def _example(where: Range) -> str:
    low, high = told_apart(where.lo, where.hi)
    claimed, right = told_apart(where.mean_confidence, where.accuracy)
    return f"when it says {low} to {high}, {claimed} on average, it is right {right} of the time" + (
        f" ({plural(where.count, 'answer')})"
    )


def told_apart(*shares: float) -> list[str]:
    """Different shares in percent, with as few digits as tell them apart, and never a rounded 0% or 100%."""
    for digits in range(4):
        texts = [f"{100 * share:.{digits}f}%" for share in shares]
        ends = {f"{end:.{digits}f}%": end / 100 for end in (0, 100)}
        if len(set(texts)) == len(texts) and all(ends.get(t, s) == s for t, s in zip(texts, shares, strict=True)):
            break
    return texts


def labelled(count: int, answers: int) -> str:
    """3 of 10 answers have labels; 1 of 10 answers has a label"""
    return f"{count:,} of {plural(answers, 'answer')} {'has a label' if count == 1 else 'have labels'}"


def cautions(
    sums: AnswerSums, labelling: Labelling, tables: Mapping[str, Sequence[Slice] | None], *, one_look: bool = False
) -> list[str]:
    """Sentences to keep in mind: warnings about the labels, and how much `tables` (classes, tags) show by chance."""
    n, sentences = sums.labelled.n, []
    if labelling.drift and labelling.drift.warning:
        sentences.append(labelling.drift.reading)
    if not n:
        return sentences
    if n < MEASURED_FROM:
        sentences.append(
            f"Fewer than {MEASURED_FROM} labels: the interval's coverage was measured from {MEASURED_FROM} on,"
            " so take it as a rough guide."
        )
    if not one_look:
        watching = "watching it after every label will cry wolf"
        sentences.append(f"The interval is for one look at this many labels: {watching}.")
    if labelling.choice and labelling.choice.warning:
        instead = "".join(
            f" Weighted to stand for all answers, the best estimate of the calibration error is"
            f" {w.ece_estimate:.3f} ({w.ece_lower:.3f} to {w.ece_upper:.3f}) and the accuracy {percent(w.accuracy)}."
            for w in labelling.weighted[-1:]  # by propensity, where that is known
        )
        if labelling.crowded and labelling.crowded.refused and not instead:
            instead = f" {labelling.crowded.reading}"
        sentences.append(f"{labelling.choice.reading}{instead}")
    if labelling.delay and labelling.delay.warning:
        sentences.append(labelling.delay.reading)
    if labelling.coverage is not None and n < sums.answers:
        others = plural(sums.answers - n, "answer is", "answers are")
        sentences.append(
            f"The other {others} unknown: if wrong answers get their labels more often, or sooner, than right ones,"
            f" these numbers mislead.{_doubled(labelling)}"
        )
    for name, rows in tables.items():
        with_labels = [row for row in rows or [] if row.labelled]
        if len(with_labels) > 1:
            flagged = sum(row.more_than_chance for row in with_labels)
            sentences.append(
                f"Of {len(with_labels)} {name}, {flagged} {'is' if flagged == 1 else 'are'} off by more than chance"
                " (false discovery rate 5%: if all were calibrated, any would be marked at 1 look in 20 at most)."
            )
    return sentences


def _doubled(labelling: Labelling) -> str:
    doubled = next((s for s in labelling.sensitivity if s.ratio == 2), None)
    if doubled is None:
        return ""
    bound = "as far as there are answers without labels, " if doubled.impossible >= 0.01 else ""
    return (
        f" Were they labelled twice as often, {bound}the accuracy would be {percent(doubled.accuracy)} and the"
        f" calibration error {doubled.ece:.3f}."
    )


def percent(share: float) -> str:
    """Whole percents, but never a rounded 100% or 0% for what is not."""
    digits = 1 if 0 < share < 0.01 or 0.99 < share < 1 else 0
    text = f"{100 * share:.{digits}f}%"
    return {"100.0%": "over 99.9%", "0.0%": "under 0.1%"}.get(text, text)
