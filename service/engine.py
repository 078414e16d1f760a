"""The served model behind its queue: images in, durably stored predictions out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.bundle import ImageInput
from pipeline.metrics import softmax
from pipeline.pictures import Pixels
from service.batching import Batcher
from service.model import Model
from service.records import PredictionBatch, Version
from service.store import Store
from service.telemetry import Telemetry


class Engine:
    """Between `start` and `close`, `predict` answers."""

    def __init__(self, model: Model, store: Store, telemetry: Telemetry, *, max_batch: int, max_waiting: int) -> None:
        self.version: Version = model.version
        self.input: ImageInput = model.bundle.card.input
        self._model, self._store, self._telemetry = model, store, telemetry
        self._batcher: Batcher[PredictionBatch, dict[str, Any]] = Batcher(
            self._score, self._store_and_answer, max_batch=max_batch, max_waiting=max_waiting
        )

    async def start(self) -> None:
        await self._store.put_version(self.version)
        self._batcher.start()

    async def close(self) -> None:
        await self._batcher.close()

    async def predict(self, images_NHWC: Pixels) -> Sequence[dict[str, Any]]:
        """One answer per image, stored before it is returned.

        Raises:
            ServiceError: the queue is full.
            StoreError: the predictions could not be stored.
        """
        return await self._batcher.submit(images_NHWC)

    def _score(self, images_NHWC: Pixels) -> PredictionBatch:
        now, scores, count = time.time_ns() // 1_000_000, self._model.score(images_NHWC), len(images_NHWC)
        return PredictionBatch(
            self.version.model,
            self.version.version,
            now,
            new_ids(count, now),
            [""] * count,
            scores.logits_NC,
            scores.probabilities_NC,
            scores.index_N,
            softmax(scores.logits_NC.astype(np.float64))[np.arange(count), scores.index_N],
            scores.confidence_N,
            [None] * count,
            [None] * count,
            [None] * count,
        )

    async def _store_and_answer(self, batch: PredictionBatch) -> list[dict[str, Any]]:
        await self._store.put_predictions(batch)
        self._telemetry.batch(len(batch.ids))
        self._telemetry.predictions(len(batch.ids))
        classes, rows = self.version.classes, batch.probabilities_NC.tolist()
        return [
            {"id": id_, "label": classes[i], "index": i, "confidence": row[i], "probabilities": row}
            for id_, i, row in zip(batch.ids, batch.index_N.tolist(), rows, strict=True)
        ]


def new_ids(count: int, now_ms: int) -> list[str]:
    """Ids that sort by time to the millisecond and cannot be guessed: 12 hex digits of time, 24 of randomness."""
    prefix, random = f"{now_ms:012x}", secrets.token_hex(12 * count)
    return [prefix + random[24 * k : 24 * (k + 1)] for k in range(count)]
