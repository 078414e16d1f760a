"""Geometry of the chart of expected and observed accuracy over time. The template draws it."""

from __future__ import annotations

from dataclasses import dataclass

from trueodds.drawing.axis import LEFT, WIDTH, Point, Scale, Tick, band, line, n, nice_top
from trueodds.reports.page.trend import DOTS_UP_TO, THIN, runs
from trueodds.reports.schemas import Trend, TrendPoint
from trueodds.reports.time_axis import TimeScale, after, utc

TOP, HEIGHT = 26.0, 190.0
LEAST_SPAN = 0.05
"""Smallest span of the axis. A smaller one would make noise look important."""
STEPS = 5


@dataclass(frozen=True)
class ExpectationDiagram:
    """All parts of the chart of expected and observed accuracy."""

    wrong: Scale
    """Scale of 1 - accuracy. It grows downwards, so that 100% accuracy is at the top."""
    ticks: list[Tick]
    time_ticks: list[Tick]
    band: str
    """Ranges of all answers, interrupted at periods without answers."""
    expected: str
    whiskers: str
    """Ranges of the labelled answers, if there are few periods.

    A period without neighbours has the range of all answers.
    """
    dots: list[tuple[str, str, bool]]
    """The x and y of the labelled answers' accuracy, and whether it is within their range."""
    middles: list[str]
    """The x of each period."""

    left, end, top = LEFT, LEFT + WIDTH, TOP

    @property
    def bottom(self) -> float:
        """The y of the axis's lower end."""
        return TOP + HEIGHT


def expectation_diagram(trend: Trend) -> ExpectationDiagram | None:
    """Lay out the chart. None if no period has answers, or the only one has no labels."""
    points = sorted(trend.points, key=lambda p: utc(p.start))
    expecting = [p for p in points if p.expected_accuracy is not None]
    if not expecting or (len(expecting) == 1 and expecting[0].accuracy is None):
        return None
    time = TimeScale(utc(points[0].start), after(utc(points[-1].start), trend.unit), trend.unit)
    known = [p for p in points if p.accuracy is not None]
    most = max((p.labelled for p in known), default=0)
    enough = [p for p in known if p.labelled >= THIN * most]
    lowest = min([p.expected_lower or 0.0 for p in expecting] + [p.accuracy or 0.0 for p in enough])
    span = min(nice_top(1 - lowest, LEAST_SPAN), 1.0)
    wrong = Scale(span, TOP + HEIGHT, -HEIGHT)  # upside down: an error rate of 0 is at the top

    def at(p: TrendPoint, accuracy: float | None) -> Point:
        return time.middle(p.start), wrong(1 - (accuracy or 0.0))

    def whisker(p: TrendPoint, lower: float | None, upper: float | None) -> str:
        return line([at(p, upper), at(p, lower)])

    every = list(runs(points, trend.unit, "expected_accuracy"))
    alone = [run[0] for run in every if len(run) == 1]
    whiskers = [whisker(p, p.expected_lower, p.expected_upper) for p in alone if p.accuracy is None]
    if len(known) <= DOTS_UP_TO:
        whiskers += [whisker(p, p.calibrated_lower, p.calibrated_upper) for p in known]
    return ExpectationDiagram(
        wrong=wrong,
        ticks=[Tick(wrong(span * k / STEPS), f"{100 * (1 - span * k / STEPS):.3g}%") for k in range(STEPS + 1)],
        time_ticks=time.ticks(),
        band="".join(
            band([at(p, p.expected_upper) for p in run], [at(p, p.expected_lower) for p in run])
            for run in every
            if len(run) > 1
        ),
        expected="".join(line(at(p, p.expected_accuracy) for p in run) for run in every),
        whiskers="".join(whiskers),
        dots=[(n(x), n(y), p.is_as_promised) for p in known for x, y in [at(p, p.accuracy)]],
        middles=[n(time.middle(p.start)) for p in points],
    )
