"""Routes for an alarm that has fired: acknowledge it, and re-arm it after a repair."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from service.alarm.evidence import NULLS, StoredAcknowledgement
from service.alarm.readings import alarm_of
from service.alarm.state import ALARM, AlarmState
from service.alarm.watch import needs_levels, taking
from service.errors import ServiceError
from service.http import documentation, json_body, signed_body
from service.http.routing import redirect
from service.http.signed_body import Name, SignedBody
from service.runtime import Runtime, runtime_of
from service.store.rows import LabelBlock, Version
from trueodds.reports.schemas.alarm import Alarm, Watched
from trueodds.texts import plural, short

router = APIRouter()
_STORE = "no model has been served yet, or the store is not writable"


class AcknowledgementBody(SignedBody):
    """Acknowledgement of an alarm: who has seen it, and what they do about it."""

    model_config = ConfigDict(title="AlarmAcknowledgement")

    model: Name = Field(description="Name of the model.")
    version: Name = Field(description="Its version.")
    null: Watched | None = Field(None, description="Part of the alarm to acknowledge. Default: all that have fired.")


class RearmingBody(SignedBody):
    """Re-arming of an alarm: who does it, and what was done about the last alarm."""

    model_config = ConfigDict(title="AlarmRearming")

    model: Name = Field(description="Name of the model.")
    version: Name = Field(description="Its version.")


B = TypeVar("B", AcknowledgementBody, RearmingBody)


def examples(version: Version) -> documentation.Examples:
    """Return an example that acknowledges everything that has fired."""
    acknowledgement = {"model": version.model, "version": version.version, "who": "Ada", "why": "recalibrating today"}
    return {json_body.JSON: {"all that has fired": acknowledgement}}


def rearming_examples(version: Version) -> documentation.Examples:
    """Return a body that re-arms the version's alarm."""
    body = {"model": version.model, "version": version.version, "who": "Ada", "why": "the camera is replaced"}
    return {json_body.JSON: {"after a repair": body}}


