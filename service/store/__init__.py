"""What the service remembers: a small asynchronous protocol, in batches only; SQLite is its first implementation."""

from __future__ import annotations

from typing import Protocol

from service.records import GivenLabel, LabelCounts, PredictionBatch, StoredSums, Version


class StoreError(Exception):
    """The store cannot be opened, read or written; the message says why and what helps."""


class Store(Protocol):
    """Every `put_` returns after its rows, and the sums they change, are durable in one transaction.

    All raise StoreError when the store fails; then nothing of the batch was stored.
    """

    async def put_version(self, version: Version) -> None:
        """Make a model version known; needed before its predictions. Again: nothing changes."""

    async def put_predictions(self, batch: PredictionBatch) -> None:
        """Store answers and count them."""

    async def put_labels(self, labels: list[GivenLabel]) -> LabelCounts:
        """Store labels, all or none.

        Raises:
            FeedbackError: unknown ids, unknown classes or conflicting labels.
        """

    async def read_versions(self) -> list[Version]:
        """All versions, in the order they were first served."""

    async def read_sums(self, model: str, version: str) -> StoredSums:
        """The sums of one version; zero if it has none."""

    async def close(self) -> None:
        """Finish what is queued, then close."""


__all__ = ["Store", "StoreError"]
