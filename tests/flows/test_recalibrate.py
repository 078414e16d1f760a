"""The flows `recalibrate` and `calibration-report` on a real server with real workers, beside a real service."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from pipeline.flows.report import report_markdown
from tests.conftest import run
from tests.flows.conftest import PATIENCE, Prefect, wait_for
from tests.service.test_process import server
from tests.service.tiny_bundle import SHAPE, write_bundle
from tests.test_recalibrate import TRUE, label, until_served
from trueodds.bundle import open_models
from trueodds.metrics import softmax

SERVED, DRIFTED = 1.7, 4.0
"""Temperatures: of the served calibrator, and of what is true after the drift."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    folder = tmp_path_factory.mktemp("live")
    open_models(folder / "models").publish(write_bundle(folder / "bundle"))
    with server(folder) as (client, _):
        yield client, folder / "models"


def submit(prefect: Prefect, name: str, key: str | None = None, **parameters: Any) -> str:
    """As the alarm's webhook does it."""
    deployment = prefect.get(f"deployments/name/{name}")
    body = {"parameters": parameters, **({"idempotency_key": key} if key else {})}
    return str(prefect.post(f"deployments/{deployment['id']}/create_flow_run", body)["id"])


def later(prefect: Prefect) -> list[dict[str, Any]]:
    """Runs of recalibrate/live that wait for their time."""
    deployment = prefect.get("deployments/name/recalibrate/live")
    query = {"flow_runs": {"deployment_id": {"any_": [deployment["id"]]}, "state": {"type": {"any_": ["SCHEDULED"]}}}}
    return [run for run in prefect.post("flow_runs/filter", query) if not run["auto_scheduled"]]


@pytest.mark.full
def test_from_an_alarm_to_a_verdict(prefect: Prefect, service: tuple[httpx.Client, Path]) -> None:
    client, models = service
    first = open_models(models).version_of("tiny", "default")
    assert first is not None
    parameters: dict[str, Any] = {"service": str(client.base_url), "models": str(models), "candidates": ["temperature"]}
    alarm = parameters | {"model": "tiny", "version": first, "reason": "alarm 7"}

    label(client, 100, TRUE, seed=1)
    waiting = prefect.completed(submit(prefect, "recalibrate/live", "alarm-7", **alarm))
    assert waiting["state_name"] == "Waiting" and "has 100 labelled answers" in waiting["state"]["message"]
    assert submit(prefect, "recalibrate/live", "alarm-7", **alarm) == waiting["id"], "one alarm, one run"
    (again,) = later(prefect)
    assert again["parameters"]["look_again_minutes"] == 20 and again["parameters"]["reason"] == "alarm 7"
    assert (
        f"The next run starts at {again['expected_start_time'][:16].replace('T', ' ')} UTC"
        in waiting["state"]["message"]
    )
    prefect.post(f"flow_runs/{again['id']}/set_state", {"state": {"type": "FAILED"}, "force": True})
    prefect.completed(submit(prefect, "recalibrate/live", **alarm))
    (again,) = later(prefect)
    unnamed = prefect.completed(submit(prefect, "recalibrate/live", **parameters))
    assert unnamed["state_name"] == "Waiting" and "model" not in unnamed["parameters"]
    follow_up = next(run for run in later(prefect) if run["id"] != again["id"])
    assert (follow_up["parameters"]["model"], follow_up["parameters"]["models"]) == ("tiny", str(models))
    prefect.delete(f"flow_runs/{follow_up['id']}")

    label(client, 500, TRUE, seed=2)
    runs = [submit(prefect, "recalibrate/live", **alarm) for _ in "12"]
    states = sorted(prefect.completed(run)["state_name"] for run in runs)
    assert states in (["Calibrator published", "Waits for labels"], ["Calibrator published", "Nothing"]), (
        "two triggers at once make one candidate"
    )
    second = open_models(models).version_of("tiny", "recalibrated")
    published = next(run for run in runs if prefect.run(run)["state_name"] == "Calibrator published")
    assert set(prefect.stages(published).values()) == {"Completed"}
    assert set(prefect.stages(published)) == {"fetch labels", "choose", "publish as recalibrated"}
    shown = prefect.artifacts(published)
    assert '"calibrator": "temperature"' in str(shown["candidates"]).replace("'", '"')
    assert "data:image/svg+xml;base64,PHN2Zy" in shown["recalibration"] and str(second) in shown["bundle"]
    assert len(later(prefect)) in (2, 3), "both ask for the same later look, within a minute"

    label(client, 10, TRUE, seed=3)
    few = prefect.completed(submit(prefect, "recalibrate/live", **parameters, reason="look again"))
    assert few["state_name"] == "Waits for labels" and "10 fresh labels" in few["state"]["message"]
    assert "The next run starts at" in few["state"]["message"]
    label(client, 600, TRUE, seed=4)
    asked = len(later(prefect))
    careful = parameters | {"promote": "never"}
    waits = prefect.completed(submit(prefect, "recalibrate/live", **careful, reason="look again"))
    assert waits["state_name"] == "Waits for a person" and "610 fresh labels" in waits["state"]["message"]
    assert f"Promote it: trueodds promote tiny {second}" in waits["state"]["message"]
    assert "95% interval of the gain" in prefect.artifacts(waits["id"])["evidence"]
    assert len(later(prefect)) == asked, "a person is waited for, not labels"
    assert second is not None and open_models(models).version_of("tiny", "default") == first
    decided = prefect.completed(submit(prefect, "recalibrate/live", **alarm))
    assert decided["state_name"] == "Promoted" and f"tiny/{second} answers now" in decided["state"]["message"]
    assert len(later(prefect)) == asked, "what is decided is not looked at again"
    promoted = [change for change in open_models(models).changes("tiny") if change.action == "promote"]
    assert [change.why.split(" on ")[0] for change in promoted] == ["alarm 7: better"]
    until_served(client, second)
    late = prefect.completed(submit(prefect, "recalibrate/live", **alarm))
    assert late["state_name"] == "Nothing" and "is no longer served" in late["state"]["message"]

    week = submit(prefect, "calibration-report/weekly", service=str(client.base_url))
    assert prefect.completed(week)["state_name"] == "Completed"
    artifacts = prefect.artifacts(week)
    assert artifacts["calibration-report"].startswith(f"# tiny/{second}, ")
    assert "/calibration-report?since=" in artifacts["calibration-report-page"]


