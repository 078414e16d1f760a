"""The reliability diagram: its geometry, in SVG units, and the drawing."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from trueodds.reports.axis import LEFT, Tick, n
from trueodds.reports.schemas import Bin

TOP, SIDE = 26.0, 420.0
STRIP = 64.0
"""Height of the histogram."""
SPACE = 28.0
MOST_NAME = 24
"""Characters of a class's name beside an axis."""
WHISKERS_UP_TO = 60
"""Bins; finer ones would paint the plot over."""


@dataclass(frozen=True)
class Axes:
    """What the axes of a diagram are."""

    says: str = "what the model says (its confidence)"
    occurs: str = "how often it is right"
    description: str = (
        "How often the model is right against what it says, in {ranges} ranges of confidence, and below it how many"
        " labels each range has. On the diagonal the model is right as often as it says."
    )
    """With `{ranges}`, the number of bins."""

    @classmethod
    def of_positive(cls, label: str) -> Axes:
        """Of p(positive), whose class has that name."""
        name = escape(label if len(label) <= MOST_NAME else f"{label[: MOST_NAME - 1]}…")
        return cls(
            f"what the model says: p({name})",
            f"how many are {name}",
            f"How many are {name} against the probability that the model gives to it, in {{ranges}} ranges of it, and"
            " below it how many labels each range has. On the diagonal they are as many as the model says.",
        )


TOP_LABEL = Axes()


@dataclass(frozen=True)
class Reliability:
    """Paths, each of all bins at once: a thousand bins stay a small page."""

    ranges: int
    """Bins, the empty ones among them."""
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
    axes: Axes = TOP_LABEL

    left, top, side = LEFT, TOP, SIDE
    middle, end = LEFT + SIDE / 2, LEFT + SIDE

    def svg(self, *, hatching: bool = True) -> str:
        """The element `svg`; the rules of `trueodds.reports.style.CHART` colour it.

        `hatching`: with the pattern of what is claimed and not kept, which a page needs once.
        """
        ticks = "\n".join(
            f'<path class="grid" d="M{LEFT} {y.at}H{self.end}"/>\n'
            f'<text x="{LEFT - 8}" y="{y.at + 4}" class="e">{y.text}</text>\n'
            f'<text x="{x.at}" y="{self.strip_bottom + 20}" class="m">{x.text}</text>'
            for x, y in self.ticks
        )
        most = (
            f'<text x="{LEFT + 4}" y="{self.bottom + 20}" class="halo">labels; the fullest range has'
            f" {self.most:,}</text>"
        )
        pattern = (
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"'
            ' patternTransform="rotate(45)"><path class="hatching" d="M0 0v6"/></pattern></defs>\n'
        )
        return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 500 588" role="img" \
aria-label="Reliability diagram">
<title>Reliability diagram</title>
<desc>{self.axes.description.replace("{ranges}", str(self.ranges))}</desc>
{pattern if hatching else ""}{ticks}
<path class="accuracy" d="{self.accuracy}"/>
<path class="over" d="{self.over}"/>
<path class="under" d="{self.under}"/>
<path class="whisker" d="{self.whiskers}"/>
<path class="count" d="{self.counts}"/>
<path class="diagonal" d="M{LEFT} {self.bottom}L{self.end} {TOP}"/>
<path class="axis" d="M{LEFT} {self.bottom}H{self.end}M{LEFT} {self.strip_bottom}H{self.end}"/>
{most}
<text class="m label" x="{self.middle}" y="{self.strip_bottom + 42}">{self.axes.says}</text>
<text class="label" x="{LEFT}" y="{TOP - 11}">{self.axes.occurs}</text>
</svg>"""


def reliability(bins: list[Bin], axes: Axes = TOP_LABEL) -> Reliability:
    """Bars, whiskers, gaps and histogram of the occupied bins."""
    bottom = TOP + SIDE
    strip_bottom = bottom + SPACE + STRIP
    occupied = [b for b in bins if b.count]
    most = max((b.count for b in bins), default=0)
    ticks = [(Tick(_x(k / 5), f"{20 * k}%"), Tick(_y(k / 5), f"{20 * k}%")) for k in range(6)]
    return Reliability(
        ranges=len(bins),
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
        axes=axes,
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
