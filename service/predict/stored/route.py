"""The routes of stored predictions: one by its id, its removal, and all of a version as a table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from service.errors import ServiceError
from service.http import encodings, error_answers, keys
from service.http.encodings import Packer
from service.http.json_body import JSON
from service.http.parameters import Moment, Served, Since, unix_ms
from service.predict.stored import tables
from service.predict.stored.schemas import PredictionDeleted, StoredAnswer, stored_answer
from service.predict.stored.tables import TableWriter
from service.runtime import Runtime, runtime_of
from service.store.rows import StoredPrediction, Version, storable
from service.store.store import LATEST_MS
from trueodds.bundle.contents import is_shadow
from trueodds.texts import short

router = APIRouter()

EXAMPLE_ID = "order-4711"
"""Of the documentation: nothing has it."""
_Model = Annotated[
    str | None, Query(description="of an id of your own that several models know; NAME~shadow: a shadow")
]


@router.get(
    "/predictions",
    tags=["odds"],
    summary="All predictions of a version, as a table",
    dependencies=[keys.requires("read")],
    response_class=Response,
    responses={
        200: {
            "content": {
                tables.CSV: {"schema": {"type": "string"}},
                tables.PARQUET: {"schema": {"type": "string", "format": "binary"}},
            }
        },
        **error_answers.documented(
            _404="unknown model or version",
            _422="a parameter that is unknown, given twice or out of range, or Parquet without pyarrow",
            _503="no model has been served yet, or the store cannot be read",
            **keys.ERRORS,
        ),
    },
)
async def export(
    request: Request,
    model: Served = None,
    version: Served = None,
    since: Since = None,
    until: Annotated[Moment | None, Query(description="answers given before then")] = None,
    probabilities: Annotated[bool, Query(description="a column for each class, too")] = False,
    format: Annotated[
        Literal["csv", "parquet"], Query(description="Parquet where the service has the extra `table`")
    ] = "csv",
) -> Response:
    """Predictions with their labels as they are now: id, time, model, version, tag, predicted, confidence, label,
    label_time, corrected, import_id and propensity; of a version with a promise to act alone, decision and audit; with
    `probabilities`, a column for each class.

    First those with ids of the service, then those with ids of your own, each by their time. It is sent as it is read,
    as gzip or deflate where `accept-encoding` takes it. If the store fails on the way, the connection breaks before
    the end.
    """
    runtime = runtime_of(request)
    source = await runtime.version(model, version)
    writer = tables.WRITERS[format](tables.columns_of(source, probabilities=probabilities))
    first = 0 if since is None else max(unix_ms(since), 0)
    end = LATEST_MS if until is None else min(unix_ms(until), LATEST_MS)
    if first >= end:
        message = f"since {since or 1970} is not before until {until or 'now'}; exchange them, or leave one out"
        raise ServiceError(422, "invalid_parameter", message)
    await runtime.mature(source)
    blocks = runtime.store.export(*source.key, first, end, logits=probabilities)
    begun = await anext(blocks, None)  # a store that fails at once is an answer of its own
    coding = encodings.accepted(request.headers.get("accept-encoding", ""))
    name = quote(f"{source.model}-{source.version}-predictions.{format}", safe="")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}", "vary": "accept-encoding"}
    if coding:
        headers["content-encoding"] = coding
    audit = runtime.settings.audit_share
    parts = _table(begun, blocks, source, writer, Packer(coding), probabilities=probabilities, audit_share=audit)
    return StreamingResponse(parts, media_type=writer.media_type, headers=headers)


async def _table(
    begun: list[StoredPrediction] | None,
    blocks: AsyncIterator[list[StoredPrediction]],
    version: Version,
    writer: TableWriter,
    packer: Packer,
    *,
    probabilities: bool,
    audit_share: float,
) -> AsyncIterator[bytes]:
    """The parts of the table; each is made in a thread."""

    def part(block: list[StoredPrediction]) -> bytes:
        rows = tables.rows_of(block, version, probabilities=probabilities, audit_share=audit_share)
        return packer.packed(writer.block(rows))

    if begun:
        yield await asyncio.to_thread(part, begun)
        async for block in blocks:
            yield await asyncio.to_thread(part, block)
    yield packer.packed(writer.end()) + packer.rest()


def _of_one(answer: type[BaseModel], unavailable: str) -> dict[int | str, dict[str, Any]]:
    errors = error_answers.documented(
        _404="no prediction has this id",
        _409="an own id that several models know",
        _422="a parameter that is unknown or given twice",
        _503=unavailable,
        **keys.ERRORS,
    )
    return {200: {"model": answer}, **errors}


@router.get(
    "/predictions/{id:path}",
    tags=["odds"],
    summary="One prediction and its label",
    dependencies=[keys.requires("read")],
    responses=_of_one(StoredAnswer, "the store cannot be read"),
)
async def prediction(request: Request, id: str, model: _Model = None) -> Response:
    """What the service answered under an id, when, and the label that has come since."""
    runtime = runtime_of(request)
    row = await _one(runtime, id, model)
    version = await runtime.answered_by(row.model, row.version)
    answer = stored_answer(row, version, runtime.settings.audit_share)
    return Response(answer.model_dump_json(), media_type=JSON)


@router.delete(
    "/predictions/{id:path}",
    tags=["operation"],
    summary="Remove one prediction",
    dependencies=[keys.requires("admin")],
    responses=_of_one(PredictionDeleted, "the store cannot be written"),
)
async def delete(request: Request, id: str, model: _Model = None) -> Response:
    """Remove an answer with its label, and what a shadow said about the same input, as retention does: for good.

    The sums and the alarm's evidence stay: they hold counts, and nothing about whom. With `model`, a label that waits
    for a prediction with this id is removed too. Backups of the store are yours.
    """
    runtime = runtime_of(request)
    if not storable(id):
        raise _unknown(id, model)
    if model is None:
        model = (await _one(runtime, id, None)).model
    else:
        await runtime.version(model, None)
    counts = await runtime.store.delete_prediction(model, id)
    if not (counts.predictions or counts.held):
        raise _unknown(id, model)
    deleted = PredictionDeleted(**vars(counts))
    return Response(deleted.model_dump_json(), media_type=JSON)


async def _one(runtime: Runtime, id_: str, model: str | None) -> StoredPrediction:
    """The prediction that is meant: of a shadow only where it is named.

    Raises:
        ServiceError: 404 for none, 409 for several.
    """
    rows = await runtime.store.read_answers_of(id_)
    fitting = [row for row in rows if (not is_shadow(row.model) if model is None else row.model == model)]
    if not fitting:
        raise _unknown(id_, model)
    if len(fitting) > 1:
        models = ", ".join(row.model for row in fitting)
        message = f"{short(id_)} is an id of several models ({models}); add model to say which"
        raise ServiceError(409, "ambiguous_id", message)
    return fitting[0]


def _unknown(id_: str, model: str | None) -> ServiceError:
    of = "" if model is None else f" of {short(model)}"
    cure = "send an id that /predict answered (predictions older than the retention time are gone)"
    return ServiceError(404, "unknown_id", f"no prediction{of} has the id {short(id_)}; {cure}")
