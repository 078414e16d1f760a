"""Geometry of the reliability diagram, in SVG units; the template draws it."""

from __future__ import annotations

from dataclasses import dataclass

from service.report_schemas import Bin

LEFT, TOP, SIDE = 62.0, 16.0, 420.0
STRIP = 70.0
"""Height of the histogram."""
SPACE = 14.0
WHISKERS_UP_TO = 50
"""Bins; finer ones would paint the plot over."""


@dataclass(frozen=True)
class Bar:
    """One occupied bin: y grows downwards."""

    x: float
    width: float
    accuracy_y: float
    confidence_y: float
    gap_y: float
    gap_height: float
    middle: float
    whisker: tuple[float, float] | None
    """Top and bottom."""
    count_y: float
    count_height: float
    over: bool
    """Whether the model claims more than it keeps."""
    bin: Bin


@dataclass(frozen=True)
class Diagram:
    left: float
    top: float
    side: float
    bottom: float
    strip_bottom: float
    ticks: list[tuple[float, float, str]]
    """x, y and text of every fifth of the axes."""
    bars: list[Bar]


def diagram(bins: list[Bin]) -> Diagram:
    """Bars, whiskers, gaps and histogram of the occupied bins."""
    bottom = TOP + SIDE
    strip_bottom = bottom + SPACE + STRIP
    most = max((b.count for b in bins), default=0)
    whiskers = len(bins) <= WHISKERS_UP_TO
    bars = [_bar(b, most, strip_bottom, whiskers) for b in bins if b.count]
    ticks = [(_x(k / 5), _y(k / 5), f"{20 * k}%") for k in range(6)]
    return Diagram(LEFT, TOP, SIDE, bottom, strip_bottom, ticks, bars)


def _bar(b: Bin, most: int, strip_bottom: float, whiskers: bool) -> Bar:
    accuracy, confidence = b.accuracy or 0.0, b.mean_confidence or 0.0
    air = min(1.0, 0.05 * SIDE * (b.hi - b.lo))
    y, height = sorted((_y(accuracy), _y(confidence))), abs(_y(accuracy) - _y(confidence))
    count_height = STRIP * b.count / most
    return Bar(
        x=_x(b.lo) + air,
        width=_x(b.hi) - _x(b.lo) - 2 * air,
        accuracy_y=_y(accuracy),
        confidence_y=_y(confidence),
        gap_y=y[0],
        gap_height=height,
        middle=(_x(b.lo) + _x(b.hi)) / 2,
        whisker=(_y(b.accuracy_upper or 0.0), _y(b.accuracy_lower or 0.0)) if whiskers else None,
        count_y=strip_bottom - count_height,
        count_height=count_height,
        over=confidence > accuracy,
        bin=b,
    )


def _x(share: float) -> float:
    return LEFT + SIDE * share


def _y(share: float) -> float:
    return TOP + SIDE * (1 - share)
