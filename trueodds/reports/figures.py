"""Figures of a report: every number computed from the sums of the labelled answers, by `trueodds.metrics`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from trueodds import metrics
from trueodds.drawing.reliability import TOP_LABEL, Axes, Column, ReliabilityDiagram, reliability
from trueodds.metrics import Bins, CalibrationSums, Costs, DecisionCost
from trueodds.processes.choices import Binning
from trueodds.reports import words
from trueodds.reports.data import memoise
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import Bin, Decisions, Ece, PositiveFigures, WorstBin
from trueodds.sums.positive import PositiveSums, sums_of_top

BINNINGS: tuple[Binning, ...] = ("width", "mass")

Figures = dict[str, Any]


@memoise(128)
def figures_of(
    sums: CalibrationSums, bins: int, binning: Binning, level: float, everything: bool, of_positive: bool = False
) -> Figures:
    """Compute the report's figures as a dict of its fields. Without labels it holds only the bins.

    It takes about 7 ms for any number of labels. Most of this time goes to the two ECE intervals and the confidence
    sequence of the gap (2 ms each).

    Args:
        sums: Sums of the labelled answers.
        bins: Number of bins.
        binning: "width" or "mass".
        level: Confidence level of the intervals.
        everything: The sums hold all labels so far.
        of_positive: The sums are those of p(positive).
    """
    table = metrics.whole_bins(sums, bins, binning) if sums.n else sums.bins(bins)
    figures: Figures = {"bins": _rows(table, level)}
    if not sums.n:
        return figures
    by_binning = {kind: _ece(sums, bins, level, kind) for kind in BINNINGS}
    chosen, right, n = by_binning[binning], sums.total("correct"), sums.n
    low, high = metrics.binomial_interval([right], [n], level=level)
    off_B = np.abs(table.gap_B) / np.maximum(table.count_B, 1)
    worst, ks = int(np.where(table.count_B > 0, off_B, -1.0).argmax()), metrics.ks_test(sums)
    figures |= {
        "error_rate": metrics.error_rate(sums),
        "accuracy": metrics.accuracy(sums),
        "accuracy_lower": float(low[0]),
        "accuracy_upper": float(high[0]),
        "mean_confidence": metrics.mean_confidence(sums),
        "signed_gap": metrics.signed_gap(sums),
        "ece": chosen.ece,
        "ece_estimate": chosen.estimate,
        "ece_lower": chosen.lower,
        "ece_upper": chosen.upper,
        "floor_mean": chosen.floor_mean,
        "floor_p95": chosen.floor_p95,
        "ece_by_binning": by_binning,
        "smooth_ece": metrics.smooth_ece(sums),
        "mce": float(off_B[worst]),
        "mce_bin": WorstBin(lo=table.lo_B[worst], hi=table.hi_B[worst], count=round(table.count_B[worst])),
        "ks": ks.ks,
        "ks_p_value": ks.p_value,
        **(scores_of_positive(sums, level) if of_positive else _scores(sums, level)),
    }
    if everything:
        sequence = metrics.gap_sequence(sums, level=level)
        limits = sequence.lower, sequence.upper
    else:  # valid: given the confidences, the number of right answers varies less than a binomial (Hoeffding 1956)
        limits = float(low[0]) - figures["mean_confidence"], float(high[0]) - figures["mean_confidence"]
    return figures | dict(zip(("signed_gap_lower", "signed_gap_upper"), limits, strict=True))


NAMES_OF_POSITIVE = {
    "accuracy": "prevalence",
    "accuracy_lower": "prevalence_lower",
    "accuracy_upper": "prevalence_upper",
    "mean_confidence": "mean_probability",
}
"""Names of figures of p(positive) that differ from those of the top label."""


def positive_figures(
    positive: PositiveSums, options: ReportOptions, ratio_tolerance: float = metrics.MOST_RATIO
) -> PositiveFigures:
    """Compute the figures of p(positive). Without labels they hold only the bins.

    Args:
        positive: Sums by p(positive).
        options: Window, bins and confidence level.
        ratio_tolerance: Largest acceptable expected / observed. It determines how many more positives are needed.
    """
    sums, level, binning = positive.sums.labelled, options.level, options.binning_of_positive
    everything = options.window.is_everything and not options.one_look
    figures = figures_of(sums, options.bins, binning, level, everything, True)
    named = {NAMES_OF_POSITIVE.get(name, name): value for name, value in figures.items() if name != "error_rate"}
    if sums.n:
        named["calibration_p_value"] = calibration_p_value(sums, options.bins, binning)
        named |= _in_the_large(sums, level, ratio_tolerance)
    return PositiveFigures(label=positive.name, binning=binning, **named)


def _in_the_large(sums: CalibrationSums, level: float, ratio_tolerance: float) -> Figures:
    """Compute expected / observed positives with its interval, and how many more positives and labels are needed."""
    ratio, certain = metrics.calibration_ratio(sums, level=level), metrics.calibration_ratio(sums)
    return {
        "expected": ratio.expected,
        "observed": ratio.observed,
        "ratio": ratio.ratio if ratio.observed else None,
        "ratio_lower": ratio.lower,
        "ratio_upper": ratio.upper if math.isfinite(ratio.upper) else None,
        "positives_to_come": certain.positives_to_come(ratio_tolerance),
        "labels_to_come": certain.labels_to_come(ratio_tolerance),
    }


def calibration_p_value(sums: CalibrationSums, bins: int, binning: Binning) -> float:
    """Compute the p-value of the null hypothesis that every confidence is the probability of being right."""
    return metrics.calibration_test(sums, bins=bins, binning=binning).p_value


def decisions_of(positive: PositiveSums, nominal: float, costs: Costs | None = None) -> Decisions | None:
    """Compute the results of alerts by p(positive) at thresholds, and at the threshold that `costs` imply.

    The results are precision, recall and false alarm rate. None without labels.

    Args:
        positive: Sums by p(positive).
        nominal: Confidence level of the intervals.
        costs: Costs of a missed positive and a false alarm.
    """
    sums = positive.sums.labelled
    if not sums.n:
        return None
    at = metrics.thresholds(sums, level=nominal)
    if costs is None:
        return Decisions(label=positive.name, thresholds=at)
    cost = metrics.decision_cost(sums, costs=costs, level=nominal)
    at = sorted([one for one in at if one.threshold != cost.at.threshold] + [cost.at], key=lambda one: one.threshold)
    return Decisions(label=positive.name, thresholds=at, cost=cost, reading=_cost_reading(positive.name, cost, nominal))


def _cost_reading(label: str, cost: DecisionCost, nominal: float) -> str:
    """Describe the cost of the decisions in words."""
    limits = f"{words.level(nominal)} interval {words.span(cost.lower, cost.upper)}"
    sentences = [
        f"If a missed {label} costs {cost.costs.miss:g} and a false alarm {cost.costs.alarm:g}, alert above"
        f" {words.percent(cost.at.threshold)}. This costs {words.decimal(cost.cost)} per labelled answer ({limits});"
        f" no alerts cost {words.decimal(cost.never)}, an alert at every answer {words.decimal(cost.always)}."
    ]
    saved = f"{words.level(nominal)} interval {words.span(cost.saving_lower, cost.saving_upper)}"
    if cost.saving_lower > 0:
        sentences.append(
            f"Miscalibration causes {words.decimal(cost.saving)} of this cost ({saved}). A recalibration would save it,"
            f" and so would an alert above {words.percent(cost.best_threshold)}, the best threshold for these labels."
        )
    else:
        sentences.append(
            f"The labels do not show that miscalibration causes any of it ({words.decimal(cost.saving)}, {saved})."
        )
    return " ".join(sentences)


def _scores(sums: CalibrationSums, level: float) -> Figures:
    """Compute NLL and Brier score with their limits. Empty if only the predicted class's probability is known.

    Probabilities in coarse steps have a Brier score and no NLL.
    """
    found: Figures = {}
    if sums.has("nll"):
        nll = metrics.score_interval(sums, score="nll", level=level)
        upper = nll.upper if math.isfinite(nll.upper) else None
        found |= {"nll": nll.value, "nll_lower": nll.lower, "nll_upper": upper, "nll_unseen": nll.unseen}
    if sums.has("brier"):
        brier = metrics.score_interval(sums, score="brier", level=level)
        found |= {"brier": brier.value, "brier_lower": brier.lower, "brier_upper": brier.upper}
    return found


def scores_of_positive(sums: CalibrationSums, level: float) -> Figures:
    """Compute NLL and Brier score of p(positive) with their limits.

    The NLL is the same as that of both classes. The Brier score is half of theirs, in [0, 1].
    """
    scores = _scores(sums_of_top(sums), level)
    return scores | {name: scores[name] / 2 for name in ("brier", "brier_lower", "brier_upper") if name in scores}


def _ece(sums: CalibrationSums, bins: int, level: float, binning: Binning) -> Ece:
    interval = metrics.ece_interval(sums, bins=bins, level=level, binning=binning)
    floor = metrics.noise_floor(sums, bins=bins, binning=binning)
    return Ece(
        ece=interval.ece,
        estimate=interval.estimate,
        lower=interval.lower,
        upper=interval.upper,
        floor_mean=floor.mean,
        floor_p95=floor.p95,
    )


def _rows(table: Bins, level: float) -> list[Bin]:
    lower_B, upper_B = metrics.binomial_interval(table.correct_B, table.count_B, level=level)
    columns = (table.mean_confidence_B, table.accuracy_B, lower_B, upper_B, table.accuracy_B - table.mean_confidence_B)
    names = ("mean_confidence", "accuracy", "accuracy_lower", "accuracy_upper", "gap")
    rows = []
    for b, count in enumerate(table.count_B.tolist()):
        means = {name: float(column[b]) if count else None for name, column in zip(names, columns, strict=True)}
        rows.append(Bin(lo=table.lo_B[b], hi=table.hi_B[b], count=int(count), **means))
    return rows


def diagram_of(bins: Sequence[Bin], axes: Axes = TOP_LABEL) -> ReliabilityDiagram:
    """Lay out the reliability diagram of a report's bins."""
    means = ("mean_confidence", "accuracy", "accuracy_lower", "accuracy_upper")
    columns = [Column(b.lo, b.hi, b.count, *(getattr(b, name) or 0.0 for name in means)) for b in bins if b.count]
    return reliability(columns, len(bins), axes)
