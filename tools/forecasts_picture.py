"""The picture of README.md: published forecasts under watch, and when the alarm fired.

`python -m tools.forecasts_picture` writes it from the result of benchmarks/evidence/forecast_replay.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from tools import ROOT
from tools.tables.results import read
from trueodds.drawing.axis import Across, Scale, band, line, n
from trueodds.drawing.picture import LegendEntry, Panel, picture
from trueodds.processes.choices import TOLERANCE

OUT = ROOT / "docs" / "forecasts.svg"
"""The committed picture."""
SPORTS = {"mlb": "Baseball (MLB)", "nba": "Basketball (NBA)"}
LEFT, WIDTH, HEIGHT = 50.0, 330.0, 190.0
TOP = 0.08
"""Largest ECE that is drawn."""
LEAST = 500
"""Games from which on a plot begins. With fewer, the interval fills it."""


def drawing() -> str:
    """Return the picture as SVG: the ECE with its interval, by date, of the two sports with the most games."""
    sports = {one["sport"]: one for one in read("forecast_replay")["sports"]}
    legend = [
        LegendEntry('<path class="band" d="M0 0h18v12h-18z"/>', "95% interval of the ECE"),
        LegendEntry('<path class="after line" d="M0 6H18"/>', "ECE"),
        LegendEntry('<path class="diagonal" d="M0 6H18"/>', "tolerance"),
        LegendEntry('<path class="before line" d="M9 -2V14"/>', "alarm"),
    ]
    return picture(
        "Published forecasts of games, replayed day by day through the service",
        [_panel(name, sports[sport]) for sport, name in SPORTS.items()],
        legend,
        "Two plots of the expected calibration error by date, with its 95% interval, the tolerance and the alarm.",
    )


def _panel(name: str, of: dict[str, Any]) -> Panel:
    """Draw one sport."""
    looks = [look for look in of["looks"] if look["labelled"] >= LEAST]
    days = [_year(look["date"]) for look in looks]
    across, scale = Across(days[0], days[-1], LEFT, WIDTH), Scale(TOP, 10.0, HEIGHT)
    alarms = [one for one in of["fired"] if one["pages"]]
    tolerance = n(scale(TOLERANCE))

    def points(key: str) -> Sequence[tuple[float, float]]:
        return [(across(day), scale(look[key])) for day, look in zip(days, looks, strict=True)]

    parts = [
        scale.grid(LEFT, across.end),
        *(f'<text class="m" x="{n(across(year))}" y="{n(scale.bottom + 18)}">{year}</text>' for year in _years(days)),
        f'<path class="band" d="{band(points("ece_upper"), points("ece_lower"))}"/>',
        f'<path class="diagonal" d="M{n(LEFT)} {tolerance}H{n(across.end)}"/>',
        f'<path class="after line" d="{line(points("ece"))}"/>',
    ]
    for alarm in alarms[:1]:
        x = across(_year(alarm["on"]))
        parts.append(f'<path class="before line" d="M{n(x)} {n(scale.y)}V{n(scale.bottom)}"/>')
    told = f"alarm after {alarms[0]['after']:,} games" if alarms else "no alarm"
    return Panel(LEFT + WIDTH + 10, scale.bottom + 26, "\n".join(parts), [f"{name}: {of['games']:,} games, {told}"])


def _year(day: str) -> float:
    """Return a date as a year with a fraction."""
    at = date.fromisoformat(day)
    return at.year + (at.timetuple().tm_yday - 1) / 366


def _years(days: Sequence[float]) -> range:
    """Return the years that begin within the days."""
    return range(int(days[0]) + 1, int(days[-1]) + 1)


if __name__ == "__main__":
    OUT.write_text(drawing(), encoding="utf-8")
    print(f"written: {OUT.relative_to(ROOT)}")
