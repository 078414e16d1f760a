"""The flow `train` on a real server with real workers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import config, parameters
from pipeline.flows import server, train
from tests.conftest import ROOT, copy_tree, run
from tests.flows.conftest import PATIENCE, Prefect, wait_for
from tests.importing.models import DIGITS_MEAN, save_digits_regression

pytestmark = pytest.mark.full
AS_TYPED: dict[str, Any] = {"method": "focal", "method_options": "{gamma: 2}", "epochs": 1, "seed": 42}
STAGES = {"fetch", "plan", "train", "shift", "calibrate", "evaluate", "export"}


def unbroken_weights(target: Path, **leaves: object) -> bytes:
    """weights.safetensors of the same parameters, without Prefect, without DVC, in one go."""
    shutil.copy(ROOT / "params.yaml", target)
    (target / "datasets").mkdir(exist_ok=True)
    for stage in ("fetch", "train"):
        words = [f"{name}={value}" for name, value in leaves.items() if name in parameters.leaves(stage)]
        subprocess.run(
            [sys.executable, "-m", "pipeline", stage, *words],
            cwd=target,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
        )
    return (target / "artifacts/model/network/weights.safetensors").read_bytes()


def weights(prefect: Prefect, run: str, target: Path) -> bytes:
    """Those of a finished run, brought out of its experiment as a user would."""
    clone = target / "applied"
    copy_tree(prefect.home, clone, shutil.ignore_patterns(".prefect", ".runs"))
    prefect_run = prefect.run(run)
    name = train.experiment_name(prefect_run["name"], run)
    for command in (["git", "checkout", "-q", "."], ["dvc", "exp", "apply", name]):
        done = subprocess.run(command, cwd=clone, env=prefect.environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return (clone / "artifacts/model/network/weights.safetensors").read_bytes()


def test_a_run_then_one_that_skips(prefect: Prefect) -> None:
    home = prefect.home
    before = {path: (home / path).read_bytes() for path in ("params.yaml", "dvc.lock", "dvc.yaml")}
    status, head = (run(["git", *words], home).stdout for words in (["status", "--porcelain"], ["rev-parse", "HEAD"]))
    first = prefect.submit(**AS_TYPED)
    name = prefect.completed(first)["name"]
    assert name == "digits method=focal method_options={'gamma': 2} epochs=1 seed=42"
    assert prefect.stages(first) == dict.fromkeys(STAGES, "Completed") | {"fetch": "Skipped"}  # as in dvc.lock

    assert {path: (home / path).read_bytes() for path in before} == before
    assert run(["git", "status", "--porcelain"], home).stdout == status
    assert run(["git", "rev-parse", "HEAD"], home).stdout == head
    assert not [path for path in (home / ".runs").iterdir() if path.is_dir()]
    assert run(["git", "worktree", "list"], home).stdout.count("\n") == 1
    focal = experiments(home)[train.experiment_name(name, first)]
    training = focal["params"]["params.yaml"]["data"]["training"]
    assert (training["method"], training["method_options"]) == ("focal", {"gamma": 2})
    assert "# digits, cifar10" in (home / "params.yaml").read_text()

    again = prefect.submit(**AS_TYPED)
    prefect.completed(again)
    assert prefect.stages(again) == dict.fromkeys(STAGES, "Skipped")

    shown, shown_again = prefect.artifacts(first), prefect.artifacts(again)
    assert shown["calibration"] == shown_again["calibration"]
    assert shown["progress-train"] == 100
    assert "| ECE |" in shown["calibration"] and "600 test rows" in shown["calibration"]
    assert shown["reliability"].startswith("![reliability diagram](data:image/svg+xml;base64,PHN2Zy")
    assert "file:" not in str(shown), "a browser opens no link to a file"
    bundle = published(shown)
    assert bundle.is_relative_to(home / "models") and (bundle / "model.onnx").is_file()


def experiments(home: Path) -> dict[str, Any]:
    """DVC's experiments by their names."""
    tree = json.loads(run(["dvc", "exp", "show", "--json"], home).stdout)
    return {e["name"]: e["revs"][-1]["data"] for rev in tree for e in rev["experiments"] or []}


def published(artifacts: dict[str, Any]) -> Path:
    return Path(artifacts["bundle"].split("`")[1])


def test_queued_runs_take_what_is_there_when_they_start_and_go_side_by_side(prefect: Prefect) -> None:
    """And their logs say when somebody asked for them. The second is the run of the test before, and trains nothing."""
    params, code = prefect.home / "params.yaml", prefect.home / "pipeline" / "new.py"
    before = params.read_text()
    prefect.patch("work_pools/gpu", {"is_paused": True})
    try:
        both = [prefect.submit(epochs=1), prefect.submit(**AS_TYPED)]
        params.write_text(before.replace("seed: 0\n  device", "seed: 77\n  device"))
        code.write_text("NEW = 1\n")
        prefect.patch("work_pools/gpu", {"is_paused": False})
        wait_for(lambda: len(list((prefect.home / ".runs").glob("*.json"))) == 2, PATIENCE, lambda: "not side by side")
        records = [prefect.completed(flow_run) for flow_run in both]
    finally:
        prefect.patch("work_pools/gpu", {"is_paused": False})
        params.write_text(before)
        code.unlink(missing_ok=True)
    made = experiments(prefect.home)
    for flow_run, record, seed in zip(both, records, (77, 42), strict=True):
        asked, log = datetime.fromisoformat(record["created"]), prefect.logs(flow_run)
        assert f"requested at {asked:%Y-%m-%d %H:%M:%S} UTC; uses the current code, params.yaml and data" in log
        assert "with uncommitted changes and 1 new files" in log
        params_of = made[train.experiment_name(record["name"], flow_run)]["params"]["params.yaml"]["data"]
        assert params_of["training"]["seed"] == seed

    shown = [prefect.artifacts(flow_run) for flow_run in both]
    assert len({published(artifacts) for artifacts in shown}) == 2
    standings = [artifacts["bundle"].split("\n")[2] for artifacts in shown]
    assert sum(" is the shadow of " in words for words in standings) >= 1, "what answers goes on answering"
    assert sum(" answers now: calls with ?model=digits" in words for words in standings) <= 1


