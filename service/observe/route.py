"""POST /observe: answers of another server's model come in, and are watched like those of this one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.bulk.lines import CSV, NDJSON, row_blocks
from service.bulk.report import Report, take
from service.http import error_answers, json_body, keys
from service.http.error_answers import RefusedRowsError
from service.observe import formats, schemas
from service.observe.observation import Form, Shared
from service.observe.parquet import PARQUET, ParquetFiles
from service.observe.schemas import ObservationSummary, ObservedDecision
from service.observe.storing import Storing
from service.predict.options import MAX_TAG
from service.runtime import Runtime, runtime_of

BLOCK = 1024**2
"""Bytes from which lines are stored: some 500 answers of 100 classes. The most of one line."""
STREAMED = (NDJSON, CSV)
"""Media types of bodies that are stored as they come."""

router = APIRouter()


@router.post(
    "/observe",
    tags=["odds"],
    summary="Watch what another server answers",
    dependencies=[keys.requires("predict")],
    openapi_extra={"requestBody": schemas.BODY},
    responses={
        200: {
            "model": ObservationSummary,
            "content": {NDJSON: {"schema": {"type": "string", "description": "one JSON object for each row"}}},
        },
        **error_answers.documented(
            _400="not JSON, or no Parquet file",
            _408="the body came too slowly",
            _409="another answer came with this id, or this service answers for the version itself",
            _413="too many bytes or values",
            _415="neither JSON, JSON lines, CSV nor Parquet",
            _422="what is no answer of the version's form and classes, a body of another shape, or a Parquet file that"
            " its reader does not survive",
            _503="the store cannot be written; try again after Retry-After",
            **keys.ERRORS,
        ),
    },
)
async def observe(
    request: Request,
    model: Annotated[str | None, Query(description="of rows that name none")] = None,
    version: Annotated[str | None, Query(description="of rows that name none")] = None,
    classes: Annotated[
        str | None,
        Query(
            description="their names with commas between them, in the order of the lists; needed once, where lists are"
            " not in the order 0, 1, 2, ... and no row has them by name"
        ),
    ] = None,
    positive: Annotated[
        str | None,
        Query(description="the class of two that a version is asked about; to be said with its first answer"),
    ] = None,
    act_alone: Annotated[
        str | None,
        Query(
            description="a version's promise to act alone, such as threshold=.93,risk=.05,confidence=.95; to be said"
            " with its first answer. The answer then has a decision for each row: of JSON in `decisions`, in bulk in"
            " its line"
        ),
    ] = None,
    tag: Annotated[str | None, Query(max_length=MAX_TAG, description="of rows that name none")] = None,
    shadow: Annotated[
        bool,
        Query(description="these are answers that nobody got, of a version beside the one that answered: same ids"),
    ] = False,
    form: Annotated[
        Form, Query(description="what the columns of classes hold, in CSV and Parquet: probabilities or logits")
    ] = "probabilities",
) -> Response:
    """Answers of a model that another server serves, each with an id of yours: probabilities or logits of all classes,
    in their order or by name, or the predicted class and its confidence. From then on labels (`POST /feedback`), the
    report, the alarm, recalibration and the metrics work on them as on answers of this service.

    An answer is on disk before this one is given. The same observation again changes nothing; with another answer its
    id is refused. Ids are unique for a model. A JSON call is all or nothing. In bulk, as `application/x-ndjson` (one
    object a line), `text/csv` or Parquet (a column for each class, or in Parquet a column of lists), rows stand alone:
    good ones are stored, bad ones counted and the first 20 listed, and the status is 200; with `Accept:
    application/x-ndjson` the answer has one line for every row.
    """
    runtime, media_type = runtime_of(request), json_body.media_type(request)
    shared = formats.shared_of(model, version, classes, positive, tag, shadow, act_alone)
    if media_type == json_body.JSON:
        return await _take_json(request, runtime, shared)
    if media_type == NDJSON:
        blocks = row_blocks(request, formats.json_lines(shared), BLOCK, "an observation")
    elif media_type == CSV:
        blocks = row_blocks(request, formats.csv_lines(shared, form), BLOCK, "an observation")
    elif media_type == PARQUET:
        files: ParquetFiles = request.app.state.parquet
        blocks = files.row_blocks(await json_body.read(request), shared, form)
    else:
        raise json_body.unsupported(request, f"{json_body.JSON}, {NDJSON}, {CSV} and {PARQUET}")
    rows_wanted = NDJSON in request.headers.get("accept", "").lower()
    storing = Storing(runtime, shared, request.state.request_id)
    count = runtime.telemetry.observation
    return await take(
        blocks, storing.store_each, ObservationSummary.of, count, rows_wanted=rows_wanted, beside=storing.acting
    )


async def _take_json(request: Request, runtime: Runtime, shared: Shared) -> Response:
    """Stores the observations of a JSON body, all or none.

    Raises:
        RefusedRowsError: with at least one refused row.
    """
    report = Report(None)
    try:
        shared, rows = await json_body.read_json(
            request, runtime.settings.max_json_values, lambda tree: formats.parse(tree, shared)
        )
        storing = Storing(runtime, shared, request.state.request_id)
        outcomes = await storing.store_all(rows)
    except RefusedRowsError as error:
        for code, count in error.counts.items():
            runtime.telemetry.observation(code, count)
        raise
    report.add([(row.row, row) for row in rows], list(outcomes))
    for outcome, count in report.outcomes.items():
        runtime.telemetry.observation(outcome, count)
    decisions = [ObservedDecision(id=row.id, **acting) for row in rows if (acting := storing.acting(row))]
    summary = ObservationSummary.of(report).model_copy(update={"decisions": decisions})
    return Response(summary.model_dump_json(), media_type=json_body.JSON)
