"""One queue in front of the model: who scores takes what is waiting and never waits for more.

A batch goes through two stages: `score` in a thread of the model, `finish` (storing) on the event loop. The thread
takes its next batch itself, while the event loop reads requests: when the loop handed out batches, it first read all
requests that had come, then waited for the model (ResNet-20 at 32 clients: 1,620 images a second, then 1,370).

A slow model has as many lanes as cores. A batch that nothing competes with gets all cores; when more waits, every lane
scores a batch of its own on one core: threads that share a batch wait for each other after every layer, and all of them
for the one whose core answers a request (ResNet-18 in 2 cores, 32 clients: .88 of onnxruntime alone, .83 with shared
threads).

A single lane's batch is at most half of what is here: it is scored while the event loop stores, answers and reads the
other half. When a batch took all that waited, a few that came late were soon scored, and the model waited for the many
whose answers were under way (ResNet-8 at 32 clients: 3,120 images a second, with halves 3,690; the slowest hundredth
15.5 ms, then 12.9).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import CallerGoneError, ServiceError
from trueodds.texts import plural

UNSTORED = 3
"""Batches that may be scored but not stored: enough to overlap, few enough that a slow disk fills the queue."""
FEW = 4
"""Inputs that are not worth two batches, which cost more than they let overlap."""
LONG_WAIT = 0.1
"""Seconds in the queue after which it is worth asking whether the caller is still there."""

Call = TypeVar("Call", bound=Sized)
Scored = TypeVar("Scored")
Result = TypeVar("Result")
Gone = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class _Request(Generic[Call, Result]):
    call: Call
    future: asyncio.Future[Result]
    since: float
    gone: Gone | None


class Batcher(Generic[Call, Scored, Result]):
    """`await submit(call)` gives the result of one request. Use between `start` and `close`.

    `score` takes the calls of several requests, and whether the batch has all cores; where it raises, it is called
    again for each of them. `finish` gives each request its result, in the same order.
    """

    def __init__(
        self,
        score: Callable[[list[Call], bool], Scored],
        finish: Callable[[Scored], Awaitable[Sequence[Result]]],
        *,
        max_batch: int,
        max_waiting: int,
        noun: str,
        lanes: int = 1,
    ) -> None:
        """`noun`: what is waiting, in messages."""
        self._score, self._finish, self._noun = score, finish, noun
        self._max_batch, self._max_waiting, self._lanes = max_batch, max_waiting, lanes
        self._queue: deque[_Request[Call, Result]] = deque()
        self.waiting = 0
        """Inputs in the queue."""
        self._changed = threading.Condition()
        """Guards the queue and what follows; told when a thread may find work."""
        self._taken = 0
        """Lanes that are at work: all of them while one batch has all cores."""
        self._scoring = 0
        """Inputs they have."""
        self._settling = 0
        """Inputs that are scored and not answered yet."""
        self._room = lanes + UNSTORED
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._finishing: set[asyncio.Task[None]] = set()
        self._asking: asyncio.Task[None] | None = None
        self._limits: dict[asyncio.Future[Result], tuple[float, float]] = {}
        """When a request's time is up on the loop's clock, and how many seconds it had."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = [threading.Thread(target=self._serve, name="model", daemon=True) for _ in range(self._lanes)]
        for thread in self._threads:
            thread.start()

    async def close(self) -> None:
        """Answer what is queued, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        await asyncio.gather(*self._finishing)
        if self._asking:
            self._asking.cancel()
        if self._timer:
            self._timer.cancel()

    async def submit(self, call: Call, *, gone: Gone | None = None, seconds: float | None = None) -> Result:
        """Wait for the result. A caller who cancels, or is `gone` after a long wait, is not scored.

        Raises:
            ServiceError: 503 with Retry-After when the queue is full, the service is shutting down, or the answer
                takes longer than `seconds`.
            CallerGoneError: `gone` said so.
            Exception: whatever `score` raised for this request, or `finish` for the batch.
        """
        if self._closing:
            raise ServiceError(503, "shutting_down", "the service is shutting down; try again", retry_after=1)
        if self.waiting and self.waiting + len(call) > self._max_waiting:
            waiting = plural(self.waiting, f"{self._noun} is", f"{self._noun}s are")
            message = f"{waiting} waiting, the limit is {self._max_waiting:,}; try again in a second"
            raise ServiceError(503, "queue_full", message, retry_after=1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        with self._changed:
            self._queue.append(_Request(call, future, time.monotonic(), gone))
            self.waiting += len(call)
            self._changed.notify()
        if gone and self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        if seconds:
            self._limit(future, seconds)
        try:
            return await future
        finally:
            self._limits.pop(future, None)

    def _limit(self, future: asyncio.Future[Result], seconds: float) -> None:
        """Fail it when its time is up; one timer for all, for one each took 5 us of an image's time."""
        end = self._loop.time() + seconds
        self._limits[future] = end, seconds
        if self._timer is None or end < self._timer.when():
            if self._timer:
                self._timer.cancel()
            self._timer = self._loop.call_at(end, self._look_at_limits)

    def _look_at_limits(self) -> None:
        self._timer, now = None, self._loop.time()
        for future, (end, seconds) in list(self._limits.items()):
            if end <= now:
                _too_slow(future, seconds, self._noun)
        if ends := [end for end, _ in self._limits.values() if end > now]:
            self._timer = self._loop.call_at(min(ends), self._look_at_limits)

    async def _ask(self) -> None:
        """Look for callers who are gone, while anything waits."""
        try:
            while self._queue:
                await asyncio.sleep(LONG_WAIT)
                with self._changed:
                    late = [r for r in self._queue if time.monotonic() - r.since > LONG_WAIT]
                for request in late:
                    if request.gone and not request.future.done() and await request.gone():
                        _fail([request], CallerGoneError())
        finally:
            self._asking = None

    # The threads' side.

    def _serve(self) -> None:
        while taken := self._take():
            batch, lanes = taken
            parts = self._parts(batch, lanes == self._lanes)
            with self._changed:
                self._taken -= lanes
                self._scoring -= (size := _size(batch))
                self._settling += size
                self._room -= len(parts) - 1  # every part gives back the room of one
                if lanes > 1:
                    self._changed.notify_all()
            with contextlib.suppress(RuntimeError):  # a loop that was stopped without `close`
                for part, outcome in parts:
                    self._loop.call_soon_threadsafe(self._scored, part, outcome)

    def _parts(
        self, batch: list[_Request[Call, Result]], alone: bool
    ) -> list[tuple[list[_Request[Call, Result]], Scored | Exception]]:
        """A batch and what scoring it gave; where it failed, each request by itself: only one may be to blame."""
        try:
            return [(batch, self._score([r.call for r in batch], alone))]
        except Exception as error:
            if len(batch) == 1:
                return [(batch, error)]
        return [part for request in batch for part in self._parts([request], alone)]

    def _take(self) -> tuple[list[_Request[Call, Result]], int] | None:
        """A batch of up to `max_batch` inputs (a larger request goes by itself) and its lanes; None when closing.

        Of several lanes each takes what waits, up to an even share of all that is here; one up to half. Smaller
        batches would wake the event loop more often, with all it touches gone from the caches: with several lanes
        halves of what waits, with one thirds of what is here, took 4% more processor time.
        """
        with self._changed:
            while True:
                while not self._queue or self._taken >= self._lanes or self._room <= 0:
                    if self._closing and not self._queue:
                        return None
                    self._changed.wait()
                alone = not self._taken and len(self._queue) < self._lanes
                share = -(-(self.waiting + self._scoring) // self._lanes)
                if self._lanes == 1:
                    share = max(FEW, -(-(self.waiting + self._settling) // 2))
                if batch := self._next(min(self.waiting if alone else share, self._max_batch)):
                    lanes = self._lanes if alone else 1
                    self._taken += lanes
                    self._scoring += _size(batch)
                    self._room -= 1
                    return batch, lanes

    def _next(self, most: int) -> list[_Request[Call, Result]]:
        batch: list[_Request[Call, Result]] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].call) <= most):
            request = self._queue.popleft()
            self.waiting -= len(request.call)
            if not request.future.done():  # else its caller gave up
                batch.append(request)
                size += len(request.call)
        return batch

    # Back on the event loop.

    def _scored(self, batch: list[_Request[Call, Result]], outcome: Scored | Exception) -> None:
        task = asyncio.create_task(self._settle(batch, outcome))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _settle(self, batch: list[_Request[Call, Result]], outcome: Scored | Exception) -> None:
        try:
            if isinstance(outcome, Exception):
                raise outcome
            results = await self._finish(outcome)
        except Exception as error:
            _fail(batch, error)
        else:
            for request, result in zip(batch, results, strict=True):
                if not request.future.done():
                    request.future.set_result(result)
        finally:
            with self._changed:
                self._room += 1
                self._settling -= _size(batch)
                self._changed.notify()


def _size(batch: list[_Request[Call, Result]]) -> int:
    return sum(len(request.call) for request in batch)


def _too_slow(future: asyncio.Future[Result], seconds: float, noun: str) -> None:
    if not future.done():
        message = f"the answer took more than {seconds:g} s; try again later, or with fewer {noun}s"
        future.set_exception(ServiceError(503, "too_slow", message, retry_after=1))


def _fail(batch: list[_Request[Call, Result]], error: Exception) -> None:
    for request in batch:
        if not request.future.done():
            request.future.set_exception(error)
