"""Times of a report: UTC, the periods of a trend, and the time axis of its charts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trueodds.drawing.axis import LEFT, WIDTH, Tick
from trueodds.reports.schemas import Unit

STEPS = {
    "minute": (1, 2, 5, 10, 15, 30, 60, 120, 180, 360),
    "hour": (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720),
    "day": (1, 2, 7, 14, 28, 91, 182),
    "month": (1, 2, 3, 6, 12, 24),
}
"""Steps between ticks, in units of the period."""
WIDTHS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
MOST_TICKS = 5


def after(start: datetime, unit: Unit) -> datetime:
    """Return the start of the next minute, hour, day or month."""
    if unit == "month":
        return (start.replace(day=1) + timedelta(days=32)).replace(day=1)
    return start + WIDTHS[unit]


def utc(time: datetime) -> datetime:
    """Convert a time to UTC. A time without a zone is in UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


@dataclass(frozen=True)
class TimeScale:
    """Scale that returns the x of a time between `begin` and `end`."""

    begin: datetime
    end: datetime
    unit: Unit

    def __call__(self, time: datetime) -> float:
        return LEFT + WIDTH * ((utc(time) - self.begin) / (self.end - self.begin))

    def middle(self, start: datetime) -> float:
        """Return the x of the middle of the period that begins at `start`."""
        return (self(start) + self(after(utc(start), self.unit))) / 2

    def ticks(self) -> list[Tick]:
        """Return at most five ticks, at round minutes, hours, days or months."""
        marks: list[datetime] = []
        for step in STEPS[self.unit]:
            marks = _marks(self.begin, self.end, self.unit, step)
            if len(marks) <= MOST_TICKS:
                break
        whole_days = all(m.hour == m.minute == 0 for m in marks)
        return [Tick(self(m), _words(m, self.unit, whole_days)) for m in marks[:MOST_TICKS]]


def _marks(begin: datetime, end: datetime, unit: Unit, step: int) -> list[datetime]:
    """Return the multiples of `step` units from `begin` to before `end`, counted from 1970 (months: from a January)."""
    if unit == "month":
        first = begin.year * 12 + begin.month - 1
        first += -first % step
        last = end.year * 12 + end.month - 1
        return [datetime(k // 12, k % 12 + 1, 1, tzinfo=UTC) for k in range(first, last, step)]
    width = step * WIDTHS[unit]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    first_mark = epoch + math.ceil((begin - epoch) / width) * width
    return [first_mark + k * width for k in range(max(math.ceil((end - first_mark) / width), 0))]


def _words(mark: datetime, unit: Unit, whole_days: bool) -> str:
    if unit == "month":
        return f"{mark:%b %Y}" if mark.month == 1 else f"{mark:%b}"
    return f"{mark.day} {mark:%b}" if whole_days else f"{mark:%H:%M}"
