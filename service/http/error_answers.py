"""Answers to errors: `{"error": {"code", "message", ...}}` as JSON, the same for every route.

Under /v2 they are `{"error": "..."}`, as the Open Inference Protocol requires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Mount
from starlette.types import Scope

from service.errors import MOST_LISTED, STATUSES, Refusal, ServiceError
from service.http.answers import answer_of
from trueodds.inputs import InputError, InputTooLargeError, UnreadableError
from trueodds.texts import short

OPEN_INFERENCE = "/v2"
"""Path prefix of the Open Inference Protocol."""
METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
ANSWERED = (ServiceError, InputError, HTTPException, RequestValidationError)
"""Errors that `answer` handles. Any other error is a fault of the service."""


class BadRow(BaseModel):
    """Row of a call that is refused."""

    row: int = Field(
        description="JSON and Parquet: position in the call, from 0. JSON lines: number of the line, from 1."
        " CSV: as a spreadsheet counts, with the header as row 1."
    )
    id: str | None
    code: str
    message: str


class ErrorDetail(BaseModel):
    """Reason for an error answer. Some errors have further fields."""

    model_config = ConfigDict(extra="allow")

    code: str
    message: str = Field(description="What was sent, what is allowed, and what to do.")
    problems: list[BadRow] | None = Field(None, description="For labels and observations: the first 20 bad rows.")
    problem_count: int | None = Field(None, description="For labels and observations: the number of bad rows.")


class ErrorAnswer(BaseModel):
    """Body of every answer other than 2xx."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "error": {
                    "code": "unknown_id",
                    "message": "no prediction has the id 'x'; use an id that /predict returned",
                }
            }
        }
    )

    error: ErrorDetail


class OpenInferenceError(BaseModel):
    """Body of every answer other than 2xx under /v2."""

    error: str


class RefusedRowsError(ServiceError):
    """A call has at least one refused row, and nothing of it was stored. The status is that of the first bad row."""

    def __init__(self, refusals: list[Refusal], rows: int) -> None:
        self.counts = Counter[str](refusal.code for refusal in refusals)
        first, count = refusals[0], len(refusals)
        where = "" if rows == 1 else f" ({count:,} of {rows:,} rows are bad; this is row {first.row}, counted from 0)"
        message = f"{first.message}{where}"
        super().__init__(
            STATUSES[first.code],
            first.code,
            f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} Nothing was stored.",
            details={"problems": bad_rows(refusals), "problem_count": count},
        )


def bad_row(row: int, id_: str | None, message: str) -> Refusal:
    """Return the refusal of a row with a wrong shape."""
    return Refusal(row, id_, "invalid_row", message)


def bad_rows(refusals: list[Refusal]) -> list[BadRow]:
    """Return the first bad rows, as an answer lists them."""
    return [BadRow(row=r.row, id=r.id, code=r.code, message=r.message) for r in refusals[:MOST_LISTED]]


def document_errors(model: type[BaseModel] = ErrorAnswer, /, **descriptions: str) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route, such as `document_errors(_404="unknown model")`."""
    return {int(code[1:]): {"content": answer_of(model), "description": text} for code, text in descriptions.items()}


def install(app: FastAPI) -> None:
    """Make the application answer its own and the framework's errors (404, 405, query validation) in the same form."""
    for kind in ANSWERED:
        app.add_exception_handler(kind, answer)


def path_of(scope: Scope) -> str:
    """Return the path of a request relative to the application's mount point."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def answer(request: Request, error: Exception) -> Response:
    """Return the answer to one of the errors in ANSWERED; for OPTIONS, the methods of the path."""
    if request.method == "OPTIONS" and isinstance(error, HTTPException) and error.status_code == 405:
        return Response(status_code=204, headers={"allow": ", ".join(_methods(request))})
    return response(request.scope, _service_error(request, error))


def response(scope: Scope, error: ServiceError) -> Response:
    """Return the answer to an error, in the form that belongs to the request's path."""
    path = path_of(scope)
    body: BaseModel
    if path == OPEN_INFERENCE or path.startswith(OPEN_INFERENCE + "/"):
        body = OpenInferenceError(error=error.message)
    else:
        body = ErrorAnswer(error=ErrorDetail(code=error.code, message=error.message, **error.details))
    return Response(
        body.model_dump_json(exclude_unset=True), error.status, error.headers, media_type="application/json"
    )


def _service_error(request: Request, error: Exception) -> ServiceError:
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, InputError):
        status = 413 if isinstance(error, InputTooLargeError) else 400 if isinstance(error, UnreadableError) else 422
        return ServiceError(status, error.code, str(error))
    if isinstance(error, HTTPException):
        return _http_error(request, error)
    assert isinstance(error, RequestValidationError)
    return ServiceError(422, "invalid_parameter", "; ".join(map(_problem, error.errors())))


def _problem(error: Mapping[str, Any]) -> str:
    """Describe a wrong parameter: its name, its value once, and pydantic's or our message."""
    value = short(error.get("input"))
    message = error["msg"].removeprefix("Value error, ").removeprefix(value).lstrip(",; ")
    return f"{'.'.join(map(str, error['loc'][1:]))} = {value}: {message}"


def _http_error(request: Request, error: HTTPException) -> ServiceError:
    path, headers = request.url.path, {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 404:
        message = f"the path {path} does not exist; see /docs for all paths"
        if path.rstrip("/") != path:
            message += f". Paths do not end with a slash: try {path.rstrip('/')}"
    elif error.status_code == 405:
        headers["allow"] = ", ".join(_methods(request))
        message = f"{path} does not accept {request.method}; use {headers['allow']}"
    else:
        message = str(error.detail)
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    same = ServiceError(error.status_code, code, message)
    same.headers = headers
    return same


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes of a path. The framework names only those of the first route."""
    methods, scope = {"OPTIONS"}, request.scope
    whole = {**scope, "root_path": scope.get("app_root_path", scope.get("root_path", ""))}  # a mount sets its own path
    for route in request.app.router.routes:
        asked = ("GET",) if isinstance(route, Mount) else METHODS  # a mounted folder of files claims every method
        methods |= {m for m in asked if route.matches({**whole, "method": m})[0] is Match.FULL}
    if "GET" in methods:
        methods.add("HEAD")  # the envelope answers HEAD
    return sorted(methods)
