"""Shadow: scores the inputs of another version, without answering, and stores its predictions beside the answers.

A calibrator under judgement has the same net as the served version. Its scores come from the served logits, so the net
does not run again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import ENDING, ServiceError
from service.ids import is_generated
from service.models.lanes import Lanes
from service.models.model import Model, of_logits
from service.store import Store
from service.store.rows import PredictionBatch
from service.telemetry.metrics import VersionTelemetry
from trueodds.bundle import Slot
from trueodds.bundle.contents import shadow_of
from trueodds.inputs import Inputs

OWN = b""
"""Digest for rows with callers' own ids. The inputs were already compared when they were answered."""

log = logging.getLogger("trueodds")


@dataclass(frozen=True)
class _Answered:
    """Inputs that another version has just answered, with their details."""

    inputs: Inputs
    logits_NC: npt.NDArray[np.float32]
    """Logits of the version that answered."""
    ids: list[str]
    request_ids: list[str]
    tags: list[str | None]
    propensities: list[float | None]

    def __len__(self) -> int:
        return len(self.ids)


class Shadow:
    """Shadow of a version. Its own queue never delays an answer: excess inputs are left out and counted."""

    def __init__(
        self, model: Model, store: Store, telemetry: VersionTelemetry, slot: Slot, *, max_waiting: int
    ) -> None:
        # A shadow takes no actions, so it has no promise.
        self.version = replace(model.version, model=shadow_of(model.version.model, slot), act_alone=None)
        self._shares_logits = slot == "recalibrated"
        self._model, self._store, self._telemetry = model, store, telemetry
        # One answered batch at a time, because its rows must stay one batch in the store.
        self._batcher: Lanes[_Answered, PredictionBatch, None] = Lanes(
            self._score, self._store_rows, max_batch=1, max_waiting=max_waiting, noun=model.bundle.card.input.noun
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._known = False

    def start(self) -> None:
        self._batcher.start()

    async def close(self) -> None:
        """Score and store the queued inputs, then stop."""
        await asyncio.gather(*self._tasks)
        await self._batcher.close()

    def follow(self, inputs: Inputs, batch: PredictionBatch, new: list[bool]) -> None:
        """Queue the rows of an answered batch that were new to the store."""
        rows = [row for row, is_new in enumerate(new) if is_new]
        if not rows:
            return
        columns = (batch.ids, batch.request_ids, batch.tags, batch.propensities)
        kept: list[list[Any]] = [list(c) if all(new) else [c[row] for row in rows] for c in columns]
        logits_NC = batch.logits_NC if all(new) else batch.logits_NC[rows]
        answered = _Answered(inputs if all(new) else inputs[rows], logits_NC, *kept)
        task = asyncio.create_task(self._follow(answered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, rows: _Answered) -> None:
        try:
            await self._batcher.submit(rows)
        except ServiceError as error:  # its queue is full or the store fails; the answer itself is already given
            self._telemetry.shadow_left_out(len(rows))
            log.debug("shadow %s: %s", self.version.version, error)
        except ENDING:
            raise
        except BaseException:
            self._telemetry.shadow_left_out(len(rows))
            log.exception("shadow %s/%s failed", self.version.model, self.version.version)

    def _score(self, batches: list[_Answered], alone: bool) -> PredictionBatch:
        (one,) = batches
        began = time.perf_counter()
        if self._shares_logits:
            scores = of_logits(self._model.bundle.calibrator, one.logits_NC, one.tags)
        else:
            scores = self._model.score(one.inputs, one.tags)
        self._telemetry.count_model_batch(time.perf_counter() - began)
        return PredictionBatch(
            model=self.version.model,
            version=self.version.version,
            created_ms_N=np.full(len(one), time.time_ns() // 1_000_000),
            ids=one.ids,
            request_ids=one.request_ids,
            digests=[None if is_generated(id_) else OWN for id_ in one.ids],
            tags=one.tags,
            propensities=one.propensities,
            **vars(scores),
        )

    async def _store_rows(self, batch: PredictionBatch) -> list[None]:
        if not self._known:
            await self._store.put_version(self.version)
            self._known = True
        await self._store.put_predictions(batch)
        self._telemetry.batch(len(batch.ids), new_predictions=len(batch.ids))
        return [None]
