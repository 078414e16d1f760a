"""The label queue: POST draws answers and takes their labels; GET shows the next ones, as JSON, CSV or a page."""

from __future__ import annotations

import csv
import io
import time
from functools import partial
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.bulk.lines import CSV
from service.http import documentation, json_body, keys, signed_body
from service.http.parameters import Served
from service.http.routing import redirect
from service.labels import human_labelling
from service.labels.human_labelling import (
    MOST_CLOSED,
    MOST_LEASED,
    AnswerForm,
    AnswersBody,
    AnswersStored,
    GivenAnswer,
    LabelDrawBody,
    LabelDrawn,
    LabelledBy,
    LabelQueue,
    LeaseBody,
    Show,
)
from service.report import pages
from service.report.addresses import LABEL_QUEUE
from service.runtime import Runtime, runtime_of
from service.store.rows import Version
from trueodds.inputs.table import escape

router = APIRouter(route_class=pages.ReportRoute)
B = TypeVar("B", LabelDrawBody, LeaseBody, AnswersBody)
_STORE = "no model has been served yet, or the store is not writable"


def examples(version: Version) -> dict[str, documentation.Examples]:
    """Return example bodies by path."""
    whose = {"model": version.model, "version": version.version, "who": "Ada"}
    answer = {"id": "0191a0c0ffee00000000000000000000000", "label": version.classes[0]}
    return {
        LABEL_QUEUE: {json_body.JSON: {"100 answers": {**whose, "budget": 100}}},
        f"{LABEL_QUEUE}/lease": {json_body.JSON: {"the next answer": whose}},
        f"{LABEL_QUEUE}/answers": {json_body.JSON: {"a label": {**whose, "answers": [answer]}}},
    }


def _route(form: type[Any], answer: type[Any], role: keys.Role, **errors: str) -> dict[str, Any]:
    """Return the keywords of a POST route with a JSON body."""
    texts = {"_400": "not JSON", "_404": "unknown model or version", "_415": "another content type", "_503": _STORE}
    described = documentation.route(role, answer, None, tag="labels", **{**texts, **errors})
    return {
        **described,
        "openapi_extra": {"requestBody": documentation.body_of({json_body.JSON: form.model_json_schema()})},
    }


_KEY = {"type": "string", "description": "Feedback key, instead of the Authorization header."}
_SCHEMA = AnswerForm.model_json_schema()
_FORM = {**_SCHEMA, "properties": {**_SCHEMA["properties"], "key": _KEY}}


