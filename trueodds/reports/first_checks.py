"""First checks for a model that is off: since when, in which tag, in which class."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trueodds.metrics.changes import gap_segments
from trueodds.reports.schemas import Check, Report, Slice, Trend, Window
from trueodds.reports.time_axis import utc
from trueodds.reports.verdict.rules import direction_of
from trueodds.reports.words import period, told_apart
from trueodds.texts import plural

SOUND = ("no_answers", "no_labels", "cannot_tell", "within_tolerance")
"""Verdicts that need no checks, unless an alarm has fired."""


_OF_TOP_LABEL = "The more probable class: "


def is_off(report: Report) -> bool:
    """Return whether the verdict or the alarm's evidence shows an error."""
    return report.verdict not in SOUND or (report.alarm is not None and report.alarm.state != "quiet")


def first_checks(
    trend: Trend | None = None,
    tags: Sequence[Slice] | None = None,
    classes: Sequence[Slice] | None = None,
    *,
    positive: bool = False,
) -> list[Check]:
    """Return one sentence each for time, tags and classes, as far as they can be compared, with the window to look at.

    Time: the periods are split where the gap changes by more than chance (`trueodds.metrics.changes`). The window is
    that of the segment that is furthest off. Trends by minute get no window, because windows consist of whole hours.

    Tags and classes: the clearest one of those that are marked.

    Args:
        trend: Trend over time.
        tags: Rows of the table by tag.
        classes: Rows of the table by predicted class.
        positive: The report is about p(positive). The sentences then say that they are about the more probable class.
    """
    checks = [
        _since(trend) if trend else None,
        _clearest("tag", "tags", tags or [], "tag"),
        _clearest("class", "predicted classes", classes or [], "predicted_class"),
    ]
    known = [check for check in checks if check]
    if not positive:
        return known
    return [check.model_copy(update={"reading": f"{_OF_TOP_LABEL}{_lower_first(check.reading)}"}) for check in known]


def _since(trend: Trend) -> Check | None:
    """Compare the periods of a trend. None if fewer than two have labels."""
    points = sorted((p for p in trend.points if p.labelled), key=lambda p: utc(p.start))
    if len(points) < 2:
        return None
    parts = gap_segments(
        [p.labelled for p in points],
        [p.accuracy or 0.0 for p in points],
        [p.mean_confidence or 0.0 for p in points],
    )
    if len(parts) == 1:
        return Check(about="time", reading=f"The error does not begin at any particular {trend.unit}.")
    starts = [None, *(points[part.first].start for part in parts[1:]), None]
    worst = max(range(len(parts)), key=lambda k: abs(parts[k].gap))
    window = Window(since=starts[worst], until=starts[worst + 1]) if trend.unit != "minute" else None
    before, first, *after = parts
    moments = [period(start, trend.unit) for start in starts if start]
    when = f"from {' to '.join(moments)} UTC" if after else f"from {moments[0]} UTC on"
    split = f"the {trend.unit}s that separate them best" if after else f"the {trend.unit} that separates them best"
    reading = (
        f"Answers {when} are right {_points(first.gap)} often than they say ({plural(first.labels, 'label')}),"
        f" those before {_points(before.gap)} often ({before.labels:,})"
        + "".join(f", those since {_points(part.gap)} often ({part.labels:,})" for part in after)
        + f". They are split at {split}, at one look."
    )
    return Check(about="time", reading=reading, window=window)


def _lower_first(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _points(gap: float) -> str:
    return f"{100 * abs(gap):.1f} points {'less' if gap < 0 else 'more'}"


def _clearest(about: str, name: str, rows: Sequence[Slice], field: str) -> Check | None:
    """Name the row that is off most clearly. None if fewer than two have labels."""
    known = [row for row in rows if row.labelled]
    limit = next((row.limit for row in known if row.limit is not None), None)
    known = [row for row in known if row.limit == limit]  # the others have no alarm
    if len(known) < 2:
        return None
    marked = [row for row in known if row.more_than_chance]
    excess = "by more than chance" if limit is None else f"by more than {limit:g}"
    if not marked:
        none = "Neither of the 2" if len(known) == 2 else f"None of {len(known)}"
        shown = "is off by more than chance" if limit is None else f"is shown to be off {excess}"
        return Check.model_validate({"about": about, "reading": f"{none} {name} {shown} on its own."})
    first = max(marked, key=clearness)
    every = "Both" if len(known) == 2 else f"All {len(known)}"
    count = every if len(marked) == len(known) else f"{len(marked)} of {len(known)}"
    which = f"is off {excess}" if len(marked) == 1 else f"are off {excess}, the clearest"
    reading = f"{count} {name} {which}: {first.name}, {_how(first)}."
    return Check.model_validate({"about": about, "reading": reading, "window": {field: first.name}})


def clearness(row: Slice) -> float:
    """Return the ECE above the noise floor's 95th percentile, times the square root of the number of labels.

    The square root lowers the rank of rows with few labels.
    """
    return ((row.ece or 0.0) - (row.floor_p95 or 0.0)) * math.sqrt(row.labelled)


def _how(row: Slice) -> str:
    """Describe the error of a row."""
    labels, ece = plural(row.labelled, "label"), row.ece or 0.0
    if direction_of(row.signed_gap or 0.0, ece) == "uneven":
        return f"whose calibration error is {ece:.3f}, while chance alone shows up to {row.floor_p95:.3f} ({labels})"
    says, right = told_apart(row.mean_confidence or 0.0, row.accuracy or 0.0)
    return f"right {right} of the time while it says {says} ({labels})"
