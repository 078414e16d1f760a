"""One queue in front of the model: it takes what is waiting and never waits for more.

A batch goes through two stages: `score` runs in one thread; `finish` (storing) may still be at work on a batch
when the next one is scored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from pipeline.pictures import Pixels
from service.errors import ServiceError

UNFINISHED = 4
"""Batches that may be scored but not stored: enough to overlap, few enough that a slow disk fills the queue."""

Scored = TypeVar("Scored")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _Request(Generic[Answer]):
    images_NHWC: Pixels
    future: asyncio.Future[Sequence[Answer]]


class Batcher(Generic[Scored, Answer]):
    """`await submit(images)` gives one answer per image. Use between `start` and `close`."""

    def __init__(
        self,
        score: Callable[[Pixels], Scored],
        finish: Callable[[Scored], Awaitable[Sequence[Answer]]],
        *,
        max_batch: int,
        max_waiting: int,
    ) -> None:
        self._score, self._finish = score, finish
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._queue: deque[_Request[Answer]] = deque()
        self._waiting = 0
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

    async def submit(self, images_NHWC: Pixels) -> Sequence[Answer]:
        """Wait for the answers, in the order of the images.

        Raises:
            ServiceError: 503 with Retry-After when the queue is full or the service is shutting down.
            Exception: whatever `score` or `finish` raised for the batch.
        """
        if self._closing:
            raise ServiceError(503, "shutting_down", "the service is shutting down; try again", retry_after=1)
        if self._waiting and self._waiting + len(images_NHWC) > self._max_waiting:
            message = f"{self._waiting:,} images are waiting, the limit is {self._max_waiting:,}; try again in a second"
            raise ServiceError(503, "queue_full", message, retry_after=1)
        future: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self._queue.append(_Request(images_NHWC, future))
        self._waiting += len(images_NHWC)
        self._wake.set()
        return await future

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            batch = await self._take()
            if not batch:
                return
            images_NHWC = batch[0].images_NHWC if len(batch) == 1 else np.concatenate([r.images_NHWC for r in batch])
            try:
                scored = await loop.run_in_executor(self._thread, self._score, images_NHWC)
            except Exception as error:
                self._room.release()
                _fail(batch, error)
                continue
            task = asyncio.create_task(self._settle(batch, scored))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

    async def _take(self) -> list[_Request[Answer]]:
        """Everything that waits, up to `max_batch` images (a larger request goes alone); empty when closing."""
        batch: list[_Request[Answer]] = []
        size = 0
        while not batch:
            while self._queue and (not batch or size + len(self._queue[0].images_NHWC) <= self._max_batch):
                request = self._queue.popleft()
                self._waiting -= len(request.images_NHWC)
                if not request.future.done():  # its caller gave up
                    batch.append(request)
                    size += len(request.images_NHWC)
            if not batch:
                if self._closing:
                    break
                self._wake.clear()
                await self._wake.wait()
        return batch

    async def _settle(self, batch: list[_Request[Answer]], scored: Scored) -> None:
        try:
            answers = await self._finish(scored)
        except Exception as error:
            _fail(batch, error)
        else:
            start = 0
            for request in batch:
                end = start + len(request.images_NHWC)
                if not request.future.done():
                    request.future.set_result(answers[start:end])
                start = end
        finally:
            self._room.release()


def _fail(batch: list[_Request[Answer]], error: Exception) -> None:
    for request in batch:
        if not request.future.done():
            request.future.set_exception(error)
