"""Dynamic batching: a model scores everything that is queued and never waits to fill a batch.

A batch has two stages. `score` runs in a thread of the model (`service.models.lanes`) or on the event loop (`Inline`).
`finish`, which stores the answers, always runs on the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import ENDING, CallerGoneError, ServiceError
from trueodds.texts import plural

UNSTORED = 3
"""Number of batches that may be scored but not stored: enough to overlap, and few enough to notice a slow disk."""
LONG_WAIT = 0.1
"""Seconds in the queue after which the batcher checks whether the caller is still connected."""

Call = TypeVar("Call", bound=Sized)
Scored = TypeVar("Scored")
Result = TypeVar("Result")
Gone = Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class QueuedRequest(Generic[Call, Result]):
    """Call in the queue, and the future of its caller."""

    call: Call
    future: asyncio.Future[Result]
    since: float
    is_gone: Gone | None


class Batcher(ABC, Generic[Call, Scored, Result]):
    """Queue of calls, answered with `await submit(call)` between `start` and `close`.

    `score` takes the calls of several requests, and whether the batch has all cores. If it raises, it is called again
    for each request alone. `finish` returns the results in the order of the requests.
    """

    def __init__(
        self,
        score: Callable[[list[Call], bool], Scored],
        finish: Callable[[Scored], Awaitable[Sequence[Result]]],
        *,
        max_batch: int,
        max_waiting: int,
        noun: str,
    ) -> None:
        """Make a batcher. `noun` names an input in messages."""
        self._score, self._finish, self._noun = score, finish, noun
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._queue: deque[QueuedRequest[Call, Result]] = deque()
        self.waiting = 0
        """Number of inputs in the queue."""
        self._changed = threading.Condition()
        """Guards the queue and the fields below."""
        self._settling = 0
        """Number of inputs that are scored but not answered yet."""
        self._room = UNSTORED
        """Number of batches that may still be scored before one of them is stored."""
        self._closing = False
        self._finishing: set[asyncio.Task[None]] = set()
        self._asking: asyncio.Task[None] | None = None
        self._limits: dict[asyncio.Future[Result], tuple[float, float]] = {}
        """End of each request's time on the loop's clock, and the seconds that it had."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start scoring, on the running event loop."""
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Answer the queued calls, then stop."""
        with self._changed:
            self._closing = True
        await self._end()
        await asyncio.gather(*self._finishing)
        if self._asking:
            self._asking.cancel()
        if self._timer:
            self._timer.cancel()

    @abstractmethod
    async def _end(self) -> None:
        """Wait until the queue is empty and nothing is being scored."""

    @abstractmethod
    def _offer(self) -> None:
        """Notify the scorer of new work. It is called on the event loop, with the lock held."""

    async def submit(
        self, call: Call, *, is_gone: Gone | None = None, seconds: float | None = None, left: float | None = None
    ) -> Result:
        """Queue a call and return its result. A caller who has cancelled or disconnected is skipped.

        Args:
            call: The call.
            is_gone: Tells whether the caller has disconnected.
            seconds: Time limit of the answer.
            left: Remainder of `seconds`; all of it by default.

        Raises:
            ServiceError: 503 with Retry-After if the queue is full, the service is shutting down, or the answer takes
                longer than `seconds`.
            CallerGoneError: The caller has disconnected.
            BaseException: The exception that `score` raised for this request, or `finish` for its batch.
        """
        if self._closing:
            raise ServiceError(503, "shutting_down", "the service is shutting down; try again", retry_after=1)
        if self.waiting and self.waiting + len(call) > self._max_waiting:
            waiting = plural(self.waiting, f"{self._noun} is", f"{self._noun}s are")
            message = f"{waiting} waiting; the limit is {self._max_waiting:,}. Try again in a second"
            raise ServiceError(503, "queue_full", message, retry_after=1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        with self._changed:
            self._queue.append(QueuedRequest(call, future, time.monotonic(), is_gone))
            self.waiting += len(call)
            self._offer()
        if is_gone and self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        if seconds:
            self._limit(future, seconds, seconds if left is None else left)
        try:
            return await future
        finally:
            self._limits.pop(future, None)

    def _limit(self, future: asyncio.Future[Result], seconds: float, left: float) -> None:
        """Fail the future when its time is up. All share one timer, because one each took 5 us per image."""
        end = self._loop.time() + left
        self._limits[future] = end, seconds
        if self._timer is None or end < self._timer.when():
            if self._timer:
                self._timer.cancel()
            self._timer = self._loop.call_at(end, self._look_at_limits)

    def _look_at_limits(self) -> None:
        self._timer, now = None, self._loop.time()
        for future, (end, seconds) in list(self._limits.items()):
            if end <= now:
                _fail_one(future, too_slow(seconds, self._noun))
        if ends := [end for end, _ in self._limits.values() if end > now]:
            self._timer = self._loop.call_at(min(ends), self._look_at_limits)

    async def _ask(self) -> None:
        """While calls wait, look for callers who have disconnected."""
        try:
            while self._queue:
                await asyncio.sleep(LONG_WAIT)
                with self._changed:
                    late = [r for r in self._queue if time.monotonic() - r.since > LONG_WAIT]
                for request in late:
                    if request.is_gone and not request.future.done() and await request.is_gone():
                        _fail([request], CallerGoneError())
        finally:
            self._asking = None

    # For the scorer.

    def _parts(
        self, batch: list[QueuedRequest[Call, Result]], alone: bool
    ) -> list[tuple[list[QueuedRequest[Call, Result]], Scored | BaseException]]:
        """Score a batch. If that fails, score each request alone, because only one of them may be at fault."""
        try:
            return [(batch, self._score([r.call for r in batch], alone))]
        except ENDING:
            raise
        except BaseException as error:
            if len(batch) == 1:
                return [(batch, error)]
        return [part for request in batch for part in self._parts([request], alone)]

    def _next(self, most: int) -> list[QueuedRequest[Call, Result]]:
        batch: list[QueuedRequest[Call, Result]] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].call) <= most):
            request = self._queue.popleft()
            self.waiting -= len(request.call)
            if not request.future.done():  # otherwise its caller has given up
                batch.append(request)
                size += len(request.call)
        return batch

    def _finish_later(self, batch: list[QueuedRequest[Call, Result]], outcome: Scored | BaseException) -> None:
        task = asyncio.create_task(self._settle(batch, outcome))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _settle(self, batch: list[QueuedRequest[Call, Result]], outcome: Scored | BaseException) -> None:
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            results = await self._finish(outcome)
        except ENDING:
            raise
        except BaseException as error:
            _fail(batch, error)
        else:
            for request, result in zip(batch, results, strict=True):
                if not request.future.done():
                    request.future.set_result(result)
        finally:
            with self._changed:
                self._room += 1
                self._settling -= inputs_of(batch)
                if self._queue:
                    self._offer()


def inputs_of(batch: list[QueuedRequest[Call, Result]]) -> int:
    return sum(len(request.call) for request in batch)


def too_slow(seconds: float, noun: str) -> ServiceError:
    """Return the error for an answer whose time is up."""
    message = f"the answer took more than {seconds:g} s; try again later, or with fewer {noun}s"
    return ServiceError(503, "too_slow", message, retry_after=1)


def _fail_one(future: asyncio.Future[Result], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _fail(batch: list[QueuedRequest[Call, Result]], error: BaseException) -> None:
    for request in batch:
        _fail_one(request.future, error)


class Inline(Batcher[Call, Scored, Result]):
    """Batcher that scores on the event loop, once a turn of the loop adds nothing more. For very fast models.

    Handing a batch to a thread and back takes about .3 ms of processor time, more than a small model needs in total,
    and two Python threads wait for each other anyway. Measured with vectors on 2 cores, in answers per second with a
    thread and without: gradient boosting (2 us per row) 6,300 and 7,900 with 32 clients, 3,100 and 4,700 with 8; a net
    of 22 us per row 5,000 and 6,600; a net of 88 us per row 5,700 and 4,300. So slower models use a thread.
    """

    _looking = False

    async def _end(self) -> None:
        while self._queue:
            await asyncio.sleep(0.001)

    def _offer(self) -> None:
        if not self._looking and self._room > 0:
            self._looking = True
            self._loop.call_soon(self._look, 0)

    def _look(self, before: int) -> None:
        """Score if nothing was added since the last turn of the loop, when `before` inputs waited."""
        if before != self.waiting < self._max_batch:
            self._loop.call_soon(self._look, self.waiting)
            return
        self._looking = False
        with self._changed:
            batch = self._next(self._max_batch)
        if batch:
            parts = self._parts(batch, alone=True)
            with self._changed:
                self._settling += inputs_of(batch)
                self._room -= len(parts)  # each part frees one place when it is stored
            for part, outcome in parts:
                self._finish_later(part, outcome)
        with self._changed:
            if self._queue:
                self._offer()
