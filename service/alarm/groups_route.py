"""Routes for marks of tags and classes for good: acknowledge them, and re-arm the alarms by group after a repair."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from starlette.responses import Response

from service.alarm.evidence import StoredAcknowledgement
from service.alarm.group_readings import group_alarms
from service.alarm.groups import GROUPS, GroupMark, GroupState, taking_groups
from service.errors import ServiceError
from service.http import documentation, json_body, signed_body
from service.http.routing import redirect
from service.http.signed_body import Name, SignedBody
from service.runtime import Runtime, runtime_of
from service.store.rows import LabelBlock, Version
from trueodds.errors import unknown
from trueodds.reports.schemas import NO_TAG
from trueodds.reports.schemas.group_alarms import GroupAlarms, GroupKind
from trueodds.texts import plural, short

router = APIRouter()
_STORE = "no model has been served yet, or the store is not writable"
Labels = Annotated[
    int, BeforeValidator(lambda value: int(value) if isinstance(value, str) and 0 < len(value) < 20 else value)
]
"""Whole number, in a form as a text."""


class GroupAcknowledgementBody(SignedBody):
    """Acknowledgement of marks for good: who has seen them, and what they do about it."""

    model_config = ConfigDict(title="GroupAcknowledgement", populate_by_name=True)

    model: Name = Field(description="Name of the model.")
    version: Name = Field(description="Its version.")
    tag: Name | None = Field(None, description=f"Tag to acknowledge; {NO_TAG} for answers without one.")
    class_: Name | None = Field(None, alias="class", description="Predicted class to acknowledge, by name.")
    labels: Labels | None = Field(
        None, ge=0, description="Only marks within the first so many labels, such as `groups.labels` of a report."
    )

    @model_validator(mode="after")
    def _one(self) -> GroupAcknowledgementBody:
        if self.tag is not None and self.class_ is not None:
            raise ValueError("tag and class are both given; give one of them, or none for all marks")
        return self


class GroupRearmingBody(SignedBody):
    """Re-arming of the alarms by group: who does it, and what was repaired."""

    model_config = ConfigDict(title="GroupRearming")

    model: Name = Field(description="Name of the model.")
    version: Name = Field(description="Its version.")


B = TypeVar("B", GroupAcknowledgementBody, GroupRearmingBody)


def examples(version: Version) -> documentation.Examples:
    """Return bodies that acknowledge every mark, or that of one class."""
    signed = {"model": version.model, "version": version.version, "who": "Ada", "why": "recalibrating by tag"}
    one = {**signed, "class": version.classes[0]}
    return {json_body.JSON: {"all marks": signed, "one class": one}}


def rearming_examples(version: Version) -> documentation.Examples:
    """Return a body that re-arms the alarms by group."""
    body = {"model": version.model, "version": version.version, "who": "Ada", "why": "the camera is replaced"}
    return {json_body.JSON: {"after a repair": body}}


@router.post(
    "/admin/alarm/groups/acknowledge",
    summary="Acknowledge marks of tags and classes",
    **signed_body.form_route(
        GroupAcknowledgementBody,
        GroupAlarms,
        fields={},
        _404="unknown model or version",
        _409="no group is marked for good, or it is acknowledged already",
        _503=_STORE,
    ),
)
async def acknowledge(request: Request) -> Response:
    """Acknowledge tags or classes that are marked for good: all of them, or one `tag` or `class`.

    With `labels`, marks that came later stay open: the page sends it, so that nobody acknowledges an unseen mark.
    The evidence continues to be collected. A further tag or class may still be marked.
    """
    expected = "model, version, who and why, and maybe tag or class, and labels"
    runtime, version, body = await _read(request, GroupAcknowledgementBody, expected)
    about, name = _group(body, version)
    by = StoredAcknowledgement(who=body.who, why=body.why, at_ms=time.time_ns() // 1_000_000)

    def change(state: GroupState) -> GroupState:
        chosen = state.marks_of(about, name, body.labels)
        if by in [one.acknowledged for one in chosen]:
            return state  # a retry of the transaction
        if not any(one.acknowledged is None for one in chosen):
            raise _nothing(state, chosen, f"{version.model}/{version.version}")
        return state.acknowledge(by, about, name, body.labels)

    return await _change(request, runtime, version, change)


@router.post(
    "/admin/alarm/groups/rearm",
    summary="Re-arm the alarms by group",
    **signed_body.form_route(
        GroupRearmingBody,
        GroupAlarms,
        fields={},
        _404="unknown model or version",
        _409="no group is marked for good, or a mark is not acknowledged yet",
        _503=_STORE,
    ),
)
async def rearm(request: Request) -> Response:
    """Start a new watch of all tags and classes after you have repaired the cause of acknowledged marks.

    The new watch collects evidence only from labels that arrive from now on. Tags that came too late for a place get
    one again. Each watch has its own rates of false marks.
    """
    runtime, version, body = await _read(request, GroupRearmingBody, "model, version, who and why")
    settings, at_ms, classes = runtime.settings, time.time_ns() // 1_000_000, len(version.classes)

    def change(state: GroupState) -> GroupState:
        if any((past.who, past.why, past.at_ms) == (body.who, body.why, at_ms) for past in state.rearmings):
            return state  # a retry of the transaction: this re-arming is already in the state
        name = f"{version.model}/{version.version}"
        if not state.marks:
            words = f"no tag and no class of {name} is marked for good after {plural(state.labels, 'label')}"
            raise ServiceError(409, "nothing_to_rearm", f"{words}; the alarms by group are still armed")
        if any(one.acknowledged is None for one in state.marks):
            words = f"a tag or class of {name} is marked for good and not acknowledged"
            raise ServiceError(409, "not_acknowledged", f"{words}; send POST /admin/alarm/groups/acknowledge first")
        return state.rearm(body.who, body.why, at_ms, classes, settings)

    return await _change(request, runtime, version, change)


async def _read(request: Request, form: type[B], expected_keys: str) -> tuple[Runtime, Version, B]:
    runtime = runtime_of(request)
    body = await signed_body.read_any(request, form, runtime.settings.max_json_values, expected_keys)
    return runtime, await runtime.version(body.model, body.version), body


def _group(body: GroupAcknowledgementBody, version: Version) -> tuple[GroupKind | None, str | None]:
    """Return the kind of the group and its name in the state; two times None for all groups."""
    if body.tag is not None:
        return "tag", "" if body.tag == NO_TAG else body.tag
    if body.class_ is None:
        return None, None
    if body.class_ not in version.classes:
        raise ServiceError(422, "invalid_body", str(unknown("class", body.class_, version.classes)))
    return "class", str(version.classes.index(body.class_))


def _nothing(state: GroupState, marks: list[GroupMark], name: str) -> ServiceError:
    words = f"no such tag or class of {name} is marked for good after {plural(state.labels, 'label')}"
    if marks and (known := marks[0].acknowledged):
        words = f"{known.who} has already acknowledged this mark of {name}: {short(known.why)}"
    return ServiceError(409, "nothing_to_acknowledge", f"{words}; there is nothing to acknowledge")


async def _change(
    request: Request, runtime: Runtime, version: Version, change: Callable[[GroupState], GroupState]
) -> Response:
    """Feed all labels to the evidence, then change it. Return the alarms, or redirect a form to the report."""
    key, settings, classes = version.key, runtime.settings, len(version.classes)
    take = taking_groups(classes, settings)

    def step(tree: Any, block: LabelBlock) -> Any:
        return change(GroupState.read(take(tree, block), classes, settings)).tree()

    # Labels that have arrived meanwhile belong to the last watch, and may mark groups in it.
    await runtime.store.update_state(*key, GROUPS, take)
    tree = await runtime.store.update_state(*key, GROUPS, step)
    if signed_body.is_form(request):
        query = urlencode({"model": version.model, "version": version.version})
        return redirect(request, f"/calibration-report?{query}")
    part = group_alarms(GroupState.read(tree, classes, settings), version.classes)
    return Response(part.model_dump_json(), media_type=json_body.JSON)
