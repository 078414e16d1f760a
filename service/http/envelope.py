"""ASGI middleware: request ids, body limits, compression, HEAD, metrics, and a 500 for unexpected errors."""

from __future__ import annotations

import itertools
import logging
import re
import secrets
import time
from collections.abc import Collection, Mapping

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ENDING, CallerGoneError, ServiceError
from service.http import encodings, error_answers
from service.http.body_limits import Headers, LimitedBody
from service.settings import Settings
from service.telemetry.metrics import Telemetry

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
UNKNOWN_ROUTE = "unknown"
GONE = 499
"""nginx's status for a client that closed the connection."""

log = logging.getLogger("trueodds")


class Envelope:
    """ASGI middleware around every request.

    A caller's `x-request-id` is kept if it has 1 to 64 of the characters A-Z a-z 0-9 . _ -
    """

    def __init__(
        self, app: ASGIApp, telemetry: Telemetry, settings: Settings, streamed_types: Mapping[str, Collection[str]]
    ) -> None:
        """Wrap an application. `streamed_types` has, by path, the media types whose bodies may have any size."""
        self._app, self._telemetry, self._settings = app, telemetry, settings
        self._streamed = {path: frozenset(kind.encode() for kind in kinds) for path, kinds in streamed_types.items()}
        # A request id gives access to nothing, so it may be guessable. It only has to be unique.
        self._ids = map(f"{secrets.token_hex(8)}{{:08x}}".format, itertools.count())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers: Headers = dict(reversed(scope["headers"]))  # of several headers with one name, the first counts
        own_id = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = own_id if REQUEST_ID.fullmatch(own_id) else next(self._ids)
        is_head = scope["method"] == "HEAD"
        if is_head:  # HEAD is GET without the body; every GET route must support it
            scope = {**scope, "method": "GET"}
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        kinds = self._streamed.get(error_answers.path_of(scope), ())
        is_streamed = headers.get(b"content-type", b"").partition(b";")[0].strip().lower() in kinds
        body = LimitedBody(receive, headers, self._settings, is_streamed=is_streamed)
        content: Receive = body.receive
        if b"content-encoding" in headers and not body.complete:
            content = encodings.decode_body(content, scope, body.limit)
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).append((b"x-request-id", request_id.encode()))
                if status >= 400 and not body.complete and not await body.drain():
                    message["headers"].append((b"connection", b"close"))
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, content, send_with_id)
        except (ClientDisconnect, CallerGoneError):
            status = GONE  # no client is left to answer
        except ENDING:
            raise
        except BaseException:
            log.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if status:
                raise
            text = f"the service had an internal error; please report it with the request id {request_id}"
            failure = error_answers.response(scope, ServiceError(500, "internal_error", text))
            await failure(scope, receive, send_with_id)
        finally:
            route = getattr(scope.get("route"), "path", UNKNOWN_ROUTE)
            self._telemetry.request(route, status, time.perf_counter() - started, state.get("version", ("", "")))
