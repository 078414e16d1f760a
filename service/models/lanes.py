"""A queue whose batches are scored in threads of the model, while the event loop reads and answers requests.

A thread takes its next batch itself: when the loop handed out batches, it first read all requests that had come, then
waited for the model (ResNet-20 at 32 clients: 1,620 images a second, then 1,370).

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
from collections.abc import Awaitable, Callable, Sequence

from service.models.batching import Batcher, Call, Request, Result, Scored, inputs_of

FEW = 4
"""Inputs that are not worth two batches, which cost more than they let overlap."""


class Lanes(Batcher[Call, Scored, Result]):
    """A thread for each lane."""

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
        super().__init__(score, finish, max_batch=max_batch, max_waiting=max_waiting, noun=noun)
        self._lanes = lanes
        self._room += lanes
        self._taken = 0
        """Lanes that are at work: all of them while one batch has all cores."""
        self._scoring = 0
        """Inputs they have."""
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        super().start()
        self._threads = [threading.Thread(target=self._serve, name="model", daemon=True) for _ in range(self._lanes)]
        for thread in self._threads:
            thread.start()

    async def _end(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _offer(self) -> None:
        self._changed.notify()

    def _serve(self) -> None:
        while taken := self._take():
            batch, lanes = taken
            parts = self._parts(batch, lanes == self._lanes)
            with self._changed:
                self._taken -= lanes
                self._scoring -= (size := inputs_of(batch))
                self._settling += size
                self._room -= len(parts) - 1  # every part gives back the room of one
                if lanes > 1:
                    self._changed.notify_all()
            with contextlib.suppress(RuntimeError):  # a loop that was stopped without `close`
                for part, outcome in parts:
                    self._loop.call_soon_threadsafe(self._scored, part, outcome)

    def _take(self) -> tuple[list[Request[Call, Result]], int] | None:
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
                    self._scoring += inputs_of(batch)
                    self._room -= 1
                    return batch, lanes
