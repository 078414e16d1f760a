"""What the service remembers: a small asynchronous protocol, in batches only, over SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from service.errors import ServiceError

if TYPE_CHECKING:
    from service.store.label_rules import Outcome, Problem
    from service.store.records import (
        Earlier,
        GivenLabel,
        LabelBlock,
        LabelCounts,
        LabelledLogits,
        PredictionBatch,
        Pruned,
        StoredAnswer,
        StoredSums,
        Version,
    )

POSTGRES = ("postgresql://", "postgres://")
MAX_LAST = 100_000
"""Labels that one read_labels gives."""
MAX_PERIODS = 750
"""Periods of one trend: the hours of a month."""

By = Literal["class", "tag"]
Unit = Literal["hour", "day", "month"]


class StoreError(ServiceError):
    """The store cannot be opened, read or written; the message says why and what helps."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "store_unavailable", message, retry_after=1)


class RowsError(StoreError):
    """The store works, but not with these rows: nothing of the call was stored, and other calls are not concerned."""


class Store(Protocol):
    """Every `put_` returns after its rows, and what they add to the sums, are durable in one transaction.

    All raise StoreError when the store fails, RowsError where only this call does. Then nothing was stored, unless the
    connection to a database server was lost during the commit itself: sending the same labels, or the same own ids,
    again is safe.

    Times are Unix milliseconds. Sums are kept by hour of the PREDICTION, UTC: `since` and `until` reach out to whole
    hours. Labels are logged in the order of their arrival, by sequence numbers per version. A later correction changes
    the sums and the values that `read_labels` gives, but is no new entry of the log and leaves `first_correct_L`.
    """

    async def put_version(self, version: Version) -> None:
        """Make a model version known; needed before its predictions. Again: nothing changes."""

    async def put_predictions(self, batch: PredictionBatch) -> list[Earlier | None]:
        """Store answers and count them. Row by row: None, or what was stored under the caller's own id before."""

    async def put_labels(self, labels: list[GivenLabel]) -> LabelCounts:
        """Store labels, all or none.

        Raises:
            FeedbackError: unknown ids, unknown classes or conflicting labels.
        """

    async def put_each_label(self, labels: list[GivenLabel]) -> list[Outcome | Problem]:
        """Store each label that can be, as if each came in a call of its own, in one transaction."""

    async def read_versions(self) -> list[Version]:
        """All versions, in the order in which they were first served."""

    async def read_answers(self, model: str, ids: list[str]) -> dict[str, StoredAnswer]:
        """Stored answers of a model by id; ids that are unknown are left out."""

    async def read_sums(
        self, model: str, version: str, since: int | None = None, until: int | None = None
    ) -> StoredSums:
        """The sums of one version; zero if it has none."""

    async def read_sums_by(
        self,
        by: By,
        model: str,
        version: str,
        since: int | None = None,
        until: int | None = None,
        *,
        only: str | None = None,
    ) -> dict[str, StoredSums]:
        """Sums by PREDICTED class (top-label calibration is conditional on it), or by tag, on 60 cells; 192 KB each.

        The first 100 tags of a version have sums of their own, the rest share "(other)"; answers without a tag are
        under the empty name. `only`: of one class or tag.
        """

    async def read_trend(
        self,
        model: str,
        version: str,
        unit: Unit,
        since: int | None = None,
        until: int | None = None,
        *,
        by: By | None = None,
        group: str = "",
    ) -> AsyncIterator[tuple[int, StoredSums]]:
        """(start, sums) of each hour, day or month with answers that the window touches, of one group if `by` is given.

        Raises:
            ValueError: more than 750 periods; ask for a coarser unit or a shorter window.
        """

    async def read_labels(
        self, model: str, version: str, *, after: int = 0, limit: int = MAX_LAST, last: int | None = None
    ) -> LabelBlock:
        """The label log: up to `limit` entries after a sequence number, or the `last` ones; at most 100,000."""

    async def read_corrected(self, model: str, version: str, *, after: int = 0) -> LabelBlock:
        """Those labels of the log above a sequence number that were corrected, as they are now; at most 100,000."""

    async def count_corrected(
        self,
        model: str,
        version: str,
        since: int | None = None,
        until: int | None = None,
        *,
        by: By | None = None,
        group: str = "",
        after: int = 0,
    ) -> int:
        """Labels that were replaced by another class since they first came, of one group if `by` is given.

        `after`: only those above a sequence number. Labels that retention has removed are not counted.
        """

    def labelled(
        self, model: str, version: str, since: int | None = None, last: int | None = None, shadow: str | None = None
    ) -> AsyncIterator[LabelledLogits]:
        """Logits and labels of all labelled answers since then, in blocks, in the order of their labels' arrival.

        `last`: only those among the labels that arrived last, this many. `shadow`, a version: only answers that it has
        scored as the model's shadow, and its logits.
        """

    async def fold(self, model: str, version: str, name: str, step: Callable[[Any, LabelBlock], Any]) -> Any:
        """Bring a state up to date with the label log and return it: each label once, whoever dies or races.

        `step(state, block)` gives the new state, which json can write; the state is None at first. In one transaction
        at a time and with one leader, it is called for blocks of labels until there are no more, and at least once,
        with an empty block if nothing is new. It must have no other effects: a transaction may be tried again. It may
        use `first_correct_L`, not `correct_L`, if it has to be the same whenever it is called.
        """

    async def read_state(self, model: str, version: str, name: str) -> Any:
        """What `fold` stored last; None before."""

    async def read_progress(self, name: str) -> list[tuple[str, str, int, int]]:
        """Model, version, the last label's sequence number, and the last one that a state of `fold` has taken.

        Of every version; 0: none. Two look-ups in an index for each, so it may be asked every second.
        """

    async def prune(self, before: int | None = None, held_before: int | None = None) -> Pruned:
        """Remove predictions made before a time, with their labels, and labels held since before a time.

        Sums stay. So do labels, with their predictions, that a state of `fold` has not taken yet.
        """

    async def ping(self) -> None:
        """Raises StoreError unless rows could be stored now, as far as can be told without storing one."""

    async def close(self) -> None:
        """Finish what is queued, then close."""


def is_postgres(store: str) -> bool:
    """Whether a setting names a PostgreSQL database and not a file."""
    return store.startswith(POSTGRES)


async def open_store(store: str, connections: int = 8) -> Store:
    """The store of a setting: the path of a SQLite file, or a URL `postgresql://user:password@host:port/database`.

    Raises:
        StoreError: it cannot be opened; the message says why, without the password.
    """
    if is_postgres(store):
        from service.store.postgres import PostgresStore

        return await PostgresStore.open(store, connections)
    if "://" in store:
        scheme = store.partition("://")[0]
        raise StoreError(f"the store is a {scheme}:// URL; allowed are the path of a file and postgresql:// URLs")
    from service.store.sqlite import SqliteStore

    return await SqliteStore.open(Path(store))
