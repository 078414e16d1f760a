"""The calls of an administrator against a real service: labelled answers, versions, alarms, voiding, removal, keys."""

from __future__ import annotations

import asyncio
import csv
import inspect
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.http import hashed_keys
from tests.client.data import CLASSES, SHAPE, images
from tests.client.relay import Lose, Relay
from tests.service.hooks import until
from tests.service.test_process import server
from tests.service.tiny_bundle import write_bundle
from trueodds.bundle import open_models
from trueodds.client import NO_ANSWER, AsyncClient, CallError, Client, DeleteSummary, Labelled, LabelSummary
from trueodds.errors import ConfigError
from trueodds.processes.choices import ADMIN_KEY, ADMIN_KEY_FILE

SIGNED: dict[str, Any] = {"who": "Ada", "why": "a test"}


def test_labelled_answers_are_logits_in_the_order_of_their_labels(client: Client, relay: Relay, url: str) -> None:
    predictions = client.predict(images(7, seed=21))
    client.feedback(predictions.ids, index=np.arange(7))
    model, version = predictions.model, predictions.version
    rows = client.labelled(model, version, last=7)
    assert rows.labels_N.tolist() == list(range(7)) and rows.logits_NC.shape == (7, len(CLASSES)) and len(rows) == 7
    assert (rows.logits_NC.argmax(axis=1) == predictions.index_N).all() and rows.shadow_logits_NC is None
    assert rows.propensities_N is not None and np.isnan(rows.propensities_N).all()
    later = datetime.now(UTC) + timedelta(days=1)
    assert len(client.labelled(model, version, since=later)) == len(client.labelled("nobody", "1")) == 0
    relay.plan = [Lose(), Lose()]
    with Client(relay.url) as behind:
        assert (behind.labelled(model, version, last=7).logits_NC == rows.logits_NC).all()
    assert len(relay.requests) == 3

    async def awaited() -> Labelled:
        async with AsyncClient(url) as other:
            return await other.labelled(model, version, last=7)

    assert (asyncio.run(awaited()).labels_N == rows.labels_N).all()


def test_versions_and_their_roles(client: Client, folder: Path) -> None:
    client.observe(["v-1"], [[0.9, 0.1]], model="seen", version="3", classes=["a", "b"])
    versions = client.versions()
    (tiny,) = (one for one in versions.models if one.model == "tiny")
    assert tiny.default in tiny.versions and tiny.shadow is tiny.recalibrated is None
    assert versions.observed["seen"] == ("3",) and versions.folder == open_models(folder / "models").identify()
    assert versions.problems == ()


def test_stored_predictions_become_a_file_and_go(client: Client, tmp_path: Path) -> None:
    ids = client.predict(images(3, seed=22), ids=["p/1", "p 2", "p3"], tag="kept").ids
    file = tmp_path / "predictions.csv"
    client.predictions(file, model="tiny", probabilities=True)
    rows = [row for row in csv.DictReader(file.read_text().splitlines()) if row["tag"] == "kept"]
    assert {row["id"] for row in rows} == set(ids) and {row["model"] for row in rows} == {"tiny"}
    before = file.read_bytes()
    with pytest.raises(CallError) as error:
        client.predictions(file, model="nobody")
    assert error.value.code == "unknown_model" and file.read_bytes() == before, "the file of before stays"
    with pytest.raises(OSError, match="none"):
        client.predictions(tmp_path / "none" / "predictions.csv")
    client.predictions(tmp_path / "predictions.parquet", model="tiny")
    assert (tmp_path / "predictions.parquet").read_bytes()[:4] == b"PAR1"
    for id_ in ids:
        assert client.delete(id_) == DeleteSummary(predictions=1, labels=0, held=0)
    with pytest.raises(CallError) as error:
        client.delete("p/1", model="tiny")
    assert (error.value.code, error.value.status) == ("unknown_id", 404)


def test_labels_are_voided(client: Client) -> None:
    began = datetime.now(UTC)
    ids = client.predict(images(4, seed=23)).ids
    client.feedback(ids[:2], [1, 1], import_id="saturday")
    counted = client.void(import_id="saturday", dry_run=True, **SIGNED)
    assert (counted.labels, counted.held) == (2, 0) and "2 labels" in counted.reading
    assert client.void(import_id="saturday", **SIGNED).labels == 2
    client.feedback(ids, [2] * 4)
    assert client.void(since=began, model="tiny", **SIGNED).labels == 4
    assert client.feedback(ids, [3] * 4) == LabelSummary(stored=4)
    with pytest.raises(CallError, match="so no labels are selected"):
        client.void(**SIGNED)


