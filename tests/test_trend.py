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
from trueodds.metrics.labelling.expected import misses_p_value
from trueodds.reports import Options, trend_of
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
    one, none = trend_of("hour", [(0, sums), (HOUR_MS, bare)], Options(level=0.9)).points
    assert one.expected_accuracy == none.expected_accuracy == pytest.approx(centre.mean())
    assert (one.expected_lower, one.expected_upper) == pytest.approx(twin.calibrated_limits(centre.tolist(), 0.9))
    assert (one.calibrated_lower, one.calibrated_upper) == pytest.approx(
        twin.calibrated_limits(centre[:3].tolist(), 0.9)
    )
    assert none.accuracy is none.calibrated_lower is None
    assert trend_of("hour", [(HOUR_MS, bare)], Options()).confirmation is None


@pytest.mark.parametrize(("misses", "ranges"), [(0, 7), (1, 1), (2, 7), (7, 7)])
def test_the_chance_of_misses(misses: int, ranges: int) -> None:
    wanted = sum(comb(ranges, k) * 0.1**k * 0.9 ** (ranges - k) for k in range(misses, ranges + 1))
    assert misses_p_value(misses, ranges, 0.9) == pytest.approx(wanted)


def test_labels_confirm_what_was_expected() -> None:
    """Of calibrated answers in 95% of 80 runs and more (72 or fewer have a chance of 5%), else in none."""
    rng = np.random.default_rng(5)
    options = Options(bins=1)
    found = [confirmation(trend_of("hour", hours(4, 25, rng), options)).confirmed for _ in range(80)]
    assert sum(found) >= 73
    steady = confirmation(trend_of("hour", hours(6, 400, rng, off=0.05), options))
    assert not steady.confirmed and steady.accuracy < steady.lower
    uneven = [*hours(5, 300, rng, off=0.1), *((k + 5 * HOUR_MS, s) for k, s in hours(5, 300, rng, off=-0.1))]
    moved = confirmation(trend_of("hour", uneven, options))
    assert not moved.confirmed and moved.p_value < 1e-4 and moved.within < moved.periods == 10


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
    assert "expectation-chart" in html and "trend-chart" not in html and "No label has come yet" in html
    assert expectation_diagram(Trend(unit="day", points=[])) is None


def test_as_many_rows_as_marks() -> None:
    """The drawing reads out the rows of its table."""
    trend: Any = page_parts.trend()
    html = pages.render(full(trend=trend))
    body = re.search(r'id="expectation-table".*?<tbody>(.*?)</tbody>', html, re.S)
    d = expectation_diagram(trend)
    assert body is not None and d is not None and body[1].count("<tr>") == len(d.middles)
