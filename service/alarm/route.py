"""The alarm's routes: acknowledging it, trying its webhooks, and what became of the recalibration that it asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, Request
from pydantic import ConfigDict
from starlette.responses import Response

from service.alarm import forms, webhooks
from service.alarm.evidence import StoredAcknowledgement
from service.alarm.promise import PROMISE, PromiseState
from service.alarm.promise_readings import acting_alone
from service.alarm.readings import Standing, alarm_of, standing
from service.alarm.schemas import AlarmTest, WebhookTest
from service.alarm.state import ALARM, AlarmState
from service.alarm.watch import taking
from service.alarm.watched import NULLS
from service.errors import ServiceError
from service.http import documentation, error_answers, json_body, keys, signed_body
from service.http.signed_body import Name, SignedBody
from service.settings import Webhook
from service.store import StoreError
from service.store.rows import LabelBlock, Version
from trueodds.reports.schemas.alarm import ActingAlone, Alarm, Watched
from trueodds.texts import plural, short

if TYPE_CHECKING:
    from service.runtime import Runtime

router = APIRouter()


class AcknowledgementBody(SignedBody):
    """Who has seen an alarm, and what is done about it."""

    model_config = ConfigDict(title="AlarmAcknowledgement")

    model: Name
    version: Name
    null: Watched | None = None


class UndecidedBody(SignedBody):
    """Who recalibrated what, and why there is no decision."""

    model_config = ConfigDict(title="UndecidedRecalibration")

    model: Name | None = None
    version: Name | None = None


def undecided_examples(version: Version) -> documentation.Examples:
    """Bodies of a report that a recalibration of the version ended without a decision."""
    report = {"model": version.model, "version": version.version, "who": "flow run", "why": "Failed: the disk is full"}
    return {json_body.JSON: {"a failed run": report}}


def examples(version: Version) -> documentation.Examples:
    """Bodies of an acknowledgement of what the version has fired."""
    acknowledgement = {"model": version.model, "version": version.version, "who": "Ada", "why": "recalibrating today"}
    return {json_body.JSON: {"all that has fired": acknowledgement}}


@router.post(
    "/admin/alarm/acknowledge",
    tags=["operation"],
    summary="Acknowledge an alarm",
    openapi_extra={
        "requestBody": forms.request_body(AcknowledgementBody, null={"enum": ["", *NULLS], "default": ""}),
        **keys.NEEDS_KEY,
    },
    responses={
        200: {"model": Alarm},
        303: {"description": "to a form: on to the report"},
        **error_answers.documented(
            _400="not JSON",
            _404="unknown model or version",
            _408="the body came too slowly",
            _409="nothing has fired, or it is acknowledged already",
            _413="the body is too large",
            _415="neither JSON nor a form",
            _422="a field is missing, empty, too long, unknown or not a plain line",
            _503="no model has been served yet, or the store cannot be written",
            **{**keys.ERRORS, "_403": "another role's key, or a form of another site"},
        ),
    },
)
async def acknowledge(request: Request) -> Response:
    """Say who takes care of what has fired, and why it may rest. The evidence goes on; the alarm of this version does
    not fire again unless it is re-armed.
    """
    runtime = cast("Runtime", request.app.state.runtime)
    expected = "model, version, who and why, and maybe null (ece, point or positive)"
    body = await forms.read(request, AcknowledgementBody, runtime.settings.max_json_values, expected)
    version = await runtime.version(body.model, body.version)
    alarm = await _acknowledge(runtime, version, body)
    return forms.answer(request, alarm, version)


@router.post(
    "/admin/alarm/test",
    tags=["operation"],
    summary="Try the alarm's webhooks",
    dependencies=[keys.requires("admin")],
    responses={
        200: {"model": AlarmTest},
        **error_answers.documented(_503="no model is loaded", **keys.ERRORS),
    },
)
async def try_webhooks(request: Request) -> Response:
    """Send every webhook a test, of type `calibration-alarm-test`, in the way that an alarm takes. A Prefect deployment
    gets a run with `dry_run`, which only looks whether all that it needs is there.
    """
    runtime = cast("Runtime", request.app.state.runtime)
    version, address = runtime.engine.version, runtime.settings.address
    body = webhooks.trial_news(version.model, version.version, address=address)
    return await _call(runtime, runtime.settings.alarm_webhook, body)


@router.post(
    "/admin/recalibration/undecided",
    tags=["operation"],
    summary="Report a recalibration without a decision",
    dependencies=[keys.requires("admin")],
    openapi_extra={
        "requestBody": {"required": True, "content": {json_body.JSON: {"schema": UndecidedBody.model_json_schema()}}}
    },
    responses={
        200: {"model": AlarmTest},
        **error_answers.documented(
            _400="not JSON",
            _408="the body came too slowly",
            _413="the body is too large",
            _415="not JSON",
            _422="a field is missing, empty, too long, unknown or not a plain line",
            **keys.ERRORS,
        ),
    },
)
async def report_undecided(request: Request) -> Response:
    """Say that an automatic recalibration has failed and no further run of it follows. It is counted, and every webhook
    is told by news of type `recalibration-undecided`, except those that start a Prefect deployment.
    """
    runtime = cast("Runtime", request.app.state.runtime)
    settings, expected = runtime.settings, "who and why, and maybe model and version"
    body = await json_body.read_json(
        request, settings.max_json_values, lambda tree: signed_body.read(UndecidedBody, tree, expected)
    )
    runtime.telemetry.undecided()
    reading = f"A recalibration ended without a decision ({body.who}): {body.why}"
    told = webhooks.undecided_news(body.model, body.version, reading, address=settings.address)
    return await _call(runtime, [hook for hook in settings.alarm_webhook if not hook.starts_run], told)


async def _call(runtime: Runtime, hooks: Iterable[Webhook], body: dict[str, Any]) -> Response:
    """The answer after a try of each webhook."""

    async def attempt(hook: Webhook) -> WebhookTest:
        try:
            run = await webhooks.send(hook, body)
        except webhooks.WebhookError as error:
            runtime.telemetry.delivery(str(hook), delivered=False)
            return WebhookTest(webhook=str(hook), taken=False, problem=str(error), flow_run=None)
        runtime.telemetry.delivery(str(hook), delivered=True)
        return WebhookTest(webhook=str(hook), taken=True, problem=None, flow_run=run)

    test = AlarmTest(webhooks=await asyncio.gather(*map(attempt, hooks)))
    return Response(test.model_dump_json(), media_type=json_body.JSON)


async def read_alarm(runtime: Runtime, model: str, version: str) -> tuple[AlarmState | None, Standing]:
    """Reads the evidence of a version (None: damaged), and how its alarm stands."""
    tree = await runtime.store.read_state(model, version, ALARM)
    try:
        state = AlarmState.read(tree, runtime.settings)
    except StoreError:
        return None, "quiet"
    return state, standing(state, model)


async def read_acting(runtime: Runtime, version: Version, answers: int) -> ActingAlone | None:
    """Reads how a version keeps its promise to act alone; None without one, or where its evidence is damaged."""
    if version.act_alone is None:
        return None
    key = version.model, version.version
    tree, acted = await runtime.store.read_state(*key, PROMISE), await runtime.store.count_acted(*key)
    try:
        state = PromiseState.read(tree, version.act_alone, runtime.settings)
    except StoreError:
        return None
    return acting_alone(state, runtime.settings, answers=answers, acted=acted)


async def _acknowledge(runtime: Runtime, version: Version, body: AcknowledgementBody) -> Alarm:
    key = version.model, version.version
    settings, take = runtime.settings, taking(runtime.settings, version.positive_class)
    nulls: tuple[Watched, ...] = (body.null,) if body.null else NULLS
    by = StoredAcknowledgement(who=body.who, why=body.why, at_ms=time.time_ns() // 1_000_000)

    def step(tree: Any, block: LabelBlock) -> Any:
        state = AlarmState.read(take(tree, block), settings)
        changed = state.acknowledge(nulls, by)
        watched = tuple(null for null in nulls if null in state.nulls)
        if not any(changed.nulls[null].acknowledged is by for null in watched) and by not in _known(state, watched):
            raise _nothing(state, watched or nulls, "/".join(key))
        return changed.tree()

    await runtime.store.update_state(*key, ALARM, take)  # what has come meanwhile may fire
    tree = await runtime.store.update_state(*key, ALARM, step)
    state, sums = AlarmState.read(tree, settings), await runtime.store.read_sums(*key)
    positive = version.positive
    return await asyncio.to_thread(alarm_of, state, settings, model=version.model, sums=sums, positive=positive)


def _known(state: AlarmState, nulls: tuple[Watched, ...]) -> list[StoredAcknowledgement]:
    """Earlier acknowledgements; ours among them where a transaction is tried again or more labels have come."""
    return [known for null in nulls if null in state.nulls and (known := state.nulls[null].acknowledged)]


def _nothing(state: AlarmState, nulls: tuple[Watched, ...], name: str) -> ServiceError:
    words = f"nothing has fired of {name} ({', '.join(nulls)}), after {plural(state.labels, 'label')}"
    if known := _known(state, nulls):
        words = f"{known[0].who} has acknowledged the alarm of {name} already: {short(known[0].why)}"
    return ServiceError(409, "nothing_to_acknowledge", f"{words}; there is nothing to acknowledge")