@pytest.mark.full
def test_of_a_model_that_another_server_serves_the_calibrator_is_an_artifact(
    prefect: Prefect, service: tuple[httpx.Client, Path]
) -> None:
    client, _ = service
    rng = np.random.default_rng(0)
    z_NC = rng.normal(0, 2, (600, 3))
    truth_N = (softmax(z_NC).cumsum(axis=1) < rng.random((600, 1))).sum(axis=1)
    rows = [{"id": f"r{n}", "probabilities": row} for n, row in enumerate(softmax(2 * z_NC).tolist())]
    client.post("/observe", json={"observations": rows, "model": "mail", "version": "7"}).raise_for_status()
    labels = [{"id": f"r{n}", "index": int(label)} for n, label in enumerate(truth_N)]
    client.post("/feedback", json={"labels": labels}).raise_for_status()
    parameters: dict[str, Any] = {"service": str(client.base_url), "model": "mail", "candidates": ["temperature"]}
    rehearsed = prefect.completed(submit(prefect, "recalibrate/live", **parameters, dry_run=True))
    assert "Labelled answers of mail/7 for a fit: 600" in rehearsed["state"]["message"]
    run = prefect.completed(submit(prefect, "recalibrate/live", **parameters, version="7", reason="alarm"))
    assert run["state_name"] == "Fitted" and "temperature: NLL" in run["state"]["message"]
    calibrator = prefect.artifacts(run["id"])["calibrator"]
    assert '"calibrator": "temperature"' in calibrator


