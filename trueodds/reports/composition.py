"""Assembles the report: figures, their reading in plain words, and all other parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    labelling = labelling or labelling_of(sums, options)
    if tolerance is None:
        tolerance = alarm.nulls[0].tolerance if alarm else TOLERANCE
    if ratio_tolerance is None:
        ratio_tolerance = (alarm.ratio_tolerance if alarm else None) or MOST_RATIO
    evidence = _Evidence(sums, options, labelling, tolerance, ratio_tolerance, alarm, advice)
    figures, limits = evidence.figures(options.level), rounded.limits if rounded else {}
    if options.one_look and sums.labelled.n:
        p_value = calibration_p_value(sums.labelled, options.bins, options.binning)
        figures = figures | {"calibration_p_value": p_value}  # a copy, because the cached dict is shared
    of_p = None if positive is None else positive_figures(positive, options, ratio_tolerance)
    if of_p is not None and of_p.nll is not None:
        of_p = of_p.model_copy(update=dict(limits))
    verdict, of_top_label = evidence.verdicts(figures, positive, of_p)
    was_rearmed = alarm is not None and any(past.fired_at for past in alarm.rearmings)
    shown = of_positive(of_p) if of_p else figures
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


@dataclass(frozen=True)
class _Evidence:
    """Evidence of a report that its verdicts are about."""

    sums: AnswerSums
    options: ReportOptions
    labelling: Labelling
    tolerance: float
    ratio_tolerance: float
    alarm: Alarm | None
    advice: Advice | None

    @property
    def of_everything(self) -> bool:
        """Whether the report is about all answers of the version, after every label."""
        return self.options.window.is_everything and not self.options.one_look

    def figures(self, level: float) -> dict[str, Any]:
        """Return the figures of the more probable class, with intervals at `level`."""
        return figures_of(self.sums.labelled, self.options.bins, self.options.binning, level, self.of_everything)

    def verdicts(
        self, figures: dict[str, Any], positive: PositiveSums | None, of_p: PositiveFigures | None
    ) -> tuple[Verdict, Verdict | None]:
        """Return the verdict, and that on the more probable class if the first is about p(positive)."""
        if positive is None or of_p is None:
            return self._verdict(figures), None
        of_p_certainly = positive_figures(positive, replace(self.options, level=CERTAIN), self.ratio_tolerance)
        verdict = self._verdict(of_positive(of_p), of_p_certainly)
        of_top_label = self._verdict(figures) if self.sums.labelled.n else None
        return verdict, beside(of_p, of_top_label) if of_top_label and self.options.one_look else of_top_label

    def _verdict(self, figures: dict[str, Any], of_p_certainly: PositiveFigures | None = None) -> Verdict:
        certain, is_of_p = self.figures(CERTAIN), of_p_certainly is not None
        within = is_within(self.sums, certain, self.labelling, self.tolerance, of_p_certainly, self.ratio_tolerance)
        if self.options.one_look and self.sums.labelled.n:
            return verdict_at_one_look(figures, within=within, positive=is_of_p)
        of_all = self.alarm if self.of_everything else None
        return verdict_of(self.sums, figures, of_all, self.advice, within=within, positive=is_of_p)
