"""A stream read at every hundredth label: each sentence of the page is true of the report and agrees with the rest."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from html import unescape
from typing import Any

import numpy as np
import pytest

from service.alarm.advice import NEEDS
from service.alarm.evidence import NULLS, StoredAcknowledgement
from service.report import pages
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.page_parts import NOW
from tests.service.page_sentences import check_page
from tests.service.test_headline import SETTINGS, Stream
from tests.service.tiny_bundle import CLASSES, pictures
from trueodds.metrics import CalibrationSums
from trueodds.reports import ReportOptions, report_of
from trueodds.reports.schemas import Report, Window
from trueodds.sums.answers import AnswerSums


def drawn(rng: Any, probabilities: list[float], temperature: float) -> int:
    """A label of an answer that says these probabilities and is right as if they were tempered."""
    odds = np.array(probabilities) ** (1 / temperature)
    return int(rng.choice(len(CLASSES), p=odds / odds.sum()))


def watched(client: Client, labels: int) -> bool:
    return bool(client.report()["alarm"]["nulls"][0]["labels"] == labels)


@pytest.mark.full
def test_served_calibrated_then_over_confident(client: Client) -> None:
    """600 answers, the last 240 over-confident; 40% without a label, 2% of the labels corrected."""
    rng, given, looks, states = np.random.default_rng(0), 0, 100, set()
    for k in range(15):
        body = {"instances": pictures(40, seed=k), "tags": ["day", None] * 20}
        answers = client.post("/predict", json=body).json()["predictions"]
        rows = [{"id": p["id"], "index": drawn(rng, p["probabilities"], 1 if k < 9 else 4)} for p in answers]
        rows = [row for row in rows if rng.random() >= 0.4]
        wrong = [row for row in rows if rng.random() < 0.02]
        client.label([{**row, "index": (row["index"] + 1) % len(CLASSES)} if row in wrong else row for row in rows])
        if wrong:
            client.label([{**row, "correct": True} for row in wrong])
        given += len(rows)
        if given < looks:
            continue
        looks += 100
        until(partial(watched, client, given))
        for query in ({}, {"tag": "day"}, {"last": "100"}, {"by": "tag"}, {"by": "class"})[: None if k > 12 else 1]:
            trend = {} if "last" in query else {"trend": "auto"}
            report = client.get("/calibration-report", params={**query, **trend}).text
            html = client.get("/calibration-report", params={**query, "format": "html"}).text
            check_page(html, Report.model_validate_json(report))
            states.add(re.findall(r'class="now (\w+)"', html)[0])
    assert given > 300 and "waiting" in states and states & {"alarm", "off"}


def test_before_labels(client: Client) -> None:
    for count in (0, 3):
        if count:
            client.predict(pictures(count))
        html = client.get("/calibration-report?format=html").text
        check_page(html, Report.model_validate_json(client.get("/calibration-report").text))


def test_good_enough_and_better_still() -> None:
    rng, stream = np.random.default_rng(2), Stream()
    confidence_N = rng.uniform(0.5, 1, 40_000)
    stream.add(confidence_N, rng.random(40_000) < confidence_N)
    report = stream.look()
    assert report.verdict == "within_tolerance" and report.advice is not None
    check_page(pages.render(report), report)
    changes = {"helps": "yes", "reading": "Recalibrating would help.", "command": "trueodds recalibrate"}
    advice = report.advice.model_copy(update=changes)
    html = pages.render(report.model_copy(update={"advice": advice}))
    assert "recalibrating would improve it further" in html and "Nothing has to be done" not in html
    part = stream.look(window=Window(since=datetime(2023, 11, 14, tzinfo=UTC))).model_copy(update={"advice": advice})
    html = pages.render(part)
    assert part.verdict == "within_tolerance" and "Nothing has to be done for the answers shown here." in html
    assert "good enough" not in html and "Recalibrating would help." in html, "of all labels so far"


BY = StoredAcknowledgement(who="Ada", why="the camera", at_ms=1_700_000_000_000)


def test_of_confidences_alone_nobody_is_told_to_recalibrate() -> None:
    """Off, and good enough: a recalibration needs what is not sent, and no sentence says otherwise."""
    for gap, count in ((0.15, 600), (0.0, 40_000)):
        rng, stream = np.random.default_rng(2), Stream()
        confidence_N = rng.uniform(0.5, 1, count)
        stream.add(confidence_N, rng.random(count) < confidence_N - gap)
        stored, alarm, advice = stream.parts()
        advice = advice.model_copy(update={"helps": "yes", "command": None, "reading": NEEDS})
        sums = CalibrationSums(np.where(np.arange(7)[:, None] < 3, stored.labelled.cells, np.nan))
        report = report_of("m", "v", AnswerSums(stored.answers_C, sums), alarm=alarm, advice=advice)
        html = pages.render(report)
        check_page(html, report)
        assert NEEDS in html and "ecalibrating would" not in html
        assert ("It is good enough as it is." in html) == (gap == 0)


def test_after_re_arming_the_page_says_what_is_settled_and_what_is_not() -> None:
    """The labels that had fired the alarm are still shown: that is no chance of one look."""
    rng, stream = np.random.default_rng(1), Stream()
    confidence_N = rng.uniform(0.5, 0.9, 600)
    stream.add(confidence_N, rng.random(600) < confidence_N - 0.2)
    assert stream.look().verdict == "over_confident"
    stream.state = stream.state.acknowledge(NULLS, BY).rearm("Ada", "the camera", 1_700_000_000_000, SETTINGS)
    report = stream.look()
    html = pages.render(report)
    check_page(html, report)
    assert "had found an error before it was re-armed" in report.headline and "chance alone passes" not in html
    assert report.alarm is not None and report.alarm.reading.startswith("No alarm: no label has been evaluated since")


def test_a_window_without_labels_says_what_the_alarm_is_about() -> None:
    rng, stream = np.random.default_rng(1), Stream()
    confidence_N = rng.uniform(0.5, 0.9, 600)
    stream.add(confidence_N, rng.random(600) < confidence_N - 0.2)
    _, alarm, advice = stream.parts()
    nothing = report_of("m", "v", AnswerSums.zero(), ReportOptions(Window(tag="night")), alarm=alarm, advice=advice)
    html = pages.render(nothing)
    check_page(html, nothing)
    assert "The following is about all labels so far" in html and "The alarm fired on" in html


def test_a_wrong_number_is_noticed() -> None:
    """Each digit of the headline changed, and the colour: the checks can fail."""
    rng, stream = np.random.default_rng(1), Stream()
    confidence_N = rng.uniform(0.5, 0.9, 600)
    stream.add(confidence_N, rng.random(600) < confidence_N - 0.2)
    report = stream.look()
    html = pages.render(report, now=NOW)
    check_page(html, report)
    start = html.index('<p class="headline">')
    text = unescape(html[start : html.index("</p>", start)])
    for digit in re.finditer(r"\d", text):
        at = start + digit.start()
        if html[at] != digit[0] or " at 19 looks in 20" in text[digit.start() - 16 : digit.end() + 2]:
            continue
        with pytest.raises(AssertionError):
            check_page(html[:at] + str((int(digit[0]) + 3) % 10) + html[at + 1 :], report)
    with pytest.raises(AssertionError):
        check_page(html.replace('class="now alarm"', 'class="now fine"'), report)


def test_labels_that_are_no_fair_choice() -> None:
    """Three answers in four share a cell and hardly get labels: no p-value is 0, however small it is."""
    rng = np.random.default_rng(0)
    confidence_N = np.where(rng.random(20_000) < 0.75, 0.9999, rng.uniform(0.5, 1, 20_000))
    right_N, kept_N = rng.random(20_000) < confidence_N, rng.random(20_000) < np.where(confidence_N > 0.999, 0.1, 0.5)
    ones = np.ones(kept_N.sum())
    labelled = CalibrationSums.from_top(confidence_N[kept_N], right_N[kept_N], nll_N=ones, brier_N=ones)
    cells = CalibrationSums.from_top(confidence_N, right_N).cells[0]
    report = report_of("m", "v", AnswerSums(cells.astype(np.int64), labelled))
    html = pages.render(report)
    check_page(html, report)
    assert "significantly at the 1% level (p &lt; 0.0001)." in html and "p = 0)" not in html
