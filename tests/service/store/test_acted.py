"""Answers that act alone are counted exactly, by hour, before and after compaction; promises come back as stored."""

from __future__ import annotations

from dataclasses import replace

from service.store import Store
from service.store.rows import Version
from tests.service.store.rows import HOUR, START, batch, version
from trueodds.bundle import ActAlone

PROMISE = ActAlone.of_text("threshold=.8,risk=.05,confidence=.95").model_copy(update={"tags": {"hard": None}})
PROMISED: Version = replace(version(), act_alone=PROMISE)


async def test_acted_answers_are_counted_by_hour(store: Store) -> None:
    await store.put_version(PROMISED)
    (known,) = await store.read_versions()
    assert known.act_alone == PROMISE
    expected = []
    for k in range(3):
        rows = batch(50, PROMISED, now=START + k * HOUR, seed=k, tags=["hard", None] * 25)
        await store.put_predictions(rows)
        expected.append(int(PROMISE.acts(rows.confidence_N, rows.tags).sum()))
    assert all(expected)
    for _ in range(2):
        assert await store.count_acting_answers("m", "v1") == sum(expected)
        assert await store.count_acting_answers("m", "v1", START + HOUR, START + 2 * HOUR) == expected[1]
        assert (await store.read_sums("m", "v1")).answers == 150
        await store.compact()


async def test_an_answer_that_is_repeated_is_counted_once_and_gives_its_tag_and_propensity(store: Store) -> None:
    await store.put_version(PROMISED)
    rows = batch(10, PROMISED, own=[f"o{n}" for n in range(10)], tags=["hard", None] * 5)
    await store.put_predictions(rows)
    acted = await store.count_acting_answers("m", "v1")
    earlier = await store.put_predictions(replace(rows, tags=["other"] * 10, propensities=[0.1] * 10))
    assert [row.tag for row in earlier if row] == rows.tags
    assert [row.propensity for row in earlier if row] == rows.propensities
    assert await store.count_acting_answers("m", "v1") == acted > 0


async def test_a_version_without_a_promise_has_none(store: Store) -> None:
    await store.put_version(version())
    await store.put_predictions(batch(20))
    assert await store.count_acting_answers("m", "v1") == 0 and (await store.read_versions())[0].act_alone is None
