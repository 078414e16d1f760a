"""Routes of stored predictions: one by its id, its deletion, and all of a version as a table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Literal
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from service.errors import ServiceError
from service.http import documentation, encodings
from service.http.encodings import Packer
from service.http.json_body import JSON
from service.http.parameters import Moment, Served, Since, unix_ms
from service.predict.stored import tables
from service.predict.stored.stored_schemas import PredictionDeleted, StoredAnswer, stored_answer
from service.predict.stored.tables import TableWriter
from service.runtime import Runtime, runtime_of
from service.store.rows import StoredPrediction, Version, storable
from service.store.store import LATEST_MS
from trueodds.bundle.contents import is_shadow
from trueodds.texts import short

router = APIRouter()

EXAMPLE_ID = "order-4711"
"""Id in the documentation. No prediction has it."""
_Model = Annotated[
    str | None,
    Query(description="Model, if several models have this id of your own. NAME~shadow names a shadow."),
]


@router.get(
    "/predictions",
    summary="Export all predictions of a version",
    response_class=Response,
    **documentation.route(
        "read",
        content={tables.CSV: {"schema": documentation.TEXT}, tables.PARQUET: {"schema": documentation.BINARY}},
        _404="unknown model or version",
        _422="unknown or repeated parameter, value out of range, or Parquet without pyarrow",
        _503="no model has been served yet, or the store is not readable",
    ),
)
async def export(
    request: Request,
    model: Served = None,
    version: Served = None,
    since: Since = None,
    until: Annotated[Moment | None, Query(description="Only answers given before this time.")] = None,
    probabilities: Annotated[bool, Query(description="Add a column per class.")] = False,
    format: Annotated[
        Literal["csv", "parquet"], Query(description="Parquet needs the extra `table` on the service.")
    ] = "csv",
) -> Response:
    """Return predictions with their current labels, as a table.

    The columns are id, time, model, version, tag, predicted, confidence, label, label_time, corrected, import_id,
    propensity, confidence_source and judge_label. Versions with a promise to act alone also have decision and audit.
    Versions whose conformal sets another server gives also have set: a JSON list in CSV, a list in Parquet.
    `probabilities` adds a column per class.

    Rows with ids of the service come first, then rows with your own ids, each sorted by time. The table is sent while
    it is read, compressed as `accept-encoding` allows. If the store fails on the way, the connection breaks before the
    end.
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
    begun = await anext(blocks, None)  # a store that fails at once still gets a proper error answer
    coding = encodings.preferred_coding(request.headers.get("accept-encoding", ""))
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
    """Yield the parts of the table. A thread makes each of them."""

    def part(block: list[StoredPrediction]) -> bytes:
        rows = tables.rows_of(block, version, probabilities=probabilities, audit_share=audit_share)
        return packer.pack(writer.block(rows))

    if begun:
        yield await asyncio.to_thread(part, begun)
        async for block in blocks:
            yield await asyncio.to_thread(part, block)
    yield packer.pack(writer.end()) + packer.rest()


_OF_ONE = {
    "_404": "no prediction has this id",
    "_409": "several models have this id",
    "_422": "unknown or repeated parameter",
}


@router.get(
    "/predictions/{id:path}",
    summary="Read one prediction and its label",
    **documentation.route("read", StoredAnswer, None, **_OF_ONE, _503="the store is not readable"),
)
async def prediction(request: Request, id: str, model: _Model = None) -> Response:
    """Return the answer that was given under an id, its time, and its label if there is one."""
    runtime = runtime_of(request)
    row = await _one(runtime, id, model)
    version = await runtime.answered_by(row.model, row.version)
    answer = stored_answer(row, version, runtime.settings.audit_share)
    if version.is_observed and (kept := await runtime.store.read_input(row.model, row.id)) is not None:
        answer.input = orjson.loads(kept)
    return Response(answer.model_dump_json(), media_type=JSON)


@router.delete(
    "/predictions/{id:path}",
    summary="Delete one prediction",
    **documentation.route(
        "admin", PredictionDeleted, None, tag="operation", **_OF_ONE, _503="the store is not writable"
    ),
)
async def delete(request: Request, id: str, model: _Model = None) -> Response:
    """Delete an answer, its label, and a shadow's answer to the same input. This cannot be undone.

    The sums and the alarm's evidence stay. They are aggregates of counts without ids or inputs. With `model`, a label
    that waits for a prediction with this id is deleted too. You must delete it from your backups of the store yourself.
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
    """Return the prediction with an id. A shadow's prediction is found only if `model` names the shadow.

    Raises:
        ServiceError: 404 if there is none, 409 if there are several.
    """
    rows = await runtime.store.read_answers_of(id_)
    fitting = [row for row in rows if (not is_shadow(row.model) if model is None else row.model == model)]
    if not fitting:
        raise _unknown(id_, model)
    if len(fitting) > 1:
        models = ", ".join(row.model for row in fitting)
        message = f"several models have the id {short(id_)} ({models}); add the parameter model"
        raise ServiceError(409, "ambiguous_id", message)
    return fitting[0]


def _unknown(id_: str, model: str | None) -> ServiceError:
    of = "" if model is None else f" of {short(model)}"
    cure = "use an id that /predict returned (predictions older than the retention time are gone, or in the archive)"
    return ServiceError(404, "unknown_id", f"no prediction{of} has the id {short(id_)}; {cure}")
