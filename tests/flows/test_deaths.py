"""Each process of a run is killed for real: nothing is orphaned, nothing stays locked, a retry ends as if unbroken."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from pipeline.flows import server
from tests.flows.conftest import Prefect, stop, wait_for
from tests.flows.test_train import unbroken_weights, weights
from trueodds.files import read_json

pytestmark = pytest.mark.full
EPOCHS = 40  # each test has a seed of its own: what was made once is skipped


def slots_taken(prefect: Prefect) -> int:
    return int(prefect.get("v2/concurrency_limits/gpu")["active_slots"])


def gone(prefect: Prefect, run: str, seconds: float = 10) -> None:
    wait_for(lambda: not prefect.processes(run), seconds, lambda: f"orphans: {prefect.processes(run)}")


def retry(prefect: Prefect, run: str) -> None:
    prefect.command("prefect", "flow-run", "retry", run)
    wait_for(lambda: prefect.run(run)["state_type"] not in {"CRASHED", "CANCELLED"}, 30, lambda: "not scheduled again")
    prefect.completed(run, 240)


def test_dvc_killed(prefect: Prefect, tmp_path: Path) -> None:
    run = prefect.submit(epochs=EPOCHS, seed=1)
    training = prefect.training(run)
    (dvc,) = prefect.processes(run, "dvc", "repro")
    dvc.kill()
    wait_for(lambda: not training.is_running(), 10, lambda: "the training outlived its dvc")
    prefect.completed(run, 240)
    assert weights(prefect, run, tmp_path) == unbroken_weights(tmp_path, epochs=EPOCHS, seed=1)


def test_engine_killed(prefect: Prefect, tmp_path: Path) -> None:
    run = prefect.submit(epochs=EPOCHS, seed=2)
    prefect.training(run)
    prefect.engine(run).kill()
    gone(prefect, run)
    assert prefect.ended(run)["state_type"] == "CRASHED"
    # The slot comes back with the end of its lease, at the latest.
    wait_for(lambda: slots_taken(prefect) == 0, 100, lambda: "the slot is still taken")
    retry(prefect, run)
    assert "which an earlier attempt left" in prefect.logs(run)
    assert weights(prefect, run, tmp_path) == unbroken_weights(tmp_path, epochs=EPOCHS, seed=2)


def test_worker_killed(prefect: Prefect, tmp_path: Path) -> None:
    run = prefect.submit(epochs=EPOCHS, seed=3)
    prefect.training(run)
    worker = next(p for p in prefect.engine(run).parents() if "worker" in p.cmdline())
    name = worker.cmdline()[worker.cmdline().index("--name") + 1]
    worker.kill()
    gone(prefect, run)
    assert prefect.ended(run)["state_type"] == "CRASHED"
    again = prefect.start_worker(name)
    try:
        retry(prefect, run)
        assert weights(prefect, run, tmp_path) == unbroken_weights(tmp_path, epochs=EPOCHS, seed=3)
    finally:
        stop(again)
        prefect.command("pipeline.flows", "up")


def test_server_killed_and_started_again(prefect: Prefect, tmp_path: Path) -> None:
    """The training stands still while the server starts, so that it cannot end before, however fast the machine is."""
    run = prefect.submit(epochs=EPOCHS, seed=4)
    training = prefect.training(run)
    training.suspend()
    checkpoint = next((prefect.workspace(run) / ".checkpoints").glob("*/state.pt"))
    before = checkpoint.stat().st_mtime_ns
    process = psutil.Process(read_json(prefect.home / server.STATE / "server.json")["pid"])
    for child in process.children(recursive=True):
        child.kill()
    process.kill()
    try:
        time.sleep(5)
        training.resume()
        wait_for(lambda: checkpoint.stat().st_mtime_ns > before, 30, lambda: "no epoch without the server")
        training.suspend()
    finally:
        prefect.command("pipeline.flows", "up")
        training.resume()
    prefect.completed(run, 240)
    assert weights(prefect, run, tmp_path) == unbroken_weights(tmp_path, epochs=EPOCHS, seed=4)


def test_cancelled(prefect: Prefect) -> None:
    run = prefect.submit(epochs=2000)
    prefect.training(run)
    prefect.command("prefect", "flow-run", "cancel", run)
    assert prefect.ended(run)["state_type"] == "CANCELLED"
    gone(prefect, run)
    left = [path.name for path in (prefect.home / ".runs").iterdir() if path.name.startswith(run)]
    assert not left, "nobody goes on with a run that was cancelled"
    wait_for(lambda: slots_taken(prefect) == 0, 100, lambda: "the slot is still taken")


def test_a_silent_run_is_taken_for_crashed(prefect: Prefect, tmp_path: Path) -> None:
    """As when the machine dies: worker, engine and stage stop at once and nobody is left to say so."""
    run = prefect.submit(epochs=EPOCHS, seed=6)
    prefect.training(run)
    engine = prefect.engine(run)
    worker = next(p for p in engine.parents() if "worker" in p.cmdline())
    frozen = [worker, engine, *prefect.processes(run)]
    for process in frozen:
        process.suspend()
    try:
        record = prefect.ended(run, server.SILENCE_SECONDS + 90)
        assert record["state_type"] == "CRASHED" and "no heartbeat" in record["state"]["message"]
        wait_for(lambda: slots_taken(prefect) == 0, 100, lambda: "the slot is still taken")
    finally:
        for process in frozen:
            process.send_signal(signal.SIGKILL)
    gone(prefect, run)
    prefect.command("pipeline.flows", "up")
    retry(prefect, run)
    assert weights(prefect, run, tmp_path) == unbroken_weights(tmp_path, epochs=EPOCHS, seed=6)


def test_a_run_that_never_begins_is_taken_for_crashed(prefect: Prefect) -> None:
    """As when the machine dies after the worker took the run: it is pending, and nobody is left who would begin it."""
    seconds = 10  # the least that Prefect takes
    deployment = prefect.get("deployments/name/train/digits")["id"]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    planned = {"state": {"type": "SCHEDULED", "state_details": {"scheduled_time": tomorrow}}}
    run, waiting = (prefect.post(f"deployments/{deployment}/create_flow_run", planned)["id"] for _ in range(2))
    hurried = server.pending_runs(seconds)
    trigger = {**hurried["trigger"], "within": seconds}
    automation = prefect.post("automations/", {**hurried, "name": "hurried", "trigger": trigger})["id"]
    try:
        prefect.post(f"flow_runs/{run}/set_state", {"state": {"type": "PENDING"}})
        ended = prefect.ended(run, seconds + 60)
    finally:
        prefect.delete(f"automations/{automation}")
    assert ended["state_type"] == "CRASHED" and f"pending for {seconds} s" in ended["state"]["message"]
    assert prefect.run(waiting)["state_type"] == "SCHEDULED"
    prefect.delete(f"flow_runs/{waiting}")
    retry(prefect, run)
