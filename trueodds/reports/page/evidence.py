"""Geometry of the chart of evidence, in SVG units: the logarithm of the e-values against the number of labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from trueodds.drawing.axis import LEFT, WIDTH, Scale, Tick, line, n, nice_top
from trueodds.reports.schemas.alarm import Alarm, AlarmOf, EvidencePoint
from trueodds.reports.words import chance, count

TOP, HEIGHT = 26.0, 286.0
HIGHEST = math.log(1e6)
"""Largest evidence on the axis, 1 in a million.

More evidence is drawn at the edge with a mark; it may reach 10^1000.
"""
ROOM = 1.35
"""Upper end of the axis as a multiple of the alarm line (in logs), at least."""
ROWS = 24
"""Largest number of table rows for one null hypothesis. The chart shows every point."""


@dataclass(frozen=True)
class Curve:
    """Curve of one null hypothesis."""

    null: str
    path: str
    dot: tuple[str, str]
    """The last point."""
    alarm: tuple[str, str] | None
    """The point at which the curve reached the alarm line."""
    cut: tuple[str, str] | None
    """The x at which the curve leaves the axis, and the largest evidence in words."""


@dataclass(frozen=True)
class Row:
    """Row of the table: the evidence of each null hypothesis after some labels.

    None if its history has no such point.
    """

    labels: int
    at: datetime
    log_e: list[float | None]


@dataclass(frozen=True)
class EvidenceDiagram:
    """All parts of the chart of evidence."""

    scale: Scale
    ticks: list[Tick]
    label_ticks: list[Tick]
    line_y: float
    threshold: str
    curves: list[Curve]
    rows: list[Row]
    middles: list[str]
    """The x of each row."""

    left, end, middle = LEFT, LEFT + WIDTH, LEFT + WIDTH / 2


def evidence_diagram(alarm: Alarm) -> EvidenceDiagram | None:
    """Lay out the chart of evidence. None if no null hypothesis has a history."""
    nulls = [null for null in alarm.nulls if null.history]
    if not nulls:
        return None
    limit = math.log(max(null.threshold for null in nulls))
    reached = max(p.log_e for null in nulls for p in null.history)
    top = max(ROOM * limit, min(reached, HIGHEST))
    scale = Scale(top, TOP, HEIGHT)
    labels = nice_top(max(p.labels for null in nulls for p in null.history), 20)
    rows = _rows(nulls)
    steps = [(math.log(1e3), "1 in 1,000"), (math.log(1e6), "1 in 1,000,000")]
    ticks = [Tick(scale(at), text) for at, text in steps if at < top * 1.001 and abs(at - limit) > top / 12]
    return EvidenceDiagram(
        scale=scale,
        ticks=ticks,
        label_ticks=[Tick(LEFT + WIDTH * k / 4, count(round(labels * k / 4))) for k in range(5)],
        line_y=scale(limit),
        threshold=chance(limit),
        curves=[_curve(null, scale, labels) for null in nulls],
        rows=rows,
        middles=[n(LEFT + WIDTH * row.labels / labels) for row in rows],
    )


def _curve(null: AlarmOf, scale: Scale, labels: float) -> Curve:
    def x(p: EvidencePoint) -> float:
        return LEFT + WIDTH * p.labels / labels

    history, last = null.history, null.history[-1]
    over = [p for p in history if p.log_e > scale.top * (1 + 1e-9)]
    fired_x = None if null.fired_after is None else LEFT + WIDTH * min(null.fired_after / labels, 1.0)
    return Curve(
        null=null.null,
        path=line((x(p), scale(p.log_e)) for p in history),
        dot=(n(x(last)), n(scale(last.log_e))),
        alarm=None if fired_x is None else (n(fired_x), n(scale(math.log(null.threshold)))),
        cut=(n(x(over[0])), chance(max(p.log_e for p in over))) if over else None,
    )


def _rows(nulls: list[AlarmOf]) -> list[Row]:
    """Build the rows of the table."""
    known = [{p.labels: p for p in null.history} for null in nulls]
    shown = {p.labels: p.at for null in nulls for p in thin_out(null.history)}
    return [
        Row(labels, at, [points[labels].log_e if labels in points else None for points in known])
        for labels, at in sorted(shown.items())
    ]


def thin_out(history: list[EvidencePoint], most: int = ROWS) -> list[EvidencePoint]:
    """Return at most `most` points, evenly spread, with the first and the last."""
    if len(history) <= most:
        return history
    return [history[round(k * (len(history) - 1) / (most - 1))] for k in range(most)]
