"""Where the page's form goes, so that it works without a script, and errors that a browser's reader can read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response

from service.errors import ServiceError
from service.http import error_answers, query_parameters
from service.http.accept import prefers_html
from service.report.page import query, rendering


class Readable(APIRoute):
    """A route whose errors are a page in a browser; status and message are those of the JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        plain = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await plain(request)
            except (ServiceError, RequestValidationError) as error:
                if not (wanted(request) and prefers_html(request.headers.get("accept", ""))):
                    raise
                answer = await error_answers.answer(request, error)
            message = orjson.loads(answer.body)["error"]["message"]
            retry = {name: answer.headers[name] for name in ("retry-after",) if name in answer.headers}
            headers = {"vary": "accept", **rendering.HEADERS, **retry}
            return Response(rendering.problem(message), answer.status_code, headers, media_type="text/html")

        return handle


def wanted(request: Request) -> bool:
    """Whether a page was asked for: by `format`, else by Accept."""
    form = request.query_params.get("format")
    return form == "html" or (not form and prefers_html(request.headers.get("accept", "")))


router = APIRouter(route_class=Readable)


@router.get(query.CHOOSE, include_in_schema=False)
async def choose(request: Request) -> Response:
    """On to the report that was chosen: blank fields left out, days and sliding windows as times."""
    query_parameters.check(request, query.FIELDS)
    return RedirectResponse(query.wanted(request.query_params, datetime.now(UTC)), 303, {"cache-control": "no-store"})
