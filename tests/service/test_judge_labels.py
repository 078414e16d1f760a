"""Judges' labels beside human ones: each door, the same numbers as offline, and that nothing takes them for human."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.labels import judge_readings
from service.labels.judge_readings import JudgeReadings
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.test_label_queue import CLASSES, observed, post
from trueodds import cli
from trueodds.metrics import powered_mean
from trueodds.reports import ReportOptions
from trueodds.reports.schemas.judge import JudgeFigures

PATH = "/judge-labels"


def judged(truth: dict[str, str], seed: int = 3) -> dict[str, str]:
    """Labels of a judge that errs in one of eight answers."""
    rng = np.random.default_rng(seed)
    return {id_: y if rng.random() > 0.125 else CLASSES[int(rng.integers(3))] for id_, y in truth.items()}


def rows_of(labels: dict[str, str], **more: Any) -> list[dict[str, Any]]:
    return [{"id": id_, "label": name, **more} for id_, name in labels.items()]


def report(client: Client, **query: Any) -> dict[str, Any]:
    return client.report(model="mail", version="7", **query)


def without_judge(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name != "judge"}


def test_estimates_are_those_of_the_same_rows_offline(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Human labels of the queue, with its propensities; the export gives the same figures to the command."""
    truth = observed(client, count=600)
    post(client, "", budget=150)
    ids = [one["id"] for one in post(client, "/lease", count=1000)["answers"]]
    post(client, "/answers", answers=[{"id": id_, "label": truth[id_]} for id_ in ids])
    until(lambda: "No label has been evaluated" not in report(client)["groups"]["reading"])  # so are the alarms
    before, metrics = report(client), human_metrics(client)
    assert before["judge"] is None and "trueodds_judge_accuracy{" not in client.get("/metrics").text
    labels = judged(truth)
    sent = client.post(PATH, json={"labels": rows_of(labels), "model": "mail"})
    assert (sent.status_code, sent.json()) == (200, {"stored": 600, "already_known": 0, "replaced": 0})
    live = report(client)
    assert without_judge(live) == without_judge(before), "no other number reads a judge's label"
    assert human_metrics(client) == metrics
    figures = JudgeFigures.model_validate(live["judge"])
    assert figures.accuracy is not None and figures.signed_gap is not None
    assert (figures.answers, figures.judge_labels, figures.labels) == (600, 600, len(ids))
    assert figures.accuracy.upper - figures.accuracy.lower < figures.accuracy.human_upper - figures.accuracy.human_lower
    # The same rows offline, by the command and by the metric
    table = client.get("/predictions", params={"model": "mail", "version": "7"}).text
    (tmp_path / "answers.csv").write_text(table)
    out = tmp_path / "offline.json"
    words = ["report", str(tmp_path / "answers.csv"), "--judge", "judge_label", "--json", str(out)]
    assert cli.main("trueodds", cli.COMMANDS, words) == 0
    capsys.readouterr()
    assert in_order(json.loads(out.read_text())["judge"]) == in_order(live["judge"])
    stored = list(csv.DictReader(io.StringIO(table)))
    human = [float(row["label"] == row["predicted"]) if row["label"] else np.nan for row in stored]
    judge = [float(row["judge_label"] == row["predicted"]) for row in stored]
    chances = [float(row["propensity"]) if row["propensity"] else np.nan for row in stored]
    assert figures.accuracy.value == powered_mean(human, judge, propensity_N=chances).value
    # The page and /metrics
    page = client.get("/calibration-report", params={"model": "mail", "version": "7", "format": "html"}).text
    assert "What do human labels and a judge tell together?" in page and "labels of the judge in" in page
    shown = judge_gauges(client)
    assert shown["judge_accuracy"] == figures.accuracy.value and shown["judge_labels"] == 600
    assert shown["judge_signed_gap_lower"] == figures.signed_gap.lower and shown["judge_agreement"] == figures.agreement
    assert report(client, last=50)["judge"] is None and report(client, tag="day")["judge"] is None
    # A judge that is run again
    again = judged(truth, seed=4)
    changed = sum(again[id_] != labels[id_] for id_ in labels)
    text = "id,label\n" + "".join(f"{id_},{name}\n" for id_, name in again.items())
    summary = client.post(PATH, content=text, headers={"content-type": "text/csv"}).json()
    assert (summary["rows"], summary["replaced"], summary["already_known"]) == (600, changed, 600 - changed)
    assert judge_gauges(client)["judge_accuracy"] != shown["judge_accuracy"], "the kept figures are not stale"


