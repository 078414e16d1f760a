"""Versions, classes and tags beside each other, and the trend over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from service.report.cache import remembered
from service.report.schemas import Slice, Trend, TrendPoint, Unit
from service.report.scope import NO_TAG, Asked
from service.store.records import StoredSums
from trueodds import metrics
from trueodds.sums.bins import Binning


@remembered(1024)
def _numbers(sums: StoredSums, bins: int, binning: Binning, level: float) -> dict[str, float | bool]:
    told, n = sums.labelled, sums.labelled.n
    if not n:
        return {}
    low, high = metrics.binomial_interval([told.total("correct")], [n], level=level)
    table, floor = metrics.whole_bins(told, bins, binning), metrics.noise_floor(told, bins=bins, binning=binning)
    ece = float(abs(table.gap_B).sum() / table.n)
    return {
        "accuracy": metrics.accuracy(told),
        "accuracy_lower": float(low[0]),
        "accuracy_upper": float(high[0]),
        "mean_confidence": metrics.mean_confidence(told),
        "signed_gap": metrics.signed_gap(told),
        "ece": ece,
        "floor_p95": floor.p95,
        "more_than_chance": ece > floor.p95,
    }


def slice_of(name: str, sums: StoredSums, asked: Asked) -> Slice:
    """One row of a table."""
    numbers = _numbers(sums, asked.bins, asked.binning, asked.level)
    return Slice.model_validate({"name": name, "answers": sums.answers, "labelled": sums.labelled.n, **numbers})


def versions(sums_by_name: Mapping[str, StoredSums], asked: Asked) -> list[Slice]:
    """The versions of one model, in the order of `sums_by_name`."""
    return [slice_of(name, sums, asked) for name, sums in sums_by_name.items()]


def groups(sums_by_name: Mapping[str, StoredSums], asked: Asked) -> list[Slice]:
    """By class in the order of the classes, or by tag, the most frequent first."""
    if asked.by == "class":
        return [slice_of(name, sums, asked) for name, sums in sums_by_name.items()]
    rows = [slice_of(name or NO_TAG, sums, asked) for name, sums in sums_by_name.items()]
    return sorted(rows, key=lambda row: (-row.answers, row.name))


@remembered(2048)
def _point(sums: StoredSums, bins: int, binning: Binning, level: float) -> dict[str, float]:
    told = sums.labelled
    if not told.n:
        return {}
    interval = metrics.ece_interval(told, bins=bins, level=level, binning=binning)
    return {
        "accuracy": metrics.accuracy(told),
        "mean_confidence": metrics.mean_confidence(told),
        "ece": interval.ece,
        "ece_estimate": interval.estimate,
        "ece_lower": interval.lower,
        "ece_upper": interval.upper,
        "floor_p95": metrics.noise_floor(told, bins=bins, binning=binning).p95,
    }


def trend(unit: Unit, periods: Iterable[tuple[int, StoredSums]], asked: Asked) -> Trend:
    """One point for each period, which begins at a time in Unix milliseconds.

    3 ms for each point whose sums have changed since it was last computed; the others are remembered.
    """
    points = [
        TrendPoint.model_validate(
            {
                "start": datetime.fromtimestamp(start / 1000, UTC),
                "answers": sums.answers,
                "labelled": sums.labelled.n,
                **_point(sums, asked.bins, asked.binning, asked.level),
            }
        )
        for start, sums in periods
    ]
    return Trend(unit=unit, points=points)