def test_a_model_that_was_trained_elsewhere(prefect: Prefect) -> None:
    """`-p model=datasets/mine.onnx`, as it is typed; the folder of own data comes along."""
    model = save_digits_regression(prefect.home / "datasets" / "mine.onnx")
    options = {"preprocess": f"{{mean: {DIGITS_MEAN}}}"}
    leaves = [f"model=datasets/{model.name}", "dataset=digits", f"model_options={json.dumps(options)}", "publish=never"]
    words = [word for leaf in leaves for word in ("-p", leaf)]
    typed = prefect.command("prefect", "deployment", "run", "train/own", *words).stdout
    run = typed.partition("/flow-run/")[2].split()[0]
    prefect.completed(run)
    assert "calibration" in prefect.artifacts(run) and "epoch" not in prefect.logs(run)


def test_a_bad_value_is_refused_before_anything_starts(prefect: Prefect) -> None:
    refused = prefect.ended(prefect.submit(optimizer="adam", momentum=0.5))
    assert refused["state_type"] == "FAILED" and "momentum = 0.5 needs optimizer sgd" in refused["state"]["message"]
    assert not prefect.stages(refused["id"])
    assert not list((prefect.home / ".runs").glob("*.json"))


@pytest.mark.parametrize(
    ("parameter", "allowed"),
    [
        ("method=focall", "'focall' does not match '^(ce|mse|focal|"),
        ("training.method_options.gamma=2", "available on the deployment: 'dataset'"),
    ],
)
def test_a_mistake_is_refused_before_it_is_queued(prefect: Prefect, parameter: str, allowed: str) -> None:
    before = prefect.post("flow_runs/count", {})
    typed = prefect.command(
        "prefect", "deployment", "run", "train/digits", "-p", parameter, check=False, COLUMNS="10000"
    )
    assert typed.returncode == 1 and allowed in typed.stdout + typed.stderr
    assert prefect.post("flow_runs/count", {}) == before


def test_the_schema_is_that_of_params_yaml(prefect: Prefect) -> None:
    for name in ("digits", "breast_cancer", "cifar10", "cifar100", "own"):
        deployment = prefect.get(f"deployments/name/train/{name}")
        properties = deployment["parameter_openapi_schema"]["properties"]
        assert properties.pop("publish")["enum"] == ["shadow", "displace", "default", "never"]
        assert set(properties) == set(config.SECTION_OF)
        assert all(leaf["description"].endswith("None: as params.yaml says.") for leaf in properties.values())
        assert properties["epochs"]["anyOf"][0]["minimum"] == 1
        assert deployment["description"] and deployment["tags"]


def test_an_active_schedule_makes_runs(prefect: Prefect) -> None:
    """Only the scheduler does that, within seconds; where it fails, nothing but the server's log says so."""
    weekly = prefect.get("deployments/name/calibration-report/weekly")["id"]
    query = {"deployments": {"id": {"any_": [weekly]}}, "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}

    def planned() -> list[datetime]:
        runs = prefect.post("flow_runs/filter", query | {"sort": "EXPECTED_START_TIME_ASC", "limit": 2})
        return [datetime.fromisoformat(run["expected_start_time"]) for run in runs]

    log = prefect.home / server.STATE / "server.log"
    wait_for(lambda: len(planned()) == 2, PATIENCE, lambda: log.read_text(errors="replace")[-3000:])
    first, second = planned()
    assert first > datetime.now(UTC) and second - first == timedelta(days=7)
    assert (first.isoweekday(), first.hour, first.minute) == (1, 6, 0)


def test_the_server_reports_nothing_to_its_vendor(prefect: Prefect) -> None:
    """Nor does a client: it asks the server, where DO_NOT_TRACK is not set."""
    assert prefect.get("admin/settings")["server"]["analytics_enabled"] is False


def test_registering_again_changes_nothing(prefect: Prefect) -> None:
    before = prefect.post("automations/filter", {}), prefect.get("work_pools/gpu")["id"]
    assert {one["name"] for one in before[0]} >= {server.silent_runs()["name"], server.pending_runs()["name"]}
    record = prefect.home / server.STATE / server.REGISTERED
    written = record.stat().st_mtime_ns
    prefect.command("pipeline.flows", "register")
    assert record.stat().st_mtime_ns == written, "a container registers from a checkout that it may not write to"
    assert (prefect.post("automations/filter", {}), prefect.get("work_pools/gpu")["id"]) == before
    again = prefect.command("pipeline.flows", "up").stdout
    assert "already running" in again and "registered: nothing has changed" in again


def test_what_is_gone_from_the_server_or_new_in_the_code_is_registered(prefect: Prefect) -> None:
    prefect.delete(f"deployments/{prefect.get('deployments/name/train/breast_cancer')['id']}")
    assert "registered: work pool gpu" in prefect.command("pipeline.flows", "up").stdout
    assert prefect.get("deployments/name/train/breast_cancer")["parameters"] == {"dataset": "breast_cancer"}
    new = prefect.home / "pipeline" / "new.py"
    new.write_text("NEW = 2\n")
    try:
        assert not server._is_registered(prefect.home, prefect.url)
    finally:
        new.unlink()
    assert server._is_registered(prefect.home, prefect.url)
