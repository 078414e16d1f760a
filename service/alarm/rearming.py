"""The route that re-arms an alarm: a new watch, once somebody has acknowledged what the last one found."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, Request
from pydantic import ConfigDict
from starlette.responses import Response

from service.alarm import forms
from service.alarm.readings import alarm_of
from service.alarm.state import ALARM, AlarmState
from service.alarm.watch import taking
from service.errors import ServiceError
from service.http import documentation, error_answers, json_body, keys
from service.http.signed_body import Name, SignedBody
from service.store.rows import LabelBlock, Version
from trueodds.reports.schemas.alarm import Alarm
from trueodds.texts import plural

if TYPE_CHECKING:
    from service.runtime import Runtime

router = APIRouter()


class RearmingBody(SignedBody):
    """Who re-arms an alarm, and what was done about the last one."""

    model_config = ConfigDict(title="AlarmRearming")

    model: Name
    version: Name


def examples(version: Version) -> documentation.Examples:
    """A body for the version."""
    body = {"model": version.model, "version": version.version, "who": "Ada", "why": "the camera is replaced"}
    return {json_body.JSON: {"after a repair": body}}


@router.post(
    "/admin/alarm/rearm",
    tags=["operation"],
    summary="Re-arm an alarm",
    openapi_extra={"requestBody": forms.request_body(RearmingBody), **keys.NEEDS_KEY},
    responses={
        200: {"model": Alarm},
        303: {"description": "to a form: on to the report"},
        **error_answers.documented(
            _400="not JSON",
            _404="unknown model or version",
            _408="the body came too slowly",
            _409="nothing has fired, or what has is not acknowledged",
            _413="the body is too large",
            _415="neither JSON nor a form",
            _422="a field is missing, empty, too long, unknown or not a plain line",
            _503="no model has been served yet, or the store cannot be written",
            **{**keys.ERRORS, "_403": "another role's key, or a form of another site"},
        ),
    },
)
async def rearm(request: Request) -> Response:
    """Begin a new watch after an acknowledged alarm whose cause is mended: new evidence, of the labels that come from
    now on, and an alarm that may fire again. The report keeps who did it, why and when.

    Its price: each watch alarms falsely for at most alpha of sound versions (1 in 20, unless TRUEODDS_ALARM_ALPHA
    says otherwise), so k + 1 of them together for at most k + 1 times as many. A new version that is published starts
    anew by itself.
    """
    runtime = cast("Runtime", request.app.state.runtime)
    expected = "model, version, who and why"
    body = await forms.read(request, RearmingBody, runtime.settings.max_json_values, expected)
    version = await runtime.version(body.model, body.version)
    alarm = await _rearm(runtime, version, body)
    return forms.answer(request, alarm, version)


async def _rearm(runtime: Runtime, version: Version, body: RearmingBody) -> Alarm:
    settings, at_ms = runtime.settings, time.time_ns() // 1_000_000
    take = taking(settings, version.positive_class)
    key = version.model, version.version

    def step(tree: Any, block: LabelBlock) -> Any:
        state = AlarmState.read(take(tree, block), settings)
        if any((past.who, past.why, past.at_ms) == (body.who, body.why, at_ms) for past in state.rearmings):
            return state.tree()  # done, and more labels have come
        _check(state, "/".join(key))
        return state.rearm(body.who, body.why, at_ms, settings).tree()

    await runtime.store.update_state(*key, ALARM, take)  # what has come meanwhile is of the last watch
    tree = await runtime.store.update_state(*key, ALARM, step)
    state, sums = AlarmState.read(tree, settings), await runtime.store.read_sums(*key)
    positive = version.positive
    return await asyncio.to_thread(alarm_of, state, settings, model=version.model, sums=sums, positive=positive)


def _check(state: AlarmState, name: str) -> None:
    """Raises ServiceError 409 unless something has fired, and what pages is acknowledged."""
    fired = {null: evidence for null, evidence in state.nulls.items() if evidence.fired}
    if not fired:
        words = f"nothing has fired of {name}, after {plural(state.labels, 'label')}; its alarm is armed"
        raise ServiceError(409, "nothing_to_rearm", words)
    if open_ := [null for null, evidence in fired.items() if evidence.acknowledged is None]:
        words = (
            f"what has fired of {name} ({', '.join(open_)}) is not acknowledged; POST /admin/alarm/acknowledge first"
        )
        raise ServiceError(409, "not_acknowledged", words)
