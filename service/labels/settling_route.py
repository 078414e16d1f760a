"""Route that settles doubtful labels: integers in an older store that may be indices or names."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.choices import Meaning
from service.http import documentation, json_body, signed_body
from service.http.parameters import Moment, unix_ms
from service.http.signed_body import Name, SignedBody
from service.labels import imports
from service.runtime import runtime_of
from service.store.rows import LabelSelection, SettleCounts, Settlement
from trueodds.texts import plural

router = APIRouter()

Time = Annotated[Moment, Field(strict=False)]


class LabelSettling(SignedBody):
    """Decision on doubtful labels: which ones, what they mean, who decides, and why."""

    decision: Meaning = Field(
        description="as_stored: the stored classes are right. as_names: each stored index is in truth the name of the"
        " intended class. void: unknown, remove the labels."
    )
    import_id: str | None = Field(None, description="Only labels of this import. Default: all.")
    since: Time | None = Field(
        None, description="Only labels that arrived at or after this time: ISO 8601 (UTC if no offset) or Unix time."
    )
    until: Time | None = Field(None, description="Only labels that arrived before this time.")
    model: Name | None = Field(None, description="Only labels of this model and of its shadow.")
    dry_run: bool = Field(False, description="Only count the labels.")


class SettledVersion(BaseModel):
    """Result for one version whose labels were doubtful."""

    model: str
    version: str
    confirmed: int = Field(description="Answers whose label is in the reports again.")
    voided: int = Field(description="Answers that now have no label.")
    waiting: int = Field(description="Answers whose label stays doubtful, because no class is named like its index.")


class LabelsSettled(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "dry_run": False,
                "held": {"confirmed": 0, "voided": 0, "waiting": 0},
                "versions": [
                    {"model": "stars", "version": "3f2a9c01d4e5", "confirmed": 162, "voided": 0, "waiting": 0}
                ],
                "reading": "162 labels are confirmed.",
            }
        }
    )

    dry_run: bool
    held: dict[str, int] = Field(description="The same counts for labels that wait for their predictions.")
    versions: list[SettledVersion]
    reading: str = Field(description="The numbers in words.")


def examples() -> documentation.Examples:
    """Return example bodies that only count."""
    signed = {"who": "Ada", "why": "the application sends stars, not indices", "dry_run": True}
    return {
        json_body.JSON: {
            "the stored indices were names": {"decision": "as_names", **signed},
            "the stored classes are right": {"decision": "as_stored", **signed},
        }
    }


@router.post(
    "/admin/labels/settle",
    summary="Settle doubtful labels",
    **signed_body.route(
        LabelSettling,
        LabelsSettled,
        _404="unknown model",
        _422="a field is missing, unknown or not allowed",
        _503="the store is not writable; you may send the request again",
    ),
)
async def settle_labels(request: Request) -> Response:
    """Decide what doubtful labels mean.

    `trueodds store upgrade` leaves them out of the reports, because an integer may have been meant as an index or as a
    name. Confirmed labels, and those that they had replaced, become ordinary labels again. An answer that has received
    another label meanwhile keeps that one. Sending the request again has no effect. `dry_run` only counts the labels.
    """
    runtime = runtime_of(request)
    body = await json_body.read_json(request, runtime.settings.max_json_values, _read)
    if body.model is not None:
        await runtime.version(body.model, None)
    since, until = (None if t is None else unix_ms(t) for t in (body.since, body.until))
    selection = LabelSelection(body.import_id, since, until, body.model)
    settlement = Settlement(body.decision, time.time_ns() // 1_000_000, body.who, body.why)
    counts, held = await runtime.store.settle_labels(selection, settlement, dry_run=body.dry_run)
    answer = LabelsSettled(
        dry_run=body.dry_run,
        held=vars(held),
        versions=[
            SettledVersion(model=model, version=version, **vars(settled))
            for (model, version), settled in counts.items()
        ],
        reading=reading(sum(counts.values(), held), dry_run=body.dry_run),
    )
    return Response(answer.model_dump_json(), media_type=json_body.JSON)


def _read(tree: Any) -> LabelSettling:
    """Validate the body.

    Raises:
        ServiceError: 422 if a value is not allowed.
    """
    expected = "decision, who, why, and maybe import_id, since, until, model and dry_run"
    body = signed_body.read(LabelSettling, tree, expected)
    imports.check_selection(body.import_id, body.since, body.until)
    return body


def reading(counts: SettleCounts, *, dry_run: bool) -> str:
    """Describe the counts in words."""
    parts = {
        "confirmed": counts.confirmed,
        "voided": counts.voided,
        "left in doubt, because no class is named like the stored index": counts.waiting,
    }
    words = [f"{plural(count, 'label')} {what}" for what, count in parts.items() if count]
    if not words:
        return "No label is in doubt."
    return f"{'To settle' if dry_run else 'Settled'}: {', '.join(words)}."
