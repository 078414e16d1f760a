"""The page's drawings, words and colours."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.report import pages
from tests.service import page_parts, page_reports
from tests.service.page_parts import NOW, sums
from tests.service.page_reports import full
from trueodds.drawing import axis
from trueodds.reports import page, time_axis, words
from trueodds.reports.figures import diagram_of
from trueodds.reports.page.evidence import ROWS, evidence_diagram, thin_out
from trueodds.reports.page.trend import trend_diagram
from trueodds.reports.schemas import Trend, TrendPoint
from trueodds.texts import plural

FEW = settings(max_examples=60, derandomize=True, deadline=None, database=None)


def numbers(path: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d+\.?\d*", path)]


def test_gaps_single_periods_and_thin_ones() -> None:
    trend = page_parts.trend()
    d = trend_diagram(trend)
    assert d is not None
    assert d.band.count("z") == d.estimate.count("M") == 3  # a day without answers, and one without labels
    assert len(d.middles) == len(trend.points) == 21
    assert len(d.dots) == 20
    assert len(d.cut) == 1  # three labels: the axis does not stretch for them
    assert d.whiskers == ""
    lone = trend_diagram(Trend(unit="month", points=[trend.points[0]]))
    assert lone is not None and lone.band == lone.estimate == "" and lone.whiskers and len(lone.dots) == 1
    assert trend_diagram(Trend(unit="day", points=[])) is None
    nothing = Trend(unit="day", points=[TrendPoint(start=NOW, answers=5, labelled=0)])
    assert trend_diagram(nothing) is None and "trend-chart" not in pages.render(full(trend=nothing))


def test_the_moment_of_the_alarm() -> None:
    """Where its last label arrived, on the axis of predictions; labels may arrive after all of that."""
    days, fired = page_parts.trend(), page_parts.alarm(0.14)
    null = fired.refuted_null
    assert null is not None and null.fired_at is not None
    first, last = days.points[0].start, days.points[-1].start
    d = trend_diagram(days, fired)
    share = (null.fired_at - first) / (last + timedelta(days=1) - first)
    assert d is not None and d.alarm is not None and d.alarm.word == "alarm"
    assert (d.alarm.x - axis.LEFT) / axis.WIDTH == pytest.approx(share)
    late = trend_diagram(Trend(unit="day", points=days.points[:3]), fired)
    assert late is not None and late.alarm is not None
    assert (late.alarm.x, late.alarm.word) == (axis.LEFT + axis.WIDTH, "alarm later ▸")
    early = trend_diagram(Trend(unit="day", points=days.points[-3:]), fired)
    quiet = trend_diagram(days, page_parts.alarm(0.0))
    assert early is not None and quiet is not None and early.alarm is quiet.alarm is None
    notice = trend_diagram(days, page_parts.alarm(0.04))
    assert notice is not None and notice.alarm is not None and notice.alarm.word == "notice"
    html = pages.render(full(alarm=fired, trend=days))
    assert html.count("the alarm fired, ") == 2 and f"a label on {words.moment(null.fired_at)}</span>" in html


TIMES = st.datetimes(datetime(1970, 2, 1), datetime(2100, 1, 1)).map(
    lambda t: t.replace(tzinfo=UTC, minute=0, second=0, microsecond=0)
)


@FEW
@given(unit=st.sampled_from(["minute", "hour", "day", "month"]), begin=TIMES, steps=st.integers(0, 750))
def test_time_axis_has_few_round_ticks_within(unit: Any, begin: datetime, steps: int) -> None:
    begin = (
        begin
        if unit in ("minute", "hour")
        else begin.replace(hour=0)
        if unit == "day"
        else begin.replace(day=1, hour=0)
    )
    width = {"minute": 60, "hour": 3600, "day": 86400, "month": 86400 * 30}[unit]
    end = time_axis.after(begin + timedelta(seconds=steps * width), unit)
    time = time_axis.TimeScale(begin, end, unit)
    ticks = time.ticks()
    assert len(ticks) <= time_axis.MOST_TICKS
    assert all(axis.LEFT <= tick.at <= axis.LEFT + axis.WIDTH for tick in ticks)
    assert [t.at for t in ticks] == sorted({t.at for t in ticks})
    assert ticks or steps < 3


@FEW
@given(value=st.floats(0, 1e12), least=st.floats(1e-6, 1))
def test_axis_top_is_round_and_near(value: float, least: float) -> None:
    top = axis.nice_top(value, least)
    assert max(value, least) <= top * (1 + 1e-9)
    assert top <= 1.6 * max(value, least)


def test_enormous_evidence_stays_on_the_paper() -> None:
    alarm = page_reports.enormous().alarm
    assert alarm is not None
    d = evidence_diagram(alarm)
    assert d is not None
    ece, point = d.curves
    assert ece.cut is not None and ece.cut[1] == "1 in 10⁷⁷⁷"
    assert point.cut is None
    ys = numbers(ece.path)[1::2]
    assert min(ys) >= d.scale.y and max(ys) <= d.scale.bottom
    assert len(d.rows) == len(d.middles) == ROWS
    assert d.rows[0].log_e == [9.0, 9.0] and d.rows[-1].log_e[1] is None
    quiet = page_parts.alarm(0.0)
    d = evidence_diagram(quiet)
    assert d is not None and d.line_y > d.scale.y and not any(c.fired or c.cut for c in d.curves)
    assert evidence_diagram(altered_alarm(quiet)) is None


def altered_alarm(alarm: Any) -> Any:
    return alarm.model_copy(update={"nulls": [n.model_copy(update={"history": []}) for n in alarm.nulls]})


def test_a_line_leaves_out_what_nobody_sees() -> None:
    assert axis.line([(0, 1), (1, 1), (2, 1.01), (3, 1), (4, 2), (5, 2)]) == "M0 1L3 1L4 2L5 2"
    assert axis.line([(0, 1)]) == "M0 1" and axis.line([]) == "" and axis.line([(0, 1), (1, 1)]) == "M0 1L1 1"


def test_thinning_keeps_both_ends() -> None:
    points = page_parts.history(0.1, 200, 3)
    kept = thin_out(points, 10)
    assert (kept[0], kept[-1], len(kept)) == (points[0], points[-1], 10)
    assert thin_out(points[:10], 10) == points[:10]


@pytest.mark.parametrize("bins", [1, 15, 60, 1000])
def test_bars_stand_where_the_numbers_say(bins: int) -> None:
    parts = page_parts.bins_of(sums(3000, page_parts.over), bins)
    d = diagram_of(parts)
    occupied = [b for b in parts if b.count]
    assert len(d.middles) == d.accuracy.count("z") == d.counts.count("z") == len(occupied)
    assert d.over.count("z") + d.under.count("z") == sum(b.gap != 0 for b in occupied)
    assert bool(d.whiskers) == (bins <= 60)
    tops = [float(top) for top in re.findall(r"V([\d.]+)h", d.accuracy)]
    for top, b in zip(tops, occupied, strict=True):
        assert (d.bottom - top) / d.side == pytest.approx(b.accuracy, abs=0.0002)


def test_words() -> None:
    values = (-1.0, 0.0, 0.01, 1.0, math.log(20), math.log(1234), math.log(5e8), 46.0, 1791.0)
    texts = [
        "none",
        "none",
        "1 in 1",
        "1 in 2.7",
        "1 in 20",
        "1 in 1,200",
        "1 in 500,000,000",
        "1 in 10¹⁹",
        "1 in 10⁷⁷⁷",
    ]
    assert [words.chance(value) for value in values] == texts
    assert [words.signed(-0.071), words.signed(0.2, ""), words.signed(None)] == ["−7.1 points", "+20.0", "–"]
    assert words.signed(-0.0004, "") == words.signed(0.0004, "") == "0.0"
    assert [words.decimal(x) for x in (-0.5, True, None, "x", 1)] == ["−0.500", "–", "–", "–", "1.000"]
    assert [plural(1, "label"), plural(2000, "label")] == ["1 label", "2,000 labels"]
    assert [plural(0, "try", "tries"), plural(1, "try", "tries")] == ["0 tries", "1 try"]
    assert [words.p_value(0.031), words.p_value(1e-9)] == ["p = 0.031", "p < 0.0001"]
    assert [words.level(x) for x in (0.95, 0.999)] == ["95%", "99.9%"]
    assert [words.period(NOW, unit) for unit in ("hour", "day", "month")] == [
        "14 Mar, 09:30",
        "14 Mar 2026",
        "Mar 2026",
    ]


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
    shares = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_enough_in_every_mode() -> None:
    """WCAG 2.2 AA: 4.5 for text, 3 for what a drawing says. https://www.w3.org/TR/WCAG22/#contrast-minimum"""
    modes = re.findall(r":root\{(.*?)\}", page.STYLE)
    assert len(modes) == 3  # light, dark, print
    for mode in modes:
        colour = dict(re.findall(r"--([a-z]+):(#[0-9a-f]+)", mode))
        for text in ("ink", "soft", "link", "fine", "waiting", "off", "alarm", "acknowledged"):
            for ground in ("ground", "panel"):
                assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)
        assert contrast(colour["ink"], colour["band"]) >= 4.5  # a button under the pointer
        for state in ("fine", "off", "alarm"):
            assert contrast(colour["on"], colour[state]) >= 4.5
        for drawn in ("mark", "over", "under", "edge"):
            assert contrast(colour[drawn], colour["panel"]) >= 3, drawn
        assert contrast(colour["ink"], colour["bar"]) >= 3  # whiskers
        assert contrast(colour["mark"], colour["band"]) >= 3  # the estimate in its interval
