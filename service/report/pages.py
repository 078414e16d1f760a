"""The report's web page in the service: forms, links, security headers, and error pages."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from markupsafe import Markup
from pydantic import BaseModel
from starlette.responses import Response

from service.errors import ServiceError
from service.http import error_answers, keys, parameters
from service.http.parameters import prefers_html
from service.http.routing import redirect, root_of
from service.report import addresses
from trueodds.reports import Report, page

TEMPLATES = Path(__file__).parent / "templates"
ENVIRONMENT = page.environment(TEMPLATES)
QUEUE_SCRIPT = (TEMPLATES / "label_queue.js").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS = {
    "content-security-policy": "; ".join(
        [
            "default-src 'none'",
            f"style-src {_hash(page.STYLE)}",
            f"script-src {_hash(page.SCRIPT)}",
            "connect-src 'self'",
            "img-src data:",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ]
    ),
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
"""Headers of the page. They allow only its own style and script to run or load."""


TABLE_HEADERS = {
    **HEADERS,
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
}
"""Headers of a report's page from the library: it has styles, and no scripts, forms or images."""


QUEUE_HEADERS = {name: value.replace(_hash(page.SCRIPT), _hash(QUEUE_SCRIPT)) for name, value in HEADERS.items()}
"""Headers of the page of the label queue, which has a script of its own."""


_OWN_ADDRESS = re.compile(r'(?<= )(href|action|src|data-again)="/(?!/)')
"""Attribute that holds an address of this service. Text of users cannot hold one: its quotes are escaped."""


def response(request: Request, text: str, headers: Mapping[str, str], status: int = 200) -> Response:
    """Return a page. Below the path of a proxy (`--root-path`), its links and forms begin with that path."""
    if root := root_of(request):
        text = _OWN_ADDRESS.sub(rf'\1="{root}/', text)
    return Response(text, status, dict(headers), media_type="text/html")


def render_queue(queue: BaseModel, *, who: str | None, show: str, needs_key: bool, read_only: bool) -> str:
    """Render the label queue as HTML.

    Args:
        queue: State of the queue, with the answers that are leased to `who`.
        who: Name of the person who labels.
        show: What the page shows of an answer.
        needs_key: Whether a label needs a key.
        read_only: Leave out the forms.
    """
    return ENVIRONMENT.get_template("label_queue.html").render(
        queue=queue,
        who=who,
        show=show,
        needs_key=needs_key,
        read_only=read_only,
        script=Markup(QUEUE_SCRIPT),
        queue_address=addresses.LABEL_QUEUE,
        report_address=addresses.REPORT,
    )


def render(
    report: Report,
    query: Mapping[str, str] | None = None,
    *,
    now: datetime | None = None,
    read_only: bool = False,
) -> str:
    """Render a report as HTML.

    Args:
        report: The report.
        query: The query of the request. Forms and links keep its parameters.
        now: The current time; read from the clock by default.
        read_only: Leave out the forms that write, for a read-only service.
    """
    query, now = query or {}, now or datetime.now(UTC)
    choice, address = addresses.choice_of(report, now), partial(addresses.address, query)

    def part(name: str) -> Markup:
        template = ENVIRONMENT.get_template(f"{name}.html")
        return Markup(template.render(report=report, query=query, choice=choice, address=address, addresses=addresses))

    site = page.Site(
        address=address,
        refresh_address=addresses.refresh_address(query, choice),
        choice=part("choice"),
        acknowledgement=Markup() if read_only else part("acknowledgement"),
        rearming=Markup() if read_only else part("rearming"),
        group_forms=Markup() if read_only or report.groups is None else part("group_forms"),
        first_steps=Markup() if read_only else part("first_steps"),
        footer=part("footer"),
    )
    return page.render(report, now=now, site=site)


def render_questions(overview: BaseModel, *, now: datetime, first: int, most: int) -> str:
    """Render the overview of questions as HTML, from question number `first` on, `most` on a page."""
    template = ENVIRONMENT.get_template("questions.html")
    return template.render(overview=overview, now=now, first=first, most=most, questions_address=addresses.QUESTIONS)


def problem(message: str, path: str) -> str:
    """Render the error message of a request as HTML. `path` is the request's path."""
    is_of_queue = path == addresses.LABEL_QUEUE or path.startswith(f"{addresses.LABEL_QUEUE}/")
    return ENVIRONMENT.get_template("problem.html").render(
        message=message,
        is_of_queue=is_of_queue,
        is_answer=is_of_queue and path != addresses.LABEL_QUEUE,
        report_address=addresses.REPORT,
        queue_address=addresses.LABEL_QUEUE,
    )


class ReportRoute(APIRoute):
    """Route whose errors are pages in a browser, with the status and message of the JSON error."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        plain = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await plain(request)
            except (ServiceError, RequestValidationError) as error:
                if not (is_wanted(request) and prefers_html(request.headers.get("accept", ""))):
                    raise
                answer = await error_answers.answer(request, error)
            message = orjson.loads(answer.body)["error"]["message"]
            kept = {
                name: answer.headers[name] for name in ("retry-after", "www-authenticate") if name in answer.headers
            }
            headers = {"vary": "accept", **HEADERS, **kept}
            text = problem(message, error_answers.path_of(request.scope))
            return response(request, text, headers, answer.status_code)

        return handle


def is_wanted(request: Request) -> bool:
    """Return whether the caller wants a page, by the parameter `format` or else by the header Accept."""
    form = request.query_params.get("format")
    return form == "html" or (not form and prefers_html(request.headers.get("accept", "")))


router = APIRouter(route_class=ReportRoute)


@router.get(addresses.CHOOSE, include_in_schema=False, dependencies=[keys.requires("read")])
async def choose(request: Request) -> Response:
    """Redirect a form to its report. Blank fields are dropped; days and sliding windows become times."""
    parameters.check(request, addresses.FIELDS, is_form=True)
    return redirect(request, addresses.form_address(request.query_params, datetime.now(UTC)))
