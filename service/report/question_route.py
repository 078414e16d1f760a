"""GET /questions: the overview of the questions of decision models, as JSON or as a page."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.http import documentation
from service.report import pages
from service.report.addresses import QUESTIONS
from service.report.questions import MOST_ROWS, Overview, QuestionReport
from service.runtime import runtime_of

router = APIRouter(route_class=pages.ReportRoute)


@router.get(
    QUESTIONS,
    summary="List the questions of decision models",
    **documentation.route(
        "read",
        QuestionReport,
        {"text/html": {}},
        _422="unknown or repeated parameter, or value out of range",
        _503="the store is not readable",
    ),
)
async def questions(
    request: Request,
    first: Annotated[int, Query(ge=0, le=2**31 - 1, description="Number of questions to skip.")] = 0,
    format: Annotated[
        Literal["json", "html"] | None, Query(description="Format. Default: as the header Accept says.")
    ] = None,
) -> Response:
    """List the questions that `/observe/decisions` has received, with the state of each in one row.

    A row is about the version with the question's latest answer. The questions are in the order of their latest
    answers, at most 50 in a response. `notices` are findings that need no label: a changed served model, a changed
    wording, a risen share of declined requests.
    """
    overview: Overview = request.app.state.overview
    runtime, base_url = runtime_of(request), str(request.base_url)
    report = await overview.report(runtime, request.app.state.recent, base_url, first)
    if pages.is_wanted(request):
        now = datetime.now(UTC)
        text = await asyncio.to_thread(pages.render_questions, report, now=now, first=first, most=MOST_ROWS)
        return pages.response(request, text, {"vary": "accept", **pages.HEADERS})
    return Response(report.model_dump_json(), media_type="application/json", headers={"vary": "accept"})
