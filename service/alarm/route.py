"""The routes of a fired alarm: acknowledging it, and re-arming it once its cause is mended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from pydantic import ConfigDict
from starlette.responses import RedirectResponse, Response

from service.alarm.evidence import NULLS, StoredAcknowledgement
from service.alarm.readings import alarm_of
from service.alarm.state import ALARM, AlarmState
from service.alarm.watch import taking
from service.errors import ServiceError
from service.http import documentation, json_body, signed_body
from service.http.signed_body import Name, SignedBody
from service.runtime import Runtime, runtime_of
from service.store.rows import LabelBlock, Version
from trueodds.reports.schemas.alarm import Alarm, Watched
from trueodds.texts import plural, short

router = APIRouter()
_STORE = "no model has been served yet, or the store cannot be written"


class AcknowledgementBody(SignedBody):
    """The person who has seen an alarm, and what is done about it."""

    model_config = ConfigDict(title="AlarmAcknowledgement")

    model: Name
    version: Name
    null: Watched | None = None


class RearmingBody(SignedBody):
    """The person who re-arms an alarm, and what was done about the last one."""

    model_config = ConfigDict(title="AlarmRearming")

    model: Name
    version: Name


B = TypeVar("B", AcknowledgementBody, RearmingBody)


def examples(version: Version) -> documentation.Examples:
    """Return a body of an acknowledgement of what the version has fired."""
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
    """Say who takes care of what has fired, and why it may rest. The evidence goes on; the alarm of this version does
    not fire again unless it is re-armed.
    """
    expected = "model, version, who and why, and maybe null (ece, point or positive)"
    runtime, version, body = await _read(request, AcknowledgementBody, expected)
    nulls: tuple[Watched, ...] = (body.null,) if body.null else NULLS
    by = StoredAcknowledgement(who=body.who, why=body.why, at_ms=time.time_ns() // 1_000_000)

    def change(state: AlarmState) -> AlarmState:
        changed = state.acknowledge(nulls, by)
        watched = tuple(null for null in nulls if null in state.nulls)
        if not any(changed.nulls[null].acknowledged is by for null in watched) and by not in _known(state, watched):
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
        _409="nothing has fired, or what has is not acknowledged",
        _503=_STORE,
    ),
)
async def rearm(request: Request) -> Response:
    """Begin a new watch after an acknowledged alarm whose cause is mended: new evidence, of the labels that come from
    now on, and an alarm that may fire again. The report keeps who did it, why and when.

    Its price: each watch alarms falsely for at most alpha of sound versions (1 in 20, unless TRUEODDS_ALARM_ALPHA
    says otherwise), so k + 1 of them together for at most k + 1 times as many. A new version that is published starts
    anew by itself.
    """
    runtime, version, body = await _read(request, RearmingBody, "model, version, who and why")
    settings, at_ms = runtime.settings, time.time_ns() // 1_000_000

    def change(state: AlarmState) -> AlarmState:
        if any((past.who, past.why, past.at_ms) == (body.who, body.why, at_ms) for past in state.rearmings):
            return state  # done, and more labels have come
        _check_rearmable(state, f"{version.model}/{version.version}")
        return state.rearm(body.who, body.why, at_ms, settings)

    return await _change(request, runtime, version, change)


async def _read(request: Request, form: type[B], expected: str) -> tuple[Runtime, Version, B]:
    runtime = runtime_of(request)
    body = await signed_body.read_any(request, form, runtime.settings.max_json_values, expected)
    return runtime, await runtime.version(body.model, body.version), body


async def _change(
    request: Request, runtime: Runtime, version: Version, change: Callable[[AlarmState], AlarmState]
) -> Response:
    """Change the state of an alarm that has taken all labels; answer with the alarm, or a form with its report."""
    key, settings = version.key, runtime.settings
    take = taking(settings, version.positive_class)

    def step(tree: Any, block: LabelBlock) -> Any:
        return change(AlarmState.read(take(tree, block), settings)).tree()

    await runtime.store.update_state(*key, ALARM, take)  # what has come meanwhile may fire, and is of the last watch
    tree = await runtime.store.update_state(*key, ALARM, step)
    state, sums = AlarmState.read(tree, settings), await runtime.store.read_sums(*key)
    positive = version.positive
    alarm = await asyncio.to_thread(alarm_of, state, settings, model=version.model, sums=sums, positive=positive)
    if signed_body.is_form(request):
        query = urlencode({"model": version.model, "version": version.version})
        return RedirectResponse(f"/calibration-report?{query}", 303)
    return Response(alarm.model_dump_json(), media_type=json_body.JSON)


def _known(state: AlarmState, nulls: tuple[Watched, ...]) -> list[StoredAcknowledgement]:
    """Earlier acknowledgements; ours among them where a transaction is tried again or more labels have come."""
    return [known for null in nulls if null in state.nulls and (known := state.nulls[null].acknowledged)]


def _nothing(state: AlarmState, nulls: tuple[Watched, ...], name: str) -> ServiceError:
    words = f"nothing has fired of {name} ({', '.join(nulls)}), after {plural(state.labels, 'label')}"
    if known := _known(state, nulls):
        words = f"{known[0].who} has acknowledged the alarm of {name} already: {short(known[0].why)}"
    return ServiceError(409, "nothing_to_acknowledge", f"{words}; there is nothing to acknowledge")


def _check_rearmable(state: AlarmState, name: str) -> None:
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
