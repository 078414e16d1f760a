"""Bodies that an admin signs with name and reason: JSON, or a form of the report's page."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from service.errors import ServiceError
from service.http import documentation, error_answers, json_body, keys
from service.http.answers import answer_of
from trueodds.texts import line_problem, short

FORM = "application/x-www-form-urlencoded"
OPTIONAL = ("null", "key")
"""Fields that may be empty in a form."""


def _line(value: object) -> object:
    """Refuse a text with line breaks or other control characters, before white space is stripped."""
    if isinstance(value, str) and (problem := line_problem(value)):
        raise ValueError(f"it {problem}")
    return value


_STRIPPED = StringConstraints(strip_whitespace=True, min_length=1)
Name = Annotated[str, _STRIPPED, Field(max_length=200), BeforeValidator(_line)]
Reason = Annotated[str, _STRIPPED, Field(max_length=2000), BeforeValidator(_line)]


class SignedBody(BaseModel):
    """Name of the person who acts, and the reason."""

    model_config = ConfigDict(extra="forbid", strict=True)

    who: Name = Field(description="Name of the person or program that acts.")
    why: Reason = Field(description="Reason, which the report shows.")


B = TypeVar("B", bound=SignedBody)


def route(form: type[SignedBody], answer: type[BaseModel], **errors: str) -> dict[str, Any]:
    """Return the keywords of a POST route whose JSON body an admin signs.

    `errors` adds descriptions, as for `error_answers.document_errors`.
    """
    return {
        "tags": ["operation"],
        "dependencies": [keys.requires("admin")],
        "openapi_extra": {"requestBody": documentation.body_of({json_body.JSON: form.model_json_schema()})},
        "responses": {
            200: {"content": answer_of(answer)},
            **error_answers.document_errors(**{**_ERRORS, "_415": "not JSON", **errors}),
        },
    }


def form_route(form: type[SignedBody], answer: type[BaseModel], /, *, fields: dict[str, Any], **errors: str) -> Any:
    """Return the keywords of a route that also accepts a form of the page. `fields` has schemas that JSON lacks."""
    schema = form.model_json_schema()
    key = {"type": "string", "description": "Admin key, instead of the Authorization header."}
    of_form = {**schema, "properties": {**schema["properties"], **fields, "key": key}}
    body = documentation.body_of({json_body.JSON: schema, FORM: of_form})
    both = {"_415": "neither JSON nor a form", "_403": "a key of another role, or a form of another site"}
    return {
        "tags": ["operation"],
        "openapi_extra": {"requestBody": body, **keys.NEEDS_KEY},
        "responses": {
            200: {"content": answer_of(answer)},
            303: {"description": "for a form: redirects to the report"},
            **error_answers.document_errors(**{**_ERRORS, **both, **errors}),
        },
    }


_ERRORS = {
    **keys.ERRORS,
    "_400": "not JSON",
    "_408": "the body came too slowly",
    "_413": "the body is too large",
    "_422": "a field is missing, empty, too long, unknown or not a single line of text",
}


def read(form: type[B], tree: Any, expectation: str) -> B:
    """Validate a body.

    Raises:
        ServiceError: 422 with the first wrong field and the expected fields.
    """
    try:
        return form.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        problem = first["msg"].removeprefix("Value error, ")
        raise ServiceError(422, "invalid_body", f"{where}: {problem}; expected {expectation}") from None


async def read_any(request: Request, form: type[B], most_values: int, expectation: str) -> B:
    """Read a body that needs an admin key: JSON with at most `most_values` values, or a form of the page.

    Raises:
        ServiceError: 401 or 403 without an admin key, or from a page of another site; 400, 415 or 422 for another body.
    """
    if is_form(request):
        return read(form, await read_form(request, "admin"), expectation)
    _check_origin(request)
    keys.check(request, "admin")
    return await json_body.read_json(request, most_values, lambda tree: read(form, tree, expectation))


async def read_form(request: Request, role: keys.Role) -> dict[str, Any]:
    """Read the fields of a form of the page, which needs a key of a role in its field `key` or in a header.

    Raises:
        ServiceError: 401 or 403 without this key, or from a page of another site; 422 if the form cannot be read.
    """
    _check_origin(request)
    fields = await _fields(request)
    key = fields.pop("key", None)
    if key is not None and "authorization" not in request.headers:
        request.app.state.keys.check(role, key)
    else:
        keys.check(request, role)
    return fields


def is_form(request: Request) -> bool:
    """Return whether the request sends a form, as browsers do."""
    return json_body.media_type(request) == FORM


async def _fields(request: Request) -> dict[str, Any]:
    text = (await request.body()).decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError as error:
        raise ServiceError(422, "invalid_form", f"the form cannot be read ({error}); send it in UTF-8") from None
    if len(dict(pairs)) < len(pairs):
        raise ServiceError(422, "invalid_form", "a field of the form is repeated; send each field once")
    return {name: value for name, value in pairs if value or name not in OPTIONAL}


def _check_origin(request: Request) -> None:
    """Refuse forms of other sites, which would use the reader's cookies and network. Browsers name a form's site."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        words = f"the request comes from a page of {short(origin)}, not of this service; use the report's page"
        raise ServiceError(403, "wrong_origin", words)