def in_order(judge: dict[str, Any]) -> dict[str, Any]:
    """Sort classes and confusions by name: a table does not know the order of the service's classes."""
    by_name = sorted(judge["classes"], key=lambda one: one["name"])
    return judge | {"classes": by_name, "confusions": sorted(judge["confusions"], key=json.dumps)}


def human_metrics(client: Client) -> list[str]:
    names = ("trueodds_labels", "trueodds_ece", "trueodds_alarm", "trueodds_accuracy", "trueodds_answers")
    return [line for line in client.get("/metrics").text.splitlines() if line.startswith(names)]


def judge_gauges(client: Client) -> dict[str, float]:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith("trueodds_judge_")]
    named = [line.rpartition(" ") for line in lines]
    return {name.partition("{")[0].removeprefix("trueodds_"): float(value) for name, _, value in named}


def test_a_judge_alone_labels_nothing(client: Client) -> None:
    truth = observed(client)
    assert client.post(PATH, json={"labels": rows_of(truth)}).status_code == 200
    live = report(client)
    assert live["labelled"] == 0 and "Estimates need 30 human labels; there are 0." in live["judge"]["reading"]
    assert client.get("/admin/labelled.npz", params={"model": "mail", "version": "7"}).status_code == 404
    one = client.get("/predictions/m1-0").json()
    assert (one["label"], one["judge_label"]) == (None, truth["m1-0"])
    drawn = post(client, "", budget=50)
    assert drawn["answers"] == 400, "a person may still label each of them"


def test_refusals_store_nothing_and_lines_store_each(client: Client) -> None:
    observed(client, count=10)
    good = {"id": "m1-0", "label": "ham"}
    for bad, status, code in (
        ({"id": "m1-99", "label": "ham"}, 404, "unknown_id"),
        ({"id": "m1-1", "label": "eggs"}, 422, "unknown_class"),
        ({"id": "m1-1", "label": "ham", "model": "other"}, 404, "unknown_id"),
        ({"id": "m1-1", "label": "ham", "judge": "gpt"}, 422, "bad_row"),
    ):
        sent = client.post(PATH, json={"labels": [good, bad]})
        assert sent.status_code == status, sent.text
        assert code in sent.text or status == 422
    assert client.get("/predictions/m1-0").json()["judge_label"] is None
    body = '{"id": "m1-0", "label": "ham"}\n{"id": "m1-99", "label": "ham"}\n{"id": "m1-1", "index": 2}\n'
    kinds = {"content-type": "application/x-ndjson"}
    summary = client.post(PATH, content=body, headers=kinds).json()
    assert (summary["stored"], summary["failed"], summary["problems"][0]["code"]) == (2, 1, "unknown_id")
    assert client.get("/predictions/m1-1").json()["judge_label"] == "other"
    refused = client.post("/feedback", json={"labels": [{**good, "source": "judge"}]})
    assert refused.status_code == 422 and "send a judge's labels to POST /judge-labels" in refused.text


def test_deletion_reaches_it(client: Client) -> None:
    truth = observed(client, count=5)
    client.post(PATH, json={"labels": rows_of(truth)})
    assert client.delete("/predictions/m1-0", params={"model": "mail"}).status_code == 200
    observed(client, count=5)
    assert client.get("/predictions/m1-0").json()["judge_label"] is None, "its judge's label is gone as well"
    assert client.get("/predictions/m1-1").json()["judge_label"] == truth["m1-1"]


