"""POST /kserve/logger: what KServe's inference logger sends, as observations.

A response alone has all that is kept, so it is stored as it comes. Only where the ids of the rows are the request's own
does it wait for that, or that for it: in the store, because the two may come to two workers in either order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Annotated, Any, NamedTuple

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.bulk.report import Report
from service.errors import Refusal, ServiceError
from service.http import error_answers, json_body, keys
from service.observe import formats, schemas
from service.observe.cloud_event import CloudEvent, read_event
from service.observe.inference_bodies import Answers, answers_of, ids_of
from service.observe.observation import Form, Observation, Shared, observation_of
from service.observe.schemas import ObservationSummary
from service.observe.storing import Storing
from service.predict.options import MAX_TAG
from service.runtime import Runtime, runtime_of
from service.store import Store, StoreError
from service.telemetry.metrics import Telemetry

WAIT_MS = 600_000
"""How long a half waits for the other."""
LOOK_SECONDS = 60.0

router = APIRouter()
log = logging.getLogger("trueodds")


@router.post(
    "/kserve/logger",
    tags=["odds"],
    summary="Watch what KServe answers",
    dependencies=[keys.requires("predict")],
    openapi_extra={"requestBody": schemas.EVENT, "parameters": schemas.EVENT_HEADERS},
    responses={
        200: {"model": ObservationSummary},
        **error_answers.documented(
            _400="not JSON",
            _408="the body came too slowly",
            _413="too many bytes or values",
            _422="no event of an inference, no probabilities in the answer, or a parameter out of range",
            _503="the store cannot be written; try again after Retry-After",
            **keys.ERRORS,
        ),
    },
)
async def take_event(
    request: Request,
    model: Annotated[str | None, Query(description="default: the InferenceService")] = None,
    version: Annotated[str | None, Query(description="default: model_version of the answer, else 1")] = None,
    classes: Annotated[str | None, Query(description="as for /observe")] = None,
    positive: Annotated[str | None, Query(description="as for /observe")] = None,
    tag: Annotated[str | None, Query(max_length=MAX_TAG, description="of all rows")] = None,
    shadow: Annotated[bool, Query(description="as for /observe")] = False,
    output: Annotated[
        str | None,
        Query(description="the output tensor, or the key of a prediction, with the numbers of the classes"),
    ] = None,
    form: Annotated[Form, Query(description="what those are: probabilities or logits")] = "probabilities",
    ids: Annotated[
        str | None,
        Query(description="the key of an instance, or the input tensor, with the rows' own ids"),
    ] = None,
) -> Response:
    """A request or a response of an inference, as KServe's `logger` sends it (CloudEvents, binary or structured): each
    row of a response becomes an observation. Bodies are those of its protocols V1 (`instances`, `predictions`) and V2
    (`inputs`, `outputs`), in JSON.

    A row's id is the event's and its number: `9f3c-0`. With `ids` it is the request's own; then a half waits for the
    other, in either order, and one that has waited for 10 minutes is dropped, and counted in
    `trueodds_kserve_events_total`. Without `ids` requests are counted only.
    """
    runtime, report = runtime_of(request), Report(None)
    shared = formats.shared_of(model, version, classes, positive, tag, shadow)
    event: CloudEvent | None = None
    try:
        event = await read_event(request, runtime.settings.max_json_values)
        needed = ids is not None or event.kind == "response"
        inference = await event.inference(runtime.settings.max_json_values) if needed else None
        answers = answers_of(inference, output, form) if event.kind == "response" else None
        pair = await _paired(runtime.store, event, inference, shared, ids)
        outcome = "waiting" if pair is None and ids is not None else "taken"
        if pair is not None:
            answers = answers or answers_of(pair.response, output, form)
            await _store(runtime, request, pair, answers, shared, report)
    except ServiceError as error:
        runtime.telemetry.event(event.kind if event else "unknown", error.code)
        raise
    runtime.telemetry.event(event.kind, outcome)
    return Response(ObservationSummary.of(report).model_dump_json(), media_type=json_body.JSON)


class Pair(NamedTuple):
    """A response, and the ids of its rows if the request has them."""

    event: CloudEvent
    """The half that came last."""
    response: Any
    at: Any
    """When the response was sent, as in its event."""
    ids: list[str] | None


async def _paired(store: Store, event: CloudEvent, inference: Any, shared: Shared, ids: str | None) -> Pair | None:
    """What can be stored now; None: a half that waits, or a request that nothing is needed of."""
    if ids is None:
        return Pair(event, inference, event.time, None) if event.kind == "response" else None
    name = shared.model or event.service
    own = ids_of(inference, ids) if event.kind == "request" else {"tree": inference, "time": event.time}
    other = await store.put_half(name, event.id, event.kind, orjson.dumps(own))
    if other is None:
        return None
    kept = orjson.loads(other)
    if event.kind == "request":
        assert isinstance(own, list)
        return Pair(event, kept["tree"], kept["time"], own)
    return Pair(event, inference, event.time, kept)


async def _store(
    runtime: Runtime, request: Request, pair: Pair, answers: Answers, shared: Shared, report: Report
) -> None:
    """Store the rows of a response, each standing alone, and what came of them in the report."""
    event, count = pair.event, len(answers.rows)
    whose = {"model": shared.model or event.service, "version": shared.version or answers.version or "1"}
    ids = pair.ids or [f"{event.id}-{n}" for n in range(count)]
    if len(ids) != count:
        await runtime.store.remove_pair(whose["model"], event.id)
        message = f"the request has {len(ids):,} ids and the response {count:,} rows; expected one for each"
        raise ServiceError(422, "no_ids", message)
    rows = [
        observation_of(n, {"id": id_, answers.form: numbers, "time": pair.at, **whose}, shared)
        for n, (id_, numbers) in enumerate(zip(ids, answers.rows, strict=True))
    ]
    sound = [row for row in rows if isinstance(row, Observation)]
    stored = iter(await Storing(runtime, shared, request.state.request_id).store_each(sound) if sound else [])
    outcomes = [row if isinstance(row, Refusal) else next(stored) for row in rows]
    report.add(list(enumerate(rows)), outcomes)
    for outcome in outcomes:
        runtime.telemetry.observation(outcome.code if isinstance(outcome, Refusal) else outcome)
    if pair.ids is not None:
        await runtime.store.remove_pair(whose["model"], event.id)


async def keep_pairs(store: Store, telemetry: Telemetry, *, seconds: float = LOOK_SECONDS) -> None:
    """Drop halves whose other half never came, and count them, until cancelled."""
    while True:
        try:
            dropped = await store.drop_halves(time.time_ns() // 1_000_000 - WAIT_MS)
        except StoreError as error:
            log.warning("pairs of KServe: %s", error)
        else:
            for kind, count in zip(("request", "response"), dropped, strict=True):
                telemetry.event(kind, "unpaired", count)
        await asyncio.sleep(seconds)
