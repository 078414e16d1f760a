"""One real Prefect server with two workers for all tests here, over a copy of the repository of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from pipeline.flows import server
from tests.conftest import copy_tree, environment

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}

PATIENCE = 600
"""Seconds that a run may take. Five processes of tests on two cores slow a run of half a minute down to several."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Prefect:
    """The checkout, the server's address, and what tests ask of them."""

    home: Path
    url: str
    second: subprocess.Popen[bytes] | None = None
    """The worker beside that of `up`."""

    def up(self) -> None:
        """Start the server and the two workers, as far as they do not run."""
        self.command("pipeline.flows", "up")
        if self.second is None or self.second.poll() is not None:
            self.second = self._start_worker("second")

    def environment(self) -> dict[str, str]:
        keep = {k: v for k, v in environment().items() if not k.startswith(("PREFECT_", "TRUEODDS_"))}
        # A client's profile is its own too: PREFECT_HOME of whoever runs the tests stays as it is.
        return {**keep, "PREFECT_API_URL": self.url, "PREFECT_HOME": str(self.home / server.STATE), "DO_NOT_TRACK": "1"}

    def command(self, *arguments: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.home,
            env=self.environment() | variables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if check and done.returncode:
            pytest.fail(f"{' '.join(arguments)} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        return self._ask("POST", path, body)

    def patch(self, path: str, body: Any) -> None:
        self._ask("PATCH", path, body)

    def delete(self, path: str) -> None:
        self._ask("DELETE", path, None)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        """As Prefect's own client: 503 is what a server says whose database is busy for the moment."""
        for pause in (0.5, 1, 2, 4, 0):
            answer = httpx.request(
                method, f"{self.url}/{path}", json=body, timeout=server.STILL_SECONDS, verify=server.tls()
            )
            if answer.status_code != 503:
                break
            time.sleep(pause)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def submit(self, deployment: str = "digits", **parameters: Any) -> str:
        """A scheduled run's id."""
        record = self.get(f"deployments/name/train/{deployment}")
        return str(self.post(f"deployments/{record['id']}/create_flow_run", {"parameters": parameters})["id"])

    def run(self, run: str) -> dict[str, Any]:
        record: dict[str, Any] = self.get(f"flow_runs/{run}")
        return record

    def ended(self, run: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """The run when it has reached a final state."""
        wait_for(lambda: self.run(run)["state_type"] in ENDED, seconds, lambda: self.logs(run), pause=0.5)
        return self.run(run)

    def completed(self, run: str, seconds: float = PATIENCE) -> dict[str, Any]:
        record = self.ended(run, seconds)
        assert record["state_type"] == "COMPLETED", f"{record['state']}\n{self.logs(run)}"
        return record

    def stages(self, run: str) -> dict[str, str]:
        """Stage -> the name of its task's state."""
        tasks = self.post("task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {task["name"]: task["state_name"] for task in tasks}

    def logs(self, run: str) -> str:
        time.sleep(0.1)
        query = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC", "limit": 200}
        lines = self.post("logs/filter", query)
        # A batch whose answer came too late is sent again by Prefect, and stands there twice.
        return "\n".join(message for _, message in dict.fromkeys((at["timestamp"], at["message"]) for at in lines))

    def artifacts(self, run: str) -> dict[str, Any]:
        rows = self.post("artifacts/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {artifact["key"]: artifact["data"] for artifact in rows}

    def workspace(self, run: str) -> Path:
        return self.home / ".runs" / run

    def processes(self, run: str, *words: str) -> list[psutil.Process]:
        """Living processes of the run's stages whose command line holds all the words."""
        lines = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.cwd() == str(self.workspace(run)):
                    line = process.cmdline()
                    if all(word in line for word in words):
                        lines.append(process)
            except psutil.Error:
                continue
        return lines

    def engine(self, run: str) -> psutil.Process:
        """The process that runs the flow: the parent of the stage's dvc."""
        (dvc,) = self.processes(run, "dvc", "repro")
        parent = dvc.parent()
        assert parent is not None
        return parent

    def training(self, run: str, seconds: float = PATIENCE) -> psutil.Process:
        """The training process, once it has written a checkpoint."""
        checkpoints = self.workspace(run) / ".checkpoints"
        writing: list[psutil.Process] = []

        def has_written() -> bool:
            latest = max((file.stat().st_mtime for file in checkpoints.glob("*/state.pt")), default=0.0)
            writing[:] = [p for p in self.processes(run, "pipeline", "train") if p.create_time() < latest]
            return bool(writing)

        wait_for(has_written, seconds, lambda: self.logs(run))
        return writing[0]

    def worker_of(self, run: str) -> psutil.Process:
        """The worker that started the run's engine."""
        return next(parent for parent in self.engine(run).parents() if "pipeline.flows.worker" in parent.cmdline())

    def _start_worker(self, name: str) -> subprocess.Popen[bytes]:
        with (self.home / server.STATE / f"{name}.log").open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", *server.worker_command(name)],
                cwd=self.home,
                env=self.environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ignore_interrupts,
            )
        wait_for(lambda: name in server.workers_heard(self.url), PATIENCE, lambda: f"worker {name} is not online")
        return worker


def wait_for(condition: Callable[[], bool], seconds: float, story: Callable[[], str], pause: float = 0.2) -> None:
    """Until the condition holds, looked at after each pause; the story explains the failure.

    A look counts as a second at most: a server that answers late holds up what is waited for as well.
    """
    left = seconds
    while True:
        begin = time.monotonic()
        if condition():
            return
        left -= min(time.monotonic() - begin, 1) + pause
        if left < 0:
            pytest.fail(f"waited {seconds:g} s in vain\n{story()}")
        time.sleep(pause)


def ignore_interrupts() -> None:
    """As in each background job of a script, such as `make prefect &`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def ends_in_order(worker: subprocess.Popen[bytes]) -> bool:
    """Whether SIGTERM ends it; it is gone in any case."""
    worker.terminate()
    try:
        worker.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
        return False
    return True


@pytest.fixture(scope="package")
def prefect(reproduced: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """`python -m pipeline.flows up` on a free port, a second worker beside its own; all of it ended afterwards.

    Idle, they take a twentieth of a processor: they are gone before the process goes on with another folder's tests.
    """
    home = tmp_path_factory.mktemp("prefect") / "checkout"
    copy_tree(reproduced, home)
    prefect = Prefect(home, f"http://127.0.0.1:{free_port()}/api")
    in_order = True
    try:
        prefect.up()
        yield prefect
    finally:
        if prefect.second is not None:
            in_order = ends_in_order(prefect.second)
        prefect.command("pipeline.flows", "down", check=False)
        for process in psutil.process_iter():  # nothing of ours may stay, whatever a failed test left
            try:
                if Path(process.cwd()).is_relative_to(home) and process.pid != os.getpid():
                    process.kill()
            except psutil.Error:
                continue
    assert in_order, "the second worker had to be killed: it did not end when it was told to"


@pytest.fixture(autouse=True)
def no_run_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A run that a failed test left keeps no worker from the next test."""
    yield
    if "prefect" in request.fixturenames:
        prefect: Prefect = request.getfixturevalue("prefect")
        going = {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED", "PENDING", "RUNNING"]}}}}
        for run in prefect.post("flow_runs/filter", going):
            if not run["auto_scheduled"]:  # those of a schedule stay: Prefect does not make them again soon
                prefect.command("prefect", "flow-run", "cancel", run["id"])
