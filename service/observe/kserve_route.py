"""POST /kserve/logger: stores the messages of KServe's inference logger as observations.

A response alone has everything that is needed, so it is stored at once. If the rows' ids are in the request, the two
halves wait for each other. They wait in the store, because two workers may receive them in either order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.bulk.report import BulkReport, store_rows
from service.errors import ServiceError
from service.http import documentation, json_body
from service.observe import observation_formats, observe_schemas
from service.observe.cloud_event import CloudEvent, read_event
from service.observe.inference_bodies import ResponseAnswers, answers_of, ids_of
from service.observe.observation import CallDefaults, observation_of
from service.observe.observe_schemas import ObservationSummary
from service.observe.storing import Storing
from service.predict.options import MAX_TAG
from service.runtime import Runtime, runtime_of
from service.store import Store, StoreError
from service.telemetry.metrics import Telemetry

WAIT_MS = 600_000
"""Time for which one half waits for the other."""
LOOK_SECONDS = 60.0

router = APIRouter()
log = logging.getLogger("trueodds")


@router.post(
    "/kserve/logger",
    summary="Store answers logged by KServe",
    openapi_extra={"requestBody": observe_schemas.EVENT, "parameters": observe_schemas.EVENT_HEADERS},
    **documentation.route(
        "predict",
        ObservationSummary,
        _400="not JSON",
        _408="the body came too slowly",
        _413="too many bytes or values",
        _422="not an inference event, no probabilities in the answer, or a parameter out of range",
        _503="the store is not writable; try again after Retry-After",
    ),
)
async def take_event(
    request: Request,
    model: Annotated[str | None, Query(description="Model name. Default: the InferenceService.")] = None,
    version: Annotated[str | None, Query(description="Version. Default: the answer's model_version, else 1.")] = None,
    classes: Annotated[str | None, Query(description="See /observe.")] = None,
    positive: Annotated[str | None, Query(description="See /observe.")] = None,
    ordered: Annotated[bool, Query(description="See /observe.")] = False,
    resolution: Annotated[str | None, Query(description="See /observe.")] = None,
    tag: Annotated[str | None, Query(max_length=MAX_TAG, description="Tag of all rows.")] = None,
    shadow: Annotated[bool, Query(description="See /observe.")] = False,
    output: Annotated[
        str | None,
        Query(description="Output tensor, or key of a prediction, that holds the numbers of the classes."),
    ] = None,
    form: Annotated[
        Literal["probabilities", "logits"], Query(description="Kind of these numbers: probabilities or logits.")
    ] = "probabilities",
    ids: Annotated[
        str | None,
        Query(description="Input tensor, or key of an instance, that holds your own ids of the rows."),
    ] = None,
) -> Response:
    """Store the rows of an inference response as observations. KServe's `logger` sends requests and responses here.

    Events are CloudEvents, binary or structured. Their bodies follow KServe's protocol V1 (`instances`, `predictions`)
    or V2 (`inputs`, `outputs`), in JSON.

    By default, a row's id is the event's id and the row's number, such as `9f3c-0`; requests are only counted. With
    `ids`, the row's id comes from the request. Request and response then wait for each other, in either order. A half
    that has waited for 10 minutes is dropped and counted in `trueodds_kserve_events_total`.
    """
    runtime, report = runtime_of(request), BulkReport(None)
    defaults = observation_formats.defaults_of(
        model,
        version,
        classes,
        positive,
        tag,
        shadow,
        ordered=ordered,
        confidence_source="native",
        resolution=resolution,
    )
    event: CloudEvent | None = None
    try:
        event = await read_event(request, runtime.settings.max_json_values)
        needed = ids is not None or event.kind == "response"
        inference = await event.inference(runtime.settings.max_json_values) if needed else None
        answers = answers_of(inference, output, form) if event.kind == "response" else None
        pair = await _pair_of(runtime.store, event, inference, defaults, ids)
        outcome = "waiting" if pair is None and ids is not None else "taken"
        if pair is not None:
            answers = answers or answers_of(pair.response, output, form)
            await _store(runtime, request, pair, answers, defaults, report)
    except ServiceError as error:
        runtime.telemetry.event(event.kind if event else "unknown", error.code)
        raise
    runtime.telemetry.event(event.kind, outcome)
    return Response(ObservationSummary.of(report).model_dump_json(), media_type=json_body.JSON)


class EventPair(NamedTuple):
    """Response, with the ids of its rows if the request has them."""

    event: CloudEvent
    """Half that arrived last."""
    response: Any
    at: Any
    """Time at which the response was sent, as in its event."""
    ids: list[str] | None


async def _pair_of(
    store: Store, event: CloudEvent, inference: Any, defaults: CallDefaults, ids: str | None
) -> EventPair | None:
    """Return the response to store now. Return None if a half must wait, or if a request is not needed."""
    if ids is None:
        return EventPair(event, inference, event.time, None) if event.kind == "response" else None
    name = defaults.model or event.service
    own = ids_of(inference, ids) if event.kind == "request" else {"tree": inference, "time": event.time}
    other = await store.put_half(name, event.id, event.kind, orjson.dumps(own))
    if other is None:
        return None
    kept = orjson.loads(other)
    if event.kind == "request":
        assert isinstance(own, list)
        return EventPair(event, kept["tree"], kept["time"], own)
    return EventPair(event, inference, event.time, kept)


async def _store(
    runtime: Runtime,
    request: Request,
    pair: EventPair,
    answers: ResponseAnswers,
    defaults: CallDefaults,
    report: BulkReport,
) -> None:
    """Store the rows of a response, each by itself, and add the outcomes to the report."""
    event, count = pair.event, len(answers.rows)
    whose = {"model": defaults.model or event.service, "version": defaults.version or answers.version or "1"}
    ids = pair.ids or [f"{event.id}-{n}" for n in range(count)]
    if len(ids) != count:
        await runtime.store.remove_pair(whose["model"], event.id)
        message = f"the request has {len(ids):,} ids and the response {count:,} rows; expected one id per row"
        raise ServiceError(422, "no_ids", message)
    rows = [
        observation_of(n, {"id": id_, answers.form: numbers, "time": pair.at, **whose}, defaults)
        for n, (id_, numbers) in enumerate(zip(ids, answers.rows, strict=True))
    ]
    storing = Storing(runtime, defaults, request.state.request_id)
    await store_rows(report, list(enumerate(rows)), storing.store_each, runtime.telemetry.observation)
    if pair.ids is not None:
        await runtime.store.remove_pair(whose["model"], event.id)


async def keep_pairs(store: Store, telemetry: Telemetry, *, seconds: float = LOOK_SECONDS) -> None:
    """Until cancelled, drop and count the halves whose other half never arrived."""
    while True:
        try:
            dropped = await store.drop_halves(time.time_ns() // 1_000_000 - WAIT_MS)
        except StoreError as error:
            log.warning("pairs of KServe: %s", error)
        else:
            for kind, count in zip(("request", "response"), dropped, strict=True):
                telemetry.event(kind, "unpaired", count)
        await asyncio.sleep(seconds)