@pytest.mark.full
def test_refusals_and_schedules(prefect: Prefect, service: tuple[httpx.Client, Path]) -> None:
    _, models = service
    daily = prefect.get("deployments/name/recalibrate/live")
    assert [schedule["active"] for schedule in daily["schedules"]] == [False]
    assert set(daily["parameter_openapi_schema"]["properties"]) >= {"model", "version", "reason"}
    weekly = prefect.get("deployments/name/calibration-report/weekly")
    assert [(s["active"], s["schedule"]["cron"]) for s in weekly["schedules"]] == [(True, "0 6 * * 1")]
    switched = daily["schedules"][0]["id"]
    body = {"active": True}
    path = f"deployments/{daily['id']}/schedules/{switched}"
    prefect.patch(path, body)
    prefect.command("pipeline.flows", "register")
    schedules = prefect.get("deployments/name/recalibrate/live")["schedules"]
    assert [schedule["active"] for schedule in schedules] == [True], "switched on by somebody, it stays on"
    refused = submit(prefect, "recalibrate/live", service="nowhere", models=str(models))
    wait_for(lambda: prefect.run(refused)["state_type"] == "FAILED", PATIENCE, lambda: prefect.logs(refused))
    assert "allowed is a URL such as" in prefect.run(refused)["state"]["message"]


@pytest.mark.full
def test_a_service_that_is_away_is_asked_again_and_a_chain_that_fails_is_told(
    prefect: Prefect, service: tuple[httpx.Client, Path]
) -> None:
    client, models = service
    for known in later(prefect):
        prefect.delete(f"flow_runs/{known['id']}")
    away = {"service": "http://127.0.0.1:1", "models": str(models), "model": "tiny"}
    ended = prefect.completed(submit(prefect, "recalibrate/live", **away))
    assert ended["state_name"] == "Waiting" and "no service answers at" in ended["state"]["message"]
    (again,) = later(prefect)
    assert (
        f"The next run starts at {again['expected_start_time'][:16].replace('T', ' ')} UTC" in ended["state"]["message"]
    )
    prefect.delete(f"flow_runs/{again['id']}")
    count = "trueodds_recalibrations_undecided_total"
    assert f"{count} 0.0" in client.get("/metrics").text
    wrong = {"service": str(client.base_url), "models": str(models / "nowhere"), "model": "tiny"}
    failed = prefect.ended(submit(prefect, "recalibrate/live", **wrong))
    assert failed["state_type"] == "FAILED" and not later(prefect)
    wait_for(lambda: f"{count} 1.0" in client.get("/metrics").text, PATIENCE, lambda: prefect.logs(failed["id"]))


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
            rows = [{"id": p["id"], "index": int(y)} for p, y in zip(answer["predictions"], label_N, strict=True)]
            self.client.post("/feedback", json={"labels": rows}).raise_for_status()


@pytest.fixture
def deployment(prefect: Prefect) -> Iterator[dict[str, Any]]:
    """recalibrate/live, whose parameters a test may set: afterwards they are as they were."""
    record: dict[str, Any] = prefect.get("deployments/name/recalibrate/live")
    yield record
    prefect.patch(f"deployments/{record['id']}", {"parameters": record["parameters"]})


