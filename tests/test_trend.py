"""The trend of a report: what confidences promise of each period, and whether labels that come confirm it."""

from __future__ import annotations

import re
from math import comb
from typing import Any

import numpy as np
import pytest

from service.report import pages
from tests import reference_metrics as twin
from tests.service import page_parts
from tests.service.page_reports import full
from tests.service.page_sentences import check_text
from trueodds.metrics import CELLS, CalibrationSums, cell_of
from trueodds.metrics.labelling.expected import misses_p_value, visible_gaps
from trueodds.reports import ReportOptions, trend_of
from trueodds.reports.page.expectation import expectation_diagram
from trueodds.reports.schemas import Confirmation, Trend
from trueodds.sums.answers import AnswerSums
from trueodds.sums.hours import HOUR_MS


def hours(count: int, labels: int, rng: np.random.Generator, off: float = 0.0) -> list[tuple[int, AnswerSums]]:
    """Three times as many answers as labels, which are right by `off` less often than they say."""
    periods = []
    for k in range(count):
        confidence = 0.5 + 0.5 * rng.beta(3, 1, 3 * labels)
        told = confidence[:labels]
        labelled = CalibrationSums.from_top(told, rng.random(labels) < told - off)
        periods.append((k * HOUR_MS, AnswerSums(np.bincount(cell_of(confidence), minlength=CELLS), labelled)))
    return periods


def confirmation(trend: Trend) -> Confirmation:
    assert trend.confirmation is not None
    return trend.confirmation


def test_what_is_expected_of_a_period() -> None:
    """Of all answers by centres of cells, of the labelled by their confidences: against the slow twin."""
    centre = (np.array([1500, 1500, 2400, 2999, 2999, 2700]) + 0.5) / CELLS
    sums = AnswerSums(np.bincount(cell_of(centre), minlength=CELLS), CalibrationSums.from_top(centre[:3], [1, 0, 1]))
    bare = AnswerSums(sums.answers_C, CalibrationSums.zero())
    one, none = trend_of("hour", [(0, sums), (HOUR_MS, bare)], ReportOptions(level=0.9)).points
    assert one.expected_accuracy == none.expected_accuracy == pytest.approx(centre.mean())
    assert (one.expected_lower, one.expected_upper) == pytest.approx(twin.calibrated_limits(centre.tolist(), 0.9))
    assert (one.calibrated_lower, one.calibrated_upper) == pytest.approx(
        twin.calibrated_limits(centre[:3].tolist(), 0.9)
    )
    assert none.accuracy is none.calibrated_lower is None
    assert trend_of("hour", [(HOUR_MS, bare)], ReportOptions()).confirmation is None


@pytest.mark.parametrize(("misses", "ranges"), [(0, 7), (1, 1), (2, 7), (7, 7)])
def test_the_chance_of_misses(misses: int, ranges: int) -> None:
    wanted = sum(comb(ranges, k) * 0.1**k * 0.9 ** (ranges - k) for k in range(misses, ranges + 1))
    assert misses_p_value(misses, ranges, 0.9) == pytest.approx(wanted)


@pytest.mark.full
def test_labels_contradict_what_was_not_so() -> None:
    """Of calibrated answers in 5% of 80 runs at most (8 or more have a chance of 5%), else in all."""
    rng = np.random.default_rng(5)
    options = ReportOptions(bins=1)
    found = [confirmation(trend_of("hour", hours(4, 25, rng), options)) for _ in range(80)]
    assert sum(one.contradicted for one in found) < 8 and not any(one.confirmed for one in found)
    steady = confirmation(trend_of("hour", hours(6, 400, rng, off=0.05), options))
    assert steady.contradicted and not steady.confirmed and steady.accuracy < steady.lower
    uneven = [*hours(5, 300, rng, off=0.1), *((k + 5 * HOUR_MS, s) for k, s in hours(5, 300, rng, off=-0.1))]
    moved = confirmation(trend_of("hour", uneven, options))
    assert moved.contradicted and not moved.confirmed and moved.p_value < 1e-4 and moved.within < moved.periods == 10


