"""A table of answers is reported without a service."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime

import numpy as np
import pytest

from trueodds.metrics import CELLS, CalibrationSums, cell_of
from trueodds.reports import (
    LabelledRows,
    Report,
    ReportOptions,
    Window,
    labelling_of,
    page,
    report_of,
    slices_of,
    tags_of,
    trend_of,
)
from trueodds.reports.schemas import NO_TAG
from trueodds.sums.answers import AnswerSums

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def report() -> Report:
    """4,000 answers that are over-confident by .1, half of them labelled; three tags, two hours."""
    rng = np.random.default_rng(0)
    confidence_N = rng.uniform(0.5, 1, 4000)
    correct_N = rng.random(4000) < confidence_N - 0.1
    labelled_N, tag_N, hour_N = rng.random(4000) < 0.5, rng.integers(0, 3, 4000), rng.integers(0, 2, 4000)

    def sums_of(rows_N: np.ndarray) -> AnswerSums:
        chosen_N = rows_N & labelled_N
        ones = np.ones(int(chosen_N.sum()))
        answers_C = np.bincount(cell_of(confidence_N[rows_N]), minlength=CELLS)
        sums = CalibrationSums.from_top(confidence_N[chosen_N], correct_N[chosen_N], nll_N=ones, brier_N=ones)
        return AnswerSums(answers_C, sums)

    sums, options = sums_of(np.ones(4000, bool)), ReportOptions()
    count = sums.labelled.n
    delay_ms = rng.exponential(1e6, count).astype(np.int64)
    rows = LabelledRows(confidence_N[labelled_N], correct_N[labelled_N], np.full(count, 0.5), delay_ms)
    tags = {name: sums_of(tag_N == k) for k, name in enumerate(("", "day", "night"))}
    return report_of(
        "answers.npz",
        "1",
        sums,
        options,
        labelling=labelling_of(sums, options, rows),
        versions=slices_of({"1": sums}, options),
        tags=tags_of(tags, options),
        trend=trend_of("hour", [(k * HOUR_MS, sums_of(hour_N == k)) for k in range(2)], options),
    )


def test_its_figures_are_those_of_the_metrics(report: Report) -> None:
    assert report.answers == 4000 and report.verdict == "leans_over_confident"
    assert [weighted.how for weighted in report.labelling.weighted] == ["strata", "propensity"]
    assert report.tags is not None and {row.name for row in report.tags} == {NO_TAG, "day", "night"}
    assert report.trend is not None and sum(point.answers for point in report.trend.points) == 4000
    (version,) = report.versions
    assert (version.ece, version.accuracy) == (report.ece, report.accuracy)
    assert Report.model_validate_json(report.model_dump_json()) == report


def test_its_page_leads_nowhere(report: Report) -> None:
    """In a file there is nothing to ask for: no form, no address of a service, and no refreshing."""
    text = page.render(report, now=NOW)
    assert html.escape(report.headline, quote=True).replace("&#x27;", "&#39;") in text and NO_TAG in text
    assert "<form" not in text and "<nav" not in text
    addresses = re.findall(r'(?:href|src|action)="([^"]*)"', text)
    assert all(address.startswith(("#", "data:")) for address in addresses), addresses
    assert "data-again" not in text.partition("<script>")[0]


def test_the_words_of_nothing_name_no_service() -> None:
    """How to get answers and labels is said by whoever takes them."""
    none = report_of("answers.npz", "1", AnswerSums.zero())
    assert none.headline == "The model has given no answers yet."
    assert "/" not in page.render(none, now=NOW).partition('<h2 id="now-title">')[2].partition("</h2>")[0]
    report = report_of("m", "v", AnswerSums.zero(), next_steps={"no_answers": "Send some."})
    assert report.headline == "The model has given no answers yet. Send some."
    window = ReportOptions(Window(tag="night"))
    assert report_of("m", "v", AnswerSums.zero(), window).headline.startswith("There are no answers with tag night")
