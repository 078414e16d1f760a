"""Batcher that scores in threads of the model, while the event loop reads and answers requests.

A thread takes its next batch itself. When the loop handed out batches, it first read all new requests and then waited
for the model (ResNet-20 with 32 clients: 1,370 instead of 1,620 images per second).

A slow model has as many lanes as cores. If only one batch waits, it gets all cores. If more wait, every lane scores a
batch on one core. Threads that share a batch wait for each other after every layer, and for the one whose core answers
a request (ResNet-18 on 2 cores with 32 clients: .83 of onnxruntime alone with shared threads, .88 without).

A single lane takes at most half of all present inputs. The event loop stores, answers and reads the other half
meanwhile. When a batch took everything, a few late inputs were soon scored, and the model waited for the many whose
answers were under way (ResNet-8 with 32 clients: 3,120 images per second, with halves 3,690; slowest hundredth 15.5 ms,
then 12.9).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence

from service.models.batching import Batcher, Call, QueuedRequest, Result, Scored, inputs_of

FEW = 4
"""Number of inputs below which two batches cost more than their overlap saves."""


class Lanes(Batcher[Call, Scored, Result]):
    """Batcher with a thread per lane."""

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
        """Make a batcher. `noun` names an input in messages."""
        super().__init__(score, finish, max_batch=max_batch, max_waiting=max_waiting, noun=noun)
        self._lanes = lanes
        self._room += lanes
        self._taken = 0
        """Number of busy lanes; all of them while one batch has all cores."""
        self._scoring = 0
        """Number of inputs that they score."""
        self._sleeping = 0
        """Number of threads that wait for work. Without one, there is nobody to notify."""
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
        if self._sleeping:
            self._changed.notify()

    def _serve(self) -> None:
        while taken := self._take():
            batch, lanes = taken
            parts = self._parts(batch, lanes == self._lanes)
            with self._changed:
                self._taken -= lanes
                self._scoring -= (size := inputs_of(batch))
                self._settling += size
                self._room -= len(parts) - 1  # each part frees one place when it is stored
                if lanes > 1:
                    self._changed.notify_all()
            with contextlib.suppress(RuntimeError):  # the loop was stopped without `close`
                for part, outcome in parts:
                    self._loop.call_soon_threadsafe(self._finish_later, part, outcome)

    def _take(self) -> tuple[list[QueuedRequest[Call, Result]], int] | None:
        """Return a batch of up to `max_batch` inputs, or one larger request, and its lanes; None when closing.

        With several lanes, each takes waiting inputs up to an even share of all present ones; a single lane takes up to
        half. Smaller batches would wake the event loop more often, with cold caches: halves of the waiting inputs
        (several lanes), or thirds of the present ones (one lane), took 4% more processor time.
        """
        with self._changed:
            while True:
                while not self._queue or self._taken >= self._lanes or self._room <= 0:
                    if self._closing and not self._queue:
                        return None
                    self._sleeping += 1
                    self._changed.wait()
                    self._sleeping -= 1
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
