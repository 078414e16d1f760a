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
from service.http.body_limits import BODY, Headers, LimitedBody
from service.http.lean import cycle_of
from service.http.routing import START, WHOLE
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
        self._kinds = frozenset[bytes]().union(*self._streamed.values())
        # A request id gives access to nothing, so it may be guessable. It only has to be unique.
        self._ids = map(f"{secrets.token_hex(8)}{{:08x}}".format, itertools.count())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers: Headers = dict(reversed(scope["headers"]))  # of several headers with one name, the first counts
        own_id = headers[b"x-request-id"].decode("latin-1") if b"x-request-id" in headers else ""
        request_id = own_id if own_id and REQUEST_ID.fullmatch(own_id) else next(self._ids)
        is_head = scope["method"] == "HEAD"
        if is_head:  # HEAD is GET without the body; every GET route must support it
            scope = {**scope, "method": "GET"}
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        is_streamed = kind in self._kinds and kind in self._streamed.get(error_answers.path_of(scope), ())
        cycle = cycle_of(receive)
        arrived = cycle.take_body() if cycle else None
        body = LimitedBody(receive, headers, self._settings, is_streamed=is_streamed, whole_body=arrived)
        content: Receive = body.receive
        # An empty body in chunks is an encoded one, however it arrives; without a length there is no body.
        has_content = arrived or b"transfer-encoding" in headers or not body.complete
        if b"content-encoding" in headers and has_content:
            content = encodings.decode_body(content, scope, body.limit)
        else:
            state[BODY] = body
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            kind = message["type"]
            if kind in (START, WHOLE):
                status = message["status"]
                headers = message.setdefault("headers", [])
                headers.append((b"x-request-id", request_id.encode()))
                if status >= 400 and not body.complete and not await body.drain():
                    headers.append((b"connection", b"close"))
                if kind == WHOLE:
                    if cycle and not is_head and not cycle.flow.write_paused:
                        cycle.answer(status, headers, message["body"])
                        return
                    await send({"type": START, "status": status, "headers": headers})
                    message = {"type": "http.response.body", "body": b"" if is_head else message["body"]}
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
            state.pop(BODY, None)  # it refers to the scope: without this the collector would have to free both
            route = getattr(scope.get("route"), "path", UNKNOWN_ROUTE)
            self._telemetry.request(route, status, time.perf_counter() - started, state.get("version", ("", "")))
