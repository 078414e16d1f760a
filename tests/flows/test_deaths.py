"""Each process of a run is killed for real: nothing is orphaned, nothing stays locked, a retry ends as if unbroken."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.flows import server
from tests.flows.conftest import PATIENCE, Prefect, wait_for
from tests.flows.test_train import unbroken_weights, weights
from trueodds.files import read_json

pytestmark = pytest.mark.full
EPOCHS = 100  # so many that a fast machine, too, trains until the last death
REFUSED: dict[str, Any] = {"optimizer": "adam", "momentum": 0.5}
"""Parameters that the flow refuses at once: such a run shows for seconds of a processor that a worker takes runs."""
SILENCE_SECONDS = 40  # a heartbeat comes every 30 s


def slots_taken(prefect: Prefect) -> int:
    return int(prefect.get("v2/concurrency_limits/gpu")["active_slots"])


def slot_comes_back(prefect: Prefect) -> None:
    """With the end of its lease, at the latest."""
    wait_for(lambda: slots_taken(prefect) == 0, PATIENCE, lambda: "the slot is still taken")


def gone(prefect: Prefect, run: str) -> None:
    wait_for(lambda: not prefect.processes(run), PATIENCE, lambda: f"orphans: {prefect.processes(run)}")


def attempts_that_went_on(prefect: Prefect, run: str) -> int:
    return sum(line.startswith("continuing after epoch") for line in prefect.logs(run).splitlines())


def retry(prefect: Prefect, run: str) -> None:
    prefect.command("prefect", "flow-run", "retry", run)
    wait_for(
        lambda: prefect.run(run)["state_type"] not in {"CRASHED", "CANCELLED"}, PATIENCE, lambda: "not scheduled again"
    )


def refused_by_a_worker(prefect: Prefect, run: str) -> None:
    record = prefect.ended(run)
    assert record["state_type"] == "FAILED", prefect.logs(run)
    assert "momentum = 0.5 needs optimizer sgd" in record["state"]["message"], prefect.logs(run)


@contextmanager
def hurried(prefect: Prefect, automation: dict[str, Any], seconds: float) -> Iterator[None]:
    """The automation with a shorter time beside the one that `up` registered."""
    trigger = {**automation["trigger"], "within": seconds}
    record = prefect.post("automations/", {**automation, "name": "hurried", "trigger": trigger})
    try:
        yield
    finally:
        prefect.delete(f"automations/{record['id']}")


def kill_training(prefect: Prefect, run: str) -> None:
    """It is gone at the return: who looks at once for the next attempt's training must not find this one, dying."""
    training = prefect.training(run)
    training.kill()
    wait_for(lambda: not server.lives(training), PATIENCE, lambda: "the training cannot be killed")


def kill_dvc(prefect: Prefect, run: str) -> None:
    training = prefect.training(run)
    (dvc,) = prefect.processes(run, "dvc", "repro")
    dvc.kill()
    wait_for(lambda: not server.lives(training), PATIENCE, lambda: "the training outlived its dvc")


def kill_engine(prefect: Prefect, run: str) -> None:
    """And retry the run at once, while the worker still notices the crash."""
    prefect.training(run)
    engine, left = prefect.engine(run), prefect.processes(run)
    engine.kill()
    wait_for(lambda: prefect.run(run)["state_type"] == "CRASHED", PATIENCE, lambda: prefect.logs(run))
    retry(prefect, run)
    wait_for(lambda: not any(map(server.lives, left)), PATIENCE, lambda: f"orphans: {left}")
    prefect.training(run)  # the retry is not lost, and the slot came back
    log = prefect.home / server.STATE / "worker.log"
    assert "Traceback" not in log.read_text(errors="replace"), "the worker lives"


def test_a_worker_that_does_not_poll_is_replaced(prefect: Prefect) -> None:
    prefect.up()  # a busy machine may have ended it: Prefect's worker gives up after some errors in a row
    process = psutil.Process(read_json(prefect.home / server.STATE / "worker.json")["pid"])
    wait_for(lambda: not process.children(), PATIENCE, lambda: f"an earlier run's process lives: {process.children()}")
    process.suspend()

    def silent() -> bool:
        heard = server.workers_heard(prefect.url)[server.WORKER]
        return datetime.now(UTC) - heard > timedelta(seconds=server.HEARTBEAT_SECONDS * 1.5)

    wait_for(silent, PATIENCE, lambda: "the server still hears of a worker that stands still")
    assert "receives no heartbeat of it" in prefect.command("pipeline.flows", "up").stdout
    assert not server.lives(process)
    refused_by_a_worker(prefect, prefect.submit(**REFUSED))


def kill_worker(prefect: Prefect, run: str) -> None:
    prefect.training(run)
    prefect.worker_of(run).kill()
    gone(prefect, run)
    assert prefect.ended(run)["state_type"] == "CRASHED"


