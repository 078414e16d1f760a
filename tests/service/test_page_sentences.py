"""A stream read at every hundredth label: each sentence of the page is true of the report and agrees with the rest."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from html import unescape
from typing import Any

import numpy as np
import pytest

from service.report import pages
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.page_parts import NOW
from tests.service.page_sentences import check_page
from tests.service.test_headline import Stream
from tests.service.tiny_bundle import CLASSES, pictures
from trueodds.reports.schemas import Report, Window


def drawn(rng: Any, probabilities: list[float], temperature: float) -> int:
    """A label of an answer that says these probabilities and is right as if they were tempered."""
    odds = np.array(probabilities) ** (1 / temperature)
    return int(rng.choice(len(CLASSES), p=odds / odds.sum()))


def watched(client: Client, labels: int) -> bool:
    return bool(client.report()["alarm"]["nulls"][0]["labels"] == labels)


def test_served_calibrated_then_over_confident(client: Client) -> None:
    """600 answers, the last 240 over-confident; 40% without a label, 2% of the labels corrected."""
    rng, given, looks, states = np.random.default_rng(0), 0, 100, set()
    for k in range(15):
        body = {"instances": pictures(40, seed=k), "tags": ["day", None] * 20}
        answers = client.post("/predict", json=body).json()["predictions"]
        rows = [{"id": p["id"], "label": drawn(rng, p["probabilities"], 1 if k < 9 else 4)} for p in answers]
        rows = [row for row in rows if rng.random() >= 0.4]
        wrong = [row for row in rows if rng.random() < 0.02]
        client.label([{**row, "label": (row["label"] + 1) % len(CLASSES)} if row in wrong else row for row in rows])
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
    assert "recalibrating would make it better still" in html and "Nothing has to be done" not in html
    part = stream.look(window=Window(since=datetime(2023, 11, 14, tzinfo=UTC))).model_copy(update={"advice": advice})
    html = pages.render(part)
    assert part.verdict == "within_tolerance" and "What is shown here needs nothing." in html
    assert "good enough" not in html and "Recalibrating would help." in html, "of all labels so far"


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
