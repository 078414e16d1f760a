"""The flow `recalibrate`: fit a calibrator on live labels, judge it beside the served version, promote or withdraw it.

An alarm's webhook, a person (`prefect deployment run recalibrate/live`) or its schedule starts it; the schedule is
inactive by default. A run does not wait for labels or for a service that is down, because this would block the worker.
It schedules another run instead. If a run fails without scheduling another one, it tells the service, so that the alarm
is not lost.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from prefect import Flow, State, Task, flow, get_run_logger
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas import FlowRun
from prefect.logging.loggers import flow_run_logger
from prefect.runtime import deployment, flow_run
from prefect.states import Completed, Scheduled
from pydantic import Field

from pipeline import choices
from pipeline import recalibrate as recalibration
from pipeline.flows import artifacts
from pipeline.recalibrate import (
    CalibratorChoice,
    FewLabelsError,
    LabelChoice,
    Recalibration,
    RecalibrationOutcome,
    RemoteModel,
)
from trueodds.bundle import RECALIBRATED, PublishedModels, open_models
from trueodds.client import NO_ANSWER, CallError, Client
from trueodds.drawing.reliability import before_and_after
from trueodds.errors import UserError

T = TypeVar("T")

STEP_NAMES = {"publish_candidate": "publish as recalibrated"}
"""Names of the tasks that differ from their function's name."""
STATES = {"published": "Calibrator published", "waits": "Waits for a person"}
"""Names of a run's last state that differ from the outcome's status."""
LABELS_WANTED = "Waits for labels"
"""Name of the state if there is no verdict yet."""
NOTHING_DONE = ("few", "away")
"""Reasons for another run if this one could not start: too few labels, or no service."""
RETRIES, RETRY_SECONDS = 3, 10.0
LONGEST_MINUTES = 24 * 60.0


def run_name() -> str:
    """Return the name of a run: the model and the reason, such as `digits: alarm ...`."""
    parameters = flow_run.get_parameters() or {}
    reason = f": {parameters['reason']!s:.80}" if parameters.get("reason") else ""
    return f"{parameters.get('model') or 'default model'}{reason}"


