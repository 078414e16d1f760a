"""The reliability diagram: its geometry, in SVG units, and the drawing, before and after a calibrator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import NamedTuple

from trueodds.drawing.axis import LEFT, Tick, n
from trueodds.drawing.picture import HATCHING, LegendEntry, Panel, picture
from trueodds.evaluation.measurement import EvaluationSettings, Measurement
from trueodds.metrics import Bins, binomial_interval

TOP, SIDE = 26.0, 420.0
BOX = (500, 588)
"""Width and height of the drawing."""
STRIP = 64.0
"""Height of the histogram."""
SPACE = 28.0
MOST_NAME = 24
"""Largest number of characters of a class's name beside an axis."""
WHISKERS_UP_TO = 60
"""Largest number of bins with whiskers. With more bins they would cover the plot."""


@dataclass(frozen=True)
class Axes:
    """Labels of a diagram's axes, and its description."""

    says: str = "confidence of the model"
    occurs: str = "share of right answers"
    description: str = (
        "Share of right answers against the confidence of the model, in {ranges} ranges of confidence, and below it the"
        " number of labels in each range. On the diagonal the model is right as often as it says."
    )
    """Description with `{ranges}` in place of the number of bins."""
    over: str = "over-confident by"
    under: str = "under-confident by"
    on_the_diagonal: str = "right as often as it says"
    title: str = "Reliability diagram"
    """Title of a picture, as plain text."""

    @classmethod
    def of_positive(cls, label: str) -> Axes:
        """Return the axes for p(positive) of the class with this name."""
        short = label if len(label) <= MOST_NAME else f"{label[: MOST_NAME - 1]}…"
        name = escape(short)
        return cls(
            f"probability from the model: p({name})",
            f"share of {name}",
            f"Share of {name} against the probability p({name}) from the model, in {{ranges}} ranges of p, and below it"
            " the number of labels in each range. On the diagonal the share equals p.",
            over="p is too high by",
            under="p is too low by",
            on_the_diagonal="the share equals p",
            title=f"Reliability diagram of p({short})",
        )

    def plain(self) -> tuple[str, str]:
        """Return `says` and `occurs` as plain text, without the escapes of XML."""
        return unescape(self.says), unescape(self.occurs)


TOP_LABEL = Axes()


class Column(NamedTuple):
    """Labelled rows with a confidence in (lo, hi]."""

    lo: float
    hi: float
    rows: int
    confidence: float
    """Mean confidence."""
    accuracy: float
    lower: float
    upper: float
    """Upper limit of the accuracy; `lower` is its lower limit."""


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Geometry of a diagram. Each path holds all bins, so a page with a thousand bins stays small."""

    ranges: int
    """Number of bins, including empty ones."""
    bottom: float
    strip_bottom: float
    ticks: list[tuple[Tick, Tick]]
    """x and y of every fifth of the axes."""
    accuracy: str
    over: str
    """Over-confidence: confidence above the bars of the accuracy."""
    under: str
    """Under-confidence: accuracy above the confidence, inside the bars."""
    whiskers: str
    counts: str
    most: int
    """Number of labels in the fullest bin."""
    middles: list[str]
    """x of the middle of each occupied bin, as in the rows of the table."""
    axes: Axes = TOP_LABEL

    left, top, side = LEFT, TOP, SIDE
    middle, end = LEFT + SIDE / 2, LEFT + SIDE

    def picture(self, caption: Sequence[str], level: float) -> str:
        """Draw the diagram as a picture for a file, with title, caption and legend.

        `level` is the confidence level of the whiskers.
        """
        entries = legend(self.axes, level if self.whiskers else None)
        return picture(self.axes.title, [Panel(*BOX, self.content(), caption)], entries, self._description())

    def svg(self, *, hatching: bool = True) -> str:
        """Draw the element `svg`; the rules of `trueodds.drawing.picture.CHART` colour it.

        `hatching` adds the pattern of over-confidence, which a page needs once.
        """
        return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {BOX[0]} {BOX[1]}" role="img" \
aria-label="Reliability diagram">
<title>Reliability diagram</title>
<desc>{self._description()}</desc>
{HATCHING if hatching else ""}{self.content()}
</svg>"""

    def _description(self) -> str:
        return self.axes.description.replace("{ranges}", str(self.ranges))

    def content(self) -> str:
        """Draw the content of the element `svg`."""
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
        return f"""{ticks}
<path class="accuracy" d="{self.accuracy}"/>
<path class="over" d="{self.over}"/>
<path class="under" d="{self.under}"/>
<path class="whisker" d="{self.whiskers}"/>
<path class="count" d="{self.counts}"/>
<path class="diagonal" d="M{LEFT} {self.bottom}L{self.end} {TOP}"/>
<path class="axis" d="M{LEFT} {self.bottom}H{self.end}M{LEFT} {self.strip_bottom}H{self.end}"/>
{most}
<text class="m label" x="{self.middle}" y="{self.strip_bottom + 42}">{self.axes.says}</text>
<text class="label" x="{LEFT}" y="{TOP - 11}">{self.axes.occurs}</text>"""


