"""The report of a table in a terminal: what was found, the figures, and what they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from trueodds.reports.schemas import Report, Slice, TrendPoint
from trueodds.reports.table.evaluation import aligned, figure_rows
from trueodds.reports.words import DASH, decimal, level, percent, period, signed, span
from trueodds.texts import plural

MOST_LINES = 40
"""Of a table by class, tag or time; the rest is in the JSON and on the page."""


def text_of(report: Report) -> str:
    """Lines of text, tables among them no wider than 100 columns."""
    version = f", version {report.version}" if report.version else ""
    parts = [[f"{report.model}{version}: {report.headline}", *(check.reading for check in report.checks)]]
    if report.labelled:
        parts.append([f"Intervals at {level(report.level)}", *aligned(figure_rows(vars(report)), "<><<")])
        parts.append(_bins(report))
    tables = {"version": report.versions, "predicted class": report.classes, "tag": report.tags}
    parts += [_slices(name, rows) for name, rows in tables.items() if rows]
    if report.trend:
        points = report.trend.points
        named = [(period(point.start, report.trend.unit), point) for point in points]
        parts.append(_table(f"{report.trend.unit}, UTC", named))
    if readings := _readings(report):
        parts.append(["Keep in mind", *(f"- {reading}" for reading in readings)])
    return "\n\n".join("\n".join(part) for part in parts)


def _readings(report: Report) -> list[str]:
    if report.labelled or report.labelling.expected_accuracy is None:
        return report.cautions
    return [*report.cautions, report.labelling.expected_accuracy.reading]


def _bins(report: Report) -> list[str]:
    rows = [("confidence", "labels", "says", "right", "interval", "gap")]
    rows += [
        (
            f"{percent(b.lo)} {DASH} {percent(b.hi)}",
            f"{b.count:,}",
            percent(b.mean_confidence),
            percent(b.accuracy),
            span(b.accuracy_lower, b.accuracy_upper, "percent"),
            signed(b.gap, ""),
        )
        for b in report.bins
        if b.count
    ]
    return _cut(aligned(rows, ">>>>>>"))


def _slices(name: str, rows: Sequence[Slice]) -> list[str]:
    return _table(name, [(row.name, row) for row in rows])


def _table(name: str, rows: Sequence[tuple[str, Slice | TrendPoint]]) -> list[str]:
    lines: list[tuple[str, ...]] = [(name, "answers", "labels", "says", "right", "ECE", "by chance up to", "")]
    for title, row in rows:
        gap = (row.mean_confidence, row.accuracy)
        counts = (f"{row.answers:,}", f"{row.labelled:,}", *map(percent, gap))
        more = row.ece is not None and row.floor_p95 is not None and row.ece > row.floor_p95
        lines.append((title, *counts, decimal(row.ece), decimal(row.floor_p95), "more than chance" if more else ""))
    return _cut(aligned(lines, "<>>>>>><"))


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - 1 - MOST_LINES
    return lines if more <= 0 else [*lines[: MOST_LINES + 1], f"and {plural(more, 'more line')}: --json, --html"]
