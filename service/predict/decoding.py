"""Decoding a call's inputs off the event loop, within the time of its answer.

What takes long (text to tokens, images to pixels, large JSON) is given up at its next checkpoint once the time is over
or the caller has hung up, and is not begun where it still waits for a thread. The bytes of all bodies in decoding are
limited: beyond, callers are told to come again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from fastapi import Request

from service.errors import CallerGoneError, ServiceError
from service.http.json_body import HUGE
from service.models.batching import LONG_WAIT, too_slow
from trueodds.inputs.checkpoint import cancelled_by
from trueodds.processes import memory

DECODING = 2
"""Calls whose inputs are decoded at once: each may hold max_pixels of memory."""
MOST_BYTES = 64 * 1024**2
"""Bytes of bodies in decoding, or waiting for it, at once. A single body may be larger."""

T = TypeVar("T")
threads = ThreadPoolExecutor(DECODING, "decode")


class Held:
    """The bytes of the bodies that are held at once, while they wait or are worked on."""

    def __init__(self, what: str, most: int) -> None:
        """`what` becomes of them, in messages: a verb."""
        self._what, self._most, self.bytes = what, most, 0

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Raises ServiceError 503 where others are held already and these would be too many."""
        if self.bytes and self.bytes + size > self._most:
            message = f"{self.bytes:,} bytes are being {self._what}, the limit is {self._most:,}"
            raise ServiceError(503, "queue_full", f"{message}; try again in a second", retry_after=1)
        self.bytes += size
        try:
            yield
        finally:
            self.bytes -= size


held = Held("decoded", MOST_BYTES)


class Answering:
    """The time of one answer, from the moment on when its request has arrived."""

    def __init__(self, request: Request, seconds: float, noun: str) -> None:
        """Args:
        request: whose caller waits.
        seconds: time limit of the answer; may be changed later.
        noun: name of an input in messages.
        """
        self._gone, self._noun = request.is_disconnected, noun
        self._began, self._given_up = time.monotonic(), False
        self.seconds = seconds

    @property
    def left(self) -> float:
        """Seconds of the time limit that are left, at least a thousandth."""
        return max(0.001, self._began + self.seconds - time.monotonic())

    async def run(self, executor: Executor | None, size: int, work: Callable[[], T]) -> T:
        """Do work on `size` bytes in a thread of the executor; None: of the loop's own.

        Raises:
            ServiceError: 503 where the time is over, or too many bytes are in decoding.
            CallerGoneError: nobody waits for the answer any more.
        """
        with held.hold(size):
            done = asyncio.get_running_loop().run_in_executor(executor, self._checked, size, work)
            try:
                while not (await asyncio.wait([done], timeout=min(LONG_WAIT, self.left)))[0]:
                    self._check()
                    if await self._gone():
                        raise CallerGoneError
                return done.result()
            finally:
                self._given_up = not done.done()
                done.cancel()
                # An error's traceback holds this frame. If the frame held the future, and it the error, the inputs of
                # refused calls would stay until the garbage collector comes: 520 MB after twelve bodies of 2 MB.
                del done

    def _checked(self, size: int, work: Callable[[], T]) -> T:
        try:
            with cancelled_by(self._check):
                self._check()
                return work()
        finally:
            if size >= HUGE:
                memory.give_back()

    def _check(self) -> None:
        if self._given_up or time.monotonic() >= self._began + self.seconds:
            raise too_slow(self.seconds, self._noun)
