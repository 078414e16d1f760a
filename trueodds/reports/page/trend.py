"""Geometry of the chart of the calibration error over time, with the share of labelled answers.

The template draws it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from trueodds.drawing.axis import LEFT, WIDTH, Point, Scale, Tick, band, line, n, nice_top
from trueodds.reports.schemas import Trend, TrendPoint, Unit
from trueodds.reports.schemas.alarm import Alarm, AlarmOf
from trueodds.reports.time_axis import TimeScale, after, utc
from trueodds.reports.words import percent

TOP, HEIGHT, SPACE, STRIP = 26.0, 196.0, 34.0, 56.0
LEAST_TOP = 0.02
"""Smallest upper end of the axis. A lower one would make noise look important."""
THIN = 0.1
"""Periods with fewer labels than this share of the median do not stretch the axis. Their ends are marked."""
DOTS_UP_TO = 62
"""Largest number of periods that are drawn with a dot each."""


@dataclass(frozen=True)
class Mark:
    """Time of an alarm on the axis of predictions: the moment when a label arrived."""

    x: float
    word: str
    anchor: str
    """CSS class that keeps the word inside the plot."""


@dataclass(frozen=True)
class TrendDiagram:
    """All parts of the chart."""

    error: Scale
    error_ticks: list[Tick]
    share: Scale
    share_top: str
    time_ticks: list[Tick]
    band: str
    """Area between the ends of the intervals, interrupted at periods without labels."""
    estimate: str
    """Line through the estimates, interrupted at the same periods."""
    dots: list[tuple[str, str]]
    whiskers: str
    """Intervals of periods without neighbours, which a band cannot show."""
    floor: str
    cut: list[str]
    """The x of the intervals that end above the axis."""
    shares: str
    middles: list[str]
    """The x of each period."""
    alarm: Mark | None

    left, end = LEFT, LEFT + WIDTH


def trend_diagram(trend: Trend, alarm: Alarm | None = None) -> TrendDiagram | None:
    """Lay out the chart. None if no period has labels."""
    points = sorted(trend.points, key=lambda p: utc(p.start))
    if all(_value(p) is None for p in points):
        return None
    time = TimeScale(utc(points[0].start), after(utc(points[-1].start), trend.unit), trend.unit)
    error = Scale(_error_top(points), TOP, HEIGHT)
    top = max((p.labelled / p.answers for p in points if p.answers), default=1.0)
    share = Scale(nice_top(top, 0.001), TOP + HEIGHT + SPACE, STRIP)
    every = list(runs(points, trend.unit, "ece"))
    known = [p for run in every for p in run]
    long, alone = [run for run in every if len(run) > 1], [run[0] for run in every if len(run) == 1]

    def at(p: TrendPoint, value: float | None) -> Point:
        return time.middle(p.start), error(value or 0.0)

    return TrendDiagram(
        error=error,
        error_ticks=error.ticks(),
        share=share,
        share_top=percent(share.top, 0 if share.top >= 0.01 else 1),
        time_ticks=time.ticks(),
        band="".join(band([at(p, p.ece_upper) for p in run], [at(p, p.ece_lower) for p in run]) for run in long),
        estimate="".join(line(at(p, _value(p)) for p in run) for run in long),
        dots=[(n(x), n(y)) for x, y in (at(p, _value(p)) for p in (known if len(known) <= DOTS_UP_TO else alone))],
        whiskers="".join(line([at(p, p.ece_upper), at(p, p.ece_lower)]) for p in alone),
        floor="".join(_step(time, p, trend, error(p.floor_p95 or 0.0)) for p in known if p.floor_p95 is not None),
        cut=[n(time.middle(p.start)) for p in known if (p.ece_upper or 0.0) > error.top],
        shares="".join(_bar(time, p, trend, share) for p in points if p.labelled),
        middles=[n(time.middle(p.start)) for p in points],
        alarm=_mark(time, alarm.refuted_null) if alarm and alarm.refuted_null else None,
    )


def _mark(time: TimeScale, null: AlarmOf) -> Mark | None:
    """Place the mark of an alarm. None if it fired before the axis begins; after its end, an arrow at the end."""
    if null.fired_at is None or utc(null.fired_at) < time.begin:
        return None
    x, word = time(null.fired_at), "alarm" if null.pages else "notice"
    if x > LEFT + WIDTH:
        return Mark(LEFT + WIDTH, f"{word} later ▸", "e")
    return Mark(x, word, "e" if x > LEFT + WIDTH / 2 else "")


def _value(p: TrendPoint) -> float | None:
    """Return the estimate of the ECE, or the ECE if there is no estimate."""
    return p.ece if p.ece_estimate is None else p.ece_estimate


def runs(points: list[TrendPoint], unit: Unit, name: str) -> Iterator[list[TrendPoint]]:
    """Yield runs of consecutive periods that all have the number called `name`."""
    run: list[TrendPoint] = []
    for p in points:
        missing = getattr(p, name) is None
        if run and (missing or utc(p.start) != after(utc(run[-1].start), unit)):
            yield run
            run = []
        if not missing:
            run.append(p)
    if run:
        yield run


def _error_top(points: list[TrendPoint]) -> float:
    known = [p for p in points if _value(p) is not None]
    enough = THIN * median([p.labelled for p in known] or [0])
    reached = [max(_value(p) or 0.0, p.ece_upper or 0.0, p.floor_p95 or 0.0) for p in known if p.labelled >= enough]
    return nice_top(max(reached, default=0.0), LEAST_TOP)


def _step(time: TimeScale, p: TrendPoint, trend: Trend, y: float) -> str:
    return f"M{n(time(p.start))} {n(y)}H{n(time(after(utc(p.start), trend.unit)))}"


def _bar(time: TimeScale, p: TrendPoint, trend: Trend, share: Scale) -> str:
    left, right = time(p.start), time(after(utc(p.start), trend.unit))
    air = min(1.0, 0.1 * (right - left))
    height = share.bottom - share(p.labelled / p.answers if p.answers else 0.0)
    return f"M{n(left + air)} {n(share.bottom)}v{n(-height)}H{n(right - air)}V{n(share.bottom)}z"
