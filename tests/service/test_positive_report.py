"""The report of a version with a positive class: it speaks of p(positive), and both halves of the page agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.alarm import advice_of, alarm_of
from service.report import pages
from tests.service.conftest import Serve
from tests.service.hooks import until
from tests.service.page_sentences import check_page
from tests.service.test_headline import SETTINGS, Stream
from tests.service.tiny_bundle import pictures
from trueodds import metrics
from trueodds.metrics import CELLS, CalibrationSums, cell_of
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.reports import Report, ReportOptions, report_of
from trueodds.reports.page.state import state_of
from trueodds.reports.schemas import Finding, Labelling, WeightedFigures
from trueodds.sums.answers import AnswerSums
from trueodds.sums.positive import PositiveClass, PositiveSums

POSITIVE = PositiveClass("malignant", 1)


class BinaryStream(Stream):
    """Labels of answers by p(positive)."""

    positive = POSITIVE

    def __init__(self) -> None:
        super().__init__()
        self.of_positive = CalibrationSums.zero()

    def take(self, p_N: Any, positive_N: Any) -> None:
        predicted_N = (p_N > 0.5).astype(np.int64)
        self.add(np.maximum(p_N, 1 - p_N), predicted_N == positive_N, predicted_N)
        self.of_positive = self.of_positive + POSITIVE.sums_of(p_N, positive_N)

    def report(self, **options: Any) -> Report:
        stored, *_ = self.parts()
        by_p = AnswerSums(self.of_positive.cells[0].astype(np.int64), self.of_positive)
        positive = PositiveSums("malignant", by_p)
        alarm = alarm_of(self.state, SETTINGS, model="m", sums=stored, positive="malignant")
        advice = advice_of(self.state, model="m", version="v", address="http://127.0.0.1:8000", positive="malignant")
        return report_of("m", "v", stored, ReportOptions(**options), positive=positive, alarm=alarm, advice=advice)


def tempered(temperature: float) -> Callable[[Any], Any]:
    return lambda p_N: p_N ** (1 / temperature) / (p_N ** (1 / temperature) + (1 - p_N) ** (1 / temperature))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("truth", "verdicts"),
    [
        (lambda p_N: p_N, {"within_tolerance"}),
        (lambda p_N: np.maximum(p_N - 0.1, 0), {"too_high"}),
        (lambda p_N: np.minimum(p_N + 0.1, 1), {"too_low"}),
        (tempered(2.5), {"uneven"}),
        (tempered(0.4), {"uneven"}),
    ],
    ids=["calibrated", "too high everywhere", "too low everywhere", "too sure", "not sure enough"],
)
def test_every_sentence_is_so_at_every_look(truth: Callable[[Any], Any], verdicts: set[str]) -> None:
    rng, stream, report = np.random.default_rng(3), BinaryStream(), None
    for count in (30, 170, 800, 39_000):
        p_N = rng.uniform(0, 1, count)
        stream.take(p_N, rng.random(count) < truth(p_N))
        report = stream.report()
        check_page(pages.render(report), report)
    assert report is not None and report.verdict in verdicts
    assert report.headline.count("p(malignant)") and report.positive is not None
    if verdicts & {"too_high", "too_low"}:
        assert (report.ece or 1) < 0.03 < 0.09 < (report.positive.ece or 0), "it cancels in the top label"
        assert report.headline.count("here p(malignant) is") == 1
    if "uneven" in verdicts:
        assert report.headline.count("here p(malignant) is") == 2
    if "within_tolerance" in verdicts:
        assert "it is within 0.02 at 95%" in report.headline


@pytest.mark.parametrize("one_look", [False, True], ids=["live", "table"])
@pytest.mark.parametrize("above", [False, True], ids=["all below one half", "all above"])
@pytest.mark.parametrize(("factor", "word"), [(0.5, "too_high"), (2.0, "too_low")])
def test_rare_positives_whose_p_lies_on_one_side_of_one_half(
    factor: float, word: str, above: bool, one_look: bool
) -> None:
    """Fraud, churn, default: p twice too high, or half of what it should be, is called that, of p and of no other."""
    rng, stream = np.random.default_rng(5), BinaryStream()
    p_N = rng.beta(2, 18, 6000) / 2
    positive_N = rng.random(6000) < factor * p_N
    if above:
        p_N, positive_N = 1 - p_N, ~positive_N
        word = {"too_high": "too_low", "too_low": "too_high"}[word]
    stream.take(p_N, positive_N)
    report = stream.report(one_look=one_look)
    assert report.verdict == word and f"p(malignant) is {word.replace('_', ' ')}" in report.headline
    assert report.top_label_verdict == ("under_confident" if factor < 1 else "over_confident")
    assert "confident" not in report.headline.partition("The more probable class")[0]
    assert state_of(report.model_copy(update={"alarm": None})).word == f"p(malignant) is {word.replace('_', ' ')}"
    if not one_look:
        check_page(pages.render(report), report)


@pytest.mark.full
def test_a_rare_class_whose_p_is_four_times_too_high_gets_no_green_word() -> None:
    """Within 0.02 in absolute terms, as every p of a class that rare is."""
    rng, stream = np.random.default_rng(6), BinaryStream()
    p_N = rng.beta(1, 124, 60_000)
    for share, green in ((1.0, True), (0.25, False)):
        stream = BinaryStream()
        stream.take(p_N, rng.random(60_000) < share * p_N)
        for one_look in (False, True):
            report = stream.report(one_look=one_look)
            assert report.positive is not None and (report.positive.ece_upper or 1.0) <= 0.02
            assert (state_of(report).name == "fine") == green, (share, report.verdict)
            assert green or "too_high" in report.verdict


def test_words_of_one_look_at_a_table() -> None:
    rng = np.random.default_rng(0)
    p_N = rng.uniform(0, 1, 4000)
    positive_N = rng.random(4000) < np.maximum(p_N - 0.1, 0)
    by_p = POSITIVE.sums_of(p_N, positive_N)
    top = CalibrationSums.from_top(np.maximum(p_N, 1 - p_N), (p_N > 0.5) == positive_N)
    report = report_of(
        "table",
        "",
        AnswerSums(top.cells[0].astype(np.int64), top),
        ReportOptions(one_look=True),
        positive=PositiveSums("malignant", AnswerSums(by_p.cells[0].astype(np.int64), by_p)),
    )
    assert report.verdict == "too_high" and "On them p(malignant) is " in report.headline
    assert "Where p(malignant) is " in report.headline
    assert "The gaps of p(malignant) are more than chance" in report.headline
    found = report.model_dump(mode="json")
    assert found["brier_scale"] == "0 to 2, over all classes" and found["positive"]["brier_scale"] == "0 to 1"


def test_no_green_word_where_one_of_both_may_be_off() -> None:
    """Of p(positive) there are no figures that are weighted to stand for all answers."""
    rng = np.random.default_rng(0)
    p_N = rng.uniform(0, 1, 40_000)
    positive_N = rng.random(40_000) < p_N
    by_p = POSITIVE.sums_of(p_N, positive_N)
    top = CalibrationSums.from_top(np.maximum(p_N, 1 - p_N), (p_N > 0.5) == positive_N)
    weighed = {"how": "strata", "accuracy": 0.9, "signed_gap": 0.0, "effective_n": 500, "reading": ""}
    small = {"ece": 0.01, "ece_estimate": 0.01, "ece_lower": 0.0, "ece_upper": 0.015}
    counts = AnswerSums(np.bincount(cell_of(p_N), minlength=CELLS), by_p)
    for warning in (False, True):
        about = Labelling(
            choice=Finding(warning=warning, p_value=0.5, statistic=1.0, reading="They differ."),
            weighted=[WeightedFigures.model_validate(weighed | small)],
        )
        sums = AnswerSums(top.cells[0].astype(np.int64), top)
        report = report_of("m", "v", sums, labelling=about, positive=PositiveSums("malignant", counts))
        assert (report.verdict == "within_tolerance") == (not warning)


def test_of_every_window_the_figures_are_its_own(serve: Serve) -> None:
    """A served model, its labels over HTTP: everything, a tag, a class, the newest labels and a window in the past."""
    client, rng = serve(classes=("malignant", "benign"), positive="malignant"), np.random.default_rng(0)
    body = {"instances": pictures(60), "tags": ["day", None] * 30}
    rows = client.post("/predict", json=body).json()["predictions"]
    p_N = np.array([row["positive"]["probability"] for row in rows])
    positive_N, labelled_N = rng.random(60) < p_N, np.arange(60) % 4 > 0
    labels = ["malignant" if positive else "benign" for positive in positive_N]
    client.label([{"id": rows[k]["id"], "label": labels[k]} for k in np.flatnonzero(labelled_N)])
    # Evidence is taken in the background: a report and its page that are read around that moment differ.
    until(lambda: client.report()["advice"]["labels"] == labelled_N.sum() // BLOCK * BLOCK)
    tagged_N, of_class_N = np.arange(60) % 2 == 0, np.array([row["label"] == "benign" for row in rows])
    newest_N = np.isin(np.arange(60), np.flatnonzero(labelled_N)[-20:])
    everything = np.ones(60, bool)
    for query, chosen_N in (
        ({}, everything),
        ({"since": "2020-01-01T00:00:00Z"}, everything),
        ({"until": "2020-01-01T00:00:00Z"}, ~everything),
        ({"tag": "day"}, tagged_N),
        ({"class": "benign"}, of_class_N),
        ({"last": "20"}, newest_N),
    ):
        report = Report.model_validate(client.report(**query))
        check_page(client.get("/calibration-report", params={**query, "format": "html"}).text, report)
        expected, figures = POSITIVE.sums_of(p_N[n := chosen_N & labelled_N], positive_N[n]), report.positive
        assert figures is not None and figures.label == "malignant"
        assert sum(b.count for b in figures.bins) == expected.n == report.labelled
        if not expected.n:
            assert figures.prevalence is None
            continue
        assert figures.binning == "mass" and figures.observed == positive_N[n].sum()
        assert figures.ece_by_binning["width"].ece == pytest.approx(metrics.ece(expected), abs=1e-12)
        assert figures.brier == pytest.approx(metrics.brier(expected), abs=1e-12)
        assert figures.prevalence == pytest.approx(positive_N[n].mean(), rel=1e-12)
    decisions = Report.model_validate(client.report(costs="miss:10,alarm:1")).decisions
    kept = p_N[labelled_N], positive_N[labelled_N].astype(int)
    assert decisions is not None and decisions.cost == metrics.decision_cost(*kept, metrics.Costs(10, 1))
    assert decisions.reading in client.get("/calibration-report?format=html&costs=miss:10,alarm:1").text
    for wrong, words in (
        ("costs=miss:1", "expected what a missed positive"),
        ("costs=miss:10,alarm:1&class=benign", "too coarse for thresholds"),
    ):
        refused = client.get(f"/calibration-report?{wrong}")
        assert refused.status_code == 422 and words in refused.text


def test_the_page_leads_with_p_positive() -> None:
    """A name that HTML must not read, all of [0, 1] first, the top label's folded, test values beside."""
    rng, stream = np.random.default_rng(0), BinaryStream()
    p_N = rng.uniform(0, 1, 900)
    stream.take(p_N, rng.random(900) < p_N)
    by_p = AnswerSums(stream.of_positive.cells[0].astype(np.int64), stream.of_positive)
    name, offline = "<b>{odd}", {"bins": 15, "after": {"positive": {"class": "odd", "ece": 0.0123, "brier": 0.3456}}}
    report = report_of("m", "v", stream.parts()[0], positive=PositiveSums(name, by_p), offline=offline)
    html = pages.render(report)
    assert report.positive is not None
    assert name not in html and "p(&lt;b&gt;{odd})" in html
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    places = [html.index(part) for part in ('id="reliability-chart"', 'id="top-label"', 'id="top-reliability-chart"')]
    assert places == sorted(places)
    first, second = html[places[0] : places[1]], html[places[1] :]
    assert f"{100 * (report.positive.bins[0].accuracy or 0):.1f}%" in first and "in 15 ranges of p" in first
    assert "Accuracy, gaps and calibration errors here are those of the more probable class." in second
    cards = html[html.index('id="positive-figures"') : html.index("<h3>The more probable class</h3>")]
    assert "on the test set 0.346" in cards
    assert "on the test set 0.012" not in cards, "that is of bins of equal width"
    assert f"{report.positive.ece:.3f}" in cards
    assert f"p({name})  ECE {report.positive.ece:.4f}" in str(report)
