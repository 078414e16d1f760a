"""Counts of label masses: two replicas, retention, and a store from before them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from service.store import Store
from service.store.work.statements import Query, Work
from tests.service.store.rows import START, batch, version

MASSES = [0.9, None, 0.4, 0.1]


async def send(store: Store, *, own: list[str] | None = None) -> None:
    await store.put_predictions(replace(batch(len(MASSES), own=own), label_masses=MASSES))


def forget() -> Work[None]:
    yield Query("DELETE FROM states")


async def test_every_answer_counts_once_and_for_good(store: Store, other: Store) -> None:
    await store.put_version(version())
    assert await store.read_label_masses("m", "v1") is None
    await asyncio.gather(*(send(one) for one in (store, other) * 4))
    for _ in range(2):  # sent again, they count once
        await send(other, own=[f"own{k}" for k in range(len(MASSES))])
    expected = (27, pytest.approx(9 * 1.4), 18)
    assert await store.read_label_masses("m", "v1") == expected
    await store.delete_prediction("m", "own0")
    await store.prune(START + 2**40)
    assert await other.read_label_masses("m", "v1") == expected


async def test_answers_of_a_release_without_counts_are_counted(store: Store) -> None:
    await store.put_version(version())
    await send(store)
    await store.database.write(forget)
    await send(store)
    assert await store.read_label_masses("m", "v1") == (6, pytest.approx(2.8), 4)
