"""POST /observe/decisions: requests to decision models with their responses, which are then monitored by question."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.bulk.lines import NDJSON, row_blocks
from service.bulk.report import BulkReport, lines_of, store_rows, take
from service.errors import Refusal, ServiceError
from service.http import documentation, json_body
from service.http.error_answers import RefusedRowsError
from service.observe import decision_schemas
from service.observe.decision_pairs import BESIDE, PairDefaults, PairLines, QuestionRow, promises_of, rows_of
from service.observe.decision_schemas import AnsweredQuestion, DecisionSummary
from service.observe.decision_storing import DecisionStoring
from service.observe.observation_formats import resolution_of
from service.observe.observe_schemas import RESOLUTION
from service.predict.options import MAX_TAG, check_tag
from service.runtime import Runtime, runtime_of
from trueodds.inputs.decisions import Shape
from trueodds.texts import short

BLOCK = 1024**2
"""Least size of a block in bytes. One line may be as long as a whole body, because requests hold images."""
STREAMED = (NDJSON,)
"""Media types of bodies that are stored while they arrive."""

router = APIRouter()


class _Seen:
    """Counts of the pairs that were read."""

    def __init__(self) -> None:
        self.pairs = 0
        self.shapes = Counter[Shape]()

    def add(self, rows: list[QuestionRow | Refusal]) -> None:
        self.pairs += 1
        self.shapes.update({row.shape for row in rows if isinstance(row, QuestionRow)})

    def summary(self, report: BulkReport) -> DecisionSummary:
        return DecisionSummary.of(report, self.pairs, dict(self.shapes))


@router.post(
    "/observe/decisions",
    summary="Store answers of a decision model",
    openapi_extra={"requestBody": decision_schemas.BODY},
    **documentation.route(
        "predict",
        DecisionSummary,
        lines_of("question"),
        _400="not JSON",
        _408="the body came too slowly",
        _409="every question was refused, the first because its id was used for another answer",
        _413="too many bytes or values",
        _415="not JSON or JSON lines",
        _422="every question was refused, or a body of another shape",
        _503="the store is not writable; try again after Retry-After",
    ),
)
async def observe_decisions(
    request: Request,
    tag: Annotated[str | None, Query(max_length=MAX_TAG, description="Tag of pairs that name none.")] = None,
    act_alone: Annotated[
        str | None,
        Query(
            description="Promise to act alone of all questions, such as threshold=.93,risk=.05,confidence=.95, or one"
            " per question: QUESTION:threshold=...;QUESTION:threshold=.... It is part of the version. Each answer then"
            " has a decision."
        ),
    ] = None,
    resolution: Annotated[str | None, Query(description=RESOLUTION)] = None,
) -> Response:
    """Store the answers of a decision model: typed questions about a text, with a probability for every option.

    Send each request together with its response, as they went over the wire, in the format of `/v1/decisions` or of
    `/v1/systemone`. The names of the questions are models of this service. Their versions are the served model with a
    hash of the question's type, instructions and options. Reports, alarms, recalibration and metrics then work as for
    `/observe`. `confidence` is ignored, because it is no probability.

    The answers of a pair have its id: yours, else the response's, else one made of the pair. Send labels to `POST
    /feedback` with the id and `question`. Questions that the host declined are counted.

    Each question is stored by itself. The answer lists the first 20 that failed; the others are stored. If every
    question of a JSON body is refused, the status is that of the first one.

    Send many pairs as `application/x-ndjson`, one pair per line. With `Accept: application/x-ndjson` the answer has one
    line per question.

    The service stores a keyed hash of each input, which tells a repeated input. It stores the input itself only with
    `--keep-inputs`.
    """
    runtime, media_type = runtime_of(request), json_body.media_type(request)
    chosen = runtime.settings
    defaults = PairDefaults(
        now_ms=time.time_ns() // 1_000_000,
        key=await runtime.input_key(),
        keep_inputs=chosen.keep_inputs,
        tag=check_tag(tag, "tag"),
        promises=None if act_alone is None else promises_of(act_alone),
        resolution=None if resolution is None else resolution_of(resolution),
    )
    if media_type == json_body.JSON:
        return await _take_json(request, runtime, defaults)
    if media_type != NDJSON:
        raise json_body.unsupported_type(request, f"{json_body.JSON} and {NDJSON}")
    seen = _Seen()
    storing = DecisionStoring(runtime, defaults, request.state.request_id)
    blocks = row_blocks(request, PairLines(defaults, seen.add), BLOCK, "a pair", chosen.max_body_bytes)
    count = runtime.telemetry.observation
    return await take(request, blocks, storing.store_questions, seen.summary, count, storing.beside)


async def _take_json(request: Request, runtime: Runtime, defaults: PairDefaults) -> Response:
    """Store the pairs of a JSON body.

    Raises:
        RefusedRowsError: Every question was refused.
    """
    defaults, by_pair = await json_body.read_json(request, runtime.settings.max_json_values, partial(_parse, defaults))
    seen, rows = _Seen(), list[tuple[int, QuestionRow | Refusal]]()
    for number, of_pair in enumerate(by_pair):
        seen.add(of_pair)
        rows += [(number, row) for row in of_pair]
    storing = DecisionStoring(runtime, defaults, request.state.request_id)
    report = BulkReport(None)
    outcomes = await store_rows(report, rows, storing.store_questions, runtime.telemetry.observation)
    if report.outcomes["failed"] == len(rows):
        raise RefusedRowsError([outcome for outcome in outcomes if isinstance(outcome, Refusal)], len(rows))
    summary = seen.summary(report)
    summary.answers = [
        AnsweredQuestion.model_validate({"row": row.pair, "id": row.id, "outcome": outcome, **storing.beside(row)})
        for (_, row), outcome in zip(rows, outcomes, strict=True)
        if isinstance(row, QuestionRow) and isinstance(outcome, str)
    ]
    return Response(summary.model_dump_json(), media_type=json_body.JSON)


def _parse(defaults: PairDefaults, tree: Any) -> tuple[PairDefaults, list[list[QuestionRow | Refusal]]]:
    """Read the pairs of a JSON body: one pair, or `{"decisions": [...]}` with values for all pairs beside it.

    Raises:
        ServiceError: The body has another shape.
    """
    if not isinstance(tree, dict):
        raise _shape_error(f"the body is {short(tree)}")
    pairs = [tree]
    if "decisions" in tree:
        if extra := tree.keys() - {"decisions", *BESIDE}:
            raise _shape_error(f"unknown key {short(min(extra))} beside decisions")
        if not isinstance(tree["decisions"], list) or not tree["decisions"]:
            raise _shape_error("decisions must be a list of at least one pair")
        pairs, defaults = tree["decisions"], _with_body(tree, defaults)
    return defaults, [rows_of(number, pair, defaults) for number, pair in enumerate(pairs)]


def _with_body(tree: dict[str, Any], defaults: PairDefaults) -> PairDefaults:
    for key, given in (("tag", defaults.tag), ("act_alone", defaults.promises), ("resolution", defaults.resolution)):
        if tree.get(key) is not None and given is not None:
            message = f"{key} is given both beside decisions and in the query; give it once"
            raise ServiceError(422, "invalid_parameter", message)
    return PairDefaults(
        defaults.now_ms,
        defaults.key,
        defaults.keep_inputs,
        defaults.tag if tree.get("tag") is None else check_tag(tree["tag"], "tag"),
        defaults.promises if tree.get("act_alone") is None else promises_of(tree["act_alone"]),
        defaults.resolution if tree.get("resolution") is None else resolution_of(tree["resolution"]),
    )


def _shape_error(problem: str) -> ServiceError:
    example = '{"decisions": [{"request": ..., "response": ...}, ...]}'
    return ServiceError(422, "invalid_body", f"{problem}; expected a pair of request and response, or {example}")
