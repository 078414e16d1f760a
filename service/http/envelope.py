"""Around every request: an id, the body's limits and encoding, HEAD, metrics, the last word on unexpected errors."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import secrets
import sys
import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ServiceError, error_response
from service.http import encodings
from service.labels import bulk
from service.models.batching import CallerGoneError
from service.settings import Settings
from service.telemetry.metrics import Telemetry

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
UNKNOWN_ROUTE = "unknown"
GONE = 499
"""nginx's word for a caller who hung up."""
DRAINED = 4
"""Times the limit on a body that is still read, and thrown away, before its refusal is sent: a client that is busy
sending would otherwise see a broken connection and not the answer."""
DRAIN_SECONDS = 5.0
STREAMED = frozenset(kind.encode() for kind in bulk.READERS)
"""Bodies that are stored as they come: they may be as long as they like, if only they keep coming."""

Headers = dict[bytes, bytes]
"""Names in lower case."""

log = logging.getLogger("trueodds")


class Envelope:
    """Plain ASGI middleware; a caller's `x-request-id` is kept if it is up to 64 of A-Z a-z 0-9 . _ -"""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, settings: Settings) -> None:
        self._app, self._telemetry, self._settings = app, telemetry, settings
        # Unlike a prediction's id it opens nothing, so it may be guessed; it has to differ from all others.
        self._ids = map(f"{secrets.token_hex(8)}{{:08x}}".format, itertools.count())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers: Headers = dict(reversed(scope["headers"]))  # of several with one name the first counts
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if REQUEST_ID.fullmatch(given) else next(self._ids)
        is_head = scope["method"] == "HEAD"
        if is_head:  # as GET, without the body: what every GET route owes
            scope = {**scope, "method": "GET"}
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        body = _Body(receive, headers, self._settings)
        content: Receive = body.receive
        if b"content-encoding" in headers and not body.complete:
            content = encodings.decoded(content, scope, body.limit)
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
            status = GONE  # nobody is left to answer
        except Exception:
            log.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if status:
                raise
            text = f"something went wrong on our side; quote request id {request_id} when you report it"
            await error_response(scope, 500, "internal_error", text)(scope, receive, send_with_id)
        finally:
            route = getattr(scope.get("route"), "path", UNKNOWN_ROUTE)
            self._telemetry.request(route, status, time.perf_counter() - started, state.get("version", ("", "")))


class _Body:
    """A request's body, no longer and no slower than the settings allow."""

    def __init__(self, receive: Receive, headers: Headers, settings: Settings) -> None:
        self._streamed = headers.get(b"content-type", b"").partition(b";")[0].strip().lower() in STREAMED
        self._receive, self.limit = receive, sys.maxsize if self._streamed else settings.max_body_bytes
        self._most, self._seconds = settings.max_body_bytes, settings.body_seconds
        self._deadline = time.monotonic() + self._seconds
        stated = headers.get(b"content-length", b"")
        self._stated = int(stated) if stated.isdigit() else None
        self._waits_for_word = b"expect" in headers
        self._received = 0
        self.complete = self._stated == 0 or (self._stated is None and b"transfer-encoding" not in headers)
        """Whether all of it has arrived."""

    async def receive(self) -> Message:
        """The next message.

        Raises:
            ServiceError: 413 as soon as the body is, or says it is, longer than the limit; 408 when it takes too long.
        """
        if self.complete:
            return await self._next()
        if self._stated is not None and self._stated > self.limit:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                message = await self._next()
        except TimeoutError:
            what = "nothing more of the body came for" if self._streamed else "the body did not arrive within"
            text = f"{what} {self._seconds:g} s; send it faster, or in smaller parts"
            raise ServiceError(408, "body_too_slow", text) from None
        if self._received > self.limit:
            raise self._too_large()
        if self._streamed:
            self._deadline = time.monotonic() + self._seconds
        return message

    async def drain(self) -> bool:
        """Throw away what is still coming, as far as that is reasonable; whether all of it came."""
        most = DRAINED * self._most
        hopeless = self._waits_for_word or time.monotonic() >= self._deadline
        if hopeless or (self._stated is not None and self._stated > most):
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self.complete and self._received <= most:
                    if (await self._next())["type"] == "http.disconnect":
                        break
        return self.complete

    async def _next(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self.complete = self.complete or not message.get("more_body", False)
        return message

    def _too_large(self) -> ServiceError:
        message = f"the body has more than {self.limit:,} bytes, the limit; send fewer or smaller images in one call"
        return ServiceError(413, "body_too_large", message)
