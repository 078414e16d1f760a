"""Scales of the drawings, in SVG units, and the paths of lines and bands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEFT, WIDTH = 62.0, 420.0
"""Left edge and width of the page's plots, which stand one above the other on a phone."""
STEPS = (1.0, 2.0, 5.0)
"""Distances of ticks, times a power of ten."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Tick:
    at: float
    """x or y."""
    text: str


@dataclass(frozen=True)
class Scale:
    """Vertical scale: y of a value between 0 and `top`, in a plot of `height` whose upper edge is `y`."""

    top: float
    y: float
    height: float

    def __call__(self, value: float) -> float:
        """Return y of a value. Values outside are drawn at the edge."""
        return self.y + self.height * (1 - min(max(value / self.top, 0.0), 1.0))

    @property
    def bottom(self) -> float:
        return self.y + self.height

    def ticks(self) -> list[Tick]:
        """Return ticks at 0, the top, and the quarters between."""
        return [Tick(self(self.top * k / 4), number(self.top * k / 4)) for k in range(5)]

    def grid(self, left: float, end: float) -> str:
        """Draw the ticks as lines across the plot, with their numbers on its left."""
        return "\n".join(
            f'<path class="grid" d="M{n(left)} {n(tick.at)}H{n(end)}"/>'
            f'<text class="e" x="{n(left - 8)}" y="{n(tick.at + 4)}">{tick.text}</text>'
            for tick in self.ticks()
        )


@dataclass(frozen=True)
class Across:
    """Horizontal scale: x of a value between `low` and `high`, in a plot of `width` whose left edge is `x`."""

    low: float
    high: float
    x: float
    width: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return x of a value. Values outside are drawn at the edge."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.x + self.width * (at - low) / (high - low)

    @property
    def end(self) -> float:
        return self.x + self.width

    def ticks(self, most: int = 6) -> list[Tick]:
        """Return ticks at round values, at most `most` if the scale is linear."""
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            values = [step * 10.0**power for power in powers for step in STEPS]
        else:
            power = 10.0 ** math.floor(math.log10(self.high - self.low))
            steps = (step * power * part for part in (0.1, 1.0, 10.0) for step in STEPS)
            step = next(step for step in steps if (self.high - self.low) / step <= most - 1)
            values = [step * k for k in range(math.ceil(self.low / step - 1e-9), int(self.high / step + 1e-9) + 1)]
        return [Tick(self(value), number(value)) for value in values if self.low <= value <= self.high * (1 + 1e-9)]

    def grid(self, top: float, bottom: float) -> str:
        """Draw the ticks as lines down the plot, with their numbers below it."""
        return "\n".join(
            f'<path class="grid" d="M{n(tick.at)} {n(top)}V{n(bottom)}"/>'
            f'<text class="m" x="{n(tick.at)}" y="{n(bottom + 18)}">{tick.text}</text>'
            for tick in self.ticks()
        )


def n(value: float) -> str:
    """Format a coordinate. A tenth of a unit is a tenth of a pixel."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def number(value: float) -> str:
    """Format the number of a tick."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def nice_top(value: float, least: float) -> float:
    """Return the smallest 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten that is not below `value` or `least`."""
    wanted = max(value, least)
    power = 10.0 ** math.floor(math.log10(wanted))
    fitting = (k * power for k in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if k * power >= wanted * (1 - 1e-9))
    return next(fitting)


def line(points: Iterable[Point]) -> str:
    """Return the path through points, without those inside a level stretch, which would be invisible."""
    words = [(n(x), n(y)) for x, y in points]
    levels = ["", *(y for _, y in words), ""]
    kept = [word for k, word in enumerate(words) if not levels[k] == levels[k + 1] == levels[k + 2]]
    return "".join(f"{'L' if k else 'M'}{x} {y}" for k, (x, y) in enumerate(kept))


def squares(points: Iterable[Point]) -> str:
    """Return the path of a small square around each point."""
    return "".join(f"M{n(x - 2)} {n(y - 2)}h4v4h-4z" for x, y in points)


def band(upper: Sequence[Point], lower: Sequence[Point]) -> str:
    """Return the closed path between two lines with equal x."""
    return line([*upper, *reversed(lower)]) + "z" if upper else ""
