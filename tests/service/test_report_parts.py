"""Windows, classes, tags, versions and the trend over HTTP; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.alarm import ALARM
from service.alarm.watch import taking
from service.app import create_app
from service.report.recent import RecentLabels
from service.settings import Settings
from service.store import open_store
from service.store.rows import Label
from tests.service.app_client import Client
from tests.service.store.rows import START, batch, version
from tests.service.tiny_bundle import CLASSES, change_card, pictures, write_bundle
from trueodds.bundle import Reference, open_models
from trueodds.reports.schemas import NO_TAG
from trueodds.sums.hours import HOUR_MS

NOW = datetime.now(UTC)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Client]:
    """A service with 90 answers, two thirds of them labelled; tags t0 and t1, or none."""
    bundle = write_bundle(tmp_path / "bundle")
    change_card(bundle, reference=Reference.of(np.linspace(0.3, 1, 200)).model_dump())
    open_models(tmp_path / "models").publish(bundle)
    settings = Settings(models=tmp_path / "models", store=tmp_path / "s.sqlite", threads=1)
    with Client(create_app(settings)) as client:
        tags = [(None, "t0", "t1")[k % 3] for k in range(90)]
        answer = client.post("/predict", json={"instances": pictures(90), "tags": tags})
        predictions = answer.json()["predictions"]
        client.label([{"id": p["id"], "index": k % 4} for k, p in enumerate(predictions) if k % 9 < 6])
        yield client


def test_windows_classes_and_tags_add_up(filled: Client) -> None:
    client = filled
    whole = client.report(by="class")
    assert (whole["answers"], whole["labelled"], whole["tags"], whole["trend"]) == (90, 60, None, None)
    assert whole["labelling"]["drift"]["validation_rows"] == 200
    classes = {row["name"]: row for row in whole["classes"]}
    assert sum(row["answers"] for row in classes.values()) == 90
    for name, row in classes.items():
        assert name in CLASSES
        part = client.report(**{"class": name})
        for field in ("answers", "labelled", "accuracy", "ece", "floor_p95", "signed_gap", "accuracy_upper"):
            assert part[field] == pytest.approx(row[field]), field
        assert part["window"]["predicted_class"] == name
        assert f"of class {name}" in part["estimands"]["population"]
    tags = {row["name"]: row for row in client.report(by="tag")["tags"]}
    assert {name: row["answers"] for name, row in tags.items()} == {NO_TAG: 30, "t0": 30, "t1": 30}
    for name, row in tags.items():
        assert client.report(tag=name)["labelled"] == row["labelled"]
    tomorrow = NOW.replace(year=NOW.year + 1).isoformat()
    assert client.report(since=NOW.date().isoformat())["labelled"] == 60
    after = client.report(since=tomorrow)
    assert (after["answers"], after["verdict"]) == (0, "no_answers")
    assert f"no answers given from {NOW.year + 1}" in after["headline"]
    between = client.report(since=tomorrow, until=f"{NOW.year + 2}-01-01")
    assert f" UTC to before {NOW.year + 2}-01-01 00:00 UTC: " in between["headline"]
    assert client.report(until=tomorrow, tag="t0")["window"]["until"].startswith(str(NOW.year + 1))


def test_a_class_and_a_tag_together(filled: Client) -> None:
    """Of each class, the answers of its tags add up; on all cells, with the trend and the word on corrections."""
    client, tags = filled, ("t0", "t1", NO_TAG)
    for name in CLASSES:
        whole = client.report(**{"class": name})
        parts = [client.report(**{"class": name, "tag": tag, "trend": "auto"}) for tag in tags]
        for field in ("answers", "labelled", "corrected"):
            assert sum(part[field] for part in parts) == whole[field]
        for part, tag in zip(parts, tags, strict=True):
            assert (part["window"]["predicted_class"], part["window"]["tag"]) == (name, tag)
            assert sum(p["answers"] for p in part["trend"]["points"]) == part["answers"]
            assert part["versions"] == [] and part["labelling"]["drift"] is None
    fine = client.report(**{"class": CLASSES[0], "tag": "t0", "bins": 100})
    assert len(fine["bins"]) == 100, "rows are counted on all cells"
    html = client.get("/calibration-report", params={"class": CLASSES[0], "tag": "t0", "format": "html"}).text
    assert f"only answers <b>{CLASSES[0]}</b>; only tag <b>t0</b>" in html
    (one,) = client.predict(pictures(1))
    client.run(client.app.state.runtime.store.delete_prediction(client.report()["model"], one["id"]))
    query = {"class": one["label"], "tag": NO_TAG}
    refused = client.get("/calibration-report", params=query)
    message = refused.json()["error"]["message"]
    assert refused.status_code == 422 and "are still stored" in message and "only one of the two" in message


def test_the_labels_that_arrived_last(filled: Client) -> None:
    client = filled
    everything, last = client.report(), client.report(last=100_000)
    for field in ("labelled", "ece", "ece_upper", "nll", "brier", "smooth_ece", "accuracy"):
        assert last[field] == pytest.approx(everything[field]), field
    assert (last["coverage"], last["labelling"]["choice"]) == (None, None)
    assert last["signed_gap_lower"] < last["signed_gap"] < last["signed_gap_upper"]
    ten = client.report(last=10)
    assert (ten["labelled"], ten["window"]["last"], ten["answers"]) == (10, 10, 90)
    assert ten["headline"].startswith("The 10 labels that arrived last.")


def test_a_young_version_has_a_trend_by_minute(filled: Client) -> None:
    trend = filled.report(trend="auto")["trend"]
    assert trend["unit"] == "minute" and sum(p["answers"] for p in trend["points"]) == 90
    assert sum(p["answers"] for p in filled.report(trend="minute", tag="t0")["trend"]["points"]) == 30
    store, served = filled.app.state.runtime.store, filled.report()
    of, now = version(served["version"], served["model"], CLASSES), int(NOW.timestamp() * 1000)
    filled.run(store.put_predictions(batch(2, of, now=now - 4 * HOUR_MS)))
    assert filled.report(trend="auto")["trend"]["unit"] == "hour", "of more than three hours"
    assert filled.report(trend="minute")["trend"]["unit"] == "minute"
    filled.run(store.put_predictions(batch(2, of, now=now - 9 * HOUR_MS)))
    refused = filled.get("/calibration-report", params={"trend": "minute"})
    assert refused.status_code == 422 and "or trend=auto" in refused.json()["error"]["message"]


def test_a_trend_has_the_finest_unit_of_few_points(client: Client) -> None:
    store = client.app.state.runtime.store
    client.predict(pictures(1))
    served = client.report()
    of = version(served["version"], served["model"], CLASSES)

    def trend(**query: Any) -> Any:
        return client.report(model=of.model, version=of.version, **query)["trend"]

    def put(hours: range) -> None:
        for k in hours:
            client.run(store.put_predictions(batch(2, of, now=START + k * HOUR_MS)))

    put(range(3))
    until = datetime.fromtimestamp(START / 1000 + 400 * 86_400, UTC).isoformat()
    assert trend() is None
    points = trend(trend="auto", until=until)
    assert points["unit"] == "hour"
    assert [(p["answers"], p["labelled"], p["ece"]) for p in points["points"]] == [(2, 0, None)] * 3
    put(range(0, 24 * 150, 24 * 5))
    assert trend(trend="auto", until=until)["unit"] == "hour"  # 32 points
    put(range(5, 125))
    by_day = trend(trend="auto", until=until)
    assert by_day["unit"] == "day" and by_day["points"][0]["start"].endswith("T00:00:00Z")
    by_month = trend(trend="month", until=until)
    assert by_month["unit"] == "month" and sum(p["answers"] for p in by_month["points"]) == 2 * (3 + 30 + 120)
    put(range(0, 24 * 31 * 130, 24 * 31))
    long = trend(trend="auto")
    assert long["unit"] == "month" and len(long["points"]) > 120, "no month is left out"
    assert sum(p["answers"] for p in long["points"]) == 1 + 2 * (3 + 30 + 120 + 130)
    ids = batch(3, of, now=START + HOUR_MS)
    client.run(store.put_predictions(ids))
    client.label([{"id": id_, "index": 0} for id_ in ids.ids])
    labelled = [p for p in trend(trend="day", until=until)["points"] if p["labelled"]]
    assert len(labelled) == 1 and labelled[0]["ece_lower"] <= labelled[0]["ece_upper"]


async def test_recent_labels_are_read_once(tmp_path: Path) -> None:
    store, recent, of = await open_store(str(tmp_path / "s.sqlite")), RecentLabels(20), version()
    await store.put_version(of)
    assert len(await recent.labels(store, of)) == 0
    for count in (3, 4, 25, 8, 0):
        answers = batch(max(count, 1), of, seed=count)
        await store.put_predictions(answers)
        await store.put_labels([Label(id_, 0) for id_ in answers.ids[:count]])
        labels, wanted = await recent.labels(store, of), await store.read_labels("m", "v1", last=20)
        assert labels.ids == wanted.ids and labels.tags == wanted.tags
        assert (labels.sequence_L == wanted.sequence_L).all()
        assert (labels.confidence_L == wanted.confidence_L).all()
    await store.put_labels([Label(id_, 1, correct=True) for id_ in (*labels.ids[3:9], *answers.ids)])
    labels, wanted = await recent.labels(store, of), await store.read_labels("m", "v1", last=20)
    assert (labels.label_L == wanted.label_L).all() and (labels.correct_L == wanted.correct_L).all()
    assert (labels.nll_L == wanted.nll_L).all() and (labels.brier_L == wanted.brier_L).all()
    await store.close()


def test_corrections_reach_every_number_but_the_evidence(client: Client, settings: Settings) -> None:
    """The labels that came soonest were all wrong at first: what is corrected counts as it now is, and is counted."""
    store, rng = client.app.state.runtime.store, np.random.default_rng(3)
    client.predict(pictures(1))
    served = client.report()
    of = version(served["version"], served["model"], CLASSES)
    first, now = [], []
    for hour in range(10):
        answers = batch(80, of, now=START + hour * HOUR_MS, seed=hour)
        client.run(store.put_predictions(answers))
        for id_, p, top in zip(answers.ids, answers.probabilities_NC, answers.index_N, strict=True):
            label = int(rng.choice(len(p), p=p / p.sum()))
            now.append(Label(id_, label, correct=True))
            first.append(Label(id_, label if hour < 5 else (int(top) + 1) % len(p)))
    client.run(store.put_labels(first))
    client.run(store.update_state(of.model, of.version, ALARM, taking(settings)))
    wrong = client.report()
    assert wrong["corrected"] == 0 and wrong["advice"]["helps"] == "yes"
    assert wrong["labelling"]["delay"]["warning"] and "corrected" not in wrong["alarm"]["reading"]

    corrected = sum(one.label != other.label for one, other in zip(first, now, strict=True))
    client.run(store.put_labels(now))
    right = client.report()
    weighted = {w["how"]: w for w in right["labelling"]["weighted"]}
    assert (right["corrected"], right["labelled"]) == (corrected, 800) and 250 < corrected < 400
    assert not right["labelling"]["delay"]["warning"]
    assert weighted["propensity"]["accuracy"] == pytest.approx(right["accuracy"], abs=0.03)
    assert (right["advice"]["helps"], right["advice"]["labels"]) != ("yes", 800)
    assert "with their current values" in right["advice"]["basis"] and right["advice"]["log_e"] < 1
    # evidence in the order of arrival is another thing, and says so
    assert [null["log_e"] for null in right["alarm"]["nulls"]] == [null["log_e"] for null in wrong["alarm"]["nulls"]]
    assert "This evidence uses labels as they first arrived" in right["alarm"]["reading"]
    assert client.report(last=80)["corrected"] == sum(
        one.label != other.label for one, other in zip(first[-80:], now[-80:], strict=True)
    )
    assert client.report(until=datetime.fromtimestamp(START / 1000 + 5 * 3600, UTC).isoformat())["corrected"] == 0
    html = client.get("/calibration-report", headers={"accept": "text/html"}).text
    assert f"{corrected} labels were replaced by another class after they first arrived" in html


def test_roles_of_what_can_be_asked_for(client: Client, settings: Settings, tmp_path: Path) -> None:
    client.predict(pictures(1))
    first = client.report()["version"]
    open_models(settings.models).publish(write_bundle(tmp_path / "second", seed=7))
    with Client(create_app(settings)) as newer:
        newer.predict(pictures(2))
        report = newer.report()
        second = report["version"]
        roles = {(k["model"], k["version"]): k["role"] for k in report["known"]}
        assert roles == {("tiny", first): "published", ("tiny", second): "default"}
        assert [(row["name"], row["answers"]) for row in report["versions"]] == [(first, 1), (second, 2)]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("since=yesterday", 422, "since = 'yesterday': allowed is ISO 8601 (2026-03-01T09:30"),
        ("since=1969-12-31", 422, "allowed are times from 1970 to 9999"),
        ("until=9999-12-31T23:59:59", 422, "allowed are the years 1 to 9998"),
        ("since=2026", 422, "since = '2026': a year or Unix seconds; write a date: 2026-01-01"),
        ("since=2026-03-29T02:30+01:00", 422, "URLs turn + into a blank; write %2B instead of +"),
        ("since=2016-12-31T23:59:60Z", 422, "until 2100, a leap second as second 59"),
        ("since=2024-02-01&until=2024-01-01", 422, "since 2024-02-01T00:00:00+00:00 is not before until 2024-01-01"),
        ("last=0", 422, "last = '0'"),
        ("last=100001", 422, "less than or equal to 100000"),
        ("last=5&class=cat&trend=day", 422, "last = 5 with class and trend"),
        ("last=5&since=3&by=tag", 422, "last = 5 with since and by"),
        ("class=cat&bins=100", 422, "with class, tag or by allowed are 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60"),
        ("by=class&bins=25", 422, "bins = 25"),
        ("by=label", 422, "'class', 'tag' or 'confidence_source'"),
        ("binning=depth", 422, "'width' or 'mass'"),
        ("trend=week", 422, "'minute', 'hour', 'day', 'month'"),
        ("class=dig", 404, "tiny has no class 'dig'; it has cat, dog, 3, hare. Did you mean 'dog'?"),
        ("class=cat&tag=nope", 404, "has the tag 'nope'"),
        ("tag=nope", 404, f"has the tag 'nope'; its tags are {NO_TAG}"),
    ],
)
def test_refusals_name_the_cure(client: Client, query: str, status: int, words: str) -> None:
    client.predict(pictures(1))
    answer = client.get(f"/calibration-report?{query}")
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]["message"]
