"""The closed loop: drift -> alarm -> webhook -> flow -> a version that is calibrated again -> and back."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.conftest import run
from tests.flows.conftest import Prefect, wait_for
from tests.service.test_process import server
from tests.service.tiny_bundle import SHAPE, write_bundle
from trueodds.bundle import ModelFolder
from trueodds.metrics import softmax

pytestmark = pytest.mark.full
SERVED, DRIFTED = 1.7, 4.0
"""Temperatures: of the served calibrator, and of what is true after the drift."""


class Traffic:
    """Questions whose true labels are drawn from softmax(logits / temperature)."""

    def __init__(self, client: httpx.Client) -> None:
        self.client, self.rng = client, np.random.default_rng(3)

    def send(self, count: int, temperature: float) -> None:
        for _ in range(count // 100):
            images = self.rng.integers(0, 256, (100, *SHAPE)).tolist()
            answer = self.client.post("/predict?logits=true", json={"instances": images}).raise_for_status().json()
            p_NC = softmax(np.array([p["logits"] for p in answer["predictions"]]) / temperature)
            label_N = (p_NC.cumsum(axis=1) < self.rng.random((100, 1))).sum(axis=1)
            rows = [{"id": p["id"], "label": int(y)} for p, y in zip(answer["predictions"], label_N, strict=True)]
            self.client.post("/feedback", json={"labels": rows}).raise_for_status()


@pytest.fixture
def deployment(prefect: Prefect) -> Iterator[dict[str, Any]]:
    """recalibrate/live, whose parameters a test may set: afterwards they are as they were."""
    record: dict[str, Any] = prefect.get("deployments/name/recalibrate/live")
    yield record
    prefect.patch(f"deployments/{record['id']}", {"parameters": record["parameters"]})


def test_from_drift_to_a_calibrated_version_and_back(
    prefect: Prefect, deployment: dict[str, Any], tmp_path: Path
) -> None:
    models = tmp_path / "models"
    first = ModelFolder(models).publish(write_bundle(tmp_path / "bundle", name="looped")).name
    hook = f"prefect+{prefect.url}/deployments/name/recalibrate/live"

    with server(tmp_path, "--alarm-webhook", hook) as (client, _):
        place = {"service": str(client.base_url), "models": str(models), "labels": 6000, "look_again_minutes": None}
        prefect.patch(f"deployments/{deployment['id']}", {"parameters": place})
        traffic = Traffic(client)

        def report(version: str) -> dict[str, Any]:
            tree: dict[str, Any] = client.get(f"/calibration-report?model=looped&version={version}").json()
            return tree

        def answering() -> str:
            return str(client.get("/models").json()["models"][0]["default"])

        def shadow() -> Any:
            return client.get("/models").json()["models"][0]["shadow"]

        def runs() -> list[dict[str, Any]]:
            query = {"flows": {"name": {"any_": ["recalibrate"]}}, "deployments": {"id": {"any_": [deployment["id"]]}}}
            records = prefect.post("flow_runs/filter", query)
            alarms = [one for one in records if not one["parameters"].get("dry_run")]
            return [one for one in alarms if one["parameters"].get("version") == first]

        def doctor() -> tuple[int, str]:
            words = ("doctor", "--service", str(client.base_url), "--models", str(models))
            done = prefect.command("pipeline", *words, check=False)
            return done.returncode, done.stdout

        status, text = doctor()
        assert status == 0 and "WRONG" not in text, text
        assert "ok    alarm      reaches its flow; rehearsed: " in text, text
        # another test may have switched on the daily one of `live`
        assert re.search("^ok    schedules  runs are scheduled: (live, )?weekly$", text, re.MULTILINE), text
        assert not runs(), "a rehearsal recalibrates nothing"
        ModelFolder(tmp_path / "others").publish(tmp_path / "bundle")  # the same version elsewhere
        prefect.patch(f"deployments/{deployment['id']}", {"parameters": place | {"models": str(tmp_path / "others")}})
        status, text = doctor()
        assert status == 1 and "the flow that an alarm starts would fail: " in text, text
        assert "serves another model directory than " in text
        prefect.patch(f"deployments/{deployment['id']}", {"parameters": place})

        traffic.send(500, SERVED)
        assert report(first)["alarm"]["state"] == "quiet"
        traffic.send(6000, DRIFTED)
        wait_for(lambda: report(first)["alarm"]["state"] == "fired", 20, lambda: str(report(first)["alarm"]))
        wait_for(lambda: len(runs()) == 1, 30, lambda: "the webhook started no flow")
        begun = prefect.completed(runs()[0]["id"])
        assert begun["parameters"]["reason"]
        wait_for(lambda: shadow() is not None, 10, lambda: str(client.get("/models").json()))
        candidate = shadow()
        assert answering() == first

        traffic.send(1000, DRIFTED)
        judged = prefect.post(f"deployments/{deployment['id']}/create_flow_run", {"parameters": {"model": "looped"}})
        prefect.completed(judged["id"])
        wait_for(lambda: answering() == candidate, 10, lambda: prefect.logs(judged["id"]))

        traffic.send(2000, DRIFTED)
        before, after = report(first), report(candidate)
        assert before["ece_lower"] > 0.1
        assert after["labelled"] == 2000
        assert after["ece"] <= after["floor_p95"]
        assert after["alarm"]["state"] == "quiet"

        run([sys.executable, "-m", "pipeline", "rollback", "looped", "--models", str(models)], prefect.home)
        wait_for(lambda: answering() == first, 10, lambda: str(client.get("/models").json()))
        assert len(runs()) == 1, "one alarm, one run"
