"""Decoding the inputs of a call off the event loop, within the time limit of its answer.

Slow work (tokenising texts, decoding images, parsing large JSON) stops at its next checkpoint after the time limit, or
after the client has disconnected. Work that still waits for a thread then does not start. The total size of bodies
being decoded is limited; beyond it, callers are asked to try again.
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
"""Number of calls whose inputs are decoded at once. Each may need the memory of max_pixels."""
MOST_BYTES = 64 * 1024**2
"""Largest total size, in bytes, of bodies that are decoded or wait for it. A single body may be larger."""

T = TypeVar("T")
threads = ThreadPoolExecutor(DECODING, "decode")


class ByteBudget:
    """Counter of the bytes of bodies that wait or are processed, with a limit."""

    def __init__(self, what: str, most: int) -> None:
        """Make a counter. `what` is the participle for messages, such as "decoded"."""
        self._what, self._most, self.bytes = what, most, 0

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Count bytes during the block. Raise ServiceError 503 if they exceed the limit together with others."""
        if self.bytes and self.bytes + size > self._most:
            message = f"{self.bytes:,} bytes are being {self._what}; the limit is {self._most:,}"
            raise ServiceError(503, "queue_full", f"{message}. Try again in a second", retry_after=1)
        self.bytes += size
        try:
            yield
        finally:
            self.bytes -= size


budget = ByteBudget("decoded", MOST_BYTES)


class AnswerTimer:
    """Time limit of one answer. It starts when the request has arrived."""

    def __init__(self, request: Request, seconds: float, noun: str) -> None:
        """Start the time.

        Args:
            request: The request whose client waits.
            seconds: Time limit of the answer; may be changed later.
            noun: Name of an input in messages.
        """
        self._gone, self._noun = request.is_disconnected, noun
        self._began, self._given_up = time.monotonic(), False
        self.seconds = seconds

    @property
    def left(self) -> float:
        """Remaining seconds of the time limit, at least a thousandth."""
        return max(0.001, self._began + self.seconds - time.monotonic())

    async def run(self, executor: Executor | None, size: int, work: Callable[[], T]) -> T:
        """Do work on `size` bytes in a thread of the executor; None is the event loop's executor.

        Raises:
            ServiceError: 503 if the time is over or too many bytes are being decoded.
            CallerGoneError: The client has disconnected.
        """
        with budget.hold(size):
            done = asyncio.get_running_loop().run_in_executor(executor, self._run_with_checks, size, work)
            try:
                while not (await asyncio.wait([done], timeout=min(LONG_WAIT, self.left)))[0]:
                    self._check()
                    if await self._gone():
                        raise CallerGoneError
                return done.result()
            finally:
                self._given_up = not done.done()
                done.cancel()
                # An error's traceback keeps this frame alive. If the frame kept the future, and that the error, the
                # inputs of refused calls would stay until the garbage collector runs: 520 MB after twelve bodies of 2
                # MB.
                del done

    def _run_with_checks(self, size: int, work: Callable[[], T]) -> T:
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