def reliability(columns: Sequence[Column], ranges: int, axes: Axes = TOP_LABEL) -> ReliabilityDiagram:
    """Build bars, whiskers, gaps and histogram of the occupied bins.

    `ranges` is the number of bins, including empty ones.
    """
    bottom = TOP + SIDE
    strip_bottom = bottom + SPACE + STRIP
    most = max((one.rows for one in columns), default=0)
    ticks = [(Tick(_x(k / 5), f"{20 * k}%"), Tick(_y(k / 5), f"{20 * k}%")) for k in range(6)]
    return ReliabilityDiagram(
        ranges=ranges,
        bottom=bottom,
        strip_bottom=strip_bottom,
        ticks=ticks,
        accuracy="".join(_bar(one, _y(one.accuracy), bottom) for one in columns),
        over="".join(_bar(c, _y(c.confidence), _y(c.accuracy)) for c in columns if c.confidence > c.accuracy),
        under="".join(_bar(c, _y(c.accuracy), _y(c.confidence)) for c in columns if c.confidence < c.accuracy),
        whiskers="".join(map(_whisker, columns)) if ranges <= WHISKERS_UP_TO else "",
        counts="".join(_bar(one, strip_bottom - STRIP * one.rows / most, strip_bottom) for one in columns),
        most=most,
        middles=[n((_x(one.lo) + _x(one.hi)) / 2) for one in columns],
        axes=axes,
    )


def columns_of(bins: Bins, level: float) -> list[Column]:
    """Collect the occupied bins, with the exact binomial interval of each accuracy."""
    lower_B, upper_B = binomial_interval(bins.correct_B, bins.count_B, level=level)
    arrays = (bins.mean_confidence_B, bins.accuracy_B, lower_B, upper_B)
    rows = zip(bins.lo_B, bins.hi_B, bins.count_B.tolist(), *(array_B.tolist() for array_B in arrays), strict=True)
    return [Column(lo, hi, round(count), *means) for lo, hi, count, *means in rows if count]


def legend(axes: Axes, level: float | None) -> list[LegendEntry]:
    """Return the entries of a diagram's legend. `level` is the confidence level of the whiskers; None: there are none.

    The texts of `axes` are escaped already, and those of an entry are not.
    """
    entries = [
        LegendEntry('<path class="accuracy" d="M0 0h18v12h-18z"/>', axes.plain()[1]),
        LegendEntry('<path class="over" d="M0 0h18v12h-18z"/>', axes.over),
        LegendEntry('<path class="under" d="M0 0h18v12h-18z"/>', axes.under),
        LegendEntry('<path class="diagonal" d="M0 12L18 0"/>', axes.on_the_diagonal),
    ]
    if level is not None:
        entries.append(
            LegendEntry('<path class="whisker" d="M9 0V12m-3.5 0h7m-7-12h7"/>', f"{100 * level:g}% interval")
        )
    return entries


def before_and_after(before: Measurement, after: Measurement, settings: EvaluationSettings, title: str) -> str:
    """Draw both reliability diagrams as a picture for a file.

    The captions give the ECE, its estimate (too high if the error is in few bins) with its interval, the noise floor
    and the MCE, as fractions.
    """
    panels = []
    for when, judged in (("before", before), ("after", after)):
        bins, values = judged.sums.bins(settings.bins), judged.values
        caption = (
            f"{when} ({judged.name}): accuracy {values['accuracy']:.3f}, mean confidence"
            f" {values['mean_confidence']:.3f}",
            f"ECE {values['ece']:.4f} in {len(bins.count_B)} bins, MCE {values['mce']:.3f}; noise floor"
            f" {values['floor_mean']:.4f} (95%: {values['floor_p95']:.4f})",
            f"estimate of the ECE {values['ece_estimate']:.4f}, {settings.level:.0%} interval"
            f" {values['ece_lower']:.4f} .. {values['ece_upper']:.4f}",
        )
        diagram = reliability(columns_of(bins, settings.level), len(bins.count_B))
        panels.append(Panel(*BOX, diagram.content(), caption))
    return picture(title, panels, legend(TOP_LABEL, settings.level))


def _bar(column: Column, top: float, bottom: float) -> str:
    air = min(1.0, 0.05 * SIDE * (column.hi - column.lo))
    width = n(_x(column.hi) - _x(column.lo) - 2 * air)
    return f"M{n(_x(column.lo) + air)} {n(bottom)}V{n(top)}h{width}V{n(bottom)}z"


def _whisker(column: Column) -> str:
    upper, lower = _y(column.upper), _y(column.lower)
    return f"M{n((_x(column.lo) + _x(column.hi)) / 2)} {n(upper)}V{n(lower)}m-3.5 0h7m-7 {n(upper - lower)}h7"


def _x(share: float) -> float:
    return LEFT + SIDE * share


def _y(share: float) -> float:
    return TOP + SIDE * (1 - share)
