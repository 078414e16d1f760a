"""The report: numbers, reading and page, with and without labels."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.app import create_app
from service.report import pages
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.tiny_bundle import OFFLINE, pictures, write_bundle
from trueodds import metrics
from trueodds.bundle import open_models
from trueodds.metrics import CalibrationSums
from trueodds.reports import ReportOptions, report_of
from trueodds.reports.schemas import Report
from trueodds.reports.words import whole_percent
from trueodds.sums.answers import AnswerSums

LIVE = ("accuracy", "mean_confidence", "signed_gap", "ece", "ece_lower", "floor_p95", "mce", "mce_bin", "nll", "brier")


def labelled(rows: int, truth: Callable[[Any], Any], seed: int = 0) -> CalibrationSums:
    """Rows of two classes with confidences .5 to 1, right with probability truth(confidence)."""
    rng = np.random.default_rng(seed)
    top_N = rng.uniform(0.5, 1, rows)
    wrong_N = rng.random(rows) >= truth(top_N)
    return CalibrationSums.from_probabilities(np.stack([top_N, 1 - top_N], 1), wrong_N.astype(int))


def make(sums: CalibrationSums, answers: int | None = None, **options: Any) -> Any:
    return report_of("m", "v", stored(sums, answers), ReportOptions(**options), offline=OFFLINE)


def stored(sums: CalibrationSums, answers: int | None = None) -> AnswerSums:
    """Sums as the store gives them, with more answers in the first cell that has any."""
    answers_C = sums.cells[0].astype(np.int64)
    answers_C[answers_C.argmax()] += 0 if answers is None else answers - sums.n
    return AnswerSums(answers_C, sums)


@pytest.mark.parametrize(
    ("truth", "verdict", "words"),
    [
        (lambda c: c, "cannot_tell", "errors that cancel out within a bin do not show"),
        (lambda c: c - 0.2, "leans_over_confident", "this is more. It is perhaps over-confident"),
        (lambda c: c + 0.5 * (1 - c), "leans_under_confident", "under-confident"),
        (lambda c: np.where(c > 0.75, c - 0.15, c + 0.15), "leans_uneven", "too sure in some ranges"),
    ],
)
def test_verdicts(truth: Callable[[Any], Any], verdict: str, words: str) -> None:
    sums = labelled(3000, truth)
    report = make(sums, answers=6000)
    assert report.verdict == verdict
    assert words in report.reading
    assert report.reading.startswith("3,000 of 6,000 answers have labels.")
    assert "checked after every label, it will miss the true value at some time" in report.reading
    assert "The other 3,000 answers are unknown" in report.reading
    assert "Fewer than 500" not in report.reading
    assert words.split(".")[0] in pages.render(report)


def test_few_labels_warn() -> None:
    reading = make(labelled(499, lambda c: c)).reading
    assert "Fewer than 500 labels" in reading
    assert "are unknown" not in reading


def test_numbers_are_those_of_the_metrics() -> None:
    sums = labelled(1000, lambda c: c - 0.1)
    report = make(sums, bins=25, level=0.9)
    interval, floor = metrics.ece_interval(sums, bins=25, level=0.9), metrics.noise_floor(sums, bins=25)
    assert (report.ece, report.ece_estimate) == (interval.ece, interval.estimate)
    assert (report.ece_lower, report.ece_upper) == (interval.lower, interval.upper)
    assert (report.floor_mean, report.floor_p95) == (floor.mean, floor.p95)
    assert report.mce == metrics.mce(sums, bins=25)
    worst = max((b for b in report.bins if b.count), key=lambda b: abs(b.gap))
    assert (report.mce_bin.lo, report.mce_bin.hi, report.mce_bin.count) == (worst.lo, worst.hi, worst.count)
    assert sum(b.count for b in report.bins) == 1000
    assert sum(b.count * abs(b.gap) for b in report.bins if b.count) / 1000 == pytest.approx(report.ece, abs=1e-12)
    assert all(b.accuracy_lower <= b.accuracy <= b.accuracy_upper for b in report.bins if b.count)
    assert report.bins[0].accuracy is None
    assert report.offline == OFFLINE


def test_before_any_answer_and_before_any_label(client: Client) -> None:
    for count, words in [(0, "POST /predict"), (3, "3 answers, none with a label")]:
        if count:
            client.predict(pictures(count))
        report = client.report()
        assert words in report["reading"]
        assert [report[name] for name in LIVE] == [None] * len(LIVE)
        shown = client.get("/calibration-report?format=html")
        assert shown.status_code == 200
        assert words in shown.text
        assert "<figure>" not in shown.text, "a chart without labels, and of one moment, is empty"


def test_one_is_not_several(client: Client) -> None:
    """With one answer, one label and one row, in the report, on its page and in errors."""
    (one,) = client.predict(pictures(1))
    assert client.report()["headline"].startswith("1 answer, none with a label yet")
    client.label([{"id": one["id"], "index": 1}])
    texts = [client.get("/calibration-report", params=query).text for query in ({}, {"format": "html"}, {"last": "1"})]
    assert '"headline":"The 1 label that arrived last. ' in texts[2]
    client.predict(pictures(1))
    assert client.report()["headline"].startswith("1 of 2 answers has a label. ")
    texts.append(client.get("/calibration-report", params={"format": "html", "by": "class"}).text)
    request = {"model": "tiny", "version": client.report()["version"], "who": "Ada", "why": "x"}
    for path, body in (
        ("/predict", {"instances": [[[1]]]}),
        ("/predict", {"instances": pictures(2), "ids": ["a"]}),
        ("/predict", {"instances": [{"pixels_b64": "AA=="}]}),
        ("/feedback", {"id": "x", "label": {"a": 1}}),
        ("/admin/alarm/acknowledge", request),
    ):
        texts.append(client.post(path, json=body).text)
    rows = client.post("/feedback", content=b"id,label\nx\n", headers={"content-type": "text/csv"})
    mistakes = re.findall(r"(?<![\d.,])1 (?!as\b)[a-z]+s\b", " ".join([*texts, rows.text]))
    assert not mistakes, mistakes


def test_json_or_page_as_accept_says(client: Client) -> None:
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    for accept, expected in [
        (browser, "text/html"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("text/html;q=0.5, application/json", "application/json"),
        ("text/html, application/json;q=0.9", "text/html"),
        ("text/html;q=x", "application/json"),
    ]:
        answer = client.get("/calibration-report", headers={"accept": accept})
        assert answer.headers["content-type"].startswith(expected), accept
        assert answer.headers["vary"] == "accept"
    forced = client.get("/calibration-report?format=json", headers={"accept": browser})
    assert forced.headers["content-type"] == "application/json"
    assert client.get("/", headers={"accept": browser}).headers["location"] == "/calibration-report"
    assert client.get("/").headers["location"] == "/docs"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("bins=7", "bins = 7: allowed are the divisors of 3000"),
        ("bins=0", "bins = 0"),
        ("bins=-15", "bins = -15"),
        ("bins=3000", "up to 1000"),
        ("bins=x", "bins = 'x'"),
        ("level=1", "level"),
        ("level=nan", "level"),
        ("format=pdf", "format = 'pdf'"),
        ("clas=cat", "/calibration-report has no parameter 'clas'. Known are model, version, since, "),
        ("clas=cat", "Did you mean 'class'?"),
        ("predicted_class=cat", "has no parameter 'predicted_class'"),
        ("class=cat&class=dog", "class is sent twice in the query; send it once"),
        ("tag=&tag=x", "tag is sent twice"),
        ("version=", "version is empty in the query; give a value, or leave version out"),
        ("model=tiny&since=", "since is empty"),
        ("bins=15&class=", "class is empty"),
    ],
)
def test_bad_parameters(client: Client, query: str, words: str) -> None:
    answer = client.get(f"/calibration-report?{query}")
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/calibration-report/choose?windw=24h", "Did you mean 'window'?"),
        ("GET", "/calibration-report/choose?window=24h&window=7d", "window is sent twice"),
        ("GET", "/admin/labelled.npz?until=2030-01-01", "Known are model, version, since, last"),
        ("GET", "/admin/labelled.npz?last=1&last=2", "last is sent twice"),
        ("GET", "/admin/labelled.npz?version=", "version is empty in the query"),
        ("GET", "/predictions?until=", "until is empty in the query"),
        ("POST", "/predict?tag=", "tag is empty in the query"),
        ("POST", "/observe?tag=", "tag is empty in the query"),
        ("GET", "/models?model=tiny", "/models has no parameter 'model'. It has no parameters"),
        ("GET", "/metrics?model=tiny", "/metrics has no parameter"),
        ("GET", "/health/ready?model=other", "/health/ready has no parameter"),
        ("POST", "/feedback?correct=true", "/feedback has no parameter 'correct'"),
        ("POST", "/admin/alarm/acknowledge?who=me", "/admin/alarm/acknowledge has no parameter 'who'"),
    ],
)
def test_no_route_overlooks_a_parameter(client: Client, method: str, path: str, words: str) -> None:
    answer = client.get(path) if method == "GET" else client.post(path, json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_parameter")
    assert words in answer.json()["error"]["message"]


def test_unknown_versions_list_the_known(client: Client, models: Path) -> None:
    version = open_models(models).default().name
    assert client.report(model="tiny", version=version)["version"] == version
    for code, query in (
        ("unknown_model", {"model": "x"}),
        ("unknown_model", {"model": "x", "version": version}),
        ("unknown_version", {"version": "x"}),
        ("unknown_version", {"model": "tiny", "version": "x"}),
    ):
        for path in ("/calibration-report", "/admin/labelled.npz"):
            answer = client.get(path, params=query)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)
            assert f"known are tiny/{version}" in answer.json()["error"]["message"]


def test_an_older_version_keeps_its_report_and_takes_labels(client: Client, settings: Settings, tmp_path: Path) -> None:
    old = client.predict(pictures(5))
    first = client.report()["version"]
    open_models(settings.models).publish(write_bundle(tmp_path / "second", seed=7))
    with Client(create_app(settings)) as newer:
        newer.predict(pictures(2))
        newer.label([{"id": p["id"], "index": 0} for p in old])
        assert (newer.report()["answers"], newer.report()["labelled"]) == (2, 0)
        before = newer.report(version=first)
        assert (before["answers"], before["labelled"]) == (5, 5)
        assert before["ece"] is not None


def test_percent_never_rounds_to_certainty() -> None:
    assert [whole_percent(x) for x in (0, 1e-5, 0.005, 0.83, 0.995, 0.99999, 1)] == [
        "0%",
        "under 0.1%",
        "0.5%",
        "83%",
        "99.5%",
        "over 99.9%",
        "100%",
    ]


def test_the_example_bears_the_verdict_out() -> None:
    """One bin is under-confident and stands out, but the model as a whole is over-confident."""
    confidence = np.concatenate([np.full(200, c) for c in (0.5, 0.55, 0.62, 0.69, 0.75, 0.82, 0.89, 0.95)])
    right = np.concatenate([np.arange(200) < 200 * (c - 0.12) for c in (0.5, 0.55, 0.62, 0.69, 0.75, 0.82, 0.89, 0.95)])
    confidence = np.concatenate([confidence, np.full(300, 0.3)])
    right = np.concatenate([right, np.arange(300) < 138])
    sums = CalibrationSums.from_top(confidence, right, nll_N=np.ones(1900), brier_N=np.ones(1900))
    report = report_of("m", "v", stored(sums))
    assert report.verdict == "leans_over_confident"
    assert "When it says 30%" not in report.headline and "over-confident" in report.headline


def test_the_page_shows_the_level_and_no_offline_value_of_other_bins(client: Client) -> None:
    page = client.get("/calibration-report", params={"level": 0.999, "bins": 100, "format": "html"}).text
    assert "99.9% intervals" in page and "100% interval" not in page
    assert "bins=100&amp;level=0.999" in page


def test_a_limit_of_the_ece_alone_is_said_to_be_none() -> None:
    """In the schema of every model that has one, in the report's own words and in the docstrings."""
    models = {**Report.model_json_schema()["$defs"], "Report": Report.model_json_schema()}
    with_limits = {name for name, model in models.items() if {"ece_lower", "ece_upper"} <= model["properties"].keys()}
    assert with_limits == {"AtLeastFigures", "PositiveFigures", "Report", "TrendPoint", "WeightedFigures"}
    descriptions = [models[name]["properties"][f"ece_{side}"] for name in with_limits for side in ("lower", "upper")]
    descriptions += [models["Ece"]["properties"][side] for side in ("lower", "upper")]
    assert all(
        "one limit alone of a 95% interval is not a 97.5% limit" in field["description"] for field in descriptions
    )
    words = make(labelled(600, lambda c: c)).estimands
    assert all(
        "the confidence level holds for both limits together, not for one alone" in words[f"ece_{side}"]
        for side in ("lower", "upper")
    )
    assert "The lower limit alone is not a 97.5% limit" in (metrics.ece_interval.__doc__ or "")
