"""POST /judge-labels: labels of a judge, such as a language model, beside human ones."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.bulk.lines import row_blocks
from service.bulk.report import BulkReport, lines_of, take
from service.errors import Refusal
from service.http import documentation, json_body
from service.http.error_answers import BadRow, RefusedRowsError, bad_rows
from service.labels import label_formats, label_schemas
from service.labels.feedback_route import BLOCK, READERS
from service.runtime import runtime_of
from service.store.label_rules import RefusedLabelsError
from service.store.rows import Label

PATH = "/judge-labels"
router = APIRouter()


class JudgeLabelsStored(BaseModel):
    """Result of a JSON call. The counts add up to the number of labels sent."""

    stored: int
    already_known: int = Field(description="The same label of the judge was stored already.")
    replaced: int = Field(description="Replaced a different label of the judge.")


class JudgeSummary(BaseModel):
    """Outcomes of the rows of a CSV or JSON lines body. The counts add up to `rows`."""

    rows: int
    stored: int
    already_known: int
    replaced: int
    failed: int
    problems: list[BadRow] = Field(description="The first 20 rows that failed.")

    @classmethod
    def of(cls, report: BulkReport) -> JudgeSummary:
        """Return the summary of a report on rows."""
        counts = {name: report.outcomes[name] for name in ("stored", "already_known", "replaced", "failed")}
        return cls(rows=report.rows, **counts, problems=bad_rows(report.refusals))


@router.post(
    PATH,
    summary="Send a judge's labels",
    openapi_extra={"requestBody": label_schemas.JUDGE_BODY},
    **documentation.route(
        "feedback",
        JudgeLabelsStored | JudgeSummary,
        lines_of("row"),
        _400="not JSON",
        _404="unknown prediction",
        _409="two models have this id",
        _413="too many bytes or labels",
        _415="not JSON, CSV or JSON lines",
        _422="unknown class, or a body of another shape",
        _408="the body came too slowly",
        _503="the store is not writable; try again after Retry-After",
    ),
)
async def give_judge_labels(request: Request) -> Response:
    """Send the labels of a judge, such as a language model, for stored answers. Rows are those of `/feedback`.

    These labels stand beside the human ones of the same answers. They never count as human labels: not in the alarm,
    not in the other figures of the report, and not in recalibration. The report's part `judge` combines both.

    A later label of the judge replaces an earlier one, so you can run the judge again. An answer must be stored before
    its judge's label comes. Let the judge label all answers, or a random sample of them.
    """
    runtime = runtime_of(request)
    media_type = json_body.media_type(request)
    if media_type in READERS:

        async def put(labels: list[Label]) -> list[str | Refusal]:
            return list(await runtime.store.put_each_judge_label(labels))

        blocks = row_blocks(request, READERS[media_type](), BLOCK, "a label")
        return await take(request, blocks, put, JudgeSummary.of, _count_nowhere)
    if media_type != json_body.JSON:
        raise json_body.unsupported_type(request, f"{json_body.JSON}, {' and '.join(READERS)}")

    def parse(tree: Any) -> list[Label]:
        return label_formats.parse(tree, runtime.settings.max_labels)

    labels = await json_body.read_json(request, runtime.settings.max_json_values, parse)
    try:
        counts = await runtime.store.put_judge_labels(labels)
    except RefusedLabelsError as error:
        raise RefusedRowsError(error.refusals, error.rows) from error
    return Response(JudgeLabelsStored(**counts).model_dump_json(), media_type=json_body.JSON)


def _count_nowhere(outcome: str, count: int) -> None:
    """Count nothing: the counter of labels is about human ones."""
