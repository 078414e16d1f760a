"""The routes of labels: they come in, one by one or in bulk, and labelled logits go out."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from service.bulk.lines import NDJSON
from service.bulk.refusals import RefusedRowsError
from service.errors import ServiceError
from service.http import error_answers, json_body, keys
from service.http.times import Moment, unix_ms
from service.labels import bulk, formats, imports, labelled_file, schemas
from service.labels.schemas import BulkSummary, LabelsStored
from service.runtime import Runtime, runtime_of
from service.store.label_rules import RefusedLabelsError
from service.store.rows import Label, LabelCounts

router = APIRouter()


@router.post(
    "/feedback",
    tags=["odds"],
    summary="Say what was right",
    dependencies=[keys.requires("feedback")],
    openapi_extra={"requestBody": schemas.BODY, "parameters": schemas.PARAMETERS},
    responses={
        200: {
            "model": LabelsStored | BulkSummary,
            "content": {NDJSON: {"schema": {"type": "string", "description": "one JSON object for each row"}}},
        },
        **error_answers.documented(
            _400="not JSON",
            _404="no such prediction",
            _409="another label is stored already, or an own id that two models know",
            _413="too many bytes or labels",
            _415="neither JSON nor CSV nor JSON lines",
            _422="no such class, or a body of another shape",
            _408="the body came too slowly",
            _503="the store cannot be written; try again after Retry-After",
            **keys.ERRORS,
        ),
    },
)
async def give_feedback(request: Request) -> Response:
    """True labels for earlier predictions: `label` is a class's name, `index` its place among the classes, from 0.

    A whole number as `label` is a name, too: 3 is the class that is called 3, here and in CSV.

    The same label again changes nothing. A different one is refused unless `"correct": true`. A JSON call is all or
    nothing: with one bad row nothing is stored, the status is that of the first bad row, and the bad rows are listed.
    A label for an id of your own may come before its prediction if it names its `model`: it is held, by default for 72
    hours. Of a model whose labels come late (TRUEODDS_MATURES) a label counts when its answer's window closes.

    In bulk, as `text/csv` (columns id and label, or id and index, and maybe correct and model, separated by commas,
    semicolons or tabs) or `application/x-ndjson` (one object a line), rows stand alone: good ones are stored, bad ones
    are counted and the first 20 listed, and the status is 200. With `Accept: application/x-ndjson` the answer has one
    line for every row.

    All labels of a call are of one import, which the answer names and which can be voided; `x-import-id` makes several
    calls one.
    """
    runtime = runtime_of(request)
    media_type, named = json_body.media_type(request), imports.of_header(request)
    if media_type in bulk.READERS:
        rows_wanted = NDJSON in request.headers.get("accept", "").lower()
        store, telemetry, import_id = runtime.store, runtime.telemetry, named or imports.new()
        return await bulk.take_labels(request, media_type, store, telemetry, import_id, rows_wanted=rows_wanted)
    if media_type != json_body.JSON:
        raise json_body.unsupported(request, f"{json_body.JSON}, {' and '.join(bulk.READERS)}")
    try:
        counts, import_id = await _take(request, runtime, named)
    except RefusedRowsError as error:
        runtime.telemetry.labels(error.counts)
        raise
    runtime.telemetry.labels(asdict(counts))
    stored = LabelsStored(**asdict(counts), import_id=import_id)
    return Response(stored.model_dump_json(), headers={imports.IMPORT_ID: import_id}, media_type=json_body.JSON)


async def _take(request: Request, runtime: Runtime, named: str | None) -> tuple[LabelCounts, str]:
    """Stores the labels of a JSON body, all or none, as those of an import: the one that is named, or a new one.

    Raises:
        RefusedRowsError: with at least one refused label.
    """
    settings = runtime.settings

    def parse(tree: Any) -> tuple[list[Label], str]:
        rest, import_id = imports.split(tree, named)
        return formats.parse(rest, settings.max_labels), import_id

    labels, import_id = await json_body.read_json(request, settings.max_json_values, parse)
    try:
        return await runtime.store.put_labels(labels, import_id), import_id
    except RefusedLabelsError as error:
        raise RefusedRowsError(error.refusals, error.rows) from error


@router.get(
    "/admin/labelled.npz",
    tags=["operation"],
    summary="Labelled logits, for recalibration",
    dependencies=[keys.requires("admin")],
    response_class=Response,
    responses={
        200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}},
        **error_answers.documented(
            _404="unknown model or version, or no labelled answers",
            _422="a parameter that is unknown, given twice or out of range, or a version without logits",
            _503="no model has been served yet, or the store cannot be read",
            **keys.ERRORS,
        ),
    },
)
async def labelled_logits(
    request: Request,
    model: Annotated[str | None, Query(description="default: the one that is served")] = None,
    version: Annotated[str | None, Query(description="default: the one that is served")] = None,
    since: Annotated[
        Moment | None, Query(description="answers given since then: ISO 8601 (UTC without an offset) or Unix time")
    ] = None,
    last: Annotated[
        int | None, Query(ge=1, le=2**31 - 1, description="only those whose labels arrived last, this many at most")
    ] = None,
    shadow: Annotated[
        str | None, Query(description="only answers that this version, the model's shadow, has scored: and its logits")
    ] = None,
) -> Response:
    """All labelled answers of a version in the format of logits.npz: val_logits (float32, each row minus its maximum),
    val_labels, val_created_ms (Unix milliseconds) and val_propensity (NaN where it is not known), in the order in which
    the labels arrived; with `shadow`, also val_shadow_logits.
    """
    runtime = runtime_of(request)
    source = await runtime.version(model, version)
    if not source.has_logits:
        message = (
            f"of {source.model}/{source.version} only the confidences of what was predicted were observed;"
            " recalibrating takes probabilities or logits of all classes: send those, under another version"
        )
        raise ServiceError(422, "no_logits", message)
    start = None if since is None else unix_ms(since)
    await runtime.mature(source)
    try:
        file, rows = await labelled_file.build(
            runtime.store.read_labelled_logits(source.model, source.version, start, last, shadow)
        )
    except OSError as error:
        message = f"the file cannot be built in {tempfile.gettempdir()}: {error.strerror}; TMPDIR names another folder"
        raise ServiceError(503, "no_space", message) from None
    if not rows:
        file.close()
        since_then = "" if since is None else f" since {since.isoformat()}"
        message = f"{source.model}/{source.version} has no labelled answers{since_then}; send labels to POST /feedback"
        if source.maturity is not None:
            message += (
                f". Each counts when the window of its answer closes, {source.maturity.window} after it was given"
            )
        raise ServiceError(404, "no_labels", message)
    name = quote(f"{source.model}-{source.version}-labelled.npz", safe="")
    headers = {
        "content-length": str(file.seek(0, 2)),
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
    }
    return StreamingResponse(labelled_file.sent(file), media_type="application/zip", headers=headers)
