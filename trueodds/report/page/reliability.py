"""Geometry of the reliability diagram, in SVG units; the template draws it."""

from __future__ import annotations

from dataclasses import dataclass

from trueodds.report.page.axis import LEFT, Tick, n
from trueodds.report.schemas import Bin

TOP, SIDE = 26.0, 420.0
STRIP = 64.0
"""Height of the histogram."""
SPACE = 14.0
WHISKERS_UP_TO = 60
"""Bins; finer ones would paint the plot over."""


@dataclass(frozen=True)
class Reliability:
    """Paths, each of all bins at once: a thousand bins stay a small page."""

    bottom: float
    strip_bottom: float
    ticks: list[tuple[Tick, Tick]]
    """x and y of every fifth of the axes."""
    accuracy: str
    over: str
    """Accuracy that is claimed and not kept: above the accuracy's bars."""
    under: str
    """Accuracy that is kept and not claimed: inside them."""
    whiskers: str
    counts: str
    most: int
    """Labels in the fullest bin."""
    middles: list[str]
    """x of the middle of each occupied bin: the rows of the table."""

    left, top, side = LEFT, TOP, SIDE
    middle, end = LEFT + SIDE / 2, LEFT + SIDE


def reliability(bins: list[Bin]) -> Reliability:
    """Bars, whiskers, gaps and histogram of the occupied bins."""
    bottom = TOP + SIDE
    strip_bottom = bottom + SPACE + STRIP
    occupied = [b for b in bins if b.count]
    most = max((b.count for b in bins), default=0)
    ticks = [(Tick(_x(k / 5), f"{20 * k}%"), Tick(_y(k / 5), f"{20 * k}%")) for k in range(6)]
    return Reliability(
        bottom=bottom,
        strip_bottom=strip_bottom,
        ticks=ticks,
        accuracy="".join(_bar(b, _y(_accuracy(b)), bottom) for b in occupied),
        over="".join(_bar(b, _y(_confidence(b)), _y(_accuracy(b))) for b in occupied if _confidence(b) > _accuracy(b)),
        under="".join(_bar(b, _y(_accuracy(b)), _y(_confidence(b))) for b in occupied if _confidence(b) < _accuracy(b)),
        whiskers="".join(map(_whisker, occupied)) if len(bins) <= WHISKERS_UP_TO else "",
        counts="".join(_bar(b, strip_bottom - STRIP * b.count / most, strip_bottom) for b in occupied),
        most=most,
        middles=[n((_x(b.lo) + _x(b.hi)) / 2) for b in occupied],
    )


def _bar(b: Bin, top: float, bottom: float) -> str:
    air = min(1.0, 0.05 * SIDE * (b.hi - b.lo))
    width = n(_x(b.hi) - _x(b.lo) - 2 * air)
    return f"M{n(_x(b.lo) + air)} {n(bottom)}V{n(top)}h{width}V{n(bottom)}z"


def _whisker(b: Bin) -> str:
    upper, lower = _y(b.accuracy_upper or 0.0), _y(b.accuracy_lower or 0.0)
    return f"M{n((_x(b.lo) + _x(b.hi)) / 2)} {n(upper)}V{n(lower)}m-3.5 0h7m-7 {n(upper - lower)}h7"


def _accuracy(b: Bin) -> float:
    return b.accuracy or 0.0


def _confidence(b: Bin) -> float:
    return b.mean_confidence or 0.0


def _x(share: float) -> float:
    return LEFT + SIDE * share


def _y(share: float) -> float:
    return TOP + SIDE * (1 - share)
