"""The flow `train`: `prefect deployment run train/cifar100 --watch -p method=focal`."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import UUID

import httpx
from prefect import Flow, State, get_run_logger, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.concurrency.sync import concurrency
from prefect.exceptions import PrefectException, TerminationSignal
from prefect.futures import PrefectFuture, wait
from prefect.runtime import flow_run
from prefect.states import Completed

from pipeline import config, stages
from pipeline.export.trial import try_bundle
from pipeline.flows import artifacts, child, graph, remote, workspace
from pipeline.flows.schema import PUBLISH, Publish, descriptions, read_text, signature
from pipeline.recalibrate import DisagreementError, Recalibration, check_folder
from pipeline.recalibrate.standing import publication_text
from trueodds.bundle import Bundle, PublishedModels, open_models, why_none
from trueodds.client import NO_ANSWER, CallError, Client
from trueodds.errors import ConfigError, UserError
from trueodds.processes import binding
from trueodds.processes.choices import SERVICE

LEASE_SECONDS = 60.0
"""Seconds after which a concurrency slot is free again if its run died without releasing it."""
_ADVICE = "Use `dvc push`"
_SKIPPED = {
    "didn't change, skipping": "nothing that it depends on has changed",
    "is cached - skipping run": "the same inputs were run before: outputs taken from the cache",
}


class StageError(UserError, RuntimeError):
    """A stage failed. If `wrong_input` is true, a retry cannot help."""

    def __init__(self, message: str, *, wrong_input: bool) -> None:
        super().__init__(message)
        self.wrong_input = wrong_input


@task(persist_result=False)
def run_stage(stage: graph.Stage, place: workspace.Workspace, sharing: bool) -> State[None] | None:
    """Run `dvc repro -s` for one stage. A stage that did not have to run ends in the state Skipped.

    Args:
        stage: The stage.
        place: The workspace.
        sharing: Whether outputs that others made are fetched from DVC's remote.

    Raises:
        StageError: The stage failed. The message has the last lines of its output.
        StageTimeoutError: The stage took longer than its meta allows.
    """
    log, progress = get_run_logger(), artifacts.Progress(stage.name)
    skipped: list[str] = []
    last: list[str] = []

    def line(text: str) -> None:
        if text.startswith(_ADVICE):
            return
        log.info(text)
        progress.read(text)
        skipped.extend(why for mark, why in _SKIPPED.items() if text.startswith(f"Stage '{stage.name}' {mark}"))
        last[:] = [*last[-11:], text]

    alone = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "-s", stage.name]
    command = remote.command("repro", stage.name) if sharing else alone
    with slot(stage.meta.concurrency):
        status = child.run(command, place.folder, place.environment(), line, stage.meta.timeout_seconds)
    if status:
        errors = [text for text in last if text.startswith("error: ")]
        words = "\n".join(errors or last)
        raise StageError(f"stage {stage.name} ended with status {status}:\n{words}", wrong_input=bool(errors))
    return Completed(name="Skipped", message=skipped[-1]) if skipped else None


def _worth_another_try(_task: object, _run: object, state: State[Any]) -> bool:
    """Return whether a retry may help. A wrong parameter stays wrong; a full GPU or a killed process may not."""
    error = state.result(raise_on_failure=False)
    return not (isinstance(error, StageError) and error.wrong_input)


def _train(**leaves: Any) -> None:
    """Run the graph in a workspace, save the experiment, and publish the bundle."""
    home, log = Path.cwd(), get_run_logger()
    role: Publish = leaves.pop(PUBLISH, "shadow")
    overrides = {name: value for name, value in leaves.items() if value is not None}
    run = str(flow_run.get_id())
    if "PREFECT__FLOW_RUN_ID" in os.environ:  # started by a worker: stop with it, by a signal that Prefect reports
        binding.die_with_parent(signal.SIGTERM, os.getppid())
    if (asked := creation_time(run)) is not None:
        log.info("requested at %s UTC; uses the current code, params.yaml and data", f"{asked:%Y-%m-%d %H:%M:%S}")
    workspace.prune(home, log.info, was_cancelled)
    with workspace.open_workspace(home, run, overrides, log.info) as place:
        shared = remote.name_of(place.folder)
        try:
            _run_graph(place, shared is not None and _take(place, shared))
        except TerminationSignal:
            if was_cancelled(run):
                place.remove()
            raise
        title = flow_run.get_name() or "run"
        if place.commit is not None:
            name = experiment_name(title, run)
            place.save_experiment(name)
            log.info("experiment %s: dvc exp show; dvc exp apply %s", name, name)
        artifacts.show_results(place.folder, title)
        if role != "never" and (place.folder / stages.BUNDLE).is_dir() and not why_none(place.folder / stages.BUNDLE):
            why = f"trained by {experiment_name(title, run)}"
            if note := try_bundle(place.folder / stages.BUNDLE):
                log.warning(note)
            models = open_models(home=home)
            bundle, words = publish(models, place.folder / stages.BUNDLE, role, why)
            if (elsewhere := _served_elsewhere(models)) is not None:
                log.warning(elsewhere)
                words += f" But {elsewhere}"
            address = models.address(bundle.parent.name, bundle.name)
            log.info("bundle: %s. %s", address, words)
            artifacts.show_bundle(address, words)
        if shared is not None:
            _give(place, shared)
        place.remove()


def publish(
    models: PublishedModels, folder: Path, role: Literal["shadow", "displace", "default"], why: str
) -> tuple[Path, str]:
    """Publish the trained bundle. Returns its folder, and its role and the evidence that ends in words."""
    ends = ""
    if role != "shadow":
        made = Bundle.load(folder)
        ends = publication_text(models, made.card.name, made.version, role, Client.from_environment())
        why = "; ".join(filter(None, [why, ends]))
    bundle = models.publish(folder, "default" if role == "default" else "shadow", displace=role == "displace", why=why)
    words = models.standing(bundle.parent.name, bundle.name)
    return bundle, f"{words} Evidence: {ends}." if ends else words


def _take(place: workspace.Workspace, name: str) -> bool:
    """Fetch entries from the remote. Returns whether that worked; if not, the run makes everything itself."""
    log = get_run_logger()
    log.info("DVC's remote %s: outputs that others made are fetched from it", name)
    if why := remote.exchange(place, "take", log.info, remote.TAKE_SECONDS):
        log.warning("DVC's remote %s: %s. The run continues without it", name, why)
    return why is None


def _give(place: workspace.Workspace, name: str) -> None:
    """Push the run's outputs to the remote. If it fails, the run still succeeds, because it has its result."""
    log = get_run_logger()
    why = remote.exchange(place, "give", log.info, remote.GIVE_SECONDS)
    if why is None:
        words = f"DVC's remote {name} has all outputs of this run; other machines can skip its stages."
        log.info(words)
    else:
        words = (
            f"DVC's remote {name} does not have the outputs of this run: {why}. They stay in the local DVC cache. When"
            " the remote is writable again, repeat the run: its stages are skipped and its outputs are pushed."
        )
        log.warning(words)
    artifacts.show_remote(words)


