"""Checks that the parts of an installation agree. Prints one line per check, with a cure if it fails.

It looks at the running system: the installed versions, the variables of this process, the service's model directory,
the runs that Prefect has scheduled, and the path from an alarm over its webhook to a flow. The exit status is 1 if a
check fails.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipeline.cli import common
from pipeline.cli.common import Finding
from trueodds.cli import Subparsers
from trueodds.errors import UserError
from trueodds.processes.choices import MODELS, SERVICE

if TYPE_CHECKING:
    from trueodds.bundle import PublishedModels
    from trueodds.client import Client

CONSTRAINTS = Path("docker/constraints.txt")
SCHEDULE_SECONDS = 30.0
"""Seconds within which Prefect's scheduler, which looks every few seconds, must have created a schedule's runs."""
RUN_SECONDS = 120.0
"""Seconds within which a worker must have started and ended the rehearsal of an alarm's flow."""
TEST_PAUSES = (0.5, 1.0)
"""Pauses in seconds before an alarm's test is sent again, as the service does when the receiver is busy."""
_LOG = "read the service's log"
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")


class DoctorError(UserError, RuntimeError):
    """At least one check failed. Its line names the cure."""


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("doctor", "doctor --url http://127.0.0.1:8000")
    parser = commands.add_parser("doctor", description=__doc__, epilog=epilog)
    common.add_models(parser)
    common.add_service(parser)


def run(arguments: argparse.Namespace) -> int:
    client = common.client_of(arguments)
    doctor(client, arguments.models, expected=bool(arguments.url) or SERVICE in os.environ)
    return 0


def examine(home: Path, client: Client, models: PublishedModels, *, expected: bool) -> Iterator[Finding]:
    """Run all checks and yield each result at once.

    Args:
        home: The folder to check: a checkout, or any other.
        client: The client of the service.
        models: The model directory.
        expected: Whether a service that does not answer is an error; otherwise its checks are skipped.
    """
    yield versions(home)
    yield telemetry(home)
    yield folder(models)
    up = service(client, expected=expected)
    yield up
    if up.state == "ok":
        yield same_folder(client, models)
    yield from slots(client if up.state == "ok" else None, models)
    prefect = _Prefect.of_settings()
    if isinstance(prefect, Finding):
        yield prefect
    else:
        yield from prefect.findings()
    if up.state == "ok":
        yield from alarm(client, None if isinstance(prefect, Finding) else prefect)


