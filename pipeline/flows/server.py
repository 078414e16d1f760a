"""Starts a Prefect server and worker on this machine, and registers pool and deployments of prefect.yaml on a server.

python -m pipeline.flows up          start what is not running, register, print the next command  (make prefect)
python -m pipeline.flows down        stop the worker and the server                               (make prefect-stop)
python -m pipeline.flows register    create pool, limit, automations and deployments on the server of PREFECT_API_URL
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import psutil
from tqdm import tqdm

from trueodds.errors import UserError
from trueodds.files import read_json, write_json
from trueodds.processes import extensions

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

STATE, REGISTERED = ".prefect", "registered.json"
POOL, WORKER = "gpu", "local"
URL = "http://127.0.0.1:4200/api"
SILENCE_SECONDS = 90
"""Seconds without a heartbeat after which a run counts as crashed: three missed (pyproject.toml sets the interval)."""
HEARTBEAT_SECONDS = 10.0
"""Seconds between two heartbeats of a worker, as set in pyproject.toml."""
STILL_SECONDS = 75.0
"""Timeout of requests. A server on SQLite that was not started here may freeze for 60 s (see prefect_server.py)."""
PENDING_SECONDS = 300
"""Seconds after which a run that was handed to a worker and has not started counts as crashed."""
ENDED = ("Completed", "Failed", "Cancelled", "Crashed")
SCHEDULED = ("Scheduled", "Late", "AwaitingRetry", "AwaitingConcurrencySlot")


class ServerError(UserError, RuntimeError):
    """The server or the worker did not start, or cannot be reached."""


def up(home: Path, url: str) -> None:
    """Start server and worker as separate processes, with logs and database in .prefect/. May be called again.

    What is registered stays as it is, unless the checkout has changed or something is gone from the server.

    Raises:
        ServerError: The address is in use, or a process ended before it was ready. The message has the end of its log.
    """
    state = home / STATE
    state.mkdir(exist_ok=True)
    if healthy(url):
        print(f"server: already running at {url}")
    else:
        address = urlsplit(url)
        place = ["--host", str(address.hostname), "--port", str(address.port or 4200)]
        _start(home, "server", ["pipeline.flows.prefect_server", *place], url, lambda: healthy(url), seconds=120)
    if _is_registered(home, url):
        print(f"registered: nothing has changed in {home} since")
    else:
        register(home, url)
        with suppress(httpx.HTTPError):  # a busy server answers 503; without this record, `up` registers again
            write_json(state / REGISTERED, {"code": _code_of(home), "server": _on_server(url)})
    worker = _alive(state / "worker.json")
    try:
        if worker is not None and (why := _reason_to_restart(worker, url)):
            _stop_idle(worker, why)
            worker = None
    except psutil.NoSuchProcess:  # it has ended while it was looked at
        worker = None
    if worker is not None:
        print("worker: already running")
    else:
        begin = datetime.now(UTC)
        _start(home, "worker", worker_command(WORKER), url, lambda: _heard(url) > begin, seconds=60)
    print(f"\nPrefect's page: {url.removesuffix('/api')}\nNext:  prefect deployment run train/digits --watch")
    if url != URL:
        print(f"First: export PREFECT_API_URL={url}")


def changed_variables(process: psutil.Process, environment: Mapping[str, str]) -> list[str]:
    """Return the TRUEODDS_ variables whose values differ from those with which the process was started."""
    try:
        started = process.environ()
    except psutil.AccessDenied:
        return []
    names = {name for name in (*started, *environment) if name.startswith("TRUEODDS_")}
    return sorted(name for name in names if started.get(name) != environment.get(name))


def _reason_to_restart(worker: psutil.Process, url: str) -> str:
    """Return why a running worker must be restarted, or "" if it need not be."""
    if changed := changed_variables(worker, os.environ):
        return f"{', '.join(changed)} has changed since it was started"
    begin = datetime.now(UTC)
    while _heard(url) < begin - timedelta(seconds=HEARTBEAT_SECONDS * 1.5):
        if datetime.now(UTC) - begin > timedelta(seconds=HEARTBEAT_SECONDS * 1.5):
            return f"the server at {url} receives no heartbeat of it"
        time.sleep(0.5)
    return ""


def lives(process: psutil.Process) -> bool:
    """Return whether the process has not ended. One that has ended, and that nobody has reaped, has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _stop_idle(worker: psutil.Process, why: str) -> None:
    """Stop the worker. Raises ServerError if it is running a flow."""
    if any(lives(child) for child in worker.children()):  # a hung worker reaps no zombies
        raise ServerError(
            f"the worker (process {worker.pid}) must be restarted because {why}, but it is running a flow. Wait for"
            " the flow's end, or stop it (make prefect-stop). Then run: make prefect"
        )
    print(f"worker: restarting, because {why}")
    _end(worker)


def _end(process: psutil.Process) -> None:
    """Terminate a process, and kill it if it does not end.

    Where nobody reaps orphans, as in many containers, an ended process stays as a zombie: it has ended all the same.
    """
    with suppress(psutil.NoSuchProcess):
        deadline = time.monotonic() + (5 if process.status() == psutil.STATUS_STOPPED else 30)
        process.terminate()
        while lives(process):
            if time.monotonic() > deadline:
                process.kill()
                return
            time.sleep(0.05)


