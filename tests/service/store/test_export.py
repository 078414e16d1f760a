"""Both stores: all predictions of a version in blocks, one by its id, its removal, and labels that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from service.store import Store
from service.store.rows import DeletionCounts, Label
from tests.service.store.rows import HOUR, START, batch, version
from trueodds.bundle.contents import shadow_of


async def test_predictions_are_exported_and_removed(store: Store) -> None:
    await store.put_version(version())
    ours, later = batch(5), batch(3, now=START + HOUR)
    own = batch(4, own=["b", "a", "d", "c"], now=START + HOUR)
    for answers in (ours, own, later):
        await store.put_predictions(answers)
    await store.put_labels([Label("a", 1), Label(ours.ids[0], 2), Label("early", 0, model="m")], "friday")

    async def ids(**options: Any) -> list[str]:
        return [row.id async for block in store.export("m", "v1", limit=2, **options) for row in block]

    everything = [*sorted(ours.ids), *sorted(later.ids), *"abcd"]
    assert await ids() == await ids(logits=True) == everything
    assert await ids(since=START + 1) == [*sorted(later.ids), *"abcd"]
    assert await ids(until=START + HOUR) == sorted(ours.ids) and await ids(until=START) == []
    rows = {row.id: row async for block in store.export("m", "v1", logits=True) for row in block}
    logits = {id_: row.tobytes() for part in (ours, own) for id_, row in zip(part.ids, part.logits_NC, strict=True)}
    assert all(rows[id_].logits == blob for id_, blob in logits.items())
    assert (rows["a"].label, rows["a"].import_id, rows["a"].corrected, rows["b"].label) == (
        1,
        "friday",
        False,
        None,
    )
    assert await store.read_answers_of("a") == [rows["a"]] and await store.read_answers_of("\0") == []

    shadow = replace(version("v2"), model=shadow_of("m"))
    await store.put_version(shadow)
    await store.put_predictions(replace(own, model=shadow.model, version="v2"))
    assert [row.model for row in await store.read_answers_of("a")] == ["m", "m~shadow"]
    assert await store.delete_prediction("m", "a") == DeletionCounts(2, 2, 0)
    assert await store.read_answers_of("a") == [] and (await store.read_sums("m", "v1")).labelled.n == 2
    assert (await store.read_held())["m"].count == 1
    assert await store.delete_prediction("m", "early") == DeletionCounts(0, 0, 1)
    assert await store.read_held() == {}