def versions(home: Path) -> Finding:
    """Compare the installed packages with the exact versions in docker/constraints.txt."""
    from packaging.requirements import Requirement

    what, other, checked = "versions", [], 0
    try:
        lines = (home / CONSTRAINTS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return Finding(what, "skipped", f"there is no {CONSTRAINTS} here: this folder is not a checkout")
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pin = Requirement(line)
        if pin.marker and not pin.marker.evaluate():
            continue
        try:
            installed = metadata.version(pin.name)
        except metadata.PackageNotFoundError:
            continue
        checked += 1
        if installed not in pin.specifier:
            other.append(f"{pin.name} {installed} (tested{str(pin.specifier).replace('==', ' ')})")
    if other:
        return Finding(what, "wrong", f"not those of {CONSTRAINTS}: {', '.join(other)}", "rm -r .venv; make setup")
    return Finding(what, "ok", f"the {checked} installed packages have the versions in {CONSTRAINTS}")


def telemetry(home: Path) -> Finding:
    """Check that the telemetry of all libraries is switched off."""
    on = []
    if os.environ.get("ORT_DISABLE_TELEMETRY") != "1":
        on.append("onnxruntime (ORT_DISABLE_TELEMETRY is not 1)")
    try:
        from prefect.settings import get_current_settings

        if get_current_settings().server.analytics_enabled:
            on.append("Prefect (server.analytics_enabled)")
    except ImportError:
        pass
    try:
        from dvc.config import Config

        dvc = home / ".dvc"
        settings: dict[str, Any] = Config(dvc_dir=str(dvc) if dvc.is_dir() else None).get("core", {})
        if settings.get("analytics", True) and not os.environ.get("DVC_NO_ANALYTICS"):
            on.append("DVC (core.analytics)")
    except ImportError:
        pass
    if on:
        cure = "run the command in the checkout, whose settings switch it off, and do not set these variables"
        return Finding("telemetry", "wrong", f"on: {', '.join(on)}", cure)
    return Finding("telemetry", "ok", "off: onnxruntime, Prefect, DVC")


def folder(models: PublishedModels) -> Finding:
    """Check that the model directory exists, can be written, and has a served version."""
    from trueodds.bundle import BucketError, BundleError

    place = models.place
    publish = "dvc repro && trueodds publish"
    try:
        if not models.exists():
            return Finding("models", "wrong", f"the folder {place} does not exist: no model is published yet", publish)
        models.check_writable()
        default = models.default()
    except BundleError as error:
        return Finding("models", "wrong", str(error), publish)
    except BucketError as error:
        return Finding("models", "wrong", str(error))
    except OSError as error:
        cure = f"give the service's model directory: --models, or {MODELS}"
        return Finding("models", "wrong", f"{place} cannot be written: {error.strerror}", cure)
    return Finding("models", "ok", f"{place}: {default.parent.name}/{default.name} serves calls that name no model")


def service(client: Client, *, expected: bool) -> Finding:
    """Check that the service is ready, and that its store can be written."""
    from trueodds.client import NO_ANSWER, CallError

    try:
        ready = client.ready()
        problem = client.problem()
    except CallError as error:
        if error.code == NO_ANSWER:
            return Finding("service", "wrong" if expected else "skipped", str(error))
        return Finding("service", "wrong", str(error), _LOG)
    if ready is None:
        return Finding("service", "ok", f"{client.url} is read-only: it reports on its store and serves no predictions")
    if problem:
        return Finding("service", "wrong", f"{client.url} serves {ready.model}/{ready.version}, but {problem}", _LOG)
    words = f"{client.url} serves {ready.model}/{ready.version}, and its store can be written"
    return Finding("service", "ok", words)


def same_folder(client: Client, models: PublishedModels) -> Finding:
    """Check that commands and flows publish to the folder that the service reads."""
    from pipeline.recalibrate import Recalibration, check_folder

    try:
        check_folder(Recalibration(client, models))
    except (UserError, OSError) as error:
        return Finding("folder", "wrong", str(error))
    return Finding("folder", "ok", f"the service serves {models.place}")


def slots(client: Client | None, models: PublishedModels) -> Iterator[Finding]:
    """Report for every model which versions are under judgement or waiting."""
    from pipeline.recalibrate.standing import slot_texts

    try:
        for text in slot_texts(models, client) or ["no version is under judgement or waiting"]:
            yield Finding("slots", "ok", text)
    except (UserError, OSError) as error:
        yield Finding("slots", "wrong", str(error))


@dataclass(frozen=True)
class _Prefect:
    """A Prefect server, given by the URL of its API."""

    url: str

    @classmethod
    def of_settings(cls) -> _Prefect | Finding:
        """Return the server that this folder's settings name, or the failed check if it does not answer."""
        try:
            from prefect.settings import PREFECT_API_URL

            from pipeline.flows import server
        except ImportError:
            return Finding("prefect", "skipped", "not installed here: no runs are scheduled")
        url = str(PREFECT_API_URL.value() or server.URL)
        if server.healthy(url):
            return cls(url)
        expected = "PREFECT_API_URL" in os.environ
        state: Literal["wrong", "skipped"] = "wrong" if expected else "skipped"
        return Finding("prefect", state, f"no server answers at {url}: no runs are scheduled", "make prefect")

    def ask(self, path: str, body: Any = None) -> Any:
        """Return the JSON answer. Tries again after status 503, which means that the server's database is busy."""
        import httpx

        from pipeline.flows.server import STILL_SECONDS, tls

        method = "GET" if body is None else "POST"
        for pause in (0.5, 1.0, 2.0, 4.0, 0.0):
            answer = httpx.request(method, f"{self.url}/{path}", json=body, timeout=STILL_SECONDS, verify=tls())
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            time.sleep(pause)
        return answer.raise_for_status().json()

    def findings(self) -> Iterator[Finding]:
        """Yield the checks of the worker and the schedules."""
        import httpx

        try:
            yield self._worker()
            yield self._schedules()
        except httpx.HTTPError as error:
            yield Finding("prefect", "wrong", f"{self.url} does not answer as Prefect's API: {error}")

    def _worker(self) -> Finding:
        """Check that a worker of the pool is online."""
        from pipeline.flows import server

        workers = self.ask(f"work_pools/{server.POOL}/workers/filter", {})
        names = sorted(worker["name"] for worker in workers if worker["status"] == "ONLINE")
        if not names:
            return Finding("worker", "wrong", f"none of the pool {server.POOL} is online: runs wait", "make prefect")
        return Finding("worker", "ok", f"online: {', '.join(names)}")

    def _schedules(self) -> Finding:
        """Check that every active schedule has a run waiting for its time."""
        deployments = self.ask("deployments/filter", {})
        active = {d["id"]: d["name"] for d in deployments if any(s["active"] for s in d["schedules"])}
        if not deployments:
            return Finding("schedules", "wrong", f"{self.url} has no deployments", "make prefect")
        end, waiting = time.monotonic() + SCHEDULE_SECONDS, dict(active)
        while waiting:
            runs = self.ask("flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}})
            waiting = {id_: n for id_, n in active.items() if id_ not in {r["deployment_id"] for r in runs}}
            if waiting and time.monotonic() > end:
                words = f"no run is scheduled for {', '.join(sorted(waiting.values()))}: the scheduler does not work"
                return Finding("schedules", "wrong", words, "read `versions` above and .prefect/server.log")
            time.sleep(0.5 if waiting else 0)
        names = ", ".join(sorted(active.values())) or "no schedule is active"
        return Finding("schedules", "ok", f"runs are scheduled: {names}" if active else names)

    def run(self, id_: str) -> Finding:
        """Wait for the end of a rehearsal and return its result."""
        end, run = time.monotonic() + RUN_SECONDS, self.ask(f"flow_runs/{id_}")
        while run["state_type"] not in ENDED:
            if time.monotonic() > end:
                words = f"the flow that an alarm starts is still {run['state_name']} after {RUN_SECONDS:g} s"
                return Finding("alarm", "wrong", words, "check that a worker runs: make prefect")
            time.sleep(0.5)
            run = self.ask(f"flow_runs/{id_}")
        message = run["state"].get("message") or run["state_name"]
        if run["state_type"] != "COMPLETED":
            return Finding("alarm", "wrong", f"the flow that an alarm starts would fail: {message}")
        return Finding("alarm", "ok", f"reaches its flow; {message}")


def alarm(client: Client, prefect: _Prefect | None) -> Iterator[Finding]:
    """Let the service test the path from an alarm over its webhooks to a flow."""
    import httpx

    from trueodds.client import CallError

    try:
        tried = client.request("POST", "/admin/alarm/test")["webhooks"]
        for pause in TEST_PAUSES:
            if all(hook["taken"] for hook in tried):
                break
            time.sleep(pause)
            tried = client.request("POST", "/admin/alarm/test")["webhooks"]
    except CallError as error:
        yield Finding("alarm", "wrong", str(error))
        return
    if not tried:
        yield Finding("alarm", "skipped", "the service has no webhook (TRUEODDS_ALARM_WEBHOOK): nobody hears an alarm")
    for hook in tried:
        if not hook["taken"]:
            yield Finding("alarm", "wrong", hook["problem"], "correct TRUEODDS_ALARM_WEBHOOK of the service")
        elif hook["flow_run"] is None:
            yield Finding("alarm", "ok", f"{hook['webhook']} accepted a test")
        elif prefect is None:
            yield Finding("alarm", "skipped", f"{hook['webhook']} started a run, which cannot be seen from here")
        else:
            try:
                yield prefect.run(hook["flow_run"])
            except httpx.HTTPError as error:
                words = f"{hook['webhook']} started a run that {prefect.url} does not know ({error})"
                yield Finding("alarm", "wrong", words, "set PREFECT_API_URL to the server of the webhook")


def doctor(client: Client, models: PublishedModels, *, expected: bool) -> None:
    """Print every result of `examine` for the current folder.

    Raises:
        DoctorError: At least one check failed.
    """
    wrong = 0
    for finding in examine(Path.cwd(), client, models, expected=expected):
        print(finding, flush=True)
        wrong += finding.state == "wrong"
    if wrong:
        raise DoctorError(f"{wrong} of these checks {'is' if wrong == 1 else 'are'} wrong")
