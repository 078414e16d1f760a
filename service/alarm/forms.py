"""What the page's forms and JSON bodies about an alarm share: an admin key, who and why, and the way back."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from service.errors import ServiceError
from service.http import json_body, keys, signed_body
from service.http.signed_body import SignedBody
from service.store.rows import Version
from trueodds.reports.schemas.alarm import Alarm
from trueodds.texts import short

FORM = "application/x-www-form-urlencoded"
OPTIONAL = ("null", "key")
"""Fields that a form may leave empty."""

B = TypeVar("B", bound=SignedBody)


def request_body(form: type[SignedBody], **fields: Any) -> dict[str, Any]:
    """OpenAPI's request body of a route that takes both; `fields`: schemas of the form's fields that JSON has not."""
    schema = form.model_json_schema()
    key = {"type": "string", "description": "the admin key, in place of the Authorization header"}
    of_form = {**schema, "properties": {**schema["properties"], **fields, "key": key}}
    return {"required": True, "content": {json_body.JSON: {"schema": schema}, FORM: {"schema": of_form}}}


async def read(request: Request, form: type[B], most_values: int, expected: str) -> B:
    """The body of a request with an admin key, from JSON of at most so many values, or from a form of our own page.

    Raises:
        ServiceError: 401 or 403 without an admin key, or from a page of another site; 400, 415 or 422 for another body.
    """
    _check_origin(request)
    if not is_form(request):
        keys.check(request, "admin")
        return await json_body.read_json(request, most_values, lambda tree: signed_body.read(form, tree, expected))
    fields = await _fields(request)
    key = fields.pop("key", None)
    if key is not None and "authorization" not in request.headers:
        request.app.state.keys.check("admin", key)
    else:
        keys.check(request, "admin")
    return signed_body.read(form, fields, expected)


def answer(request: Request, alarm: Alarm, version: Version) -> Response:
    """The alarm as JSON; to a form, the way back to the report."""
    if is_form(request):
        query = urlencode({"model": version.model, "version": version.version})
        return RedirectResponse(f"/calibration-report?{query}", 303)
    return Response(alarm.model_dump_json(), media_type=json_body.JSON)


def is_form(request: Request) -> bool:
    """Whether a form is sent, as browsers do."""
    return json_body.media_type(request) == FORM


async def _fields(request: Request) -> dict[str, Any]:
    text = (await request.body()).decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError as error:
        raise ServiceError(422, "invalid_form", f"the form cannot be read ({error}); send it in UTF-8") from None
    if len(dict(pairs)) < len(pairs):
        raise ServiceError(422, "invalid_form", "a field of the form comes twice; send each once")
    return {name: value for name, value in pairs if value or name not in OPTIONAL}


def _check_origin(request: Request) -> None:
    """A page of another site may send a form here with the reader's cookies and network; browsers say whose it is."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        words = f"the request comes from a page of {short(origin)}, not of this service; send it from the report's page"
        raise ServiceError(403, "wrong_origin", words)
