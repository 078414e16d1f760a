"""How long and how slow the body of a request may be."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

from starlette.types import Message, Receive

from service.errors import ServiceError
from service.settings import Settings

DRAINED = 4
"""Times the limit on a body that is still read, and thrown away, before its refusal is sent: a client that is busy
sending would otherwise see a broken connection and not the answer."""
DRAIN_SECONDS = 5.0

T = TypeVar("T")
Headers = dict[bytes, bytes]
"""Names in lower case."""


class LimitedBody:
    """A request's body, no longer and no slower than the settings allow."""

    def __init__(self, receive: Receive, headers: Headers, settings: Settings, *, streamed: bool) -> None:
        """`streamed`: it is stored as it comes, so it may be as long as it likes, if it keeps coming fast enough."""
        self._receive, self._streamed = receive, streamed
        self.limit = sys.maxsize if streamed else settings.max_body_bytes
        self._most, self._seconds = settings.max_body_bytes, settings.body_seconds
        self._deadline = time.monotonic() + self._seconds
        self._rate, self._waited, self._before = settings.body_rate, 0.0, 0
        """Of a streamed body: bytes a second at least, seconds waited in this window, and bytes that came before it."""
        announced = headers.get(b"content-length", b"")
        self._announced = int(announced) if announced.isdigit() else None
        self._awaits_continue = b"expect" in headers
        self._received = 0
        self.complete = self._announced == 0 or (self._announced is None and b"transfer-encoding" not in headers)
        """Whether all of it has arrived."""

    async def receive(self) -> Message:
        """The next message.

        Raises:
            ServiceError: 413 as soon as the body is, or says it is, longer than the limit; 408 when it takes too long.
        """
        if self.complete:
            return await self._next()
        if self._announced is not None and self._announced > self.limit:
            raise too_large("has", self.limit)
        began = time.monotonic()
        try:
            message = await within(self._next(), self._deadline - began)
        except TimeoutError:
            what = "nothing more of the body came for" if self._streamed else "the body did not arrive within"
            text = f"{what} {self._seconds:g} s; send it faster, or in smaller parts"
            raise ServiceError(408, "body_too_slow", text) from None
        if self._received > self.limit:
            raise too_large("has", self.limit)
        if self._streamed:
            self._check_rate(time.monotonic() - began)
        return message

    def _check_rate(self, waited: float) -> None:
        """Count the wait for a message, in windows. Only waiting counts: our own slowness is no fault of the body."""
        self._deadline = time.monotonic() + self._seconds
        self._waited += waited
        if self._waited < self._seconds or self.complete:
            return
        rate = (self._received - self._before) / self._waited
        if rate < self._rate:
            message = f"the body came at {rate:.3g} bytes/s for {self._waited:.3g} s; the least is {self._rate:,}"
            raise ServiceError(408, "body_too_slow", f"{message}. Send it faster, or in several requests")
        self._waited, self._before = 0.0, self._received

    async def drain(self) -> bool:
        """Throw away what is still coming, as far as that is reasonable; whether all of it came."""
        most = DRAINED * self._most
        hopeless = self._awaits_continue or time.monotonic() >= self._deadline
        if hopeless or (self._announced is not None and self._announced > most):
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


def too_large(verb: str, limit: int) -> ServiceError:
    """The refusal of a body; `verb`: how it is longer than the limit (it "has", or "unpacks to", more bytes)."""
    message = f"the body {verb} more than {limit:,} bytes, the limit; send fewer or smaller inputs in one call"
    return ServiceError(413, "body_too_large", message)


async def within(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Return what `work` returns. It is begun at once, and a timer set only where it waits: most bodies have come with
    their head, and a timer for each took 5 us of an image's time.

    Raises:
        TimeoutError: it took longer than `seconds`.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    async with asyncio.timeout(seconds):
        return await _Begun(work, waits_for)


class _Begun(Generic[T]):
    """The rest of a coroutine that waits for the first time."""

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._work, self._waits_for = work, waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            yield self._waits_for
        except BaseException:
            self._work.close()
            raise
        return (yield from self._work.__await__())
