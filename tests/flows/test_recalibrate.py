"""The flows `recalibrate` and `calibration-report` on a real server with real workers, beside a real service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.flows.report import report_markdown
from tests.flows.conftest import Prefect, wait_for
from tests.service.test_process import server
from tests.service.tiny_bundle import write_bundle
from tests.test_recalibrate import TRUE, label, until_served
from trueodds.bundle import ModelFolder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    folder = tmp_path_factory.mktemp("live")
    ModelFolder(folder / "models").publish(write_bundle(folder / "bundle"))
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
def test_from_an_alarm_to_a_promoted_version(prefect: Prefect, service: tuple[httpx.Client, Path]) -> None:
    client, models = service
    first = ModelFolder(models).version_of("tiny", "default")
    assert first is not None
    parameters: dict[str, Any] = {"service": str(client.base_url), "models": str(models), "candidates": ["temperature"]}
    alarm = parameters | {"model": "tiny", "version": first, "reason": "alarm 7"}

    label(client, 100, TRUE, seed=1)
    waiting = prefect.completed(submit(prefect, "recalibrate/live", "alarm-7", **alarm))
    assert waiting["state_name"] == "Waiting" and "has 100 labelled answers" in waiting["state"]["message"]
    assert submit(prefect, "recalibrate/live", "alarm-7", **alarm) == waiting["id"], "one alarm, one run"
    (again,) = later(prefect)
    assert again["parameters"]["look_again_minutes"] == 20 and again["parameters"]["reason"] == "alarm 7"
    unnamed = prefect.completed(submit(prefect, "recalibrate/live", **parameters))
    assert unnamed["state_name"] == "Waiting" and "model" not in unnamed["parameters"]
    follow_up = next(run for run in later(prefect) if run["id"] != again["id"])
    assert (follow_up["parameters"]["model"], follow_up["parameters"]["models"]) == ("tiny", str(models))
    prefect.delete(f"flow_runs/{follow_up['id']}")

    label(client, 500, TRUE, seed=2)
    runs = [submit(prefect, "recalibrate/live", **alarm) for _ in "12"]
    states = sorted(prefect.completed(run)["state_name"] for run in runs)
    assert states in (["Open", "Published"], ["Nothing", "Published"]), "two triggers at once make one candidate"
    second = ModelFolder(models).version_of("tiny", "shadow")
    published = next(run for run in runs if prefect.run(run)["state_name"] == "Published")
    assert set(prefect.stages(published).values()) == {"Completed"}
    assert set(prefect.stages(published)) == {"fetch labels", "choose", "publish as shadow"}
    shown = prefect.artifacts(published)
    assert '"calibrator": "temperature"' in str(shown["candidates"]).replace("'", '"')
    assert "data:image/png;base64,iVBOR" in shown["recalibration"] and str(second) in shown["bundle"]
    assert len(later(prefect)) == 2, "both ask for the same later look"

    label(client, 300, TRUE, seed=3)
    promoted = prefect.completed(submit(prefect, "recalibrate/live", **parameters, reason="look again"))
    assert promoted["state_name"] == "Promoted" and "300 fresh labels" in promoted["state"]["message"]
    assert "e-value" in prefect.artifacts(promoted["id"])["evidence"]
    assert second is not None
    until_served(client, second)
    change = next(c for c in ModelFolder(models).changes("tiny") if c.after == second and c.action == "promote")
    assert change.why.startswith("look again: 300 fresh labels") and change.who.startswith("flow run ")
    late = prefect.completed(submit(prefect, "recalibrate/live", **alarm))
    assert late["state_name"] == "Nothing" and "no longer answers" in late["state"]["message"]

    week = submit(prefect, "calibration-report/weekly", service=str(client.base_url))
    assert prefect.completed(week)["state_name"] == "Completed"
    artifacts = prefect.artifacts(week)
    assert artifacts["calibration-report"].startswith(f"# tiny/{second}, ")
    assert "/calibration-report?since=" in artifacts["calibration-report-page"]


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
    wait_for(lambda: prefect.run(refused)["state_type"] == "FAILED", 60, lambda: prefect.logs(refused))
    assert "allowed is a URL such as" in prefect.run(refused)["state"]["message"]


def test_the_weeks_report_shows_what_there_is() -> None:
    report: dict[str, Any] = {"model": "m", "version": "v", "reading": "Two of three.", "ece": None, "level": 0.95}
    assert report_markdown(report, "a week") == "# m/v, a week\n\nTwo of three.\n"
    report |= {"ece": 0.1, "ece_lower": 0.05, "ece_upper": 0.2, "floor_mean": 0.02, "floor_p95": 0.03, "nll": 0.5}
    report["alarm"] = {"state": "fired", "reading": "The ECE exceeds .02."}
    report["advice"] = {"reading": "It would help.", "command": "trueodds recalibrate"}
    point = {"start": "2026-01-05T00:00:00Z", "answers": 1234, "labelled": 10, "ece": 0.12, "accuracy": 0.9}
    report["trend"] = {"unit": "day", "points": [point, {"start": "x", "answers": 0, "labelled": 0}]}
    text = report_markdown(report, "a week")
    assert "**Alarm: fired.** The ECE exceeds .02." in text and "`trueodds recalibrate`" in text
    assert "| ECE | 0.1000 | 0.0500 .. 0.2000 |" in text and "| NLL (nats) | 0.5000 |  |" in text
    assert "| 2026-01-05 | 1,234 | 10 | 0.9000 | 0.1200 |  |" in text and text.count("\n| x") == 0
