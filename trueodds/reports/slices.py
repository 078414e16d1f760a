"""Tables by version, class and tag, and the trend over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from trueodds import metrics
from trueodds.metrics.labelling.expected import CENTRE_C, calibrated_range, misses_p_value, visible_gaps
from trueodds.processes.choices import TOLERANCE, Binning
from trueodds.reports.data import memoise
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import NO_TAG, ROUNDING, Confirmation, Slice, Trend, TrendPoint, Unit
from trueodds.reports.words import level as percent_of
from trueodds.reports.words import p_value as chance_of
from trueodds.reports.words import signed_points
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import COARSE_CELLS
from trueodds.sums.inputs import Array
from trueodds.sums.sums import CalibrationSums
from trueodds.texts import plural

NO_SOURCE = "(unknown)"
"""Name of the row of answers whose confidence has no known source."""
FALSE_DISCOVERY_RATE = 0.05
"""Largest expected share of calibrated rows among those marked as more than chance."""
CONDITION = (
    "For answers without a label this holds as long as the model stays calibrated and the meaning of the inputs stays"
    " the same (no concept drift)."
)
"""Condition under which expectations hold for answers without a label."""


@dataclass(frozen=True)
class Marks:
    """Marks of the alarms by group, for one table."""

    by_name: Mapping[str, bool]
    """Whether each row with an alarm is marked, by its name in the table. Empty before the first label."""
    tolerance: float
    """Largest acceptable ECE of a row."""


def slices_of(
    sums_by_name: Mapping[str, AnswerSums], options: ReportOptions, marks: Marks | None = None
) -> list[Slice]:
    """Return one table row for each name, in their order.

    `more_than_chance` marks rows by the procedure of Benjamini and Hochberg (1995) on the rows' p-values. On average
    over many tables, at most 5% of the marked rows are calibrated. If all rows of a table are calibrated, any row is
    marked in at most 5% of such tables. This assumes one look, and rows that are independent given their confidences.

    Args:
        sums_by_name: Sums of each row.
        options: Bins and confidence level.
        marks: Marks of the alarms by group, which hold at each look and replace those of one look.
    """
    return _table(sums_by_name.items(), options, marks)


def tags_of(sums_by_tag: Mapping[str, AnswerSums], options: ReportOptions, marks: Marks | None = None) -> list[Slice]:
    """Return one table row for each tag, the most frequent first. The tag "" stands for answers without a tag."""
    rows = _table(((name or NO_TAG, sums) for name, sums in sums_by_tag.items()), options, marks)
    return sorted(rows, key=lambda row: (-row.answers, row.name))


def sources_of(sums_by_source: Mapping[str, AnswerSums], options: ReportOptions) -> list[Slice]:
    """Return one table row for each source of confidences, the most frequent first. "" stands for an unknown source."""
    rows = _table(((name or NO_SOURCE, sums) for name, sums in sums_by_source.items()), options)
    return sorted(rows, key=lambda row: (-row.answers, row.name))


def trend_of(
    unit: Unit, periods: Iterable[tuple[int, AnswerSums]], options: ReportOptions, tolerance: float = TOLERANCE
) -> Trend:
    """Return a trend with one point for each period.

    A point takes 4 ms if its sums have changed since it was last computed. The others are cached.

    Args:
        unit: Length of a period.
        periods: Start of each period in Unix milliseconds, with its sums.
        options: Bins and confidence level.
        tolerance: Labels confirm the expected accuracy if the gap's interval is within this tolerance.
    """
    points, labelled = [], np.zeros_like(CalibrationSums.zero().cells)
    for start_ms, sums in periods:
        start = datetime.fromtimestamp(start_ms / 1000, UTC)
        figures = _point_figures(sums, options.bins, options.binning, options.level)
        points.append(TrendPoint.model_validate({"start": start, **_counts(sums), **figures}))
        labelled += sums.labelled.cells
    confirmation = _confirmation(unit, points, CalibrationSums(labelled), options.level, tolerance)
    return Trend(unit=unit, points=points, confirmation=confirmation)


def _confirmation(
    unit: Unit, points: list[TrendPoint], labels: CalibrationSums, level: float, tolerance: float
) -> Confirmation | None:
    """Test each period, and all labels together. Small periods may each agree while all labels together do not.

    Each of the two tests uses half of 1 - level.
    """
    known = [p for p in points if p.labelled]
    if not known:
        return None
    within = sum(p.is_as_promised for p in known)
    p_value, each = misses_p_value(len(known) - within, len(known), level), (1 + level) / 2
    lower, upper = _range(labels.cells[0], labels.cells[1], each)
    expected, accuracy, n = metrics.mean_confidence(labels), metrics.accuracy(labels), labels.n
    contradicted = p_value < 1 - each or not lower - ROUNDING <= accuracy <= upper + ROUNDING
    least, most = (float(end[0]) - expected for end in metrics.binomial_interval([accuracy * n], [n], level=level))
    confirmed = not contradicted and max(-least, most) <= tolerance
    less, more = visible_gaps(lower, upper, expected, n)
    outside = f"; {len(known) - within:,} outside, {chance_of(p_value)}" if within < len(known) else ""
    reading = (
        f"In {within:,} of {plural(len(known), unit)} with labels, the accuracy was as the confidences promised"
        f" ({percent_of(level)} range{outside}). Together, {expected:.1%} of {plural(n, 'label')} were expected"
        f" to be right ({percent_of(each)} range {lower:.1%} to {upper:.1%}), and {accuracy:.1%} are. "
    )
    if contradicted:
        reading += "Labels contradict the expected accuracy: do not rely on it for answers without a label."
    elif confirmed:
        reading += (
            f"Labels confirm the expected accuracy: the gap is within {100 * tolerance:g} points,"
            f" {signed_points(least, '')} to {signed_points(most)} at {percent_of(level)}. {CONDITION}"
        )
    else:
        reading += f"So far labels do not contradict the expected accuracy. {_visible(less, more)} {CONDITION}"
    reading += (
        f" This is one look: at most {percent_of(1 - level)} of looks at calibrated answers contradict, so with many"
        " looks one of them will."
    )
    return Confirmation(
        periods=len(known),
        within=within,
        p_value=p_value,
        labels=n,
        expected_accuracy=expected,
        lower=lower,
        upper=upper,
        accuracy=accuracy,
        gap_lower=least,
        gap_upper=most,
        visible_less=less,
        visible_more=more,
        contradicted=contradicted,
        confirmed=confirmed,
        reading=reading,
    )


def _visible(less: float | None, more: float | None) -> str:
    """Describe the gaps that this number of labels would have shown."""
    gaps = ((less, "less"), (more, "more"))
    shown = [f"{100 * gap:.1f} points {way} often" for gap, way in gaps if gap is not None]
    if not shown:
        return "So few labels could not have shown any gap."
    words = " or ".join(shown)
    return (
        f"With a chance of 80% they would have shown it if answers were right {words}; smaller gaps could stay unseen."
    )


def _range(count_C: Array, confidence_C: Array, level: float) -> tuple[float, float]:
    """Compute `calibrated_range` from sums of confidence on 60 cells.

    It takes at most 0.4 ms; 3,000 cells take ten times as long.

    Each answer counts with the mean confidence of its cell. This makes the variance slightly larger than the true one
    (Hoeffding 1956), so the range is not too narrow.
    """
    count_G, total_G = (part_C.reshape(COARSE_CELLS, -1).sum(axis=1) for part_C in (count_C, confidence_C))
    mean_G = np.divide(total_G, count_G, out=np.zeros(COARSE_CELLS), where=count_G > 0)
    return calibrated_range(count_G, mean_G, level)


def _table(groups: Iterable[tuple[str, AnswerSums]], options: ReportOptions, marks: Marks | None = None) -> list[Slice]:
    """Build the rows of a table and mark those that are off by more than chance."""
    rows = [
        Slice.model_validate({"name": name, **_counts(sums), **_slice_figures(sums, options)}) for name, sums in groups
    ]
    tested = [row for row in rows if row.p_value is not None]
    if marks is not None:
        for row in tested:
            if row.name in marks.by_name or not marks.by_name:  # a group that came too late has no alarm
                row.more_than_chance, row.limit = marks.by_name.get(row.name, False), marks.tolerance
        return rows
    chosen = benjamini_hochberg([row.p_value for row in tested if row.p_value is not None], FALSE_DISCOVERY_RATE)
    for row, more_than_chance in zip(tested, chosen, strict=True):
        row.more_than_chance = more_than_chance
    return rows


def benjamini_hochberg(p_values: Sequence[float], rate: float) -> list[bool]:
    """Return whether each of m hypotheses is rejected, by the procedure of Benjamini and Hochberg (1995).

    It rejects those with p <= p_(k), for the largest k with p_(k) <= k rate / m. On average at most `rate` of the
    rejected hypotheses are true. scipy.stats offers adjusted p-values, but importing it takes longer than importing
    this library.
    """
    sorted_M = np.sort(p_values)
    passing = sorted_M <= rate * np.arange(1, len(sorted_M) + 1) / max(len(sorted_M), 1)
    limit = sorted_M[passing][-1] if passing.any() else -1.0
    return [p_value <= limit for p_value in p_values]


def _counts(sums: AnswerSums) -> dict[str, int]:
    return {"answers": sums.answers, "labelled": sums.labelled.n}


def _slice_figures(sums: AnswerSums, options: ReportOptions) -> dict[str, float]:
    labelled, n = sums.labelled, sums.labelled.n
    if not n:
        return {}
    low, high = metrics.binomial_interval([labelled.total("correct")], [n], level=options.level)
    return {
        "accuracy": metrics.accuracy(labelled),
        "accuracy_lower": float(low[0]),
        "accuracy_upper": float(high[0]),
        "mean_confidence": metrics.mean_confidence(labelled),
        **_test_figures(labelled, options.bins, options.binning),
    }


@memoise(1024)
def _test_figures(labelled: CalibrationSums, bins: int, binning: Binning) -> dict[str, float]:
    """Compute the figures that do not depend on the confidence level. They take 2 ms, most of the time of a row."""
    test = metrics.ece_test(labelled, bins=bins, binning=binning)
    return {
        "signed_gap": metrics.signed_gap(labelled),
        "ece": test.ece,
        "floor_p95": metrics.noise_floor(labelled, bins=bins, binning=binning).p95,
        "p_value": test.p_value,
    }


@memoise(2048)
def _point_figures(sums: AnswerSums, bins: int, binning: Binning, level: float) -> dict[str, float]:
    """Compute the figures of one period."""
    labelled, answers_C = sums.labelled, sums.answers_C.astype(np.float64)
    if not answers_C.any():
        return {}
    lower, upper = _range(answers_C, answers_C * CENTRE_C, level)
    expected = {
        "expected_accuracy": float(answers_C @ CENTRE_C / answers_C.sum()),
        "expected_lower": lower,
        "expected_upper": upper,
    }
    if not labelled.n:
        return expected
    interval = metrics.ece_interval(labelled, bins=bins, level=level, binning=binning)
    least, most = _range(labelled.cells[0], labelled.cells[1], level)
    return expected | {
        "calibrated_lower": least,
        "calibrated_upper": most,
        "accuracy": metrics.accuracy(labelled),
        "mean_confidence": metrics.mean_confidence(labelled),
        "ece": interval.ece,
        "ece_estimate": interval.estimate,
        "ece_lower": interval.lower,
        "ece_upper": interval.upper,
        "floor_p95": metrics.noise_floor(labelled, bins=bins, binning=binning).p95,
    }
