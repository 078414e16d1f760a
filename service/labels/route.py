"""POST /feedback: labels come in, all or none in JSON, each row by itself in CSV and JSON lines."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.bulk.lines import CSV, NDJSON, row_blocks
from service.bulk.report import take
from service.errors import Refusal
from service.http import error_answers, json_body, keys
from service.http.error_answers import RefusedRowsError
from service.labels import formats, imports, schemas
from service.labels.schemas import BulkSummary, LabelsStored
from service.runtime import Runtime, runtime_of
from service.store.label_rules import RefusedLabelsError
from service.store.rows import Label, LabelCounts

READERS = {CSV: formats.csv_lines, NDJSON: formats.json_lines}
"""Of the media types of labels in bulk."""
BLOCK = 64 * 1024
"""Bytes from which lines are stored: some 1,500 labels, 25 ms in which predictions wait. The most of one line."""

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
    if media_type in READERS:
        return await _take_bulk(request, media_type, runtime, named or imports.new())
    if media_type != json_body.JSON:
        raise json_body.unsupported(request, f"{json_body.JSON}, {' and '.join(READERS)}")
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


async def _take_bulk(request: Request, media_type: str, runtime: Runtime, import_id: str) -> Response:
    """Store each label of the body by itself; a summary, or one line for each row where the caller accepts them.

    Raises:
        ServiceError: as `take`.
    """

    async def put(labels: list[Label]) -> list[str | Refusal]:
        return list(await runtime.store.put_each_label(labels, import_id))

    rows_wanted = NDJSON in request.headers.get("accept", "").lower()
    blocks = row_blocks(request, READERS[media_type](), BLOCK, "a label")
    summary = partial(BulkSummary.of, import_id)
    answer = await take(blocks, put, summary, runtime.telemetry.label, rows_wanted=rows_wanted)
    answer.headers[imports.IMPORT_ID] = import_id
    return answer
