"""Versions, classes and tags beside each other, and the trend over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from trueodds import metrics
from trueodds.reports.memo import memoised
from trueodds.reports.options import Options
from trueodds.reports.schemas import NO_TAG, Slice, Trend, TrendPoint, Unit
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import Binning


def slices_of(sums_by_name: Mapping[str, AnswerSums], options: Options) -> list[Slice]:
    """One row of a table for each name, in their order."""
    return [_slice(name, sums, options) for name, sums in sums_by_name.items()]


def tags_of(sums_by_tag: Mapping[str, AnswerSums], options: Options) -> list[Slice]:
    """One row for each tag, the most frequent first; the tag "" is that of answers that have none."""
    rows = [_slice(name or NO_TAG, sums, options) for name, sums in sums_by_tag.items()]
    return sorted(rows, key=lambda row: (-row.answers, row.name))


def trend_of(unit: Unit, periods: Iterable[tuple[int, AnswerSums]], options: Options) -> Trend:
    """One point for each period, which begins at a time in Unix milliseconds.

    3 ms for each point whose sums have changed since it was last computed; the others are memoised.
    """
    points = []
    for start_ms, sums in periods:
        start = datetime.fromtimestamp(start_ms / 1000, UTC)
        figures = _point_figures(sums, options.bins, options.binning, options.level)
        points.append(TrendPoint.model_validate({"start": start, **_counts(sums), **figures}))
    return Trend(unit=unit, points=points)


def _slice(name: str, sums: AnswerSums, options: Options) -> Slice:
    figures = _slice_figures(sums, options.bins, options.binning, options.level)
    return Slice.model_validate({"name": name, **_counts(sums), **figures})


def _counts(sums: AnswerSums) -> dict[str, int]:
    return {"answers": sums.answers, "labelled": sums.labelled.n}


@memoised(1024)
def _slice_figures(sums: AnswerSums, bins: int, binning: Binning, level: float) -> dict[str, float | bool]:
    labelled, n = sums.labelled, sums.labelled.n
    if not n:
        return {}
    low, high = metrics.binomial_interval([labelled.total("correct")], [n], level=level)
    table, floor = (
        metrics.whole_bins(labelled, bins, binning),
        metrics.noise_floor(labelled, bins=bins, binning=binning),
    )
    ece = float(abs(table.gap_B).sum() / table.n)
    return {
        "accuracy": metrics.accuracy(labelled),
        "accuracy_lower": float(low[0]),
        "accuracy_upper": float(high[0]),
        "mean_confidence": metrics.mean_confidence(labelled),
        "signed_gap": metrics.signed_gap(labelled),
        "ece": ece,
        "floor_p95": floor.p95,
        "more_than_chance": ece > floor.p95,
    }


@memoised(2048)
def _point_figures(sums: AnswerSums, bins: int, binning: Binning, level: float) -> dict[str, float]:
    labelled = sums.labelled
    if not labelled.n:
        return {}
    interval = metrics.ece_interval(labelled, bins=bins, level=level, binning=binning)
    return {
        "accuracy": metrics.accuracy(labelled),
        "mean_confidence": metrics.mean_confidence(labelled),
        "ece": interval.ece,
        "ece_estimate": interval.estimate,
        "ece_lower": interval.lower,
        "ece_upper": interval.upper,
        "floor_p95": metrics.noise_floor(labelled, bins=bins, binning=binning).p95,
    }