def silence(prefect: Prefect, run: str) -> None:
    """As when the machine dies: worker, engine and stage stop at once and nobody is left to say so."""
    prefect.training(run)
    frozen = [prefect.worker_of(run), prefect.engine(run), *prefect.processes(run)]
    for process in frozen:
        process.suspend()
    try:
        record = prefect.ended(run, SILENCE_SECONDS + PATIENCE)
        assert record["state_type"] == "CRASHED"
        assert f"no heartbeat for {SILENCE_SECONDS} s" in record["state"]["message"]
        slot_comes_back(prefect)
    finally:
        for process in frozen:
            process.send_signal(signal.SIGKILL)
    gone(prefect, run)


def kill_server(prefect: Prefect, run: str) -> None:
    """The training stands still while the server starts, so that it cannot end before, however fast the machine is."""
    training = prefect.training(run)
    training.suspend()
    process = psutil.Process(read_json(prefect.home / server.STATE / "server.json")["pid"])
    for child in process.children(recursive=True):
        child.kill()
    process.kill()
    try:
        time.sleep(5)
        before = training.cpu_times().user
        training.resume()
        wait_for(
            lambda: training.cpu_times().user > before + 0.3, PATIENCE, lambda: "it stands still without the server"
        )
        training.suspend()
    finally:
        prefect.up()
        training.resume()


def test_one_run_bears_the_death_of_each_of_its_processes(prefect: Prefect, tmp_path: Path) -> None:
    """One after another, at any moment after the first checkpoint; the weights are those of a run that nothing hit."""
    unbroken = unbroken_weights(tmp_path, epochs=EPOCHS)
    run = prefect.submit(epochs=EPOCHS, publish="never")
    kill_engine(prefect, run)
    kill_training(prefect, run)
    kill_dvc(prefect, run)
    prefect.training(run)
    assert prefect.run(run)["run_count"] == 2, "the task is tried again, not the run"
    # The lines of a run come in batches, every two seconds.
    wait_for(lambda: attempts_that_went_on(prefect, run) == 3, PATIENCE, lambda: prefect.logs(run))

    kill_worker(prefect, run)
    assert "which an earlier attempt left" in prefect.logs(run)
    with hurried(prefect, server.silent_runs(SILENCE_SECONDS), SILENCE_SECONDS):
        retry(prefect, run)  # by the other worker
        silence(prefect, run)
    prefect.up()
    retry(prefect, run)
    kill_server(prefect, run)
    prefect.completed(run)
    assert weights(prefect, run, tmp_path) == unbroken


def test_cancelled_runs_leave_nothing_and_an_idle_worker_takes_other_variables(prefect: Prefect) -> None:
    both = [prefect.submit(epochs=2000, seed=seed) for seed in (8, 9)]  # one for each worker; one slot for training
    wait_for(lambda: all(prefect.run(r)["state_type"] == "RUNNING" for r in both), PATIENCE, lambda: "they do not run")
    wait_for(lambda: any(prefect.home.glob(".runs/*/.checkpoints/*/state.pt")), PATIENCE, lambda: "none of them trains")
    models = str(prefect.home / "elsewhere")
    refused = prefect.command("pipeline.flows", "up", check=False, TRUEODDS_MODELS=models)
    assert refused.returncode == 1 and "it is running a flow" in refused.stderr
    assert "because TRUEODDS_MODELS has changed" in refused.stderr
    for run in both:
        prefect.command("prefect", "flow-run", "cancel", run)
    for run in both:
        assert prefect.ended(run)["state_type"] == "CANCELLED"
        gone(prefect, run)
        left = [path.name for path in (prefect.home / ".runs").iterdir() if path.name.startswith(run)]
        assert not left, "nobody goes on with a run that was cancelled"
    slot_comes_back(prefect)
    anew = prefect.command("pipeline.flows", "up", TRUEODDS_MODELS=models)
    assert "worker: restarting, because TRUEODDS_MODELS has changed" in anew.stdout
    assert "worker: restarting" in prefect.command("pipeline.flows", "up").stdout


def test_a_run_that_never_begins_is_taken_for_crashed(prefect: Prefect) -> None:
    """As when the machine dies after the worker took the run: it is pending, and nobody is left who would begin it."""
    seconds = 10  # the least that Prefect takes
    deployment = prefect.get("deployments/name/train/digits")["id"]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    planned = {"state": {"type": "SCHEDULED", "state_details": {"scheduled_time": tomorrow}}, "parameters": REFUSED}
    run, waiting = (prefect.post(f"deployments/{deployment}/create_flow_run", planned)["id"] for _ in range(2))
    with hurried(prefect, server.pending_runs(seconds), seconds):
        prefect.post(f"flow_runs/{run}/set_state", {"state": {"type": "PENDING"}})
        ended = prefect.ended(run, seconds + PATIENCE)
    assert ended["state_type"] == "CRASHED" and f"pending for {seconds} s" in ended["state"]["message"]
    assert prefect.run(waiting)["state_type"] == "SCHEDULED"
    prefect.delete(f"flow_runs/{waiting}")
    retry(prefect, run)
    refused_by_a_worker(prefect, run)
