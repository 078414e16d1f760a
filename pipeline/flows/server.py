"""A Prefect server with a pool, a worker and the deployments of prefect.yaml: on this machine, or registered elsewhere.

python -m pipeline.flows up          start what does not run yet, register, print the next command  (make prefect)
python -m pipeline.flows down        end the worker and the server                             (make prefect-stop)
python -m pipeline.flows register    pool, limit, automations and deployments on the server of PREFECT_API_URL
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import psutil
from tqdm import tqdm

from trueodds.errors import UserError
from trueodds.files import read_json, write_json

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

STATE = ".prefect"
POOL, WORKER = "gpu", "local"
URL = "http://127.0.0.1:4200/api"
SILENCE_SECONDS = 90
"""Without a heartbeat for so long a run is taken for crashed: three missed (pyproject.toml sets their distance)."""
HEARTBEAT_SECONDS = 10.0
"""Between two of a worker's heartbeats, as pyproject.toml sets it."""
STILL_SECONDS = 75.0
"""A server over SQLite that was not started here may stand still for 60 s; see pipeline/flows/prefect_server.py."""
PENDING_SECONDS = 300
"""A run that was handed to a worker and has not begun after so long is taken for crashed."""
ENDED = ("Completed", "Failed", "Cancelled", "Crashed")
SCHEDULED = ("Scheduled", "Late", "AwaitingRetry", "AwaitingConcurrencySlot")


class ServerError(UserError, RuntimeError):
    """The server or the worker did not start, or cannot be reached."""


def up(home: Path, url: str) -> None:
    """Server and worker as processes of their own, with their logs and database in .prefect/; safe to call again.

    Raises:
        ServerError: the address is taken, or a process ended before it was ready; the message holds the log's end.
    """
    state = home / STATE
    state.mkdir(exist_ok=True)
    if healthy(url):
        print(f"server: answers already at {url}")
    else:
        address = urlsplit(url)
        place = ["--host", str(address.hostname), "--port", str(address.port or 4200)]
        _start(home, "server", ["pipeline.flows.prefect_server", *place], url, lambda: healthy(url), seconds=120)
    register(home, url)
    worker = _alive(state / "worker.json")
    if worker is not None and (why := _reason_to_restart(worker, url)):
        _stop_idle(worker, why)
        worker = None
    if worker is not None:
        print("worker: runs already")
    else:
        begin = datetime.now(UTC)
        _start(home, "worker", worker_command(WORKER), url, lambda: _heard(url) > begin, seconds=60)
    print(f"\nPrefect's page: {url.removesuffix('/api')}\nNext:  prefect deployment run train/digits --watch")
    if url != URL:
        print(f"after: export PREFECT_API_URL={url}")


def changed_variables(process: psutil.Process, environment: Mapping[str, str]) -> list[str]:
    """Names of the TRUEODDS_ variables whose value is not the one that the process was started with."""
    try:
        started = process.environ()
    except psutil.AccessDenied:
        return []
    names = {name for name in (*started, *environment) if name.startswith("TRUEODDS_")}
    return sorted(name for name in names if started.get(name) != environment.get(name))


def _reason_to_restart(worker: psutil.Process, url: str) -> str:
    """Why a worker that is there is of no use; "" where it is."""
    if changed := changed_variables(worker, os.environ):
        return f"{', '.join(changed)} has changed since it was started"
    begin = datetime.now(UTC)
    while _heard(url) < begin - timedelta(seconds=HEARTBEAT_SECONDS * 1.5):
        if datetime.now(UTC) - begin > timedelta(seconds=HEARTBEAT_SECONDS * 1.5):
            return f"the server at {url} hears nothing of it"
        time.sleep(0.5)
    return ""


def _stop_idle(worker: psutil.Process, why: str) -> None:
    """Raises ServerError while it runs a flow."""
    if any(child.status() != psutil.STATUS_ZOMBIE for child in worker.children()):  # one that hangs reaps none
        raise ServerError(
            f"the worker (process {worker.pid}) is of no use, for {why}; but it is running a flow. Wait for the flow's"
            " end, or end it (make prefect-stop), and then: make prefect"
        )
    print(f"worker: started anew, for {why}")
    _end(worker)


def _end(process: psutil.Process) -> None:
    process.terminate()
    try:
        process.wait(5 if process.status() == psutil.STATUS_STOPPED else 30)
    except psutil.TimeoutExpired:
        process.kill()


def down(home: Path) -> None:
    """End what `up` started, the worker first; a run in progress is marked as crashed and can be retried."""
    for name in ("worker", "server"):
        record = home / STATE / f"{name}.json"
        process = _alive(record)
        if process is None:
            print(f"{name}: not running")
        else:
            _end(process)
            print(f"{name}: stopped")
        record.unlink(missing_ok=True)


