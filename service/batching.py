"""One queue in front of the model: it takes what is waiting and never waits for more.

A batch goes through two stages: `score` runs in one thread; `finish` (storing) may still be at work on a batch
when the next one is scored.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import ServiceError

UNFINISHED = 4
"""Batches that may be scored but not stored: enough to overlap, few enough that a slow disk fills the queue."""
LONG_WAIT = 0.1
"""Seconds in the queue after which it is worth asking whether the caller is still there."""

Asked = TypeVar("Asked", bound=Sized)
Scored = TypeVar("Scored")
Answers = TypeVar("Answers")
Gone = Callable[[], Awaitable[bool]]


class CallerGoneError(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class _Request(Generic[Asked, Answers]):
    asked: Asked
    future: asyncio.Future[Answers]
    since: float
    gone: Gone | None


class Batcher(Generic[Asked, Scored, Answers]):
    """`await submit(asked)` gives the answers to one request. Use between `start` and `close`.

    `score` takes what was asked by several requests, `finish` gives each of them its answers, in the same order.
    """

    def __init__(
        self,
        score: Callable[[list[Asked]], Scored],
        finish: Callable[[Scored], Awaitable[Sequence[Answers]]],
        *,
        max_batch: int,
        max_waiting: int,
    ) -> None:
        self._score, self._finish = score, finish
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._queue: deque[_Request[Asked, Answers]] = deque()
        self.waiting = 0
        """Images in the queue."""
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(UNFINISHED)
        self._closing = False
        self._thread = ThreadPoolExecutor(1, "model")
        self._finishing: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Answer what is queued, then stop."""
        self._closing = True
        self._wake.set()
        if self._task:
            await self._task
        await asyncio.gather(*self._finishing)
        self._thread.shutdown()

    async def submit(self, asked: Asked, gone: Gone | None = None) -> Answers:
        """Wait for the answers. A caller who cancels, or is `gone` after a long wait, is not scored.

        Raises:
            ServiceError: 503 with Retry-After when the queue is full or the service is shutting down.
            CallerGoneError: `gone` said so.
            Exception: whatever `score` or `finish` raised for the batch.
        """
        if self._closing:
            raise ServiceError(503, "shutting_down", "the service is shutting down; try again", retry_after=1)
        if self.waiting and self.waiting + len(asked) > self._max_waiting:
            message = f"{self.waiting:,} images are waiting, the limit is {self._max_waiting:,}; try again in a second"
            raise ServiceError(503, "queue_full", message, retry_after=1)
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._queue.append(_Request(asked, future, time.monotonic(), gone))
        self.waiting += len(asked)
        self._wake.set()
        return await future

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            batch = await self._take()
            if not batch:
                return
            try:
                scored = await loop.run_in_executor(self._thread, self._score, [r.asked for r in batch])
            except Exception as error:
                self._room.release()
                _fail(batch, error)
                continue
            task = asyncio.create_task(self._settle(batch, scored))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

    async def _take(self) -> list[_Request[Asked, Answers]]:
        """Everything that waits, up to `max_batch` images (a larger request goes alone); empty when closing."""
        batch: list[_Request[Asked, Answers]] = []
        size = 0
        while not batch:
            while self._queue and (not batch or size + len(self._queue[0].asked) <= self._max_batch):
                request = self._queue.popleft()
                self.waiting -= len(request.asked)
                if await _is_waiting(request):
                    batch.append(request)
                    size += len(request.asked)
            if not batch:
                if self._closing:
                    break
                self._wake.clear()
                await self._wake.wait()
        return batch

    async def _settle(self, batch: list[_Request[Asked, Answers]], scored: Scored) -> None:
        try:
            answers = await self._finish(scored)
        except Exception as error:
            _fail(batch, error)
        else:
            for request, answer in zip(batch, answers, strict=True):
                if not request.future.done():
                    request.future.set_result(answer)
        finally:
            self._room.release()


async def _is_waiting(request: _Request[Asked, Answers]) -> bool:
    if request.future.done():  # its caller gave up
        return False
    if request.gone and time.monotonic() - request.since > LONG_WAIT and await request.gone():
        request.future.set_exception(CallerGoneError())
        return False
    return True


def _fail(batch: list[_Request[Asked, Answers]], error: Exception) -> None:
    for request in batch:
        if not request.future.done():
            request.future.set_exception(error)
