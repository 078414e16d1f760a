"""Versions with a promise to act alone: every door answers the decision, and the promise is watched by its labels."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trueodds
from service.alarm import PROMISE
from service.app import create_app
from service.models.acting import is_audited
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.conftest import Serve
from tests.service.hooks import Hook, until
from tests.service.tiny_bundle import CLASSES, pictures, write_bundle
from trueodds.bundle import ActAlone, Bundle, open_models
from trueodds.cli.threshold import document_of
from trueodds.client.responses import Predictions

TEXT = "threshold=.8,risk=.05,confidence=.95"
HALF = ActAlone.of_text(TEXT)
BY_TAG = HALF.model_copy(update={"tags": {"easy": 0.6, "hard": None}})
LINES = {"content-type": "application/x-ndjson", "accept": "application/x-ndjson"}


def infer(client: Client, count: int, **body: Any) -> dict[str, Any]:
    tensor = {"name": "images", "shape": [count, 4, 4, 1], "datatype": "UINT8", "data": pictures(count)}
    tree: dict[str, Any] = client.send("/v2/models/tiny/infer", {"inputs": [tensor], **body})
    return tree


def observe(client: Client, rows: list[dict[str, Any]], **query: Any) -> dict[str, Any]:
    whose = {"model": "mail", "version": "7", "classes": "ham,spam", **query}
    tree: dict[str, Any] = client.send("/observe", {"observations": rows}, **whose)
    return tree


def rows(confidences: list[float], start: int = 0) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "probabilities": [p, 1 - p]} for n, p in enumerate(confidences, start)]


def test_predict_says_of_each_answer_whether_it_acts(serve: Serve) -> None:
    client = serve(act_alone=HALF)
    answered = client.predict(pictures(60))
    assert {p["decision"] for p in answered} == {"act", "escalate"}
    for p in answered:
        assert p["decision"] == ("act" if p["confidence"] >= 0.8 else "escalate") and "audit" not in p
    stored = client.get(f"/predictions/{answered[0]['id']}").json()
    assert stored["decision"] == answered[0]["decision"] and stored["audit"] is None
    table = list(csv.DictReader(io.StringIO(client.get("/predictions").text)))
    assert {row["id"]: row["decision"] for row in table} == {p["id"]: p["decision"] for p in answered}
    acted = sum(p["decision"] == "act" for p in answered)
    part = client.report()["acting"]
    assert (part["answers"], part["acted"], part["share"]) == (60, acted, acted / 60)
    assert part["share_lower"] < part["share"] < part["share_upper"] and part["risk"] is None


def test_a_version_without_a_promise_decides_nothing(serve: Serve) -> None:
    client = serve({"audit_share": 0.5})
    answered = client.predict(pictures(5))
    assert all("decision" not in p and "audit" not in p for p in answered)
    stored = client.get(f"/predictions/{answered[0]['id']}").json()
    assert stored["decision"] is None and stored["propensity"] is None
    assert client.report()["acting"] is None
    assert "trueodds_acting_share{" not in client.get("/metrics").text
    assert "decision" not in client.get("/predictions").text.splitlines()[0]
    assert [output["name"] for output in infer(client, 2)["outputs"]] == ["prediction_id", "label", "probabilities"]


def test_a_tag_has_its_own_threshold_and_may_never_act(serve: Serve) -> None:
    client = serve(act_alone=BY_TAG)
    for tag, threshold in (("easy", 0.6), ("hard", math.inf), ("other", 0.8), (None, 0.8)):
        answer = client.post("/predict", json={"instances": pictures(20), "tags": [tag] * 20}).json()["predictions"]
        for p in answer:
            assert p["decision"] == ("act" if p["confidence"] >= threshold else "escalate"), tag
    counted = client.report()["acting"]["acted"]
    table = list(csv.DictReader(io.StringIO(client.get("/predictions").text)))
    assert counted == sum(row["decision"] == "act" for row in table) > 0


def test_an_id_that_is_sent_again_gets_the_decision_of_its_stored_answer(serve: Serve) -> None:
    """The tag and the propensity of the first call count, not those of the second."""
    client = serve({"audit_share": 0.5}, act_alone=BY_TAG)
    ids = [f"own-{n}" for n in range(20)]
    first = {"instances": pictures(20), "ids": ids, "tags": ["easy"] * 20}
    before = client.post("/predict", json=first).json()["predictions"]
    again = client.post("/predict", json={**first, "tags": ["hard"] * 20}).json()["predictions"]
    keys = ("decision", "audit", "confidence")
    assert [{key: p.get(key) for key in keys} for p in again] == [{key: p.get(key) for key in keys} for p in before]
    assert all(p["repeated"] for p in again) and {p["decision"] for p in before} == {"act", "escalate"}


def test_the_open_inference_protocol_has_the_decision_as_an_output(serve: Serve) -> None:
    client = serve({"audit_share": 0.5}, act_alone=HALF)
    answer = infer(client, 200)
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    confidence_N = np.array(outputs["probabilities"]).reshape(200, len(CLASSES)).max(axis=1)
    assert outputs["decision"] == ["act" if c >= 0.8 else "escalate" for c in confidence_N]
    audited = [n for n, id_ in enumerate(outputs["prediction_id"]) if is_audited(id_, 0.5)]
    expected = [{"row": n} for n in audited if outputs["decision"][n] == "act"]
    assert expected and answer["parameters"]["audit"] == expected
    only = infer(client, 3, outputs=[{"name": "decision"}])["outputs"]
    assert [output["name"] for output in only] == ["decision"]
    named = [output["name"] for output in client.get("/v2/models/tiny").json()["outputs"]]
    config = [output["name"] for output in client.get("/v2/models/tiny/config").json()["output"]]
    assert "decision" in named and named == config


def test_observed_answers_get_the_decision_in_json_and_in_lines(serve: Serve) -> None:
    client = serve()
    summary = observe(client, rows([0.9, 0.7, 0.8]), act_alone=TEXT)
    assert [(d["id"], d["decision"]) for d in summary["decisions"]] == [
        ("r0", "act"),
        ("r1", "escalate"),
        ("r2", "act"),
    ]
    body = "".join(json.dumps(row) + "\n" for row in rows([0.95, 0.6], 3))
    lines = client.post("/observe", content=body, headers=LINES, params={"model": "mail", "version": "7"})
    assert [json.loads(line)["decision"] for line in lines.text.splitlines()] == ["act", "escalate"]
    report = client.report(model="mail")["acting"]
    assert (report["answers"], report["acted"], report["threshold"]) == (5, 3, 0.8)
    repeated = observe(client, rows([0.9]))
    assert repeated["already_known"] == 1 and repeated["decisions"] == [{"id": "r0", "decision": "act"}]
    assert "decisions" not in observe(client, rows([0.9], 9), version="8")


def test_a_json_body_takes_what_the_threshold_command_writes(serve: Serve) -> None:
    confidence_N = np.linspace(0.9, 1, 200)
    found = trueodds.threshold(confidence_N, np.ones(200), groups_N=["day", ""] * 100)
    document = document_of(found, "answers.csv", by="tag", costs=None)
    document["groups"][0]["group"] = "(no tag)"  # as the command names it
    tagged = [{**row, "tag": tag} for row, tag in zip(rows([0.95, 0.95, 0.95]), ["day", None, "new"], strict=True)]
    body = {"observations": tagged, "model": "mail", "version": "7", "classes": ["ham", "spam"], "act_alone": document}
    decisions = serve().post("/observe", json=body).json()["decisions"]
    assert [d["decision"] for d in decisions] == ["act", "act", "escalate"]
    body["act_alone"] = {"threshold": 0.9, "risk": 0.05, "confidence": 0.95, "tagz": {"new": None}}
    answer = serve().post("/observe", json=body)
    assert answer.status_code == 422 and "has the key 'tagz', which is unknown" in answer.json()["error"]["message"]


def test_an_observed_version_keeps_the_promise_of_its_first_answer(serve: Serve) -> None:
    client = serve()
    observe(client, rows([0.9]), act_alone=TEXT)
    other = {"model": "mail", "version": "7", "act_alone": "threshold=.5,risk=.05,confidence=.95"}
    answer = client.post("/observe", json={"observations": rows([0.9], 1)}, params=other)
    assert answer.status_code == 422 and "a version keeps what its first answer gave" in answer.text
    same = {**HALF.model_dump(), "labels": 90, "acted": 80, "wrong": 1}  # the same promise, and what it rests on
    body = {"observations": rows([0.9], 2), "model": "mail", "version": "7", "act_alone": same}
    assert client.post("/observe", json=body).json()["stored"] == 1
    answer = client.post("/observe", json={"observations": rows([0.9], 1)}, params={**other, "act_alone": "risk=.1"})
    assert answer.status_code == 422 and "lacks threshold and confidence" in answer.json()["error"]["message"]
    body = {"observations": rows([0.7], 5), "model": "mail", "version": "9", "act_alone": HALF.model_dump()}
    assert client.post("/observe", json=body).json()["decisions"] == [{"id": "r5", "decision": "escalate"}]


def test_the_audit_asks_for_a_random_share_of_what_acts_and_states_propensities(serve: Serve) -> None:
    client = serve({"audit_share": 0.25}, act_alone=HALF)
    answered = [p for seed in range(8) for p in client.predict(pictures(200, seed=seed))]
    acting = [p for p in answered if p["decision"] == "act"]
    assert all("audit" not in p for p in answered if p["decision"] == "escalate")
    share = np.mean([p["audit"] for p in acting])
    assert abs(share - 0.25) < 4 * math.sqrt(0.25 * 0.75 / len(acting))
    table = {row["id"]: row for row in csv.DictReader(io.StringIO(client.get("/predictions").text))}
    for p in answered:
        row = table[p["id"]]
        assert float(row["propensity"]) == (0.25 if p["decision"] == "act" else 1.0)
        assert row["audit"] == ("" if "audit" not in p else str(p["audit"]).lower())
    own = client.post("/predict", json={"instances": pictures(30), "propensities": [0.5] * 30}).json()["predictions"]
    assert all("audit" not in p for p in own)  # the caller chooses the labels


def test_a_broken_promise_is_found_told_once_and_reported(tmp_path: Path, hook: Hook) -> None:
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle", act_alone=HALF))
    settings = Settings(
        models=tmp_path / "models",
        store=tmp_path / "store.sqlite",
        threads=1,
        alarm_webhook=hook.url,
        alarm_tolerance=0.49,
    )
    with Client(create_app(settings)) as client:
        for seed in range(3):
            acting = [p for p in client.predict(pictures(60, seed=seed)) if p["decision"] == "act"]
            client.label([{"id": p["id"], "index": (p["index"] + 1) % len(CLASSES)} for p in acting])
        until(lambda: client.report()["acting"]["alarm"]["state"] == "fired")
        part = client.report()["acting"]
        assert part["wrong"] == part["labels"] == part["alarm"]["fired_after"] or part["alarm"]["fired_after"] < 20
        assert "ALARM: the promise is broken" in part["reading"] and part["risk_lower"] > 0.05
        until(lambda: any(b["type"] == "promise-broken" for b in (call.body for call in hook.calls)))
        page = client.get("/calibration-report", headers={"accept": "text/html"}).text
        assert "Promise broken" in page and "Escalate all answers." in page
        assert "The promise is broken" in page and "of the answers act alone" in page
        metrics = client.get("/metrics").text
        assert 'trueodds_acting_broken{model="tiny"' in metrics and "trueodds_acting_risk_lower{" in metrics
        broken = [b for b in (call.body for call in hook.calls) if b["type"] == "promise-broken"]
        assert broken[0]["null"] == "promise" and broken[0]["promised_risk"] == 0.05


def test_models_shows_the_promise(serve: Serve) -> None:
    (model,) = serve(act_alone=HALF).get("/models").json()["models"]
    assert model["versions"][0]["act_alone"]["threshold"] == 0.8
    (model,) = serve().get("/models").json()["models"]
    assert "act_alone" not in model["versions"][0]


def test_voided_labels_leave_the_evidence(serve: Serve) -> None:
    client = serve(act_alone=HALF)
    acting = [p for p in client.predict(pictures(120)) if p["decision"] == "act"]
    client.post(
        "/feedback",
        json={"labels": [{"id": p["id"], "index": (p["index"] + 1) % len(CLASSES)} for p in acting]},
        headers={"x-import-id": "wrong-file"},
    )
    until(lambda: client.report()["acting"]["labels"] == len(acting))
    body = {"import_id": "wrong-file", "who": "Ada", "why": "another file"}
    assert client.post("/admin/labels/void", json=body).status_code == 200
    part = client.report()["acting"]
    assert part["labels"] == 0 and part["alarm"]["state"] == "quiet"


def test_the_client_reads_the_decisions(serve: Serve) -> None:
    client = serve({"audit_share": 1.0}, act_alone=HALF)
    tree = client.post("/predict", params={"classes": True}, json={"instances": pictures(30)}).json()
    read = Predictions.read([tree])
    assert read.acts_N is not None and read.audit_N is not None
    assert (read.acts_N == (read.confidence_N >= 0.8)).all() and (read.audit_N == read.acts_N).all()
    plain = serve().post("/predict", params={"classes": True}, json={"instances": pictures(3)}).json()
    assert Predictions.read([plain]).acts_N is None


def test_an_audit_that_is_over_before_the_first_label_is_remembered(tmp_path: Path) -> None:
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle", act_alone=HALF))
    settings = Settings(models=tmp_path / "models", store=tmp_path / "store.sqlite", threads=1)
    with Client(create_app(settings.model_copy(update={"audit_share": 0.02}))) as client:
        acting = [p for p in client.predict(pictures(200)) if p["decision"] == "act"]
        version = client.get("/models").json()["models"][0]["default"]
        until(lambda: client.run(client.app.state.runtime.store.read_state("tiny", version, PROMISE)) is not None)
    with Client(create_app(settings)) as client:
        complaints = [p for p in acting if not p["audit"]]
        client.label([{"id": p["id"], "index": (p["index"] + 1) % len(CLASSES)} for p in complaints])
        until(lambda: client.report()["acting"]["left_out"] == len(complaints) > 5)
        part = client.report()["acting"]
        assert part["alarm"]["state"] == "quiet" and "none of them has a label that counts" in part["reading"]


def test_the_propensity_floor_follows_the_audit() -> None:
    assert Settings(audit_share=0.02).alarm_propensity_floor == 0.02
    assert Settings(audit_share=0.2).alarm_propensity_floor == 0.05
    assert Settings(audit_share=0.02, alarm_propensity_floor=0.1).alarm_propensity_floor == 0.1
    with pytest.raises(ValueError, match="audit_share"):
        Settings.model_validate({"audit_share": "much"})


def test_a_promise_makes_a_new_version_and_its_shadow_none(tmp_path: Path) -> None:
    bundle = Bundle.load(write_bundle(tmp_path / "bundle"))
    promised = bundle.promising(HALF, tmp_path / "promised")
    assert promised.version != bundle.version and promised.card.act_alone == HALF
    assert "at most 5% of them are wrong" in (promised.directory / "MODEL_CARD.md").read_text()
    assert promised.promising(None, tmp_path / "again").version == bundle.version
    assert PROMISE == "promise"