def register(home: Path, url: str) -> None:
    """Pool, concurrency limit, automations and deployments; what is there already stays as somebody has set it."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate
    from prefect.events.schemas.automations import AutomationCore
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.workers.process import ProcessWorker

    if not healthy(url):
        raise ServerError(f"no Prefect server answers at {url}; start one (make prefect) or set PREFECT_API_URL")
    with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
        template = ProcessWorker.get_default_base_job_template()
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process", base_job_template=template))
        if POOL not in {limit.name for limit in client.read_global_concurrency_limits()}:
            client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=POOL, limit=1))
        for automation in (silent_runs(), pending_runs()):
            if not client.read_automations_by_name(automation["name"]):
                client.create_automation(AutomationCore.model_validate(automation))
        before = _schedules(client)
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        cwd=home,
        env=_environment(home, url),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ServerError(f"prefect deploy --all failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
        for key, (schedule, active) in _schedules(client).items():  # `deploy` sets what prefect.yaml says
            if key in before and before[key][1] != active:
                client.update_deployment_schedule(key[0], schedule, active=before[key][1])
    print(f"registered: work pool {POOL}, its limit and automations, the deployments of {home / 'prefect.yaml'}")


def _schedules(client: SyncPrefectClient) -> dict[tuple[UUID, str], tuple[UUID, bool]]:
    """Of all deployments, by deployment and slug: the schedule's id, and whether it is switched on."""
    return {(d.id, s.slug): (s.id, s.active) for d in client.read_deployments() for s in d.schedules if s.slug}


def silent_runs(seconds: float = SILENCE_SECONDS) -> dict[str, Any]:
    """An automation: a run whose heartbeats stop (its machine died, say) becomes CRASHED after `seconds`."""
    return _crash_automation(
        "trueodds: runs that fell silent have crashed",
        "heartbeat",
        ("heartbeat", *ENDED),
        seconds,
        f"no heartbeat for {seconds:g} s: the process or its machine is gone;"
        " retry it and it goes on from its checkpoint",
    )


def pending_runs(seconds: float = PENDING_SECONDS) -> dict[str, Any]:
    """An automation: a run that stays PENDING (its machine died before it began, say) becomes CRASHED after `seconds`.

    It has no heartbeat yet that could stop. `seconds` are 10 at least.
    """
    return _crash_automation(
        "trueodds: runs that never began have crashed",
        "Pending",
        ("heartbeat", "Running", *SCHEDULED, *ENDED),
        seconds,
        f"pending for {seconds:g} s: the worker or its machine is gone; retry it",
    )


def _crash_automation(name: str, after: str, expected: tuple[str, ...], seconds: float, message: str) -> dict[str, Any]:
    """A run that shows none of the expected events within `seconds` of the event `after` becomes CRASHED.

    It can be retried then, and holds no slot. A run that has ended stays as it is: Prefect refuses to make it CRASHED.
    """
    return {
        "name": name,
        "description": message,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "match": {"prefect.resource.id": ["prefect.flow-run.*"]},
            "after": [f"prefect.flow-run.{after}"],
            "expect": [f"prefect.flow-run.{event}" for event in expected],
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": timedelta(seconds=seconds),
        },
        "actions": [{"type": "change-flow-run-state", "state": "CRASHED", "message": message}],
    }


def healthy(url: str) -> bool:
    """Whether a Prefect server answers."""
    try:
        return httpx.get(f"{url}/health", timeout=STILL_SECONDS).json() is True  # nobody there is known at once
    except (httpx.HTTPError, ValueError):
        return False


def worker_command(name: str) -> list[str]:
    """A module, and its arguments, that runs a worker of one flow at a time."""
    return ["pipeline.flows.worker", "--name", name]


def workers_heard(url: str) -> dict[str, datetime]:
    """Names of the pool's workers, and when the server last heard of each."""
    answer = httpx.post(f"{url}/work_pools/{POOL}/workers/filter", json={}, timeout=STILL_SECONDS).json()
    return {worker["name"]: datetime.fromisoformat(worker["last_heartbeat_time"]) for worker in answer}


def _heard(url: str) -> datetime:
    """When the server last heard of the worker that `up` starts."""
    return workers_heard(url).get(WORKER, datetime.min.replace(tzinfo=UTC))


def _start(home: Path, name: str, module: list[str], url: str, ready: Any, seconds: float) -> None:
    log = home / STATE / f"{name}.log"
    with log.open("ab") as output:  # the last words of one that ended stay
        process = psutil.Popen(
            [sys.executable, "-m", *module],
            cwd=home,
            env=_environment(home, url),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    write_json(home / STATE / f"{name}.json", {"pid": process.pid, "started": process.create_time()})
    begin = time.monotonic()
    with tqdm(desc=f"{name}: starting", bar_format="{desc} {elapsed}", disable=not sys.stderr.isatty()) as clock:
        while not ready():
            clock.refresh()
            if process.poll() is not None or time.monotonic() - begin > seconds:
                process.kill()
                end = log.read_text(errors="replace")[-1500:]
                raise ServerError(f"the {name} did not start ({url}); the end of {log}:\n{end}")
            time.sleep(0.25)
    print(f"{name}: started in {time.monotonic() - begin:.0f} s (process {process.pid}, log {log})")


def _alive(record: Path) -> psutil.Process | None:
    """The process a record names, if it still is that process."""
    try:
        fields = read_json(record)
        process = psutil.Process(fields["pid"])
        same = abs(process.create_time() - fields["started"]) < 1
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None


def _environment(home: Path, url: str) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PREFECT_HOME": str(home / STATE),
        "PREFECT_API_URL": url,
        "PIPELINE_HOME": str(home),
    }
