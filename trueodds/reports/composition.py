"""Assembles the report: figures, their reading in plain words, and all other parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trueodds.processes.choices import MOST_RATIO, TOLERANCE
from trueodds.reports.estimands import estimands
from trueodds.reports.figures import calibration_p_value, decisions_of, figures_of, positive_figures
from trueodds.reports.labelling import labelling_of
from trueodds.reports.options import ReportOptions
from trueodds.reports.ordered_figures import ordered_figures
from trueodds.reports.resolution import RoundedFigures
from trueodds.reports.schemas import KnownVersion, Labelling, PositiveFigures, Report, Slice, Trend, Verdict
from trueodds.reports.schemas.alarm import ActingAlone, Advice, Alarm
from trueodds.reports.verdict.cautions import cautions
from trueodds.reports.verdict.headline import headline
from trueodds.reports.verdict.rules import CERTAIN, beside, is_within, of_positive, verdict_at_one_look, verdict_of
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import CELLS
from trueodds.sums.ordered import LevelSums
from trueodds.sums.positive import PositiveSums


def report_of(
    model: str,
    version: str,
    sums: AnswerSums,
    options: ReportOptions | None = None,
    *,
    positive: PositiveSums | None = None,
    ordered: LevelSums | None = None,
    offline: Mapping[str, Any] | None = None,
    labelling: Labelling | None = None,
    tolerance: float | None = None,
    ratio_tolerance: float | None = None,
    alarm: Alarm | None = None,
    advice: Advice | None = None,
    acting: ActingAlone | None = None,
    rounded: RoundedFigures | None = None,
    corrected: int = 0,
    versions: Sequence[Slice] = (),
    classes: Sequence[Slice] | None = None,
    tags: Sequence[Slice] | None = None,
    confidence_sources: Sequence[Slice] | None = None,
    trend: Trend | None = None,
    known: Sequence[KnownVersion] = (),
    notes: Sequence[str] = (),
    next_steps: Mapping[Verdict, str] | None = None,
) -> Report:
    """Assemble a report from the sums of the answers. Figures are null if there are no labels.

    Args:
        model: Name of the model.
        version: Version that gave the answers.
        sums: Calibration sums of the answers and their labels.
        options: Window, bins and confidence level.
        positive: Sums of the same answers by p(positive), for a model with a positive class.
        ordered: Sums of the labelled answers by level, for ordered classes.
        offline: The model's numbers on its test set.
        labelling: Result of `labelling_of`. Default: computed from the sums alone.
        tolerance: Largest acceptable ECE. Default: the alarm's, or 0.02 without an alarm.
        ratio_tolerance: Largest acceptable expected / observed positives. Default: the alarm's, or 1.2 without an
            alarm.
        alarm: The alarm's evidence on all labels so far. Without it no error counts as shown, unless `options.one_look`
            is set: then a test of these labels decides.
        advice: Whether a recalibration on all labels so far would help.
        acting: How a promise to act alone is kept.
        rounded: Resolution of the probabilities, which limits what is known of the NLL.
        corrected: Number of labels that another class has replaced.
        versions: Table of the model's versions.
        classes: Table by predicted class.
        tags: Table by tag.
        confidence_sources: Table by source of the confidences.
        trend: Trend over time.
        known: Versions that a reader can ask for.
        notes: More cautions.
        next_steps: Sentences on how to get answers or labels (see `headline`).

    Returns:
        The report.
    """
    options = options or ReportOptions()
    everything = options.window.is_everything and not options.one_look

    def figures_at(level: float) -> dict[str, Any]:
        return figures_of(sums.labelled, options.bins, options.binning, level, everything)

    figures, labelling = figures_at(options.level), labelling or labelling_of(sums, options)
    if tolerance is None:
        tolerance = alarm.nulls[0].tolerance if alarm else TOLERANCE
    if ratio_tolerance is None:
        ratio_tolerance = (alarm.ratio_tolerance if alarm else None) or MOST_RATIO
    of_p, of_p_certainly = None, None
    if positive is not None:
        of_p = positive_figures(positive, options, ratio_tolerance)
        of_p_certainly = positive_figures(positive, replace(options, level=CERTAIN), ratio_tolerance)
    limits = rounded.limits if rounded else {}
    if of_p is not None and of_p.nll is not None:
        of_p = of_p.model_copy(update=dict(limits))
    certain = figures_at(CERTAIN)
    if options.one_look and sums.labelled.n:
        p_value = calibration_p_value(sums.labelled, options.bins, options.binning)
        figures = figures | {"calibration_p_value": p_value}  # a copy, because the cached dict is shared

    def judge(figures_: dict[str, Any], of_p: PositiveFigures | None = None) -> Verdict:
        within = is_within(sums, certain, labelling, tolerance, of_p, ratio_tolerance)
        if options.one_look and sums.labelled.n:
            return verdict_at_one_look(figures_, within=within, positive=of_p is not None)
        of_all = alarm if everything else None
        return verdict_of(sums, figures_, of_all, advice, within=within, positive=of_p is not None)

    shown = of_positive(of_p) if of_p else figures
    verdict = judge(shown, of_p_certainly)
    of_top_label = judge(figures) if of_p and sums.labelled.n else None
    if of_p and of_top_label and options.one_look:
        of_top_label = beside(of_p, of_top_label)
    was_rearmed = alarm is not None and any(past.fired_at for past in alarm.rearmings)
    first = headline(
        verdict, sums, shown, options, tolerance, next_steps, of_p, of_top_label, was_rearmed, ratio_tolerance
    )
    tables = {"classes": classes, "tags": tags}
    second = [*cautions(sums, labelling, tables, one_look=options.one_look, positive=of_p, alarm=alarm), *notes]
    if rounded and rounded.rounding.reading:
        second.append(rounded.rounding.reading)
    return Report(
        model=model,
        version=version,
        window=options.window,
        verdict=verdict,
        top_label_verdict=of_top_label,
        tolerance=tolerance,
        ratio_tolerance=None if of_p is None else ratio_tolerance,
        reading=" ".join([first, *second]),
        headline=first,
        cautions=second,
        answers=sums.answers,
        labelled=sums.labelled.n,
        one_look=options.one_look,
        corrected=corrected,
        coverage=labelling.coverage,
        level=options.level,
        binning=options.binning,
        positive=of_p,
        ordered=None if ordered is None else ordered_figures(ordered, options),
        decisions=decisions_of(positive, options.level, options.costs) if positive and options.cells == CELLS else None,
        offline=dict(offline or {}),
        estimands=estimands(sums, options, positive=of_p is not None, ordered=ordered is not None),
        versions=list(versions),
        classes=None if classes is None else list(classes),
        tags=None if tags is None else list(tags),
        confidence_sources=None if confidence_sources is None else list(confidence_sources),
        trend=trend,
        labelling=labelling,
        alarm=alarm,
        advice=advice,
        acting=acting,
        known=list(known),
        rounding=rounded.rounding if rounded else None,
        **{**figures, **limits},
    )
