"""The route that voids labels: an import with wrong ones, or all that arrived in some time."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.alarm.watch import restarts, update_evidence
from service.errors import ServiceError
from service.http import documentation, json_body, signed_body
from service.http.parameters import Moment, unix_ms
from service.http.signed_body import Name, SignedBody
from service.labels import imports
from service.runtime import Runtime, runtime_of
from service.store import StoreError
from service.store.rows import LabelSelection, VoidCounts, Voiding
from trueodds.texts import plural, short

router = APIRouter()

Time = Annotated[Moment, Field(strict=False)]


class LabelVoiding(SignedBody):
    """Which labels are void, who says so, and why."""

    import_id: str | None = Field(None, description="those of an import, as the answer to /feedback names it")
    since: Time | None = Field(
        None, description="those that arrived since then: ISO 8601 (UTC without an offset) or Unix time"
    )
    until: Time | None = Field(None, description="and before then; default: until now")
    model: Name | None = Field(None, description="only those of a model, and of its shadow")
    dry_run: bool = Field(False, description="only count them")


class VoidedVersion(BaseModel):
    """What became of the answers of a version whose labels are voided."""

    model: str
    version: str
    removed: int = Field(description="answers that have no label now")
    restored: int = Field(description="answers whose label is back that a voided one had replaced")
    kept: int = Field(description="answers whose voided label had been replaced since: their label stays")


class LabelsVoided(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "dry_run": False,
                "labels": 40,
                "held": 0,
                "versions": [{"model": "digits", "version": "3f2a9c01d4e5", "removed": 38, "restored": 2, "kept": 0}],
                "reading": "40 labels voided: 38 answers without any other label, 2 answers whose earlier label comes"
                " back.",
            }
        }
    )

    dry_run: bool
    labels: int = Field(description="in all, those of shadows beside those of answers")
    held: int = Field(description="labels that waited for their predictions")
    versions: list[VoidedVersion]
    reading: str = Field(description="the numbers in words")


def examples(import_id: str) -> documentation.Examples:
    """Bodies that only count: of an import, and of some time."""
    signed = {"who": "Ada", "why": "the file of another day", "dry_run": True}
    since, until = "2026-01-31T08:00:00Z", "2026-01-31T09:00:00Z"
    return {
        json_body.JSON: {
            "an import": {"import_id": import_id, **signed},
            "all that arrived in an hour": {"since": since, "until": until, **signed},
        }
    }


@router.post(
    "/admin/labels/void",
    summary="Void labels that should not have come",
    **signed_body.route(
        LabelVoiding,
        LabelsVoided,
        _404="no label came with this import, or an unknown model",
        _422="neither an import nor a time, or a field is missing, unknown or not allowed",
        _503="the store cannot be written; sending it again is safe",
    ),
)
async def void_labels(request: Request) -> Response:
    """Take labels out of every number, as if they had never come: those of an import, or that arrived in some time.

    An answer whose label had been replaced by a void one has that label back; without another it has none, and may get
    one again. Labels of shadows and held labels are voided too. The alarm's evidence is worked out anew from the labels
    that remain in the log; what it promises holds only if labels are not voided for what they say about the model.
    Again: nothing is left to void. `dry_run` says how many there are.
    """
    runtime = runtime_of(request)
    body = await json_body.read_json(request, runtime.settings.max_json_values, _read)
    if body.model is not None:
        await runtime.version(body.model, None)
    now = come = time.time_ns() // 1_000_000
    if body.since is not None and body.until is None:  # the clock of the replica that took them may be ahead
        come = max(now, await runtime.store.latest_label())
    voiding = Voiding(_selection(body, come), now, body.who, body.why)
    restart = restarts(runtime.settings)
    counts, held = await runtime.store.void_labels(voiding, restart, dry_run=body.dry_run)
    if not counts and not held and body.since is None:
        await _check_import(runtime, body.import_id)
    if not body.dry_run:
        for model, version in counts:
            with contextlib.suppress(StoreError):  # the watch over the alarm takes what is left, or says what is wrong
                await update_evidence(runtime.store, await runtime.answered_by(model, version), runtime.settings)
    answer = LabelsVoided(
        dry_run=body.dry_run,
        labels=sum(voided.labels for voided in counts.values()),
        held=held,
        versions=[
            VoidedVersion(model=model, version=version, **vars(voided)) for (model, version), voided in counts.items()
        ],
        reading=_reading(sum(counts.values(), VoidCounts()), held, dry_run=body.dry_run),
    )
    return Response(answer.model_dump_json(), media_type=json_body.JSON)


def _read(tree: Any) -> LabelVoiding:
    """The body, checked.

    Raises:
        ServiceError: 422 for what is not allowed, or names no labels.
    """
    expected = "who, why, and import_id or since (and maybe until), and maybe model and dry_run"
    body = signed_body.read(LabelVoiding, tree, expected)
    if body.import_id is None and body.since is None:
        message = f"neither import_id nor since says which labels are void; expected {expected}"
        raise ServiceError(422, "invalid_body", message)
    imports.check_selection(body.import_id, body.since, body.until)
    return body


def _selection(body: LabelVoiding, come_ms: int) -> LabelSelection:
    """The labels that a body names; of a time without an end, only those that have come until `come_ms`."""
    if body.since is None and body.until is None:
        return LabelSelection(body.import_id, model=body.model)
    since = None if body.since is None else unix_ms(body.since)
    until = come_ms + 1 if body.until is None else unix_ms(body.until)
    return LabelSelection(body.import_id, since, until, body.model)


async def _check_import(runtime: Runtime, import_id: str | None) -> None:
    """Raises ServiceError 404 for an import of which there never was a label, as far as is known."""
    if import_id is None or await runtime.store.is_voided(import_id):
        return
    message = (
        f"no label has the import id {short(import_id)}; the answer to POST /feedback names it (labels older than the"
        " retention time are gone, and the same label again keeps its first import)"
    )
    raise ServiceError(404, "unknown_import", message)


def _reading(counts: VoidCounts, held: int, *, dry_run: bool) -> str:
    if not counts.labels and not held:
        return "There is nothing to void: no label is selected."
    parts = {
        "without any other label": counts.removed,
        "whose earlier label comes back": counts.restored,
        "whose later label stays": counts.kept,
    }
    words = [f"{plural(count, 'answer')} {what}" for what, count in parts.items() if count]
    if held:
        words.append(f"{plural(held, 'held label')} without a prediction")
    labels = plural(counts.labels + held, "label")
    return f"{labels} {'to void' if dry_run else 'voided'}: {', '.join(words)}."