@router.post(
    "/admin/alarm/acknowledge",
    summary="Acknowledge an alarm",
    **signed_body.form_route(
        AcknowledgementBody,
        Alarm,
        fields={"null": {"enum": ["", *NULLS], "default": ""}},
        _404="unknown model or version",
        _409="nothing has fired, or it is acknowledged already",
        _503=_STORE,
    ),
)
async def acknowledge(request: Request) -> Response:
    """Acknowledge an alarm that has fired: `who` takes care of it, and `why` it needs no further messages.

    The evidence continues to be collected. The alarm of this version does not fire again unless you re-arm it.
    """
    expected = "model, version, who and why, and maybe null (ece, positive, levels or point)"
    runtime, version, body = await _read(request, AcknowledgementBody, expected)
    nulls: tuple[Watched, ...] = (body.null,) if body.null else NULLS
    by = StoredAcknowledgement(who=body.who, why=body.why, at_ms=time.time_ns() // 1_000_000)

    def change(state: AlarmState) -> AlarmState:
        changed = state.acknowledge(nulls, by)
        watched = tuple(null for null in nulls if null in state.nulls)
        if not any(changed.nulls[null].acknowledged is by for null in watched) and by not in _earlier_acknowledgements(
            state, watched
        ):
            raise _nothing(state, watched or nulls, f"{version.model}/{version.version}")
        return changed

    return await _change(request, runtime, version, change)


@router.post(
    "/admin/alarm/rearm",
    summary="Re-arm an alarm",
    **signed_body.form_route(
        RearmingBody,
        Alarm,
        fields={},
        _404="unknown model or version",
        _409="nothing has fired, or the alarm is not acknowledged yet",
        _503=_STORE,
    ),
)
async def rearm(request: Request) -> Response:
    """Start a new watch after you have repaired the cause of an acknowledged alarm.

    The new watch collects evidence only from labels that arrive from now on, and may fire again. The report shows who
    re-armed the alarm, why and when.

    Each watch has its own false alarm rate of at most alpha (0.05, unless TRUEODDS_ALARM_ALPHA is set). So k + 1
    watches together have a rate of at most (k + 1) times alpha. A newly published version starts with fresh evidence
    anyway.
    """
    runtime, version, body = await _read(request, RearmingBody, "model, version, who and why")
    settings, at_ms = runtime.settings, time.time_ns() // 1_000_000

    def change(state: AlarmState) -> AlarmState:
        if any((past.who, past.why, past.at_ms) == (body.who, body.why, at_ms) for past in state.rearmings):
            return state  # a retry of the transaction: this re-arming is already in the state
        _check_rearmable(state, f"{version.model}/{version.version}")
        return state.rearm(body.who, body.why, at_ms, settings)

    return await _change(request, runtime, version, change)


async def _read(request: Request, form: type[B], expected_keys: str) -> tuple[Runtime, Version, B]:
    runtime = runtime_of(request)
    body = await signed_body.read_any(request, form, runtime.settings.max_json_values, expected_keys)
    return runtime, await runtime.version(body.model, body.version), body


async def _change(
    request: Request, runtime: Runtime, version: Version, change: Callable[[AlarmState], AlarmState]
) -> Response:
    """Feed all labels to the alarm, then change its state. Return the alarm, or redirect a form to the report."""
    key, settings = version.key, runtime.settings
    take, needs = taking(settings, version), needs_levels(settings, version)

    def step(tree: Any, block: LabelBlock) -> Any:
        return change(AlarmState.read(take(tree, block), settings)).tree()

    # Labels that have arrived meanwhile belong to the last watch, and may fire its alarm.
    await runtime.store.update_state(*key, ALARM, take, needs_levels=needs)
    tree = await runtime.store.update_state(*key, ALARM, step, needs_levels=needs)
    state, sums = AlarmState.read(tree, settings), await runtime.store.read_sums(*key)
    alarm = await asyncio.to_thread(
        alarm_of,
        state,
        settings,
        model=version.model,
        sums=sums,
        positive=version.positive,
        levels=version.watched_levels,
    )
    if signed_body.is_form(request):
        query = urlencode({"model": version.model, "version": version.version})
        return redirect(request, f"/calibration-report?{query}")
    return Response(alarm.model_dump_json(), media_type=json_body.JSON)


def _earlier_acknowledgements(state: AlarmState, nulls: tuple[Watched, ...]) -> list[StoredAcknowledgement]:
    """Return earlier acknowledgements. Ours is among them if a transaction is retried or more labels have arrived."""
    return [known for null in nulls if null in state.nulls and (known := state.nulls[null].acknowledged)]


def _nothing(state: AlarmState, nulls: tuple[Watched, ...], name: str) -> ServiceError:
    words = f"the alarm of {name} has not fired ({', '.join(nulls)}) after {plural(state.labels, 'label')}"
    if known := _earlier_acknowledgements(state, nulls):
        words = f"{known[0].who} has already acknowledged the alarm of {name}: {short(known[0].why)}"
    return ServiceError(409, "nothing_to_acknowledge", f"{words}; there is nothing to acknowledge")


def _check_rearmable(state: AlarmState, name: str) -> None:
    """Raise ServiceError 409 unless the alarm has fired and each fired part is acknowledged."""
    fired = {null: evidence for null, evidence in state.nulls.items() if evidence.fired}
    if not fired:
        words = f"the alarm of {name} has not fired after {plural(state.labels, 'label')}; it is still armed"
        raise ServiceError(409, "nothing_to_rearm", words)
    if open_ := [null for null, evidence in fired.items() if evidence.acknowledged is None]:
        words = (
            f"the alarm of {name} ({', '.join(open_)}) is not acknowledged; send POST /admin/alarm/acknowledge first"
        )
        raise ServiceError(409, "not_acknowledged", words)
