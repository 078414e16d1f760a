"""Versions, classes and tags beside each other, and the trend over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from trueodds import metrics
from trueodds.reports.memo import memoised
from trueodds.reports.options import Options
from trueodds.reports.schemas import NO_TAG, Slice, Trend, TrendPoint, Unit
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import Binning

FALSE_DISCOVERY_RATE = 0.05


def slices_of(sums_by_name: Mapping[str, AnswerSums], options: Options) -> list[Slice]:
    """One row of a table for each name, in their order.

    Of those with labels, `more_than_chance` are the ones that Benjamini and Hochberg (1995) choose by their p-values so
    that, of those chosen, 5% at most are calibrated in the mean over many tables; where all of a table are calibrated,
    any is chosen in 5% of such tables at most. Holds for rows that are independent given their confidences.
    """
    return _table(sums_by_name.items(), options)


def tags_of(sums_by_tag: Mapping[str, AnswerSums], options: Options) -> list[Slice]:
    """One row for each tag, the most frequent first; the tag "" is that of answers that have none."""
    rows = _table(((name or NO_TAG, sums) for name, sums in sums_by_tag.items()), options)
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


def _table(named: Iterable[tuple[str, AnswerSums]], options: Options) -> list[Slice]:
    rows = [_slice(name, sums, options) for name, sums in named]
    tested = [row for row in rows if row.p_value is not None]
    chosen = benjamini_hochberg([row.p_value for row in tested if row.p_value is not None], FALSE_DISCOVERY_RATE)
    for row, more_than_chance in zip(tested, chosen, strict=True):
        row.more_than_chance = more_than_chance
    return rows


def benjamini_hochberg(p_values: Sequence[float], rate: float) -> list[bool]:
    """Whether each of m hypotheses is rejected: all with p <= p_(k), k the largest with p_(k) <= k rate / m.

    Benjamini and Hochberg (1995): of those rejected, at most `rate` are true in the mean. scipy.stats has its adjusted
    p-values, and takes longer to import than all of this library.
    """
    sorted_M = np.sort(p_values)
    passing = sorted_M <= rate * np.arange(1, len(sorted_M) + 1) / max(len(sorted_M), 1)
    limit = sorted_M[passing][-1] if passing.any() else -1.0
    return [p_value <= limit for p_value in p_values]


def _slice(name: str, sums: AnswerSums, options: Options) -> Slice:
    figures = _slice_figures(sums, options.bins, options.binning, options.level)
    return Slice.model_validate({"name": name, **_counts(sums), **figures})


def _counts(sums: AnswerSums) -> dict[str, int]:
    return {"answers": sums.answers, "labelled": sums.labelled.n}


@memoised(1024)
def _slice_figures(sums: AnswerSums, bins: int, binning: Binning, level: float) -> dict[str, float]:
    labelled, n = sums.labelled, sums.labelled.n
    if not n:
        return {}
    low, high = metrics.binomial_interval([labelled.total("correct")], [n], level=level)
    test = metrics.ece_test(labelled, bins=bins, binning=binning)
    return {
        "accuracy": metrics.accuracy(labelled),
        "accuracy_lower": float(low[0]),
        "accuracy_upper": float(high[0]),
        "mean_confidence": metrics.mean_confidence(labelled),
        "signed_gap": metrics.signed_gap(labelled),
        "ece": test.ece,
        "floor_p95": metrics.noise_floor(labelled, bins=bins, binning=binning).p95,
        "p_value": test.p_value,
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