def tell(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Tell the service that a chain of runs ended without a decision. It counts this and calls its webhooks."""
    given = flow_run.parameters
    if given.get("dry_run"):
        return
    why = " ".join(f"{given.get('reason') or ''} {state.name}: {state.message or ''}".split())
    try:
        client = Client.from_environment(given.get("service"))
        who = f"flow run {flow_run.name}"
        client.report_no_decision(given.get("model"), given.get("version"), who=who, why=why[:2000])
    except UserError as error:
        log = flow_run_logger(flow_run)
        log.error("the service could not be told that this recalibration ended without a decision: %s", error)


@flow(
    name="recalibrate",
    flow_run_name=run_name,
    persist_result=False,
    log_prints=False,
    on_failure=[tell],
    on_crashed=[tell],
)
def recalibrate(
    model: str | None = None,
    version: str | None = None,
    reason: str | None = None,
    service: str | None = None,
    models: str | None = None,
    labels: Annotated[int, Field(ge=recalibration.LEAST_LABELS)] = choices.LABELS,
    candidates: list[str] | None = None,
    groups: choices.Groups | None = None,
    promote: choices.Promote | None = None,
    promote_net: choices.Promote = "never",
    displace: bool = False,
    wait_seconds: Annotated[float, Field(ge=0)] = 0.0,
    look_again_minutes: Annotated[float, Field(gt=0)] | None = 10.0,
    dry_run: bool = False,
    prior_shift: bool = False,
    since: datetime | None = None,
) -> State[None]:
    """Judge the calibrator beside the served version. If there is none, fit one on live labels and publish it there.

    The verdict promotes or withdraws a calibrator. A net that waits as the shadow does not block a fit. It is judged,
    too, and a person decides about it.

    Args:
        model: Name of the model. None: the model for calls that name none.
        version: The run stops if another version is served by now. None: the served version.
        reason: Text that the model's audit log records.
        service: URL of the service. None: TRUEODDS_SERVICE of the worker, or port 8000 of this machine.
        models: Model directory of the service, or s3://bucket/prefix. None: TRUEODDS_MODELS of the worker, or models/
            in the checkout.
        labels: Largest number of labels to fit on, the newest first.
        candidates: Names of calibrators. The served one is always included. None: those with few parameters.
        groups: tag: a temperature for each tag is a candidate. None: only if the served calibrator has groups.
        promote: Decision about a calibrator. when-better: the verdict "better" promotes it, "worse" withdraws it. now:
            a fitted calibrator is served at once. never: a person decides. None: when-better, for a model of the
            service.
        promote_net: The same for the net that is the shadow.
        displace: A better fit replaces the calibrator under judgement, and the evidence about that one ends. The runs
            that continue to judge the fit do not displace it.
        wait_seconds: Seconds to wait for enough labels for a verdict. The worker is blocked meanwhile. Only for a model
            of the service.
        look_again_minutes: Minutes until another run, if labels are too few for a fit or a verdict, or the service is
            down. Each further run waits twice as long, up to a day. None: no other run.
        dry_run: Only check that a recalibration would be possible. The run fails if not.
        prior_shift: Correct the served calibrator for the class shares of answers without labels, in place of a fit.
        since: With prior_shift: only answers given since then.
    """
    log = get_run_logger()
    request = Recalibration(
        Client.from_environment(service),
        open_models(models) if models else open_models(home=Path.cwd()),
        model,
        version,
        labels,
        tuple(candidates or ()),
        promote=promote,
        promote_net=promote_net,
        displace=displace,
        groups=groups,
        prior_shift=prior_shift,
        since=since,
        wait_seconds=wait_seconds,
        why=reason or "",
        who=f"flow run {flow_run.get_name()}",
        say=log.info,
    )
    if dry_run:
        return Completed(name="Rehearsed", message=recalibration.rehearse(request))
    try:
        if RemoteModel.of(request) is None:
            request = replace(request, model=request.model_name())
        outcome = recalibration.recalibrate(request, as_task)
    except (FewLabelsError, CallError) as error:
        about = "few" if isinstance(error, FewLabelsError) else "away" if _is_away(error) else ""
        if not about or look_again_minutes is None or not deployment.id:
            raise
        return Completed(name="Waiting", message=f"{error}. {_look_again(look_again_minutes, request, version, about)}")
    _show(outcome, request.models)
    words, name = outcome.words, STATES.get(outcome.status, outcome.status.capitalize())
    log.info(words)
    wanted = _wants_labels(outcome, request)
    if wanted and outcome.status == "waits":
        name = LABELS_WANTED
    if (wanted or outcome.status == "published") and look_again_minutes and deployment.id:
        words += f" {_look_again(look_again_minutes, request, outcome.served, outcome.candidate or '')}"
    return Completed(name=name, message=words)


def _wants_labels(outcome: RecalibrationOutcome, request: Recalibration) -> bool:
    """Return whether a verdict is awaited: on a calibrator, or on a net about which a verdict decides."""
    waiting = [one for one in outcome.judgements if one.decision == "stays" and one.comparison.verdict == "undecided"]
    return any(one.slot == RECALIBRATED or request.promote_of(one.slot) == "when-better" for one in waiting)


def as_task(step: Callable[..., T], *arguments: Any) -> T:
    """Call a step as a Prefect task. It is retried if no service answers."""
    name = STEP_NAMES.get(step.__name__, step.__name__.replace("_", " "))

    def call() -> T:
        return step(*arguments)

    named: Task[[], T] = Task(
        call,
        name=name,
        task_run_name=name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=RETRIES,
        retry_delay_seconds=RETRY_SECONDS,
        retry_condition_fn=lambda _task, _run, state: _is_away(state.result(raise_on_failure=False)),
    )
    return named()


def _is_away(result: object) -> bool:
    """Return whether a step failed because no service answers."""
    return isinstance(result, CallError) and result.code == NO_ANSWER


def _look_again(minutes: float, request: Recalibration, version: str | None, about: str) -> str:
    """Schedule another run for the same model and place. Runs that ask within one minute share one."""
    when = datetime.now(UTC) + timedelta(minutes=minutes)
    parameters = later_parameters(flow_run.get_parameters() or {}, request, version, about)
    parameters |= {"look_again_minutes": min(2 * minutes, LONGEST_MINUTES)}
    key = f"recalibrate-{request.model}-{version}-{about}-{minutes:g}-{when:%Y-%m-%dT%H:%M}"
    with get_client(sync_client=True) as client:

        def ask(key: str) -> FlowRun:
            state: State[None] = Scheduled(scheduled_time=when)
            return client.create_flow_run_from_deployment(
                deployment.id, parameters=parameters, state=state, idempotency_key=key
            )

        run = ask(key)
        if run.state is not None and run.state.is_final():  # somebody cancelled it or started it early
            run = ask(f"{key}-{flow_run.get_id()}")
    return f"The next run starts at {run.expected_start_time or when:%Y-%m-%d %H:%M} UTC."


def later_parameters(before: dict[str, Any], request: Recalibration, version: str | None, about: str) -> dict[str, Any]:
    """Return the parameters of another run for the same model and place.

    If a run has put its fit under judgement, the next run must not displace it, or its evidence would never grow.
    """
    place = {"model": request.model, "service": request.client.url, "models": request.models.place, "version": version}
    return before | place | {"displace": request.displace and about in NOTHING_DONE}


def _show(outcome: RecalibrationOutcome, models: PublishedModels) -> None:
    """Create the artifacts of an outcome."""
    if isinstance(outcome.choice, LabelChoice):
        create_table_artifact(
            label_rows(outcome.choice), key="labels", description="Curves and log loss by label, nats"
        )
    elif outcome.choice is not None:
        create_table_artifact(
            candidate_rows(outcome.choice), key="candidates", description="Cross-validated NLL on the live labels, nats"
        )
        create_markdown_artifact(
            f"# {outcome.model}\n\n{outcome.words}\n\n![before and after]({_picture(outcome)})\n",
            key="recalibration",
            description="Before and after, on labels that the fit did not see",
        )
    elif outcome.judgements:
        create_markdown_artifact(
            f"# {outcome.model}\n\n{outcome.words}\n", key="evidence", description="On fresh labels"
        )
    if outcome.status == "fitted" and outcome.choice is not None:
        text = json.dumps(outcome.choice.calibrator.to_json())
        create_markdown_artifact(
            f"# calibrator.json\n\n```json\n{text}\n```\n", key="calibrator", description="For the model's own server"
        )
    if outcome.candidate is not None and outcome.candidate in models.versions(outcome.model):
        artifacts.show_bundle(
            models.address(outcome.model, outcome.candidate), models.standing(outcome.model, outcome.candidate)
        )


def candidate_rows(choice: CalibratorChoice) -> list[dict[str, Any]]:
    """Return rows for the served calibrator and the candidates. Numbers are text, because a table shows every digit."""
    rows = []
    for line in (choice.served, *choice.table):
        chosen = "served" if line is choice.served else "best" if line is choice.best else ""
        numbers = {"NLL": line.nll, "gain": line.gain, "standard error": line.gain_standard_error}
        shown = {key: "" if value is None else f"{value:.4f}" for key, value in numbers.items()}
        words = {"problem": line.problem or "", "reason": line.reason or ""}
        rows.append({"calibrator": line.name, "": chosen, **shown, **words})
    return rows


def label_rows(choice: LabelChoice) -> list[dict[str, Any]]:
    """Return a row for each label with its curve, and its log loss before and after. Numbers are text."""
    slopes, offsets = (np.asarray(one).tolist() for one in (choice.calibrator.slope_L, choice.calibrator.offset_L))
    pairs = zip(choice.before.by_label, choice.after.by_label, slopes, offsets, strict=True)
    return [
        {
            "label": after.name,
            "known": f"{after.labelled:,}",
            "slope": f"{slope:.3f}",
            "offset": f"{offset:.3f}",
            "before": "" if before.nll is None else f"{before.nll:.4f}",
            "after": "" if after.nll is None else f"{after.nll:.4f}",
        }
        for before, after, slope, offset in pairs
    ]


def _picture(outcome: RecalibrationOutcome) -> str:
    """Return a diagram of before and after as a data URL."""
    assert isinstance(outcome.choice, CalibratorChoice)
    choice = outcome.choice
    title = f"{outcome.model}: {choice.rows:,} live labels"
    svg = before_and_after(choice.before, choice.after, choice.settings, title)
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
