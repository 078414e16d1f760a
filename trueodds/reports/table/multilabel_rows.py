"""Rows of independent yes/no labels, and their figures: of each label, and pooled over the labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trueodds import metrics
from trueodds.metrics.intervals import clustered
from trueodds.metrics.intervals.clustered import Pairs
from trueodds.metrics.ranked import whole_bins
from trueodds.metrics.significance.at_least import FAMILY_RATE, holm
from trueodds.metrics.significance.expected_calibration_error import ece_test
from trueodds.reports.figures import positive_figures, scores_of_positive
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import Bin, Ece, LabelFigures, PositiveFigures
from trueodds.sums.answers import AnswerSums
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass, PositiveSums, losses_of_positive
from trueodds.sums.rounding import EXACT, Resolution
from trueodds.sums.sums import CalibrationSums

POOLED = "all labels"
"""Name of the pooled figures in tables and diagrams."""


@dataclass(frozen=True, eq=False)
class MultilabelRows:
    """Checked rows: a probability of each label, and its truth where it is known."""

    p_NL: Array
    truth_NL: Array
    """0 or 1; NaN if not known."""
    names: tuple[str, ...]
    resolution: Resolution = EXACT
    source: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def pairs(self) -> Pairs:
        """Pairs of a row and a label with a known truth."""
        row_M, label_M = np.nonzero(~np.isnan(self.truth_NL))
        p_M = self.resolution.confidence(self.p_NL[row_M, label_M])
        _, compact_M = np.unique(row_M, return_inverse=True)
        return Pairs(p_M, self.truth_NL[row_M, label_M] == 1, compact_M.astype(np.intp))

    def sums_of_label(self, label: int) -> CalibrationSums:
        """Return the calibration sums of one label by its probability."""
        known_N = ~np.isnan(self.truth_NL[:, label])
        if not known_N.any():
            return CalibrationSums.zero()
        return PositiveClass.sums_of(self.p_NL[known_N, label], self.truth_NL[known_N, label] == 1, self.resolution)

    def pooled_sums(self) -> CalibrationSums:
        """Return the calibration sums of all pairs by their probability."""
        known_NL = ~np.isnan(self.truth_NL)
        return PositiveClass.sums_of(self.p_NL[known_NL], self.truth_NL[known_NL] == 1, self.resolution)


def figures_of_labels(rows: MultilabelRows, options: ReportOptions) -> list[LabelFigures]:
    """Compute the figures of each label, in the order of the columns, with marks by Holm's procedure.

    If all labels are calibrated, any of them is marked with a probability of at most 5%, however the labels of a row
    depend on each other (Holm 1979). The p-values are those of `trueodds.metrics.ece_test`, which are accurate enough
    for thousands of labels. They assume that rows are independent.
    """
    found = [_figures(name, rows.sums_of_label(label), options) for label, name in enumerate(rows.names)]
    tested = [one for one in found if one.p_value is not None]
    marks = holm([one.p_value for one in tested if one.p_value is not None], FAMILY_RATE)
    for one, mark in zip(tested, marks, strict=True):
        one.more_than_chance = mark
    return found


def _figures(name: str, sums: CalibrationSums, options: ReportOptions) -> LabelFigures:
    if not sums.n:
        return LabelFigures(name=name, labelled=0, positives=0)
    level, bins, binning = options.level, options.bins, options.binning_of_positive
    positives = round(sums.total("correct"))
    low, high = metrics.binomial_interval([positives], [sums.n], level=level)
    interval = metrics.ece_interval(sums, bins=bins, binning=binning, level=level)
    floor = metrics.noise_floor(sums, bins=bins, binning=binning)
    scores = scores_of_positive(sums, level)
    return LabelFigures(
        name=name,
        labelled=sums.n,
        positives=positives,
        prevalence=metrics.accuracy(sums),
        prevalence_lower=float(low[0]),
        prevalence_upper=float(high[0]),
        mean_probability=metrics.mean_confidence(sums),
        signed_gap=metrics.signed_gap(sums),
        ece=interval.ece,
        ece_estimate=interval.estimate,
        ece_lower=interval.lower,
        ece_upper=interval.upper,
        floor_mean=floor.mean,
        floor_p95=floor.p95,
        p_value=ece_test(sums, bins=bins, binning=binning).p_value,
        **{key: value for key, value in scores.items() if key in LabelFigures.model_fields},
    )


def pooled_figures(rows: MultilabelRows, options: ReportOptions) -> PositiveFigures:
    """Compute the figures of all pairs together, with intervals that take the row as the unit.

    See `trueodds.metrics.intervals.clustered`. If no row has two known labels, they are the figures of a binary report.
    The tests of independent answers (`calibration_p_value`, `ks_p_value`) and the numbers of labels to come are then
    left out, because they do not hold for pairs.
    """
    sums, pairs, level = rows.pooled_sums(), rows.pairs, options.level
    bins, binning = options.bins, options.binning_of_positive
    counts = sums.cells[0].astype(np.int64)
    figures = positive_figures(PositiveSums(POOLED, AnswerSums(counts, sums)), options)
    if pairs.is_single:
        return figures
    ece = clustered.clustered_ece(sums, pairs, bins=bins, binning=binning, level=level)
    share, gap = clustered.clustered_share(pairs, level), clustered.clustered_gap(pairs, level)
    limits = {
        "prevalence_lower": share.lower,
        "prevalence_upper": share.upper,
        "signed_gap_lower": gap.lower,
        "signed_gap_upper": gap.upper,
        **_ratio(figures, gap, len(pairs.p_M)),
        **_scores(rows, level),
    }
    of_ece = Ece(
        ece=ece.interval.ece,
        estimate=ece.interval.estimate,
        lower=ece.interval.lower,
        upper=ece.interval.upper,
        floor_mean=ece.floor.mean,
        floor_p95=ece.floor.p95,
    )
    table = whole_bins(sums, bins, binning)
    lower_B, upper_B = metrics.binomial_interval(
        table.correct_B / ece.effect_B, table.count_B / ece.effect_B, level=level
    )
    shown = [
        _wider(one, float(low), float(high)) for one, low, high in zip(figures.bins, lower_B, upper_B, strict=True)
    ]
    return figures.model_copy(
        update={
            **limits,
            "ece_estimate": of_ece.estimate,
            "ece_lower": of_ece.lower,
            "ece_upper": of_ece.upper,
            "floor_mean": of_ece.floor_mean,
            "floor_p95": of_ece.floor_p95,
            "ece_by_binning": {binning: of_ece},
            "bins": shown,
            "calibration_p_value": None,
            "ks_p_value": None,
            "positives_to_come": None,
            "labels_to_come": None,
            "nll_unseen": None,
        }
    )


def _wider(one: Bin, lower: float, upper: float) -> Bin:
    """Return a bin of the diagram with the limits of its share of true labels. A bin without pairs is unchanged."""
    return one.model_copy(update={"accuracy_lower": lower, "accuracy_upper": upper}) if one.count else one


def _ratio(figures: PositiveFigures, gap: clustered.RowLimits, pairs: int) -> dict[str, float | None]:
    """Return limits of expected / observed from those of the gap: expected / (expected + pairs x gap)."""
    expected = figures.expected or 0.0
    least, most = expected + pairs * gap.lower, expected + pairs * gap.upper
    return {
        "ratio_lower": expected / most if most > 0 and math.isfinite(most) else 0.0,
        "ratio_upper": expected / least if least > 0 else None,
    }


def _scores(rows: MultilabelRows, level: float) -> dict[str, float | None]:
    """Return the limits of the pooled log loss and Brier score."""
    known_NL, pairs = ~np.isnan(rows.truth_NL), rows.pairs
    p_M = rows.p_NL[known_NL]
    nll_M, _, brier_M = losses_of_positive(p_M, pairs.hit_M, rows.resolution)
    rarer_M = pairs.p_M <= 0.5
    if_nll_M, _, if_brier_M = losses_of_positive(p_M, rarer_M, rows.resolution)
    brier = clustered.clustered_score(pairs, brier_M, if_brier_M, 1.0, level)
    found: dict[str, float | None] = {"brier_lower": brier.lower, "brier_upper": brier.upper}
    if not rows.resolution.has_nll:
        return found
    nll = clustered.clustered_score(pairs, nll_M, if_nll_M, math.inf, level)
    return {**found, "nll_lower": nll.lower, "nll_upper": nll.upper if math.isfinite(nll.upper) else None}
