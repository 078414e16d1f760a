"""The reading half of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from service.store.rows import (
    HeldLabels,
    LabelBlock,
    LabelledLogits,
    Matured,
    Settlement,
    StoredPrediction,
    Voiding,
    storable,
)
from service.store.sums_reader import SumsReader
from service.store.work import doubtful, maturing, reading, states, voiding
from trueodds.bundle.contents import shadow_of
from trueodds.sums.hours import hours_of

MAX_LAST = 100_000
"""Labels that one read_labels gives."""
BLOCK_BYTES = 4 << 20
"""Logits in one block of `read_labelled_logits`."""

EXPORTED = 10_000
"""Predictions in one block of `export`."""
LATEST_MS = 2**47
"""A time in milliseconds that no prediction has; ids hold twelve hex digits of it."""


class StoreReader(SumsReader):
    """Reads answers, labels and their sums; raises StoreError when the database fails.

    Labels are logged in the order of their arrival, by sequence numbers per version. A later correction changes the
    sums and the values that `read_labels` gives, but is no new entry of the log and leaves `first_correct_L`.
    """

    async def read_answers(self, model: str, ids: list[str]) -> dict[str, StoredPrediction]:
        """Stored answers of a model by id; ids that are unknown are left out."""
        return await self.database.read(partial(reading.answers, model, ids))

    async def read_answers_of(self, id_: str) -> list[StoredPrediction]:
        """The stored answers of all models, and of their shadows, with an id."""
        return await self.database.read(partial(reading.answers_of, id_)) if storable(id_) else []

    async def export(
        self,
        model: str,
        version: str,
        since: int = 0,
        until: int = LATEST_MS,
        *,
        logits: bool = False,
        limit: int = EXPORTED,
    ) -> AsyncIterator[list[StoredPrediction]]:
        """The predictions of a version made in the milliseconds [since, until), with their labels, in blocks.

        First those with ids of ours, then those with callers' own, each in the order of their time. `logits`: with
        them, in smaller blocks. A block is as the store is when it is read.
        """
        key = await self._key(model, version)
        if key is None:
            return
        if logits:
            limit = min(limit, max(BLOCK_BYTES // (4 * len(self._known.versions[key].classes)), 1))
        last, times = "", (since, until)
        while rows := await self.database.read(partial(reading.exported_ours, key, times, last, limit, logits=logits)):
            yield rows
            last = rows[-1].id
        place = (-1, "")
        while rows := await self.database.read(partial(reading.exported_own, key, times, place, limit, logits=logits)):
            yield rows
            place = rows[-1].created_ms, rows[-1].id

    async def read_labels(
        self, model: str, version: str, *, after: int = 0, limit: int = MAX_LAST, last: int | None = None
    ) -> LabelBlock:
        """The label log: up to `limit` entries after a sequence number, or the `last` ones; at most 100,000."""
        key = await self._key(model, version)
        if key is None:
            return reading.block([])
        if last is not None:
            return await self.database.read(partial(reading.last_labels, key, min(last, MAX_LAST)))
        return await self.database.read(partial(reading.labels, key, after, min(limit, MAX_LAST)))

    async def read_corrected(self, model: str, version: str, *, after: int = 0) -> LabelBlock:
        """Those labels of the log above a sequence number that were corrected, as they are now; at most 100,000."""
        key = await self._key(model, version)
        if key is None:
            return reading.block([])
        return await self.database.read(partial(reading.corrected, key, after, MAX_LAST))

    async def count_corrected(
        self,
        model: str,
        version: str,
        since: int | None = None,
        until: int | None = None,
        *,
        class_: str | None = None,
        tag: str | None = None,
        after: int = 0,
    ) -> int:
        """Labels that were replaced by another class since they first came, of a predicted class or a tag if given.

        `after`: only those above a sequence number. Labels that retention has removed are not counted.
        """
        key = await self._key(model, version)
        if key is None:
            return 0
        index = None if class_ is None else self._known.versions[key].classes.index(class_)
        return await self.database.read(
            partial(reading.count_corrected, key, index, tag, hours_of(since, until), after)
        )

    async def read_labelled_logits(
        self,
        model: str,
        version: str,
        since: int | None = None,
        last: int | None = None,
        shadow: str | None = None,
        *,
        block_bytes: int = BLOCK_BYTES,
    ) -> AsyncIterator[LabelledLogits]:
        """Logits and labels of all labelled answers since then, in blocks, in the order of their labels' arrival.

        `last`: only those among the labels that arrived last, this many. `shadow`, a version: only answers that it has
        scored as the model's shadow, and its logits.
        """
        key = await self._key(model, version)
        shadow_key = None if shadow is None else await self._key(shadow_of(model), shadow)
        if key is None or (shadow_key is None and shadow is not None):
            return
        after = 0 if last is None else await self.database.read(partial(reading.before_last, key, last))
        classes = len(self._known.versions[key].classes)
        limit = max(block_bytes // (4 * classes), 1)
        while True:
            work = partial(reading.labelled, key, classes, since or 0, after, limit, shadow_key)
            after, block = await self.database.read(work)
            if not after:
                return
            yield block

    async def read_state(self, model: str, version: str, name: str) -> Any:
        """The state that `update_state` stored last; None before."""
        key = await self._key(model, version)
        return None if key is None else await self.database.read(partial(states.read, key, name))

    async def read_progress(self, name: str) -> list[tuple[str, str, int, int]]:
        """Model, version, the last label's sequence number, and the last one that a state has taken.

        Of every version; 0: none. Two look-ups in an index for each, so it may be asked every second.
        """
        return await self.database.read(partial(states.progress, name))

    async def read_held(self) -> dict[str, HeldLabels]:
        """The labels that wait for their predictions, by model; models without any are left out."""
        return await self.database.read(reading.held)

    async def read_voidings(self, model: str, version: str) -> list[Voiding]:
        """The voidings of labels of a version, in their order."""
        key = await self._key(model, version)
        return [] if key is None else await self.database.read(partial(voiding.voidings, key))

    async def count_doubtful(self, model: str, version: str) -> int:
        """The answers of a version whose label is in doubt: it is in no sum and no log until it is settled."""
        key = await self._key(model, version)
        return 0 if key is None else await self.database.read(partial(doubtful.waiting, key))

    async def read_matured(self, model: str, version: str) -> Matured | None:
        """Count matured answers of a version with a maturity window; None for one without."""
        key = await self._key(model, version)
        if key is None or self._known.versions[key].maturity is None:
            return None
        return await self.database.read(partial(maturing.counts, key))

    async def read_settlements(self, model: str, version: str) -> list[Settlement]:
        """The settlements of labels of a version that were in doubt, in their order."""
        key = await self._key(model, version)
        return [] if key is None else await self.database.read(partial(doubtful.settlements, key))

    async def last_voiding(self, model: str, version: str) -> int:
        """A number that is another after every voiding of labels of a version: what was read of its log is stale."""
        key = await self._key(model, version)
        return 0 if key is None else await self.database.read(partial(voiding.last_voiding, key))

    async def latest_label(self) -> int:
        """When the label came that came last, by the clock of the replica that took it; 0 without any."""
        return await self.database.read(voiding.latest)

    async def is_voided(self, import_id: str) -> bool:
        """Whether labels of an import were voided before."""
        return await self.database.read(partial(voiding.is_voided, import_id))

    async def ping(self) -> None:
        """Raise StoreError unless rows could be stored now, as far as can be told without storing one."""
        await self.database.ping()
