"""Counts of label masses: two replicas, retention, and a store from before them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from service.store import Store
from service.store.work.statements import Query, Work
from tests.service.store.rows import START, batch, version

MASSES = [0.9, None, 0.4, 0.1]


async def send(store: Store, *, own: list[str] | None = None) -> None:
    await store.put_predictions(replace(batch(len(MASSES), own=own), label_masses=MASSES))


async def counts(store: Store) -> tuple[int, float, int] | None:
    found = await store.read_label_masses("m", "v1")
    return None if found is None else (found.answers, round(found.sum, 9), found.low)


def forget() -> Work[None]:
    yield Query("DELETE FROM states")


async def test_every_answer_counts_once_and_for_good(store: Store, other: Store) -> None:
    await store.put_version(version())
    assert await counts(store) is None
    await asyncio.gather(*(send(one) for one in (store, other) * 4))
    for _ in range(2):  # sent again, they count once
        await send(other, own=[f"own{k}" for k in range(len(MASSES))])
    assert await counts(store) == (27, 12.6, 18)
    await store.delete_prediction("m", "own0")
    await store.prune(START + 2**40)
    assert await counts(other) == (27, 12.6, 18)


async def test_answers_of_a_release_without_counts_are_counted(store: Store) -> None:
    await store.put_version(version())
    await send(store)
    await store.database.write(forget)
    await send(store)
    assert await counts(store) == (6, 2.8, 4)