def test_kept_figures_follow_what_no_count_of_labels_shows(client: Client) -> None:
    """A voided correction restores an earlier label: as many labels, and the last correction stays."""
    truth = observed(client, count=60)
    client.post(PATH, json={"labels": rows_of(truth)})
    client.post("/feedback", json={"labels": rows_of(truth)})
    other = {id_: next(name for name in CLASSES if name != truth[id_]) for id_ in ("m1-0", "m1-1")}
    for id_, name in other.items():
        sent = client.post("/feedback", json={"labels": rows_of({id_: name}, correct=True), "import_id": f"of-{id_}"})
        assert sent.json()["corrected"] == 1
    both = judge_gauges(client)
    assert (
        client.post("/admin/labels/void", json={"import_id": "of-m1-0", "who": "Ada", "why": "wrong"}).status_code
        == 200
    )
    live, shown = report(client)["judge"], judge_gauges(client)
    assert shown["judge_agreement"] == live["agreement"] != both["judge_agreement"]
    assert shown["judge_accuracy"] == live["accuracy"]["value"]


def test_too_many_answers_are_counted_and_not_estimated(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_readings, "MOST_ANSWERS", 100)
    truth = observed(client, count=400)
    client.post(PATH, json={"labels": rows_of({f"m1-{k}": truth[f"m1-{k}"] for k in range(390)})})
    client.post("/feedback", json={"labels": rows_of({f"m1-{k}": truth[f"m1-{k}"] for k in range(350)})})
    judge = report(client)["judge"]
    assert (judge["answers"], judge["judge_labels"], judge["labels"], judge["accuracy"]) == (400, 390, 350, None)
    assert judge["reading"].startswith("There are more than 100 answers.")
    assert judge_gauges(client) == {"judge_labels": 390}


def test_a_time_without_a_label_of_the_judge(client: Client) -> None:
    """The cure for a table, another --judge, is none for a service."""
    truth = observed(client, count=40)
    client.post(PATH, json={"labels": rows_of(truth)})
    judge = report(client, until="2020-01-01")["judge"]
    assert (judge["answers"], judge["reading"]) == (0, "No answer of this time has a label of the judge.")


def test_figures_without_estimates_count_the_human_labels(client: Client) -> None:
    truth = observed(client, count=80)
    some = {id_: truth[id_] for id_ in list(truth)[:40]}
    client.post(PATH, json={"labels": rows_of(some)})
    client.post("/feedback", json={"labels": rows_of(some)})
    judge = report(client)["judge"]
    assert (judge["labels"], judge["accuracy"]) == (40, None)
    assert "the judge labelled only answers with a human label" in judge["reading"]


def test_a_key_of_judges_is_refused_with_its_cure(client: Client) -> None:
    observed(client, count=2)
    for path in (PATH, "/feedback"):
        message = client.refusal(path, {"id": "m1-0", "label": "ham", "judge": "gpt"})
        assert (
            "unknown key 'judge'" in message
            and "send a judge's labels to POST /judge-labels, without this key" in message
        )


def test_a_human_label_without_propensity_is_left_out_in_words_of_a_service(client: Client) -> None:
    truth = observed(client, count=300, propensity=0.5)
    more = observed(client, count=1, seed=2)
    client.post(PATH, json={"labels": rows_of(truth | more)})
    client.post("/feedback", json={"labels": rows_of({id_: truth[id_] for id_ in list(truth)[:60]} | more)})
    judge = report(client)["judge"]
    assert judge["labels"] == 60
    assert judge["reading"].endswith("1 human label has no propensity, so these figures leave it out.")


def test_figures_are_read_again_after_ten_minutes(client: Client) -> None:
    """Retention removes answers, and no count of labels shows it."""
    truth, now = observed(client, count=40), [0.0]
    client.post(PATH, json={"labels": rows_of(dict(list(truth.items())[:30]))})
    client.app.state.judges = JudgeReadings(clock=lambda: now[0])
    store, version = client.app.state.runtime.store, client.run(client.app.state.runtime.store.read_versions())

    def answers() -> int:
        (mail,) = (one for one in version if one.model == "mail")
        figures = client.run(client.app.state.judges.of_all(store, mail, ReportOptions(), (40, 0)))
        return int(figures.answers)

    assert answers() == 40
    client.delete("/predictions/m1-39", params={"model": "mail"})
    now[0] = 599.0
    assert answers() == 40, "kept"
    now[0] = 600.0
    assert answers() == 39