def _served_elsewhere(models: PublishedModels) -> str | None:
    """Return why the service of TRUEODDS_SERVICE, if set, will not find the bundles published here."""
    if not os.environ.get(SERVICE):
        return None
    try:
        check_folder(Recalibration(Client.from_environment(), models))
    except CallError as error:
        return None if error.code == NO_ANSWER else str(error)  # the service may start later
    except (ConfigError, DisagreementError) as error:
        return str(error)
    return None


def _run_graph(place: workspace.Workspace, sharing: bool) -> None:
    """Run each stage as soon as those it needs are done. After a failure, running stages finish and the run ends."""
    futures: dict[str, PrefectFuture[Any]] = {}
    try:
        for stage in graph.read(place.folder):
            meta = stage.meta
            futures[stage.name] = run_stage.with_options(
                name=stage.name,
                task_run_name=stage.name,
                tags=meta.tags,
                retries=meta.retries,
                retry_delay_seconds=meta.retry_delay_seconds,
                retry_condition_fn=_worth_another_try,
            ).submit(
                stage=stage,
                place=place,
                sharing=sharing,
                return_state=False,
                wait_for=[futures[name] for name in stage.needs],
            )
        wait(list(futures.values()))
    except BaseException:  # cancelled, or the worker stopped: the stages' threads end when their processes do
        child.stop_all()
        raise
    for future in futures.values():
        future.state.result()


def was_cancelled(run: str) -> bool:
    """Return whether the run is cancelled or being cancelled; False if the server does not answer."""
    flow_run = _read_run(run)
    return (
        flow_run is not None
        and flow_run.state is not None
        and (flow_run.state.is_cancelled() or flow_run.state.is_cancelling())
    )


def creation_time(run: str) -> datetime | None:
    """Return when the run was requested; None if the server does not answer."""
    flow_run = _read_run(run)
    return None if flow_run is None else flow_run.created


def _read_run(run: str) -> FlowRun | None:
    """Read the run, or return None."""
    try:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(UUID(run))
    except (ValueError, httpx.HTTPError, PrefectException):  # not the id of a run, no server, no such run
        return None


class TrainFlow(Flow[Any, Any]):
    """A flow whose parameters are those of params.yaml, checked by the code that reads params.yaml."""

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Refuse an unknown name, a bad value, or a net, method or calibrator that does not exist, before any work.

        Raises:
            ConfigError: The message names it, what is allowed and the nearest valid name.
        """
        parameters = read_text(parameters)
        overrides = {name: value for name, value in parameters.items() if value is not None}
        if (role := overrides.pop(PUBLISH, "shadow")) not in get_args(Publish):
            raise ConfigError(f"publish is {role!r}; allowed are {', '.join(get_args(Publish))}")
        stages.check_names(config.load(Path.cwd() / "params.yaml", overrides))
        return parameters


def run_name() -> str:
    """Return the data set and the overrides, such as `digits` or `cifar100 method=focal seed=42`."""
    overrides = {name: value for name, value in (flow_run.get_parameters() or {}).items() if value is not None}
    overrides.pop(PUBLISH, None)
    dataset = overrides.pop("dataset", None) or config.load(Path.cwd() / "params.yaml").data.dataset
    return " ".join([str(dataset), *(f"{name}={value}" for name, value in overrides.items())])


def experiment_name(name: str, run: str) -> str:
    """Return a git ref for the run: its name in allowed characters, shortened, with the end of the run's id."""
    return f"{re.sub('[^A-Za-z0-9]+', '-', name).strip('-')[:60] or 'run'}-{run.replace('-', '')[-6:]}"


def slot(limit: str | None) -> AbstractContextManager[None]:
    """Take a slot of a global concurrency limit by lease. Training continues if the server is down for a while."""
    if limit is None:
        return nullcontext()
    return concurrency(limit, lease_duration=LEASE_SECONDS, raise_on_lease_renewal_failure=False)


def _flow() -> TrainFlow:
    """Create the flow with the parameters of params.yaml."""
    _train.__signature__ = signature()  # type: ignore[attr-defined]
    _train.__doc__ = descriptions()
    return TrainFlow(
        _train,
        name="train",
        description="Fetch, plan, train, shift, calibrate, evaluate, export: DVC's graph, one task a stage.",
        flow_run_name=run_name,
        persist_result=False,
        log_prints=False,
    )


train = _flow()
logging.getLogger("pipeline").setLevel(logging.INFO)
