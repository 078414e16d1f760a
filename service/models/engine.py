"""Engine: a model version behind its queue. It takes inputs and returns durably stored predictions."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from service.ids import new_ids
from service.models.acting import propensities
from service.models.batching import Batcher, Gone, Inline
from service.models.calls import PredictionCall, PredictionResult, repeat, split
from service.models.lanes import Lanes
from service.models.model import Model, RunnableModel
from service.models.shadow import Shadow
from service.store import RowsError, Store, StoreError
from service.store.rows import EarlierPrediction, PredictionBatch, Version
from service.telemetry.metrics import Telemetry
from trueodds.bundle import Card, Key, Slot
from trueodds.inputs import InputKind

Scored = tuple[PredictionBatch, list[PredictionCall]]
Work = TypeVar("Work")
Result = TypeVar("Result")
Value = TypeVar("Value", str, float)
Find = Callable[[str, str], Awaitable[Version]]
"""Finder of the version that gave stored answers, by model and version."""


class QueuedEngine(ABC, Generic[Work, Result]):
    """Answers `predict` between `start` and `close`. `with engine:` keeps it from being closed meanwhile."""

    def __init__(
        self,
        model: RunnableModel[Any],
        store: Store,
        telemetry: Telemetry,
        find: Find,
        *,
        max_batch: int,
        max_waiting: int,
    ) -> None:
        self.card: Card = model.bundle.card
        self.key: Key = self.card.name, model.bundle.version
        """Model and version."""
        self.shadows: list[Shadow] = []
        """Shadows that score the same inputs after they are answered."""
        self._store, self._find = store, find
        self._telemetry = telemetry.of(*self.key)
        work, noun = (self._score, self._store_and_answer), self.input.noun
        lanes: Batcher[PredictionCall, Work, Result | BaseException] = Lanes(
            *work, max_batch=max_batch, max_waiting=max_waiting, noun=noun, lanes=model.lanes
        )
        self._small = min(max_batch, model.inline)
        """Number of inputs, of a call and of a batch, up to which the event loop scores."""
        self._batchers = [lanes]
        """Batchers for large calls and, if there is one, for small calls."""
        if self._small:
            self._batchers.append(Inline(*work, max_batch=self._small, max_waiting=max_waiting, noun=noun))
        self._in_use = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @property
    def input(self) -> InputKind:
        return self.card.input

    def __enter__(self) -> Self:
        self._in_use += 1
        self._unused.clear()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_use -= 1
        if not self._in_use:
            self._unused.set()

    @abstractmethod
    async def _add_versions(self) -> None:
        """Add the versions whose answers are stored."""

    @abstractmethod
    def _score(self, calls: list[PredictionCall], alone: bool) -> Work:
        """Score the inputs of calls. `alone`: the batch has all cores."""

    @abstractmethod
    async def _store_and_answer(self, work: Work) -> Sequence[Result | BaseException]:
        """Store the answers. Return the result of each call."""

    async def start(self) -> None:
        await self._add_versions()
        for batcher in self._batchers:
            batcher.start()

    async def close(self) -> None:
        """Wait for the requests that use this engine, then stop."""
        await self._unused.wait()
        for batcher in self._batchers:
            await batcher.close()

    async def predict(
        self,
        call: PredictionCall,
        *,
        seconds: float | None = None,
        left: float | None = None,
        is_gone: Gone | None = None,
    ) -> Result:
        """Answer each input. The answers are stored before this returns.

        Args:
            call: The inputs.
            seconds: Time limit of the answer.
            left: Remainder of `seconds`.
            is_gone: Tells whether the caller has disconnected.

        Raises:
            ServiceError: 503 if the queue is full or the answer takes longer than `seconds`; 409 if a caller's own id
                was used for another input.
            CallerGoneError: The caller has disconnected.
            StoreError: The predictions could not be stored.
        """
        batcher = self._batchers[-1 if len(call) <= self._small else 0]
        result = await batcher.submit(call, is_gone=is_gone, seconds=seconds, left=left)
        if isinstance(result, BaseException):
            raise result
        return result


class Engine(QueuedEngine[Scored, PredictionResult]):
    """Engine of a model of exclusive classes."""

    def __init__(
        self,
        model: Model,
        store: Store,
        telemetry: Telemetry,
        find: Find,
        *,
        max_batch: int,
        max_waiting: int,
        audit_share: float = 0.0,
    ) -> None:
        """Make an engine. `audit_share` is the audited share of the answers that act alone."""
        super().__init__(model, store, telemetry, find, max_batch=max_batch, max_waiting=max_waiting)
        self.version: Version = model.version
        self.conformal = model.bundle.conformal
        self._model, self.audit_share = model, audit_share

    async def _add_versions(self) -> None:
        await self._store.put_version(self.version)

    def shadowing(self, slot: Slot, max_waiting: int) -> Shadow:
        """Return this version as another version's shadow, with a queue of its own."""
        return Shadow(self._model, self._store, self._telemetry, slot, max_waiting=max_waiting)

    def _score(self, calls: list[PredictionCall], alone: bool) -> Scored:
        inputs = self.input.join([c.inputs for c in calls])
        now, began = time.time_ns() // 1_000_000, time.perf_counter()
        tags: list[str | None] = _join_lists([c.tags for c in calls], calls, len(inputs))
        scores = self._model.score(inputs, tags, alone=alone)
        self._telemetry.count_model_batch(time.perf_counter() - began)
        own = any(c.ids for c in calls)
        ids = [i for c in calls for i in c.ids or new_ids(len(c), now)] if own else new_ids(len(inputs), now)
        given: list[float | None] = _join_lists([c.propensities for c in calls], calls, len(inputs))
        batch = PredictionBatch(
            model=self.version.model,
            version=self.version.version,
            created_ms_N=np.full(len(inputs), now),
            ids=ids,
            request_ids=[c.request_id for c in calls for _ in range(len(c))],
            digests=[d for c in calls for d in c.digests(self.input)] if own else [None] * len(inputs),
            tags=tags,
            propensities=propensities(self.version.act_alone, self.audit_share, scores.confidence_N, tags, given),
            **vars(scores),
        )
        return batch, calls

    async def _store_and_answer(self, batch_and_calls: Scored) -> list[PredictionResult | BaseException]:
        batch, calls = batch_and_calls
        try:
            earlier = await self._store.put_predictions(batch)
        except Exception as error:
            store_fails = isinstance(error, StoreError) and not isinstance(error, RowsError)
            if store_fails or len(calls) == 1:
                raise
            return await self._store_each(batch, calls)
        known = sum(row is not None for row in earlier)
        waiting = sum(batcher.waiting for batcher in self._batchers)
        self._telemetry.batch(len(batch.ids), new_predictions=len(batch.ids) - known, waiting=waiting)
        if self.shadows:
            inputs, new = self.input.join([c.inputs for c in calls]), [row is None for row in earlier]
            for shadow in self.shadows:
                shadow.follow(inputs, batch, new)
        results = split(batch, self.version, [len(c) for c in calls])
        return await self._with_earlier(results, earlier) if known else list(results)

    async def _store_each(
        self, batch: PredictionBatch, calls: list[PredictionCall]
    ) -> list[PredictionResult | BaseException]:
        """Store each request by itself, because the rows of one request cannot be stored but those of others can."""
        work, start = [], 0
        for one in calls:
            work.append(self._store_and_answer((batch.rows(slice(start, start + len(one))), [one])))
            start += len(one)
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        return [outcome if isinstance(outcome, BaseException) else outcome[0] for outcome in outcomes]

    async def _with_earlier(
        self, results: list[PredictionResult], earlier: list[EarlierPrediction | None]
    ) -> list[PredictionResult | BaseException]:
        settled: list[PredictionResult | BaseException] = []
        start = 0
        for result in results:
            rows = earlier[start : start + len(result)]
            start += len(result)
            try:
                settled.append(await repeat(result, rows, lambda v: self._find(self.version.model, v)))
            except Exception as error:  # concerns this request only; the answers of all are stored
                settled.append(error)
        return settled


def _join_lists(lists: list[list[Value | None] | None], calls: list[PredictionCall], rows: int) -> list[Value | None]:
    """Join the lists of calls, each with one entry per input. A call without a list has None for each input."""
    if not any(lists):
        return [None] * rows
    return [value for own, call in zip(lists, calls, strict=True) for value in own or [None] * len(call)]