@pytest.mark.full
def test_from_drift_to_a_calibrated_version_and_back(
    prefect: Prefect, deployment: dict[str, Any], tmp_path: Path
) -> None:
    """The closed loop: drift -> alarm -> webhook -> flow -> a version that is calibrated again -> and back."""
    models = tmp_path / "models"
    first = open_models(models).publish(write_bundle(tmp_path / "bundle", name="looped")).name
    hook = f"prefect+{prefect.url}/deployments/name/recalibrate/live"

    with server(tmp_path, "--alarm-webhook", hook) as (client, _):
        place = {"service": str(client.base_url), "models": str(models), "labels": 6000, "look_again_minutes": None}
        prefect.patch(f"deployments/{deployment['id']}", {"parameters": place})
        traffic = Traffic(client)

        def report(version: str) -> dict[str, Any]:
            tree: dict[str, Any] = client.get(f"/calibration-report?model=looped&version={version}").json()
            return tree

        def answering() -> str:
            return str(client.get("/models").json()["default"]["version"])  # of calls that name no model, as these do

        def recalibrated() -> Any:
            return client.get("/models").json()["models"][0]["recalibrated"]

        def runs() -> list[dict[str, Any]]:
            query = {"flows": {"name": {"any_": ["recalibrate"]}}, "deployments": {"id": {"any_": [deployment["id"]]}}}
            records = prefect.post("flow_runs/filter", query)
            alarms = [one for one in records if not one["parameters"].get("dry_run")]
            return [one for one in alarms if one["parameters"].get("version") == first]

        def doctor() -> tuple[int, str]:
            words = ("doctor", "--url", str(client.base_url), "--models", str(models))
            done = prefect.command("pipeline", *words, check=False)
            return done.returncode, done.stdout

        status, text = doctor()
        assert status == 0 and "WRONG" not in text, text
        assert "ok    alarm      reaches its flow; rehearsed: " in text, text
        # another test may have switched on the daily one of `live`
        assert re.search("^ok    schedules  runs are scheduled: (live, )?weekly$", text, re.MULTILINE), text
        assert not runs(), "a rehearsal recalibrates nothing"
        open_models(tmp_path / "others").publish(tmp_path / "bundle")  # the same version elsewhere
        prefect.patch(f"deployments/{deployment['id']}", {"parameters": place | {"models": str(tmp_path / "others")}})
        status, text = doctor()
        assert status == 1 and "the flow that an alarm starts would fail: " in text, text
        assert "serves another model directory than " in text
        prefect.patch(f"deployments/{deployment['id']}", {"parameters": place})

        traffic.send(500, SERVED)
        assert report(first)["alarm"]["state"] == "quiet"
        traffic.send(6000, DRIFTED)
        wait_for(lambda: report(first)["alarm"]["state"] == "fired", PATIENCE, lambda: str(report(first)["alarm"]))
        wait_for(lambda: len(runs()) == 1, PATIENCE, lambda: "the webhook started no flow")
        begun = prefect.completed(runs()[0]["id"])
        assert begun["parameters"]["reason"]
        wait_for(lambda: recalibrated() is not None, PATIENCE, lambda: str(client.get("/models").json()))
        candidate = recalibrated()
        assert answering() == first

        traffic.send(1000, DRIFTED)
        seen = prefect.post(f"deployments/{deployment['id']}/create_flow_run", {"parameters": {"model": "looped"}})
        assert prefect.completed(seen["id"])["state_name"] == "Promoted"
        wait_for(lambda: answering() == candidate, PATIENCE, lambda: str(client.get("/models").json()))

        traffic.send(2000, DRIFTED)
        before, after = report(first), report(candidate)
        assert before["ece_lower"] > 0.1
        assert after["labelled"] == 2000
        assert after["ece_lower"] < 0.02  # its plug-in ECE is above the 95th percentile of the floor in one run of 20
        assert after["alarm"]["state"] == "quiet"

        run([sys.executable, "-m", "pipeline", "rollback", "looped", "--models", str(models)], prefect.home)
        wait_for(lambda: answering() == first, PATIENCE, lambda: str(client.get("/models").json()))
        assert len(runs()) == 1, "one alarm, one run"


def test_the_weeks_report_shows_what_there_is() -> None:
    report: dict[str, Any] = {"model": "m", "version": "v", "reading": "Two of three.", "ece": None, "level": 0.95}
    assert report_markdown(report, "a week") == "# m/v, a week\n\nTwo of three.\n"
    report |= {"ece": 0.1, "ece_lower": 0.05, "ece_upper": 0.2, "floor_mean": 0.02, "floor_p95": 0.03, "nll": 0.5}
    report["alarm"] = {"state": "fired", "reading": "The ECE exceeds .02."}
    report["checks"] = [{"about": "tag", "reading": "1 of 2 tags is off by more than chance.", "window": None}]
    report["advice"] = {"reading": "It would help.", "command": "trueodds recalibrate"}
    point = {"start": "2026-01-05T00:00:00Z", "answers": 1234, "labelled": 10, "ece": 0.12, "accuracy": 0.9}
    report["trend"] = {"unit": "day", "points": [point, {"start": "x", "answers": 0, "labelled": 0}]}
    text = report_markdown(report, "a week")
    assert "**Alarm: fired.** The ECE exceeds .02." in text and "`trueodds recalibrate`" in text
    assert "\n\nCheck first:\n\n- 1 of 2 tags is off by more than chance.\n\n**Recalibrate?**" in text
    assert "| ECE | 0.1000 | 0.0500 .. 0.2000 |" in text and "| NLL (nats) | 0.5000 |  |" in text
    assert "| 2026-01-05 | 1,234 | 10 | 0.9000 | 0.1200 |  |" in text and text.count("\n| x") == 0
