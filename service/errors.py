"""The one error body, `{"error": {"code", "message", ...}}`, and what turns exceptions into it.

Under /v2 it is `{"error": "..."}`, as the Open Inference Protocol says.
"""

from __future__ import annotations

import reprlib
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from trueodds.texts import plural

PROTOCOL = "/v2"
"""Where the Open Inference Protocol lives."""


class ServiceError(Exception):
    """An answer other than 2xx: the message says what was given, what is allowed and the cure."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_after: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.details = details or {}
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}

    def response(self, scope: Scope) -> Response:
        return error_response(scope, self.status, self.code, self.message, self.details, self.headers)


def error_response(
    scope: Scope,
    status: int,
    code: str,
    message: str,
    details: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """JSON `{"error": {"code", "message", **details}}`, or `{"error": message}` for a path of the protocol."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    plain = path == PROTOCOL or path.startswith(PROTOCOL + "/")
    body = orjson.dumps({"error": message if plain else {"code": code, "message": message, **(details or {})}})
    return Response(body, status, headers, media_type="application/json")


def short(value: Any) -> str:
    """`repr`, cut to a line: bounded work however large or deep the value is."""
    if isinstance(value, dict):  # reprlib sorts every key first
        return f"an object with {plural(len(value), 'key')}"
    text = reprlib.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def install(app: FastAPI) -> None:
    """Give the framework's own errors (404, 405, query validation) the service's error body."""
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _query_error)


async def answer(request: Request, error: Exception) -> Response:
    """What a ServiceError or the framework's RequestValidationError is answered with."""
    return await (_service_error if isinstance(error, ServiceError) else _query_error)(request, error)


async def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return error.response(request.scope)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, headers = request.url.path, dict(error.headers or {})
    if error.status_code == 404:
        message = f"there is no {path}; /docs lists what there is"
        if path.rstrip("/") != path:
            message += f". No path ends with a slash: try {path.rstrip('/')}"
    elif error.status_code == 405:
        allowed = headers.get("Allow") or headers.get("allow", "another method")
        message = f"{path} does not take {request.method}; use {allowed}"
    else:
        message = str(error.detail)
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    return error_response(request.scope, error.status_code, code, message, headers=headers)


async def _query_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(map(str, e['loc'][1:]))} = {short(e.get('input'))}: {e['msg']}" for e in error.errors()]
    return error_response(request.scope, 422, "invalid_parameter", "; ".join(found))
