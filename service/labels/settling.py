"""The route that settles labels in doubt: those of an older store whose integers may be indices or names."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.http import documentation, json_body, signed_body
from service.http.parameters import unix_ms
from service.http.signed_body import Name, SignedBody
from service.labels import imports
from service.runtime import runtime_of
from service.store.rows import Decision, LabelSelection, SettleCounts, Settlement
from trueodds.texts import plural

router = APIRouter()

Time = Annotated[datetime, Field(strict=False)]


class LabelSettling(SignedBody):
    """What labels in doubt are, which of them, who says so, and why."""

    decision: Decision = Field(
        description="as_stored: the stored classes are right; as_names: each stored index is the name of the class that"
        " was meant; void: nobody knows"
    )
    import_id: str | None = Field(None, description="only those of an import; default: of all")
    since: Time | None = Field(
        None, description="only those that arrived since then: ISO 8601 (UTC without an offset) or Unix time"
    )
    until: Time | None = Field(None, description="and before then")
    model: Name | None = Field(None, description="only those of a model, and of its shadow")
    dry_run: bool = Field(False, description="only count them")


class SettledVersion(BaseModel):
    """What became of the answers of a version whose labels were in doubt."""

    model: str
    version: str
    confirmed: int = Field(description="answers whose label is in the reports again")
    voided: int = Field(description="answers that have no label now")
    waiting: int = Field(description="answers whose label stays in doubt: its index is the name of no class")


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
    held: dict[str, int] = Field(description="the same counts of labels that wait for their predictions")
    versions: list[SettledVersion]
    reading: str = Field(description="the numbers in words")


def examples() -> documentation.Examples:
    """Bodies that only count."""
    signed = {"who": "Ada", "why": "the application sends stars, not indices", "dry_run": True}
    return {
        json_body.JSON: {
            "the stored indices were names": {"decision": "as_names", **signed},
            "what is stored was right": {"decision": "as_stored", **signed},
        }
    }


@router.post(
    "/admin/labels/settle",
    summary="Say what labels in doubt mean",
    **signed_body.route(
        LabelSettling,
        LabelsSettled,
        _404="an unknown model",
        _422="a field is missing, unknown or not allowed",
        _503="the store cannot be written; sending it again is safe",
    ),
)
async def settle_labels(request: Request) -> Response:
    """Settle labels that `trueodds store upgrade` took out of the reports, because an integer may have been meant as an
    index or as a name.

    Confirmed ones are labels like all others again, with those that they had replaced. An answer that got another label
    meanwhile keeps that one. Again: nothing is left to settle. `dry_run` says how many there are.
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
    """The body, checked.

    Raises:
        ServiceError: 422 for what is not allowed.
    """
    expected = "decision, who, why, and maybe import_id, since, until, model and dry_run"
    body = signed_body.read(LabelSettling, tree, expected)
    imports.check_selection(body.import_id, body.since, body.until)
    return body


def reading(counts: SettleCounts, *, dry_run: bool) -> str:
    """The counts in words."""
    parts = {
        "confirmed": counts.confirmed,
        "voided": counts.voided,
        "left in doubt, because the stored index is no class": counts.waiting,
    }
    words = [f"{plural(count, 'label')} {what}" for what, count in parts.items() if count]
    if not words:
        return "No label is in doubt."
    return f"{'To settle' if dry_run else 'Settled'}: {', '.join(words)}."
