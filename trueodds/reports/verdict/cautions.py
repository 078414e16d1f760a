"""Cautions that stand beside a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trueodds.reports.schemas import Labelling, PositiveFigures, Slice
from trueodds.reports.schemas.alarm import Alarm
from trueodds.reports.words import whole_percent
from trueodds.sums.answers import AnswerSums
from trueodds.texts import plural

MEASURED_FROM = 500
"""Number of labels from which on the coverage of the ECE interval was measured."""


def cautions(
    sums: AnswerSums,
    labelling: Labelling,
    tables: Mapping[str, Sequence[Slice] | None],
    *,
    one_look: bool = False,
    positive: PositiveFigures | None = None,
    alarm: Alarm | None = None,
) -> list[str]:
    """Return the cautions: warnings about the labels, and how many rows of `tables` are off by more than chance.

    Args:
        sums: Sums of the answers and their labels.
        labelling: Checks of the labels.
        tables: Rows by class and by tag.
        one_look: The answers are those of a table.
        positive: Figures of p(positive). The cautions then say that weighted figures and the alarm are about another
            probability.
        alarm: The alarm of a service.
    """
    n, sentences = sums.labelled.n, list[str]()
    of_top = " of the more probable class" if positive else ""
    if labelling.drift and labelling.drift.warning:
        sentences.append(labelling.drift.reading)
    if not n:
        return sentences
    if n < MEASURED_FROM:
        sentences.append(
            f"Fewer than {MEASURED_FROM} labels: the interval's coverage was measured for {MEASURED_FROM} and more,"
            " so treat it as a rough guide."
        )
    if not one_look:
        watching = "checked after every label, it will miss the true value at some time"
        sentences.append(f"The interval is for one look at this many labels: {watching}.")
    if labelling.choice and labelling.choice.warning:
        instead = "".join(
            f" Weighted to stand for all answers, the best estimate of the calibration error{of_top} is"
            f" {w.ece_estimate:.3f} ({w.ece_lower:.3f} to {w.ece_upper:.3f}) and the accuracy"
            f" {whole_percent(w.accuracy)}."
            for w in labelling.weighted[-1:]  # by propensity, if it is known
        )
        if labelling.crowded and labelling.crowded.refused and not instead:
            instead = f" {labelling.crowded.reading}"
        sentences.append(f"{labelling.choice.reading}{instead}")
    if labelling.uneven and not (labelling.choice and labelling.choice.warning):
        sentences.append(labelling.uneven)
    if labelling.delay and labelling.delay.warning:
        sentences.append(labelling.delay.reading)
    if labelling.coverage is not None and n < sums.answers:
        others = plural(sums.answers - n, "answer is", "answers are")
        sentences.append(
            f"The other {others} unknown: if wrong answers get labels more often, or sooner, than right ones, these"
            f" numbers are biased.{_if_labelled_twice_as_often(labelling, of_top)}"
        )
    if positive and alarm:
        sentences.append(
            f"There are two alarms: one is about the number of {positive.label} that p({positive.label}) expects,"
            f" the other about the more probable class. Errors of p({positive.label}) that cancel in both remain"
            " unseen."
        )
    if alarm and (refuted := alarm.refuted_null) and refuted.null == "levels":
        sentences.append(
            f'The alarm has found an error of the levels. The largest evidence now is about "at least {refuted.level}".'
            " Such an error may not show in the confidences."
        )
    for name, rows in tables.items():
        with_labels = [row for row in rows or [] if row.labelled]
        if len(with_labels) > 1:
            flagged = sum(row.more_than_chance for row in with_labels)
            limits = [row.limit for row in with_labels if row.limit is not None]
            if limits:
                late = len(with_labels) - len(limits)
                sentences.append(
                    f"Of {len(limits)} {name}, {flagged} {'is' if flagged == 1 else 'are'} marked: their"
                    f" calibration error was above {limits[0]:g} at some time. The marks hold however often you look."
                    + f" {plural(late, 'more row has', 'more rows have')} no alarm."
                    * bool(late)
                )
                continue
            sentences.append(
                f"Of {len(with_labels)} {name}, {flagged} {'is' if flagged == 1 else 'are'} off by more than chance"
                " (false discovery rate 5%: if all were calibrated, any would be marked in at most 1 look in 20)."
            )
    return sentences


def _if_labelled_twice_as_often(labelling: Labelling, of_top: str) -> str:
    """Describe the figures if wrong answers were labelled twice as often."""
    doubled = next((s for s in labelling.sensitivity if s.ratio == 2), None)
    if doubled is None:
        return ""
    bound = "as far as there are answers without labels, " if doubled.impossible >= 0.01 else ""
    return (
        f" If they were labelled twice as often, {bound}the accuracy would be {whole_percent(doubled.accuracy)} and the"
        f" calibration error{of_top} {doubled.ece:.3f}."
    )