@router.get(
    LABEL_QUEUE,
    summary="Read the answers to label",
    **documentation.route(
        "read",
        LabelQueue,
        {"text/html": {}, CSV: {}},
        tag="labels",
        _404="unknown model or version",
        _422="unknown or repeated parameter, or value out of range",
        _503="the store is not readable",
    ),
)
async def read_queue(
    request: Request,
    model: Served = None,
    version: Served = None,
    who: Annotated[str | None, Query(max_length=200, description="Person whose leased answers to return.")] = None,
    show: Annotated[Show, Query(description="What the answers show: predictions may sway people.")] = "input",
    closures: Annotated[
        int,
        Query(
            ge=0,
            le=MOST_CLOSED,
            description="In JSON: list so many labelled or skipped answers with who did it, and when.",
        ),
    ] = 0,
    format: Annotated[
        Literal["json", "html", "csv"] | None, Query(description="Format. Default: as the header Accept says.")
    ] = None,
) -> Response:
    """Return the state of the queue, and the answers that are leased to `who`.

    `POST /label-queue` draws answers, and `POST /label-queue/lease` leases the next ones. This request changes nothing.

    The page shows one answer at a time, with a button for each class. The keys 1 to 9 choose a class, s skips.
    """
    runtime = runtime_of(request)
    chosen = await runtime.version(model, version)
    answers = []
    if who is not None:
        answers = await runtime.store.read_leases(*chosen.key, who, time.time_ns() // 1_000_000, MOST_LEASED)
    queue = await human_labelling.queue_of(runtime, chosen, answers, show)
    if closures:
        rows = await runtime.store.read_closed_answers(*chosen.key, closures)
        queue.closures = list(map(LabelledBy.of, rows))
    headers = {"vary": "accept", "cache-control": "no-store"}
    if pages.is_wanted(request):
        needs_key = not request.app.state.keys.is_open("feedback")
        text = pages.render_queue(queue, who=who, show=show, needs_key=needs_key, read_only=runtime.settings.read_only)
        return pages.response(request, text, {**headers, **pages.QUEUE_HEADERS})
    if format == "csv":
        return Response(_csv(queue), media_type=CSV, headers=headers)
    return Response(queue.model_dump_json(), media_type=json_body.JSON, headers=headers)


@router.post(
    LABEL_QUEUE,
    summary="Draw answers to label",
    **_route(
        LabelDrawBody,
        LabelDrawn,
        "admin",
        _409="the window overlaps with an earlier draw, or has no answers",
        _413="the window has more than a million answers",
        _422="an option is unknown, out of range, or belongs to another goal",
    ),
)
async def draw(request: Request) -> Response:
    """Draw a sample of the answers without a label, and put it into the queue in random order.

    Every answer has a propensity, its probability of being drawn, and none is 0. The propensity of a drawn answer goes
    with its label. So the report's weighted figures are about these answers: those of the window without a label. Each
    answer is drawn on its own, so that the alarm's evidence is valid. Answers that have a propensity already are left
    out.

    Windows of draws do not overlap: the next draw begins where the last one ended. An answer that is sent after a draw
    with a time inside its window is in no draw.
    """
    body = await _read(request, LabelDrawBody, "budget and who, and maybe goal, threshold, tag, floor, since, until")
    drawn = await human_labelling.draw(runtime_of(request), body)
    return Response(drawn.model_dump_json(), media_type=json_body.JSON)


@router.post(
    f"{LABEL_QUEUE}/lease",
    summary="Lease the next answers to label",
    **_route(LeaseBody, LabelQueue, "feedback", _422="an option is unknown or out of range"),
)
async def lease(request: Request) -> Response:
    """Lease the next answers to one person. Nobody else gets them before the lease ends.

    The same person gets the same answers again until they are labelled or skipped.
    """
    body = await _read(request, LeaseBody, "who, and maybe model, version, count, minutes and show")
    runtime = runtime_of(request)
    queue = await human_labelling.lease(runtime, await runtime.version(body.model, body.version), body)
    return Response(queue.model_dump_json(), media_type=json_body.JSON, headers={"cache-control": "no-store"})


@router.post(
    f"{LABEL_QUEUE}/answers",
    summary="Label drawn answers",
    **{
        **_route(
            AnswersBody,
            AnswersStored,
            "feedback",
            _409="another label is already stored",
            _422="unknown class, or a body of another shape",
        ),
        "dependencies": [],
        "openapi_extra": {
            "requestBody": documentation.body_of(
                {json_body.JSON: AnswersBody.model_json_schema(), signed_body.FORM: _FORM}
            ),
            **keys.NEEDS_KEY,
        },
    },
)
async def answer(request: Request) -> Response:
    """Store labels of drawn answers, or that a person skips them. All are stored, or none.

    Skipped answers have no label. The report counts them, because weights cannot correct for them: it gives the
    accuracy if all of them were wrong, and if all were right.

    The page sends a form with one answer and is redirected to the next one.
    """
    runtime = runtime_of(request)
    if signed_body.is_form(request):
        return await _take_form(request, runtime)
    keys.check(request, "feedback")
    body = await _read(request, AnswersBody, "who and answers, each with id and label, index or skip")
    version = await runtime.version(body.model, body.version)
    stored = await human_labelling.store_answers(runtime, version, body.who, body.answers)
    return Response(stored.model_dump_json(), media_type=json_body.JSON)


async def _take_form(request: Request, runtime: Runtime) -> Response:
    """Store the answer of a form, lease the next one, and redirect to it."""
    read = partial(
        human_labelling.read, AnswerForm, expectation="who, and maybe model, version, id, label, skip and show"
    )
    body = read(await signed_body.read_form(request, "feedback"))
    version = await runtime.version(body.model, body.version)
    if body.id is not None:
        given = GivenAnswer(id=body.id, label=None if body.skip else body.label, skip=bool(body.skip))
        await human_labelling.store_answers(runtime, version, body.who, [given])
    await human_labelling.lease(runtime, version, LeaseBody(who=body.who))
    query = {"model": version.model, "version": version.version, "who": body.who, "show": body.show, "format": "html"}
    return redirect(request, f"{LABEL_QUEUE}?{urlencode(query)}")


async def _read(request: Request, form: type[B], expectation: str) -> B:
    read = partial(human_labelling.read, form, expectation=expectation)
    return await json_body.read_json(request, runtime_of(request).settings.max_json_values, read)


def _csv(queue: LabelQueue) -> str:
    """Format the answers as CSV, with empty columns for the label and for skipping."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["id", "time", "tag", "predicted", "confidence", "propensity", "label", "skip"])
    for one in queue.answers:
        texts = [escape(one.id), one.time.isoformat(), escape(one.tag or ""), escape(one.predicted or "")]
        writer.writerow([*texts, "" if one.confidence is None else one.confidence, one.propensity, "", ""])
    return file.getvalue()