def down(home: Path) -> None:
    """Stop the processes that `up` started, the worker first. A run in progress is marked as crashed."""
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
    """Create pool, concurrency limit, automations and deployments. Existing ones keep the settings of their users."""
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
        for key, (schedule, active) in _schedules(client).items():  # `deploy` resets them
            if key in before and before[key][1] != active:
                client.update_deployment_schedule(key[0], schedule, active=before[key][1])
    print(f"registered: work pool {POOL}, its limit and automations, the deployments of {home / 'prefect.yaml'}")


def _is_registered(home: Path, url: str) -> bool:
    """Return whether the server has all that was registered last, and the code that it was made from is unchanged.

    Registering takes ten seconds and more. It loads every flow, and through them the catalogues of methods and nets.
    """
    try:
        record, there = read_json(home / STATE / REGISTERED), _on_server(url)
    except (FileNotFoundError, httpx.HTTPError):
        return False
    registered = all(set(ids) <= set(there[kind]) for kind, ids in record["server"].items())
    return bool(registered and record["code"] == _code_of(home))


def _code_of(home: Path) -> str:
    """Return a hash of what decides the deployments: place and files of the checkout, and registered objects."""
    digest = hashlib.sha256(f"{home}\n{extensions.hashes(*get_args(extensions.Group))}\n".encode())
    sources = sorted(path for package in ("pipeline", "trueodds") for path in (home / package).rglob("*.py"))
    for path in (home / "prefect.yaml", *sources):
        digest.update(f"{path.relative_to(home)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _on_server(url: str) -> dict[str, list[str]]:
    """Return the ids of the server's deployments, automations, pools and limits."""
    found = {}
    with httpx.Client(timeout=STILL_SECONDS) as client:
        for kind in ("deployments", "automations", "work_pools", "v2/concurrency_limits"):
            answer = client.post(f"{url}/{kind}/filter", json={}).raise_for_status()
            found[kind] = [record["id"] for record in answer.json()]
    return found


def _schedules(client: SyncPrefectClient) -> dict[tuple[UUID, str], tuple[UUID, bool]]:
    """Return the schedules of all deployments by deployment and slug: the id, and whether it is active."""
    return {(d.id, s.slug): (s.id, s.active) for d in client.read_deployments() for s in d.schedules if s.slug}


def silent_runs(seconds: float = SILENCE_SECONDS) -> dict[str, Any]:
    """Return an automation that marks a run as CRASHED if it sends no heartbeat for `seconds`."""
    return _crash_automation(
        "trueodds: runs that fell silent have crashed",
        "heartbeat",
        ("heartbeat", *ENDED),
        seconds,
        f"no heartbeat for {seconds:g} s: the process or its machine is gone;"
        " retry the run and it continues from its checkpoint",
    )


def pending_runs(seconds: float = PENDING_SECONDS) -> dict[str, Any]:
    """Return an automation that marks a run as CRASHED if it stays PENDING for `seconds`, as when its machine died.

    Such a run has sent no heartbeat yet that could stop. `seconds` must be at least 10.
    """
    return _crash_automation(
        "trueodds: runs that never began have crashed",
        "Pending",
        ("heartbeat", "Running", *SCHEDULED, *ENDED),
        seconds,
        f"pending for {seconds:g} s: the worker or its machine is gone; retry it",
    )


def _crash_automation(name: str, after: str, expected: tuple[str, ...], seconds: float, message: str) -> dict[str, Any]:
    """Return an automation that marks a run as CRASHED if no expected event follows `after` within `seconds`.

    The run can then be retried and holds no slot. A finished run keeps its state, because Prefect refuses the change.
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


@cache
def tls() -> SSLContext:
    """Return the certificates for all requests. A request without them reads all files anew, which takes 25 ms."""
    return httpx.create_ssl_context()


def healthy(url: str) -> bool:
    """Return whether a Prefect server answers."""
    try:
        answer = httpx.get(f"{url}/health", timeout=STILL_SECONDS, verify=tls())  # fails at once if nothing listens
        return answer.json() is True
    except (httpx.HTTPError, ValueError):
        return False


def worker_command(name: str) -> list[str]:
    """Return a module with arguments that runs a worker of one flow at a time."""
    return ["pipeline.flows.worker", "--name", name]


def workers_heard(url: str) -> dict[str, datetime]:
    """Return the pool's workers, and when the server last heard of each."""
    address = f"{url}/work_pools/{POOL}/workers/filter"
    answer = httpx.post(address, json={}, timeout=STILL_SECONDS, verify=tls()).json()
    return {worker["name"]: datetime.fromisoformat(worker["last_heartbeat_time"]) for worker in answer}


def _heard(url: str) -> datetime:
    """Return when the server last heard of the worker that `up` starts."""
    return workers_heard(url).get(WORKER, datetime.min.replace(tzinfo=UTC))


def _start(home: Path, name: str, module: list[str], url: str, ready: Any, seconds: float) -> None:
    """Start a module as a process and wait until it is ready."""
    log = home / STATE / f"{name}.log"
    with log.open("ab") as output:  # appends, so that the log of an earlier process stays
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
    """Return the process in a record, if it is still the same process."""
    try:
        fields = read_json(record)
        process = psutil.Process(fields["pid"])
        same = abs(process.create_time() - fields["started"]) < 1
        return process if same and lives(process) else None
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None


def _environment(home: Path, url: str) -> dict[str, str]:
    """Return the environment of the server, the worker and `prefect deploy`."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PREFECT_HOME": str(home / STATE),
        "PREFECT_API_URL": url,
        "PIPELINE_HOME": str(home),
    }