def test_an_alarm_is_acknowledged_and_armed_again(client: Client, folder: Path, tmp_path: Path) -> None:
    model = "alarmed"
    version = open_models(folder / "models").publish(write_bundle(tmp_path / "b", shape=SHAPE, name=model)).name
    until(lambda: model in [one.model for one in client.models()])
    for call, code in ((client.acknowledge, "nothing_to_acknowledge"), (client.rearm, "nothing_to_rearm")):
        with pytest.raises(CallError) as error:
            call(model, version, **SIGNED)
        assert (error.value.code, error.value.status) == (code, 409)
    predictions = client.predict(images(1_500, seed=24), model=model)
    client.feedback(predictions.ids, index=(predictions.index_N + 1) % len(predictions.classes))
    assert client.acknowledge(model, version, **SIGNED).state == "acknowledged"
    again = client.rearm(model, version, who="Ada", why="the camera is replaced")
    assert again.state == "quiet" and again.rearmings[-1].why == "the camera is replaced"


def test_a_recalibration_without_a_decision_is_told(client: Client) -> None:
    assert client.report_no_decision("tiny", None, who="flow run 7", why="the disk is full") == []


def test_any_route_has_the_key_the_tries_and_the_errors(client: Client) -> None:
    assert client.request("GET", "/health/live") == {"status": "live"}
    body = {"labels": [{"id": "nothing-has-it", "label": "1"}]}
    with pytest.raises(CallError) as error:
        client.request("POST", "/feedback", tree=body)
    assert error.value.status == 404 and error.value.request_id
    assert client.page(bins=10).lower().startswith(b"<!doctype html")


@pytest.mark.full
def test_the_admin_key_comes_from_a_file_or_the_environment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, hashed = hashed_keys.make()
    (tmp_path / "key").write_text(f"{key}\n")
    (tmp_path / "models").symlink_to(folder / "models")
    for name in (ADMIN_KEY, ADMIN_KEY_FILE):
        monkeypatch.delenv(name, raising=False)
    with server(tmp_path, "--admin-key-hash", hashed) as (http, _):
        url = str(http.base_url)
        served = Client.from_environment(url).ready()
        assert served is not None
        version = served.version
        with pytest.raises(
            CallError, match=f"answered 401: a key is needed.*Put the key into {ADMIN_KEY} or into a file: --k"
        ):
            Client.from_environment(url).labelled("tiny", version)
        assert len(Client.from_environment(url, tmp_path / "key").labelled("tiny", version)) == 0
        monkeypatch.setenv(ADMIN_KEY, "unknown")
        with pytest.raises(CallError, match="the key is unknown"):
            Client.from_environment(url).delete("a")
        monkeypatch.setenv(ADMIN_KEY_FILE, str(tmp_path / "key"))
        with pytest.raises(CallError, match="no prediction has the id"):
            Client.from_environment(url).delete("a")
    monkeypatch.delenv(ADMIN_KEY_FILE)
    monkeypatch.setenv(ADMIN_KEY, hashed)
    with pytest.raises(ConfigError, match=f"{ADMIN_KEY} holds the key's hash; commands take the key itself"):
        Client.from_environment(url)


def test_whoever_calls_may_give_up_before_the_last_try() -> None:
    reasons: list[str] = []

    def again(reason: str) -> bool:
        reasons.append(reason)
        return len(reasons) < 2

    with Client("http://127.0.0.1:9", tries=50, again=again) as client, pytest.raises(CallError) as error:
        client.ready()
    assert error.value.code == NO_ANSWER and len(reasons) == 2 and "in 2 tries" in str(error.value)
    same = pickle.loads(pickle.dumps(error.value))
    assert (same.code, str(same)) == (NO_ANSWER, str(error.value)), "a flow may keep it"


def test_both_clients_have_the_same_calls_and_say_what_they_return() -> None:
    calls = {name for name in dir(Client) if not name.startswith("_")} - {"close", "from_environment", "url"}
    assert calls == {
        *("acknowledge", "audit", "delete", "feedback", "judge", "labelled", "models", "observe", "observe_decision"),
        *("closed_answers", "draw_label_queue", "label_answers", "label_report", "label_truths", "lease_answers"),
        *("observe_decisions", "page", "predict", "predict_labels", "predictions", "problem"),
        *("ready", "rearm", "report"),
        *("report_no_decision", "request", "versions", "void"),
    }
    for name in calls:
        signature = inspect.signature(getattr(Client, name))
        assert signature == inspect.signature(getattr(AsyncClient, name)) and getattr(Client, name).__doc__
        assert "Steps" not in str(signature.return_annotation)
