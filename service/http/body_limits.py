"""Limits on the size and the speed of request bodies."""

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

DRAIN_FACTOR = 4
"""Multiple of the size limit up to which a refused body is still read and discarded.

Otherwise a client that is busy sending would see a broken connection instead of the answer.
"""
DRAIN_SECONDS = 5.0
BODY = "body"
"""Key of a request's `LimitedBody` in the scope's state, while its content is not encoded."""

T = TypeVar("T")
Headers = dict[bytes, bytes]
"""Header values by name in lower case."""


class LimitedBody:
    """Body of a request, limited in size and speed by the settings."""

    def __init__(
        self,
        receive: Receive,
        headers: Headers,
        settings: Settings,
        *,
        is_streamed: bool,
        whole_body: bytes | None = None,
    ) -> None:
        """Wrap a body. A streamed body is stored as it arrives: it may have any size if it arrives fast enough.

        `whole_body` is the body if all of it has arrived already.
        """
        self._receive, self._is_streamed = receive, is_streamed
        self.limit = sys.maxsize if is_streamed else settings.max_body_bytes
        self._arrived = whole_body
        if whole_body is not None:
            self.complete = True
            return
        self._most, self._seconds = settings.max_body_bytes, settings.body_seconds
        self._deadline = time.monotonic() + self._seconds
        self._rate, self._waited, self._before = settings.body_rate, 0.0, 0
        """For a streamed body: the least rate in bytes/s, seconds waited in this window, bytes before the window."""
        announced = headers.get(b"content-length", b"")
        self._announced = int(announced) if announced.isdigit() else None
        self._awaits_continue = b"expect" in headers
        self._received = 0
        self.complete = self._announced == 0 or (self._announced is None and b"transfer-encoding" not in headers)
        """Whether the whole body has arrived."""

    def take(self) -> bytes | None:
        """Return the whole body if it has arrived already and nobody has received it, else None.

        Raises:
            ServiceError: 413 if it exceeds the limit.
        """
        if (body := self._arrived) is not None:
            if len(body) > self.limit:
                raise too_large("has", self.limit)
            self._arrived = None
        return body

    async def receive(self) -> Message:
        """Return the next message.

        Raises:
            ServiceError: 413 once the received or announced size exceeds the limit; 408 if the body takes too long.
        """
        if self._arrived is not None:
            return {"type": "http.request", "body": self.take(), "more_body": False}
        if self.complete:
            return await self._next()
        if self._announced is not None and self._announced > self.limit:
            raise too_large("has", self.limit)
        began = time.monotonic()
        try:
            message = await within(self._next(), self._deadline - began)
        except TimeoutError:
            what = "no more of the body arrived for" if self._is_streamed else "the body did not arrive within"
            text = f"{what} {self._seconds:g} s; send it faster, or in smaller parts"
            raise ServiceError(408, "body_too_slow", text) from None
        if self._received > self.limit:
            raise too_large("has", self.limit)
        if self._is_streamed:
            self._check_rate(time.monotonic() - began)
        return message

    def _check_rate(self, wait_seconds: float) -> None:
        """Count the time spent waiting for a message, in windows. The service's own slowness does not count."""
        self._deadline = time.monotonic() + self._seconds
        self._waited += wait_seconds
        if self._waited < self._seconds or self.complete:
            return
        rate = (self._received - self._before) / self._waited
        if rate < self._rate:
            message = f"the body arrived at {rate:.3g} bytes/s for {self._waited:.3g} s; the least is {self._rate:,}"
            raise ServiceError(408, "body_too_slow", f"{message}. Send it faster, or in several requests")
        self._waited, self._before = 0.0, self._received

    async def drain(self) -> bool:
        """Read and discard the rest of the body, within reason. Return whether all of it arrived."""
        most = DRAIN_FACTOR * self._most
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
    """Return the error for a body that is too large. `verb` is "has" or "unpacks to"."""
    message = f"the body {verb} more than {limit:,} bytes, the limit; send fewer or smaller inputs in one call"
    return ServiceError(413, "body_too_large", message)


async def within(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Await `work` with a time limit.

    It starts at once, and the timer is set only if it must wait. Most bodies arrive together with their head, and a
    timer for each took 5 us per image.

    Raises:
        TimeoutError: It took longer than `seconds`.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    async with asyncio.timeout(seconds):
        return await _Begun(work, waits_for)


class _Begun(Generic[T]):
    """Rest of a coroutine that has started to wait."""

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._work, self._waits_for = work, waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            yield self._waits_for
        except BaseException:
            self._work.close()
            raise
        return (yield from self._work.__await__())
