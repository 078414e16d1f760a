"""POST /observe: answers of models on other servers, which are then monitored like those of this service."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.bulk.lines import CSV, NDJSON, row_blocks
from service.bulk.report import BulkReport, lines_of, take
from service.http import documentation, json_body
from service.http.error_answers import RefusedRowsError
from service.observe import observation_formats, observe_schemas
from service.observe.observation import CallDefaults, Form
from service.observe.observe_schemas import (
    READINGS,
    RESOLUTION,
    SET_LEVEL,
    SET_ROWS,
    ObservationSummary,
    ObservedDecision,
)
from service.observe.parquet import PARQUET, ParquetFiles
from service.observe.storing import Storing
from service.predict.options import MAX_TAG
from service.runtime import Runtime, runtime_of
from trueodds.inputs.sources import ConfidenceSource

BLOCK = 1024**2
"""Block size in bytes, and the longest line. A block is about 500 answers of 100 classes."""
STREAMED = (NDJSON, CSV)
"""Media types of bodies that are stored while they arrive."""

router = APIRouter()


@router.post(
    "/observe",
    summary="Store answers of another server",
    openapi_extra={"requestBody": observe_schemas.BODY},
    **documentation.route(
        "predict",
        ObservationSummary,
        lines_of("row"),
        _400="not JSON, or not a Parquet file",
        _408="the body came too slowly",
        _409="the id was used for another answer, or this service serves the version itself",
        _413="too many bytes or values",
        _415="not JSON, JSON lines, CSV or Parquet",
        _422="an answer that does not match the version's form and classes, a body of another shape, or a Parquet"
        " file that crashes its reader",
        _503="the store is not writable; try again after Retry-After",
    ),
)
async def observe(
    request: Request,
    model: Annotated[str | None, Query(description="Model of rows that name none.")] = None,
    version: Annotated[str | None, Query(description="Version of rows that name none.")] = None,
    classes: Annotated[
        str | None,
        Query(
            description="Class names separated by commas, in the order of the lists. Send them once, unless the classes"
            " are 0, 1, 2, ... in this order or a row gives its numbers by name."
        ),
    ] = None,
    positive: Annotated[
        str | None,
        Query(description="Positive class of a binary model. Give it with the version's first answer."),
    ] = None,
    act_alone: Annotated[
        str | None,
        Query(
            description="Promise of a version to act alone, such as threshold=.93,risk=.05,confidence=.95. Give it with"
            " the version's first answer. The response then has a decision per row: in `decisions` for JSON, in the"
            " row's line for bulk bodies."
        ),
    ] = None,
    ordered: Annotated[
        bool,
        Query(
            description="The classes are levels, the lowest first, such as stars. Give it with the version's first"
            " answer. The report then has the figures of ordered classes."
        ),
    ] = False,
    tag: Annotated[str | None, Query(max_length=MAX_TAG, description="Tag of rows that name none.")] = None,
    shadow: Annotated[
        bool,
        Query(description="These answers were not used: they are of a version that ran beside the one that answered."),
    ] = False,
    confidence_source: Annotated[
        ConfidenceSource | None,
        Query(description="Source of the confidences of rows that name none, by which the report can be split."),
    ] = None,
    resolution: Annotated[str | None, Query(description=RESOLUTION)] = None,
    set_level: Annotated[float | None, Query(description=SET_LEVEL)] = None,
    set_rows: Annotated[int | None, Query(description=SET_ROWS)] = None,
    form: Annotated[
        Form, Query(description="Kind of numbers in the columns of classes, in CSV and Parquet.")
    ] = "probabilities",
) -> Response:
    """Store answers of a model on another server, each with an id of yours.

    An answer has the probabilities or logits of all classes, in their order or by name, or only the predicted class and
    its confidence. Answers of chat models have `logprobs` of tokens, a `verbalised` number, or `votes`; the response
    says how they were read. Labels (`POST /feedback`), the report, the alarm, recalibration and the metrics then work
    as for answers of this service.

    Answers are on disk before this call returns. Sending the same observation again has no effect; the same id with
    another answer is refused. Ids are unique within a model. A JSON call stores all rows or none.

    Send many answers as `application/x-ndjson` (one object per line), `text/csv` or Parquet. The last two have a column
    per class; Parquet may have one column of lists instead. Each row of such a body is stored by itself. The status is
    200; the answer counts the failed rows and lists the first 20. With `Accept: application/x-ndjson` the answer has
    one line per row.
    """
    runtime, media_type = runtime_of(request), json_body.media_type(request)
    defaults = observation_formats.defaults_of(
        model,
        version,
        classes,
        positive,
        tag,
        shadow,
        act_alone,
        ordered,
        confidence_source,
        resolution,
        set_level,
        set_rows,
    )
    if media_type == json_body.JSON:
        return await _take_json(request, runtime, defaults)
    if media_type == NDJSON:
        blocks = row_blocks(request, observation_formats.json_lines(defaults), BLOCK, "an observation")
    elif media_type == CSV:
        blocks = row_blocks(request, observation_formats.csv_lines(defaults, form), BLOCK, "an observation")
    elif media_type == PARQUET:
        files: ParquetFiles = request.app.state.parquet
        blocks = files.row_blocks(await json_body.read(request), defaults, form)
    else:
        raise json_body.unsupported_type(request, f"{json_body.JSON}, {NDJSON}, {CSV} and {PARQUET}")
    storing = Storing(runtime, defaults, request.state.request_id)
    summary, count = partial(summary_of, storing), runtime.telemetry.observation
    return await take(request, blocks, storing.store_each, summary, count, storing.acting)


def summary_of(storing: Storing, report: BulkReport) -> ObservationSummary:
    """Return the summary of a call, with the reading of what chat models gave."""
    readings = [*(READINGS[form] for form in sorted(storing.readings)), *sorted(storing.steps)]
    more = {"read_as": readings, "low_label_mass": storing.low_masses}
    return ObservationSummary.of(report).model_copy(update=more)


async def _take_json(request: Request, runtime: Runtime, defaults: CallDefaults) -> Response:
    """Store the observations of a JSON body, all or none.

    Raises:
        RefusedRowsError: At least one row was refused.
    """
    report = BulkReport(None)
    try:
        defaults, rows = await json_body.read_json(
            request, runtime.settings.max_json_values, lambda tree: observation_formats.parse(tree, defaults)
        )
        storing = Storing(runtime, defaults, request.state.request_id)
        outcomes = await storing.store_all(rows)
    except RefusedRowsError as error:
        for code, count in error.counts.items():
            runtime.telemetry.observation(code, count)
        raise
    report.add([(row.row, row) for row in rows], list(outcomes))
    for outcome, count in report.outcomes.items():
        runtime.telemetry.observation(outcome, count)
    decisions = [ObservedDecision(id=row.id, **acting) for row in rows if (acting := storing.acting(row))]
    summary = summary_of(storing, report).model_copy(update={"decisions": decisions})
    return Response(summary.model_dump_json(), media_type=json_body.JSON)
