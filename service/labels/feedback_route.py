"""POST /feedback: true labels. A JSON body is stored as a whole; each row of CSV or JSON lines separately."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.bulk.lines import CSV, NDJSON, row_blocks
from service.bulk.report import lines_of, take
from service.errors import Refusal
from service.http import documentation, json_body
from service.http.error_answers import RefusedRowsError
from service.labels import imports, label_formats, label_schemas
from service.labels.label_schemas import BulkSummary, LabelsStored
from service.runtime import Runtime, runtime_of
from service.store.label_rules import RefusedLabelsError
from service.store.rows import Label, LabelCounts

READERS = {CSV: label_formats.csv_lines, NDJSON: label_formats.json_lines}
"""Line readers by media type of a bulk body."""
BLOCK = 64 * 1024
"""Block size in bytes, and the longest line. A block is about 1,500 labels and delays predictions by 25 ms."""

router = APIRouter()


@router.post(
    "/feedback",
    summary="Send true labels",
    openapi_extra={"requestBody": label_schemas.BODY, "parameters": label_schemas.PARAMETERS},
    **documentation.route(
        "feedback",
        LabelsStored | BulkSummary,
        lines_of("row"),
        _400="not JSON",
        _404="unknown prediction",
        _409="another label is already stored, or two models have this id",
        _413="too many bytes or labels",
        _415="not JSON, CSV or JSON lines",
        _422="unknown class, or a body of another shape",
        _408="the body came too slowly",
        _503="the store is not writable; try again after Retry-After",
    ),
)
async def give_feedback(request: Request) -> Response:
    """Send true labels for earlier predictions. `label` is the name of a class; `index` is its position, from 0.

    A whole number as `label` is a name too: 3 means the class named "3". The same holds in CSV.

    Sending the same label again has no effect. A different label is refused unless you set `"correct": true`. A JSON
    call stores all labels or none: if one row is bad, nothing is stored. The status is that of the first bad row, and
    the answer lists the bad rows.

    A label with your own id may arrive before its prediction if it names the `model`. The service then holds it, by
    default for 72 hours. For models with a maturity window (TRUEODDS_MATURES), a label counts when its answer's window
    closes.

    Send many labels as `text/csv` or `application/x-ndjson` (one object per line). CSV has the columns id and label, or
    id and index, and optionally correct and model, separated by commas, semicolons or tabs. Each row of such a body is
    stored by itself. The status is 200; the answer counts the failed rows and lists the first 20. With `Accept:
    application/x-ndjson` the answer has one line per row.

    All labels of a call belong to one import. The answer names it, and you can void its labels together. Use
    `x-import-id` to put several calls into one import.
    """
    runtime = runtime_of(request)
    media_type, named = json_body.media_type(request), imports.of_header(request)
    if media_type in READERS:
        return await _take_bulk(request, media_type, runtime, named or imports.new())
    if media_type != json_body.JSON:
        raise json_body.unsupported_type(request, f"{json_body.JSON}, {' and '.join(READERS)}")
    try:
        counts, import_id = await _take(request, runtime, named)
    except RefusedRowsError as error:
        runtime.telemetry.labels(error.counts)
        raise
    runtime.telemetry.labels(asdict(counts))
    stored = LabelsStored(**asdict(counts), import_id=import_id)
    return Response(stored.model_dump_json(), headers={imports.IMPORT_ID: import_id}, media_type=json_body.JSON)


async def _take(request: Request, runtime: Runtime, import_id_header: str | None) -> tuple[LabelCounts, str]:
    """Store the labels of a JSON body, all or none, under the named import or a new one.

    Raises:
        RefusedRowsError: At least one label was refused.
    """
    settings = runtime.settings

    def parse(tree: Any) -> tuple[list[Label], str]:
        rest, import_id = imports.split(tree, import_id_header)
        return label_formats.parse(rest, settings.max_labels), import_id

    labels, import_id = await json_body.read_json(request, settings.max_json_values, parse)
    try:
        return await runtime.store.put_labels(labels, import_id), import_id
    except RefusedLabelsError as error:
        raise RefusedRowsError(error.refusals, error.rows) from error


async def _take_bulk(request: Request, media_type: str, runtime: Runtime, import_id: str) -> Response:
    """Store each label of the body by itself. Return a summary, or one line per row if the caller accepts them.

    Raises:
        ServiceError: See `take`.
    """

    async def put(labels: list[Label]) -> list[str | Refusal]:
        return list(await runtime.store.put_each_label(labels, import_id))

    blocks = row_blocks(request, READERS[media_type](), BLOCK, "a label")
    summary = partial(BulkSummary.of, import_id)
    answer = await take(request, blocks, put, summary, runtime.telemetry.label)
    answer.headers[imports.IMPORT_ID] = import_id
    return answer
