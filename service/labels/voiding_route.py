"""Route that voids labels: a wrong import, or all labels that arrived in a given time."""

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
    """Selection of labels to void, who decides, and why."""

    import_id: str | None = Field(None, description="Labels of this import, as named in the answer of /feedback.")
    since: Time | None = Field(
        None, description="Labels that arrived at or after this time: ISO 8601 (UTC if no offset) or Unix time."
    )
    until: Time | None = Field(None, description="Labels that arrived before this time. Default: now.")
    model: Name | None = Field(None, description="Only labels of this model and of its shadow.")
    dry_run: bool = Field(False, description="Only count the labels.")


class VoidedVersion(BaseModel):
    """Result for one version whose labels are voided."""

    model: str
    version: str
    removed: int = Field(description="Answers that now have no label.")
    restored: int = Field(description="Answers that have their earlier label back, which a voided label had replaced.")
    kept: int = Field(description="Answers that keep a later label, which had already replaced the voided one.")


class LabelsVoided(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "dry_run": False,
                "labels": 40,
                "held": 0,
                "versions": [{"model": "digits", "version": "3f2a9c01d4e5", "removed": 38, "restored": 2, "kept": 0}],
                "reading": "40 labels voided: 38 answers without any other label, 2 answers whose earlier label is"
                " restored.",
            }
        }
    )

    dry_run: bool
    labels: int = Field(description="Total, including labels of shadows.")
    held: int = Field(description="Labels that were waiting for their predictions.")
    versions: list[VoidedVersion]
    reading: str = Field(description="The numbers in words.")


def examples(import_id: str) -> documentation.Examples:
    """Return example bodies that only count: by import, and by time of arrival."""
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
    summary="Void wrong labels",
    **signed_body.route(
        LabelVoiding,
        LabelsVoided,
        _404="unknown model, or no label has this import id",
        _422="neither an import nor a time, or a field that is missing, unknown or not allowed",
        _503="the store is not writable; you may send the request again",
    ),
)
async def void_labels(request: Request) -> Response:
    """Remove labels from every number. Select them by import or by time of arrival.

    If a voided label had replaced an earlier one, the earlier one is restored. Otherwise the answer has no label and
    may get a new one. Labels of shadows and held labels are voided too.

    The alarm's evidence is recomputed from the labels that remain in the log. Its guarantee holds only if you do not
    choose the labels to void by what they say about the model. Sending the request again has no effect. `dry_run` only
    counts the labels.
    """
    runtime = runtime_of(request)
    body = await json_body.read_json(request, runtime.settings.max_json_values, _read)
    if body.model is not None:
        await runtime.version(body.model, None)
    now = come = time.time_ns() // 1_000_000
    if body.since is not None and body.until is None:  # the clock of the replica that took the labels may be ahead
        come = max(now, await runtime.store.latest_label())
    voiding = Voiding(_selection(body, come), now, body.who, body.why)
    restart = restarts(runtime.settings)
    counts, held_labels = await runtime.store.void_labels(voiding, restart, dry_run=body.dry_run)
    if not counts and not held_labels and body.since is None:
        await _check_import(runtime, body.import_id)
    if not body.dry_run:
        for model, version in counts:
            with contextlib.suppress(StoreError):  # the alarm's watch catches up later, or reports the problem
                await update_evidence(runtime.store, await runtime.answered_by(model, version), runtime.settings)
    answer = LabelsVoided(
        dry_run=body.dry_run,
        labels=sum(voided.labels for voided in counts.values()),
        held=held_labels,
        versions=[
            VoidedVersion(model=model, version=version, **vars(voided)) for (model, version), voided in counts.items()
        ],
        reading=_reading(sum(counts.values(), VoidCounts()), held_labels, dry_run=body.dry_run),
    )
    return Response(answer.model_dump_json(), media_type=json_body.JSON)


def _read(tree: Any) -> LabelVoiding:
    """Validate the body.

    Raises:
        ServiceError: 422 if a value is not allowed, or if the body selects no labels.
    """
    expected = "who, why, and import_id or since (and maybe until), and maybe model and dry_run"
    body = signed_body.read(LabelVoiding, tree, expected)
    if body.import_id is None and body.since is None:
        message = f"import_id and since are both missing, so no labels are selected; expected {expected}"
        raise ServiceError(422, "invalid_body", message)
    imports.check_selection(body.import_id, body.since, body.until)
    return body


def _selection(body: LabelVoiding, come_ms: int) -> LabelSelection:
    """Return the selected labels. A time without an end covers the labels that arrived until `come_ms`."""
    if body.since is None and body.until is None:
        return LabelSelection(body.import_id, model=body.model)
    since = None if body.since is None else unix_ms(body.since)
    until = come_ms + 1 if body.until is None else unix_ms(body.until)
    return LabelSelection(body.import_id, since, until, body.model)


async def _check_import(runtime: Runtime, import_id: str | None) -> None:
    """Raise ServiceError 404 if no label has ever had this import id, as far as the store knows."""
    if import_id is None or await runtime.store.is_voided(import_id):
        return
    message = (
        f"no label has the import id {short(import_id)}; use the id that POST /feedback returned (labels older than the"
        " retention time are gone, and a label that was sent again keeps its first import)"
    )
    raise ServiceError(404, "unknown_import", message)


def _reading(counts: VoidCounts, held_labels: int, *, dry_run: bool) -> str:
    if not counts.labels and not held_labels:
        return "No label is selected, so there is nothing to void."
    parts = {
        "without any other label": counts.removed,
        "whose earlier label is restored": counts.restored,
        "whose later label stays": counts.kept,
    }
    words = [f"{plural(count, 'answer')} {what}" for what, count in parts.items() if count]
    if held_labels:
        words.append(f"{plural(held_labels, 'held label')} without a prediction")
    labels = plural(counts.labels + held_labels, "label")
    return f"{labels} {'to void' if dry_run else 'voided'}: {', '.join(words)}."
