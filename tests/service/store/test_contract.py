"""What both stores promise about versions, predictions and sums."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from service.store import Store, StoreError, open_store
from service.store.rows import EarlierPrediction, Label, PredictionBatch
from service.store.work.statements import Query, Work
from service.store.work.sums.deltas import MAX_TAGS, OTHER_TAGS, TOTAL
from service.store.work.sums.queries import WINDOWS, trend
from tests.service.store.rows import CLASSES, HOUR, START, Twin, assert_same, batch, count, version


async def test_everything_comes_back_after_reopening(address: str) -> None:
    store, answers = await open_store(address), batch(5, tags=["a", None, "b", "a", "a"])
    await store.put_version(version())
    await store.put_version(version())
    assert await store.put_predictions(answers) == [None] * 5
    await store.put_labels([Label(answers.ids[0], "cat"), Label(answers.ids[1], 1)])
    before = await store.read_sums("m", "v1")
    await store.close()
    await store.close()
    store = await open_store(address)
    assert_same(await store.read_sums("m", "v1"), before)
    assert await store.read_versions() == [version()]
    stored = await store.read_answers("m", [*answers.ids, "none"])
    assert set(stored) == set(answers.ids)
    for k, id_ in enumerate(answers.ids):
        answer = stored[id_]
        assert answer.logits == answers.logits_NC[k].astype("<f4").tobytes()
        assert (answer.model, answer.version, answer.created_ms) == ("m", "v1", START)
        assert (answer.predicted, answer.tag, answer.propensity) == (
            answers.index_N[k],
            answers.tags[k],
            answers.propensities[k],
        )
        assert (answer.raw_confidence, answer.confidence) == (answers.raw_confidence_N[k], answers.confidence_N[k])
        assert answer.label == {0: 0, 1: 1}.get(k)
    assert await store.read_answers("other", answers.ids) == {}
    assert (await store.read_sums("m", "other")).answers == 0
    await store.ping()
    await store.close()
    for call in (lambda: store.put_predictions(answers), store.read_versions, store.ping):
        with pytest.raises(StoreError, match="closed"):
            await call()


async def test_predictions_of_a_version_that_is_not_known(store: Store) -> None:
    with pytest.raises(StoreError, match="the store does not have m/v1"):
        await store.put_predictions(batch(1))
    with pytest.raises(StoreError, match="does not have"):
        await store.update_state("m", "v1", "x", lambda state, block: 1)
    assert (await store.read_sums_by("class", "m", "v1")) == {}
    assert len(await store.read_labels("m", "v1")) == 0
    assert [block async for block in store.read_labelled_logits("m", "v1")] == []
    assert [point async for point in await store.read_trend("m", "v1", "day")] == []


async def test_sums_are_those_of_the_rows(store: Store, other: Store) -> None:
    """Random answers over five months, labels and corrections, two workers, compaction at any moment."""
    rng, twin, stores = np.random.default_rng(0), Twin(), (store, other)
    await store.put_version(version())
    for turn in range(24):
        each = stores[turn % 2]
        now = START + int(rng.integers(0, 150 * 24)) * HOUR + int(rng.integers(0, HOUR))
        tags = [None if k == 0 else f"t{k}" for k in rng.integers(0, 4, 12)]
        answers = batch(12, now=now, seed=turn, tags=tags)
        await each.put_predictions(answers)
        twin.add(answers)
        chosen = {twin.ids[int(k)]: int(rng.integers(0, 3)) for k in rng.integers(0, len(twin.ids), 10)}
        await each.put_labels([Label(id_, label, correct=True) for id_, label in chosen.items()])
        twin.labels |= chosen
        if turn % 5 == 4:
            await asyncio.gather(store.compact(), other.compact())
        if turn % 4 == 3:
            await compare(each, twin, rng)
    await store.compact()
    await compare(store, twin, rng)


async def compare(store: Store, twin: Twin, rng: np.random.Generator) -> None:
    assert_same(await store.read_sums("m", "v1"), twin.sums())
    for _ in range(6):
        low, high = (int(k) for k in np.sort(rng.integers(-24, 160 * 24, 2)))
        if rng.random() < 0.3:
            high = low + int(rng.integers(0, 30))
        since = None if rng.random() < 0.2 else START + low * HOUR + int(rng.integers(0, HOUR))
        until = None if rng.random() < 0.2 else START + high * HOUR + int(rng.integers(0, HOUR))
        sums = await store.read_sums("m", "v1", since, until)
        assert_same(sums, twin.sums(partial(within, since, until)))
    since = START + 20 * 24 * HOUR
    by_class = await store.read_sums_by("class", "m", "v1", since)
    for index, name in enumerate(CLASSES):
        wanted = twin.sums(partial(predicted_as, index, since))
        if wanted.answers:
            assert_same(by_class[name], wanted, 60)
            one = await store.read_sums_by("class", "m", "v1", since, only=name)
            assert list(one) == [name]
            assert_same(one[name], by_class[name])
    assert await store.read_sums_by("tag", "m", "v1", only="nobody's") == {}
    by_tag = await store.read_sums_by("tag", "m", "v1")
    for tag in {tag for answers, _ in twin.rows for tag in answers.tags}:
        assert_same(by_tag[tag or ""], twin.sums(partial(tagged_as, tag)), 60)
    for unit, form in (("hour", "%Y%m%d%H"), ("day", "%Y%m%d"), ("month", "%Y%m")):
        points = [point async for point in await store.read_trend("m", "v1", unit)]  # type: ignore[arg-type]
        assert len(points) == len({stamp(int(a.created_ms_N[k]), form) for a, k in twin.rows})
        assert [start for start, _ in points] == sorted(start for start, _ in points)
        for start, sums in points[:: max(len(points) // 5, 1)]:
            assert_same(sums, twin.sums(partial(stamped_as, start, form)))
    tagged = [point async for point in await store.read_trend("m", "v1", "day", since, by="tag", group="t1")]
    assert (
        sum(sums.answers for _, sums in tagged)
        == twin.sums(
            lambda a, k: a.tags[k] == "t1" and stamp(int(a.created_ms_N[k]), "%Y%m%d") >= stamp(since, "%Y%m%d")
        ).answers
    )


def within(since: int | None, until: int | None, answers: PredictionBatch, k: int) -> bool:
    hour = answers.created_ms_N[k] // HOUR
    return (since is None or hour >= since // HOUR) and (until is None or hour < -(-until // HOUR))


def predicted_as(index: int, since: int, answers: PredictionBatch, k: int) -> bool:
    return bool(answers.index_N[k] == index and answers.created_ms_N[k] >= since)


def tagged_as(tag: str | None, answers: PredictionBatch, k: int) -> bool:
    return answers.tags[k] == tag


def stamped_as(start: int, form: str, answers: PredictionBatch, k: int) -> bool:
    return stamp(int(answers.created_ms_N[k]), form) == stamp(start, form)


def stamp(ms: int, form: str) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)


async def test_minutes_are_kept_for_some_hours(store: Store) -> None:
    """The same before and after compaction; a label that comes later does not bring half of a minute back."""
    now = time.time_ns() // (1_000_000 * HOUR) * HOUR - HOUR

    async def minutes(store: Store, since: int | None = None, **group: Any) -> list[tuple[int, int, int]]:
        points = [point async for point in await store.read_trend("m", "v1", "minute", since, **group)]
        return [((start - now) // 60_000, sums.answers, sums.labelled.n) for start, sums in points]

    await store.put_version(version())
    for seed, k in enumerate((0, 1, 1, 7)):
        answers = batch(4, now=now + 60_000 * k + 59_999, tags=["t", None, "t", None], seed=seed)
        await store.put_predictions(answers)
        await store.put_labels([Label(id_, 0) for id_ in answers.ids[:k]])
    whole = [(0, 4, 0), (1, 8, 2), (7, 4, 4)]
    for _ in range(2):
        assert await minutes(store) == whole
        assert [point[:2] for point in await minutes(store, by="tag", group="t")] == [(0, 2), (1, 4), (7, 2)]
        await store.compact()
    early = batch(3, now=now - 8 * HOUR)
    await store.put_predictions(early)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"kept for 6 hours, now since .*:00Z, but .*, or since=20"):
            await minutes(store)
        assert await minutes(store, now) == whole
        await store.compact()
    later = time.time_ns() + 8 * 10**6 * HOUR
    with mock.patch("time.time_ns", lambda: later):
        await store.put_labels([Label(id_, 0) for id_ in [*early.ids, *answers.ids]])
        await store.compact()
        await store.prune()
        with pytest.raises(ValueError, match="kept for 6 hours"):
            await minutes(store, now)
        assert (await store.read_sums("m", "v1")).answers == 19
    rows = await store.database.read(partial(trend, 1, TOTAL, "minute", (None, None), 100))
    assert rows == {}


async def test_a_trend_of_too_many_periods_is_refused(store: Store) -> None:
    await store.put_version(version())
    for k in range(3):
        await store.put_predictions(batch(1, now=START + k * HOUR))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"3 periods of one hour; the limit is 2: ask for a coarser unit"):
            await store.read_trend("m", "v1", "hour", most=2)
        assert len([p async for p in await store.read_trend("m", "v1", "hour", START + HOUR, most=2)]) == 2
        assert len([p async for p in await store.read_trend("m", "v1", "day", most=2)]) == 1
        await store.compact()


async def test_an_own_id_gives_the_stored_answer_or_a_conflict(store: Store, other: Store) -> None:
    await store.put_version(version())
    await store.put_version(version("v2"))
    await store.put_version(version(model="n"))
    first = batch(3, own=["a", "b", "a"])
    of_a = EarlierPrediction(first.logits_NC[0].tobytes(), "v1", propensity=0.5)
    assert await store.put_predictions(first) == [None, None, of_a]
    again = batch(3, version("v2"), own=["b", "c", "a"], seed=1)
    assert await other.put_predictions(again) == [
        EarlierPrediction(first.logits_NC[1].tobytes(), "v1"),
        None,
        of_a,
    ]
    conflict = EarlierPrediction(None, "v1", propensity=0.5)
    assert await store.put_predictions(batch(1, own=["a"], digest=b"x" * 16)) == [conflict]
    assert await store.put_predictions(batch(1, version(model="n"), own=["a"])) == [None]
    counts = [(await store.read_sums(*key)).answers for key in (("m", "v1"), ("m", "v2"), ("n", "v1"))]
    assert counts == [2, 1, 1]


async def test_text_that_no_database_holds_is_refused(store: Store) -> None:
    await store.put_version(version())
    for bad in (batch(1, own=["a\0"]), batch(1, tags=["\ud800"])):
        with pytest.raises(ValueError, match="contains NUL or half a surrogate pair"):
            await store.put_predictions(bad)


async def test_the_same_own_ids_from_two_workers_at_once(store: Store, other: Store) -> None:
    await store.put_version(version())
    ids = [f"own-{k}" for k in range(30)]
    jobs = [
        (store, other)[k % 2].put_predictions(batch(30, own=ids if k % 3 else ids[::-1], now=START + k))
        for k in range(12)
    ]
    outcomes = [outcome for of_job in await asyncio.gather(*jobs) for outcome in of_job]
    assert outcomes.count(None) == 30
    assert (await store.read_sums("m", "v1")).answers == 30


async def test_a_hundred_tags_have_sums_of_their_own(store: Store, other: Store) -> None:
    await store.put_version(version())
    tags = [f"tag-{k}" for k in range(MAX_TAGS + 20)]
    for start in range(0, len(tags), 10):
        both = [batch(10, tags=tags[start : start + 10], seed=start + k) for k in range(2)]
        await asyncio.gather(store.put_predictions(both[0]), other.put_predictions(both[1]))
    await store.put_predictions(batch(1, tags=[OTHER_TAGS]))
    by_tag = await other.read_sums_by("tag", "m", "v1")
    assert {tag: sums.answers for tag, sums in by_tag.items()} == {
        **dict.fromkeys(tags[:MAX_TAGS], 2),
        OTHER_TAGS: 41,
    }


async def test_many_commits_compact_by_themselves(store: Store, other: Store) -> None:
    first, second = (Store(each.database, compact_commits=10) for each in (store, other))
    await first.put_version(version())
    twin = Twin()
    for k in range(40):
        twin.add(answers := batch(3, seed=k, now=START + k * HOUR))
        await (first, second)[k % 2].put_predictions(answers)
    await first.finish_compacting()
    await second.finish_compacting()
    assert_same(await first.read_sums("m", "v1"), twin.sums())
    pending = await first.database.read(partial(count, "moves"))
    assert pending <= 20


def delete(table: str) -> Work[None]:
    yield Query(f"DELETE FROM {table}")


async def test_totals_are_added_up_once_for_each_compaction(store: Store, other: Store) -> None:
    """Merged sums that are gone from the database are missed once somebody has compacted, and no earlier."""
    await store.put_version(version())
    twin, later = Twin(), Twin()
    twin.add(answers := batch(3))
    await other.put_predictions(answers)
    await other.compact()
    for since in (None, START):
        assert_same(await store.read_sums("m", "v1", since), twin.sums())
    await other.database.write(partial(delete, "sums"))
    for k in range(3):  # what is not merged yet is in every answer
        for rows in (twin, later):
            rows.add(batch(3, seed=k + 1, now=START + k * HOUR))
        await other.put_predictions(twin.rows[-1][0])
        for since in (None, START):
            assert_same(await store.read_sums("m", "v1", since), twin.sums())
    await other.compact()
    assert_same(await store.read_sums("m", "v1"), later.sums())


async def test_the_oldest_of_too_many_windows_is_added_up_again(store: Store) -> None:
    await store.put_version(version())
    await store.put_predictions(batch(3))
    await store.compact()
    windows = [START - hours * HOUR for hours in range(WINDOWS + 1)]
    for since in windows:
        await store.read_sums("m", "v1", since)
    await store.database.write(partial(delete, "sums"))
    assert [(await store.read_sums("m", "v1", since)).answers for since in windows[::-1]] == [*[3] * WINDOWS, 0]


async def test_several_open_an_empty_store_at_once(address: str) -> None:
    stores = await asyncio.gather(*(open_store(address) for _ in range(4)))
    await asyncio.gather(*(store.put_version(version()) for store in stores))
    assert await stores[0].read_versions() == [version()]
    for store in stores:
        await store.close()
