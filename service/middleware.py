"""Around every request: an id, a limit on the body, metrics, and the last word on unexpected errors."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ServiceError, error_response
from service.telemetry import Telemetry

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
UNKNOWN_ROUTE = "unknown"

log = logging.getLogger("trueodds")


class Envelope:
    """Plain ASGI middleware; a caller's `x-request-id` is kept if it is up to 64 of A-Z a-z 0-9 . _ -"""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, max_body_bytes: int) -> None:
        self._app, self._telemetry, self._max_body_bytes = app, telemetry, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, headers = time.perf_counter(), Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(12)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).append((b"x-request-id", request_id.encode()))
            await send(message)

        try:
            await self._app(scope, _limited(receive, headers, self._max_body_bytes), send_with_id)
        except ClientDisconnect:
            status = 499  # nginx's word for it; nobody is left to answer
        except Exception:
            log.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if status:
                raise
            message = f"something went wrong on our side; quote request id {request_id} when you report it"
            await error_response(500, "internal_error", message)(scope, receive, send_with_id)
        finally:
            route = getattr(scope.get("route"), "path", UNKNOWN_ROUTE)
            self._telemetry.request(route, status, time.perf_counter() - started)


def _limited(receive: Receive, headers: Headers, limit: int) -> Receive:
    """A `receive` that raises ServiceError 413 as soon as the body is, or says it is, longer than `limit` bytes."""
    stated = headers.get("content-length", "")
    received = 0

    async def limited() -> Message:
        nonlocal received
        if stated.isdecimal() and int(stated) > limit:
            raise _too_large(limit)
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise _too_large(limit)
        return message

    return limited


def _too_large(limit: int) -> ServiceError:
    message = f"the body has more than {limit:,} bytes, the limit; send fewer or smaller images in one call"
    return ServiceError(413, "body_too_large", message)
