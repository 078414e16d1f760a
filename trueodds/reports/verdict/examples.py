"""Ranges of confidence that illustrate a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueodds.reports.schemas import Bin, Verdict
from trueodds.reports.words import shares, told_apart
from trueodds.texts import plural

SIGNS: dict[str, tuple[int, ...]] = {
    "over_confident": (-1,),
    "too_high": (-1,),
    "under_confident": (1,),
    "too_low": (1,),
}
"""Sign of the gap that illustrates a verdict; both signs for the others."""


def examples(verdict: Verdict, bins: Sequence[Bin], label: str | None = None) -> str:
    """Describe the clearest ranges of confidence, or of p(`label`); "" if there are none."""
    signs = SIGNS.get(verdict.removeprefix("leans_"), (-1, 1))
    ranges = [one for sign in signs if (one := clearest_range(bins, sign))]
    return "; ".join(_example(one) if label is None else _example_of_positive(one, label) for one in ranges)


@dataclass(frozen=True)
class Range:
    """Labelled answers of neighbouring bins."""

    lo: float
    hi: float
    count: int
    mean_confidence: float
    accuracy: float


def clearest_range(bins: Sequence[Bin], sign: int) -> Range | None:
    """Return the neighbouring bins with the largest gap after subtracting three standard errors.

    This finds the error that a person would notice. The largest part of the ECE could be half a point among thousands
    of nearly certain answers, instead of twenty points in the middle. The largest gap alone could be chance in a
    handful of answers. The variance is the larger of two: that of being right as often as claimed, c (1 - c), and that
    of being right as often as seen, (right + 1) / (n + 2).

    Args:
        bins: Bins of the report.
        sign: Sign of the gap; -1 for over-confident ranges.

    Returns:
        The range, or None if no neighbouring bins have a gap of this sign.
    """
    occupied = [b for b in bins if b.count]
    if not occupied:
        return None
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


def _example_of_positive(where: Range, label: str) -> str:
    low, high = told_apart(where.lo, where.hi)
    claimed, share = shares(where.mean_confidence, where.accuracy)
    range_ = f"where p({label}) is {low} to {high}, {claimed} on average"
    return f"{range_}, {share} are {label} ({plural(where.count, 'answer')})"