def test_fifty_labels_confirm_nothing_and_say_which_gap_they_would_have_shown() -> None:
    """An error of 10 points passes in most samples of 50: what is said of them is that, with the gap that 80% show."""
    rng = np.random.default_rng(7)
    found = [confirmation(trend_of("hour", hours(1, 50, rng, off=0.1), ReportOptions(bins=1))) for _ in range(40)]
    passed = [one for one in found if not one.contradicted]
    assert len(passed) > 20 and not any(one.confirmed for one in passed)
    for one in passed:
        assert "do not contradict the expected accuracy" in one.reading and "This is one look" in one.reading
        assert one.visible_less is not None and one.visible_less > 0.1
        assert f"{100 * one.visible_less:.1f} points less often" in one.reading
    larger = [confirmation(trend_of("hour", hours(1, 50, rng, off=0.2), ReportOptions(bins=1))) for _ in range(60)]
    power, least = np.mean([one.contradicted for one in larger]), np.mean([one.visible_less or 1.0 for one in larger])
    assert least < 0.24 and power > 0.55


def test_labels_confirm_where_the_gap_lies_within_the_tolerance() -> None:
    rng = np.random.default_rng(8)
    many = trend_of("hour", hours(4, 2500, rng), ReportOptions(bins=1))
    told = confirmation(many)
    assert told.confirmed and -0.02 < told.gap_lower < told.gap_upper < 0.02
    assert "Labels confirm the expected accuracy: the gap is within 2 points" in told.reading
    narrow = confirmation(
        trend_of("hour", hours(4, 2500, np.random.default_rng(8)), ReportOptions(bins=1), tolerance=0.005)
    )
    assert not narrow.confirmed and not narrow.contradicted


@pytest.mark.parametrize(
    ("lower", "upper", "expected", "n"), [(0.75, 0.97, 0.88, 50), (0.5, 1.0, 0.9, 6), (0, 1, 0.5, 1)]
)
def test_gaps_that_would_have_shown(lower: float, upper: float, expected: float, n: int) -> None:
    """Against sums of the binomial law: at the gap 80% of samples lie outside; none where no share is outside."""

    def outside(p: float, below: bool) -> float:
        return sum(
            comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1) if (k / n < lower if below else k / n > upper)
        )

    less, more = visible_gaps(lower, upper, expected, n)
    assert (less is None) == (outside(0.0, True) == 0) and (more is None) == (outside(1.0, False) == 0)
    if less is not None:
        assert outside(expected - less, True) == pytest.approx(0.8, abs=1e-9)
    if more is not None:
        assert outside(expected + more, False) == pytest.approx(0.8, abs=1e-9)


@pytest.mark.parametrize("change", [0, 12, 22])
def test_its_sentences_are_true(change: int) -> None:
    trend = page_parts.trend(change=change)
    report = full(trend=trend)
    check_text(confirmation(trend).reading, report)
    html = pages.render(report)
    assert confirmation(trend).reading in re.sub(r"&#39;", "'", html).replace("&lt;", "<")
    other = page_parts.trend(change=22 - change)
    if change != 12:
        with pytest.raises(AssertionError, match="not so"):
            check_text(confirmation(trend).reading, full(trend=other))


def test_the_drawing() -> None:
    """Expected accuracy of every period, also before labels; those that labels deny are marked."""
    trend = page_parts.trend()
    d = expectation_diagram(trend)
    assert d is not None
    assert len(d.middles) == len(trend.points) == 21 and len(d.dots) == 20
    assert [inside for _, _, inside in d.dots].count(True) == confirmation(trend).within
    assert d.band.count("z") == 2 and d.whiskers.count("M") == 20
    low, high = d.ticks[-1].at, d.ticks[0].at
    assert (high, low) == (d.top, d.bottom) and d.ticks[0].text == "100%"
    ys = [float(y) for y in re.findall(r"[ ](\d+\.?\d*)", d.expected)]
    assert min(ys) > high and max(ys) < low
    nothing = {"labelled": 0, "accuracy": None, "ece": None, "ece_estimate": None}
    few = [p.model_copy(update=nothing) for p in trend.points[3:5]]  # a day is missing between them
    early = Trend(unit="day", points=few, confirmation=None)
    alone = expectation_diagram(early)
    assert alone is not None and alone.dots == [] and alone.whiskers.count("M") == 2
    assert expectation_diagram(Trend(unit="day", points=few[:1])) is None
    html = pages.render(full(trend=early))
    assert "expectation-chart" in html and "trend-chart" not in html and "There are no labels yet" in html
    assert expectation_diagram(Trend(unit="day", points=[])) is None


def test_as_many_rows_as_marks() -> None:
    """The drawing reads out the rows of its table."""
    trend: Any = page_parts.trend()
    html = pages.render(full(trend=trend))
    body = re.search(r'id="expectation-table".*?<tbody>(.*?)</tbody>', html, re.S)
    d = expectation_diagram(trend)
    assert body is not None and d is not None and body[1].count("<tr>") == len(d.middles)
