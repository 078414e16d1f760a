"""The report: figures, their reading in plain words, and all parts that stand beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trueodds.reports.estimands import estimands
from trueodds.reports.figures import calibration_p_value, decisions_of, figures_of, positive_figures
from trueodds.reports.labelling import labelling_of
from trueodds.reports.options import TOLERANCE, Options
from trueodds.reports.schemas import KnownVersion, Labelling, PositiveFigures, Report, Slice, Trend, Verdict
from trueodds.reports.schemas.alarm import ActingAlone, Advice, Alarm
from trueodds.reports.verdict.cautions import cautions
from trueodds.reports.verdict.headline import headline
from trueodds.reports.verdict.in_the_large import RATIO_TOLERANCE
from trueodds.reports.verdict.rules import CERTAIN, beside, is_within, of_positive, verdict_at_one_look, verdict_of
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import CELLS
from trueodds.sums.positive import PositiveSums


def report_of(
    model: str,
    version: str,
    sums: AnswerSums,
    options: Options | None = None,
    *,
    positive: PositiveSums | None = None,
    offline: Mapping[str, Any] | None = None,
    labelling: Labelling | None = None,
    tolerance: float | None = None,
    ratio_tolerance: float | None = None,
    alarm: Alarm | None = None,
    advice: Advice | None = None,
    acting: ActingAlone | None = None,
    corrected: int = 0,
    versions: Sequence[Slice] = (),
    classes: Sequence[Slice] | None = None,
    tags: Sequence[Slice] | None = None,
    trend: Trend | None = None,
    known: Sequence[KnownVersion] = (),
    notes: Sequence[str] = (),
    next_steps: Mapping[Verdict, str] | None = None,
) -> Report:
    """Figures and their reading; null where there are no labels.

    `positive`: the same answers by the probability of the positive class, of a model that has one. `labelling`: by
    `labelling_of`; without it, that of the sums alone. `alarm` and `advice`: of all labels so far; without them
    nothing counts as shown, unless `options.one_look`: then a test of these labels tells. `tolerance` and
    `ratio_tolerance` (of expected / observed positives): the alarm's, without an alarm 0.02 and 1.2. `notes`: more
    cautions. `next_steps`: see `headline`.
    """
    options = options or Options()
    everything = options.window.is_everything and not options.one_look

    def figures_at(level: float) -> dict[str, Any]:
        return figures_of(sums.labelled, options.bins, options.binning, level, everything)

    figures, labelling = figures_at(options.level), labelling or labelling_of(sums, options)
    if tolerance is None:
        tolerance = alarm.nulls[0].tolerance if alarm else TOLERANCE
    if ratio_tolerance is None:
        ratio_tolerance = (alarm.ratio_tolerance if alarm else None) or RATIO_TOLERANCE
    of_p, of_p_certainly = None, None
    if positive is not None:
        of_p = positive_figures(positive, options, ratio_tolerance)
        of_p_certainly = positive_figures(positive, replace(options, level=CERTAIN), ratio_tolerance)
    certain = figures_at(CERTAIN)
    if options.one_look and sums.labelled.n:
        p_value = calibration_p_value(sums.labelled, options.bins, options.binning)
        figures = figures | {"calibration_p_value": p_value}  # a new one: what is memoised is shared

    def judged(shown: dict[str, Any], of_p: PositiveFigures | None = None) -> Verdict:
        within = is_within(sums, certain, labelling, tolerance, of_p, ratio_tolerance)
        if options.one_look and sums.labelled.n:
            return verdict_at_one_look(shown, within=within, positive=of_p is not None)
        of_all = alarm if everything else None
        return verdict_of(sums, shown, of_all, advice, within=within, positive=of_p is not None)

    shown = of_positive(of_p) if of_p else figures
    verdict = judged(shown, of_p_certainly)
    of_top_label = judged(figures) if of_p and sums.labelled.n else None
    if of_p and of_top_label and options.one_look:
        of_top_label = beside(of_p, of_top_label)
    rearmed = alarm is not None and any(past.fired_at for past in alarm.rearmings)
    first = headline(verdict, sums, shown, options, tolerance, next_steps, of_p, of_top_label, rearmed, ratio_tolerance)
    tables = {"classes": classes, "tags": tags}
    second = [*cautions(sums, labelling, tables, one_look=options.one_look, positive=of_p, alarm=alarm), *notes]
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
        decisions=decisions_of(positive, options.level, options.costs) if positive and options.cells == CELLS else None,
        offline=dict(offline or {}),
        estimands=estimands(sums, options, positive=of_p is not None),
        versions=list(versions),
        classes=None if classes is None else list(classes),
        tags=None if tags is None else list(tags),
        trend=trend,
        labelling=labelling,
        alarm=alarm,
        advice=advice,
        acting=acting,
        known=list(known),
        **figures,
    )
