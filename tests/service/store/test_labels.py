"""What both stores promise about labels: rules, the log of arrivals, evidence, retention."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.errors import Refusal
from service.store import Store
from service.store.label_rules import RefusedLabelsError
from service.store.rows import Label, LabelBlock, LabelCounts, PredictionBatch, PruneCounts
from tests.service.store.rows import CLASSES, HOUR, START, Twin, assert_same, batch, version
from trueodds.bundle.contents import shadow_of
from trueodds.metrics import CalibrationSums


async def filled(store: Store, count: int, **options: Any) -> list[str]:
    await store.put_version(version())
    answers = batch(count, **options)
    await store.put_predictions(answers)
    return answers.ids


async def test_labels_follow_the_rules(store: Store, other: Store) -> None:
    ids = await filled(store, 4)
    counts = await other.put_labels([Label(ids[0], "cat"), Label(ids[1], 1), Label(ids[0], 0)])
    assert counts == LabelCounts(2, 1, 0)
    with pytest.raises(RefusedLabelsError, match="already, but 'dog' was sent") as refused:
        await store.put_labels([Label(ids[2], 1), Label(ids[0], "dog")])
    assert [(refusal.row, refusal.code) for refusal in refused.value.refusals] == [(1, "conflicting_label")]
    assert (await store.read_sums("m", "v1")).labelled.n == 2
    counts = await store.put_labels([Label(ids[0], "dog", correct=True), Label(ids[2], 2)])
    assert counts == LabelCounts(1, 0, 1)
    for label in ("café", "cafe\N{COMBINING ACUTE ACCENT}"):
        assert (await store.put_labels([Label(ids[2], label)])).already_known == 1
    for id_ in ("a\0b", "\ud800", "none", "0" * 36):
        with pytest.raises(RefusedLabelsError) as unknown:
            await store.put_labels([Label(id_, 0)])
        assert [refusal.code for refusal in unknown.value.refusals] == ["unknown_id"]


async def test_each_label_stands_alone(store: Store) -> None:
    ids = await filled(store, 3)
    outcomes = await store.put_each_label(
        [
            Label(ids[0], "cat"),
            Label("none", 0),
            Label(ids[1], "cow"),
            Label(ids[0], "dog"),
            Label(ids[0], "dog", correct=True),
            Label(ids[0], "dog"),
            Label("early", 0, model="m"),
        ]
    )
    words = [o.code if isinstance(o, Refusal) else o for o in outcomes]
    assert words == ["stored", "unknown_id", "unknown_class", "conflicting_label", "corrected", "already_known",
                     "held"]  # fmt: skip
    log = await store.read_labels("m", "v1")
    answer = batch(3)
    assert (log.label_L.tolist(), log.first_correct_L[0]) == ([1], answer.index_N[0] == 0)


async def test_a_label_may_come_before_its_prediction(store: Store, other: Store) -> None:
    await store.put_version(version())
    assert (await store.put_labels([Label("a", "dog", model="m"), Label("b", 0, model="m")])).held == 2
    assert (await other.put_labels([Label("a", 1, model="m")])).already_known == 1
    with pytest.raises(RefusedLabelsError, match="a waits with the label 'dog' already"):
        await store.put_labels([Label("a", "cat", model="m")])
    assert (await store.put_labels([Label("a", "cat", correct=True, model="m")])).corrected == 1
    for label, words in [
        (Label("c", 0), "use an id of your own and add its model"),
        (Label("c", 0, model="nobody's"), "known are m"),
        (Label("c", "cow", model="m"), "unknown class 'cow'"),
        (Label("f" * 36, 0, model="m"), "no prediction has the id"),
    ]:
        with pytest.raises(RefusedLabelsError, match=words):
            await store.put_labels([label])
    twin = Twin(labels={"a": 0, "b": 0})
    twin.add(answers := batch(3, own=["a", "b", "c"], now=START))
    await store.put_predictions(answers)
    assert_same(await store.read_sums("m", "v1"), twin.sums())
    log = await store.read_labels("m", "v1")
    assert sorted(log.ids) == ["a", "b"]
    assert (log.arrived_ms_L >= log.created_ms_L).all()
    assert (await store.put_labels([Label("a", 0)])).already_known == 1


async def test_labels_and_predictions_that_meet_are_never_lost(store: Store, other: Store) -> None:
    await store.put_version(version())
    ids = [f"own-{k}" for k in range(60)]
    predicted = [store.put_predictions(batch(3, own=ids[k : k + 3])) for k in range(0, 60, 3)]
    labelled = [other.put_labels([Label(id_, 0, model="m") for id_ in ids[k : k + 2]]) for k in range(0, 60, 2)]
    await asyncio.gather(*(job for pair in zip(predicted, labelled, strict=False) for job in pair), *labelled[20:])
    sums = await other.read_sums("m", "v1")
    assert (sums.answers, sums.labelled.n) == (60, 60)
    assert (await store.read_labels("m", "v1")).sequence_L.tolist() == list(range(1, 61))


async def test_a_shadow_has_the_labels_of_the_answers(store: Store, other: Store) -> None:
    """Those that came before its rows, after them, and at the same time; corrections too."""
    ids = await filled(store, 30)
    await store.put_predictions(batch(2, own=["a", "b"]))
    shadow = replace(version("v2"), model=shadow_of("m"))
    await other.put_version(shadow)
    seen = batch(30)

    def scored(rows: slice) -> PredictionBatch:
        part = batch(len(ids[rows]))
        return replace(part, model=shadow.model, version="v2", ids=ids[rows], digests=[None] * len(part.ids))

    assert len(seen.ids) == 30
    await store.put_labels([Label(id_, 0) for id_ in ids[:10]])
    await other.put_predictions(scored(slice(0, 20)))
    await store.put_labels([Label(id_, 1) for id_ in ids[10:20]])
    labelled = [store.put_labels([Label(id_, 2)]) for id_ in ids[20:]]
    jobs = [other.put_predictions(scored(slice(k, k + 1))) for k in range(20, 30)]
    await asyncio.gather(*(job for pair in zip(labelled, jobs, strict=True) for job in pair))
    own = batch(2, own=["a", "b"])
    await store.put_labels([Label("a", 1)])
    await other.put_predictions(replace(own, model=shadow.model, version="v2", digests=[b"", b""]))
    counts = await store.put_labels([Label("b", 0), Label(ids[0], 2, correct=True)])
    assert counts == LabelCounts(1, 0, 1)
    mine, its = await store.read_labels("m", "v1"), await store.read_labels(shadow.model, "v2")
    assert dict(zip(its.ids, its.label_L.tolist(), strict=True)) == dict(
        zip(mine.ids, mine.label_L.tolist(), strict=True)
    )
    assert len(mine) == 32 and dict(zip(its.ids, its.label_L, strict=True))[ids[0]] == 2
    assert (await store.read_sums(shadow.model, "v2")).labelled.n == 32
    assert (await store.read_sums("m", "v1")).answers == 32


async def test_two_workers_that_label_the_same_answers_agree(store: Store, other: Store) -> None:
    ids = await filled(store, 30)
    jobs = [
        (store, other)[y].put_labels([Label(id_, y) for id_ in ids[k : k + 3]][:: 1 - 2 * y])
        for k in range(0, 30, 3)
        for y in (0, 1)
    ]
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    for one, each in zip(outcomes[::2], outcomes[1::2], strict=True):
        assert {type(one), type(each)} == {LabelCounts, RefusedLabelsError}
    log = await store.read_labels("m", "v1")
    winners = {ids[3 * k]: y for k in range(10) for y in (0, 1) if isinstance(outcomes[2 * k + y], LabelCounts)}
    assert {id_: int(label) for id_, label in zip(log.ids, log.label_L, strict=True) if id_ in winners} == winners
    assert (await other.read_sums("m", "v1")).labelled.n == len(log) == 30


async def test_an_id_of_two_models_needs_the_model(store: Store) -> None:
    for model in "mn":
        await store.put_version(version(model=model))
        await store.put_predictions(batch(1, version(model=model), own=["a"]))
    with pytest.raises(RefusedLabelsError, match="several models") as refused:
        await store.put_labels([Label("a", 0)])
    assert refused.value.refusals[0].code == "ambiguous_id"
    assert (await store.put_labels([Label("a", 0, model="n")])).stored == 1
    assert [(await store.read_sums(model, "v1")).labelled.n for model in "mn"] == [0, 1]


async def test_the_log_keeps_the_order_of_arrival_and_takes_corrections(store: Store) -> None:
    ids = await filled(store, 30, tags=["x", None, "y"] * 10)
    answers, order = batch(30, seed=0), np.random.default_rng(3).permutation(30)
    for start in range(0, 30, 7):
        await store.put_labels([Label(ids[k], int(k % 3)) for k in order[start : start + 7]])
    log = await store.read_labels("m", "v1")
    assert log.sequence_L.tolist() == list(range(1, 31))
    assert log.ids == [ids[k] for k in order]
    truth_L = order % 3
    assert (log.correct_L == (answers.index_N[order] == truth_L)).all()
    assert (log.first_correct_L == log.correct_L).all()
    assert (log.confidence_L == answers.confidence_N[order]).all()
    sums = CalibrationSums.from_top(log.confidence_L, log.correct_L, nll_N=log.nll_L, brier_N=log.brier_L)
    expected = CalibrationSums.from_probabilities(answers.probabilities_NC[order], truth_L)
    np.testing.assert_allclose(sums.cells, expected.cells, rtol=1e-12)
    assert np.isnan(log.propensity_L).tolist() == (order % 2 == 1).tolist()
    assert log.tags == [["x", None, "y"][k % 3] for k in order]

    await store.put_labels([Label(id_, 0, correct=True) for id_ in ids])
    after = await store.read_labels("m", "v1")
    assert after.sequence_L.tolist() == list(range(1, 31))
    assert (after.correct_L == (answers.index_N[order] == 0)).all()
    assert (after.first_correct_L == log.first_correct_L).all()
    assert (after.arrived_ms_L == log.arrived_ms_L).all()
    assert (await store.read_labels("m", "v1", last=4)).ids == after.ids[-4:]
    assert (await store.read_labels("m", "v1", after=10, limit=5)).sequence_L.tolist() == [11, 12, 13, 14, 15]
    assert (await store.read_labels("m", "v1", after=30)).ids == []


async def test_corrected_labels_are_counted_and_read_again(store: Store) -> None:
    assert await store.count_corrected_labels("m", "v1") == 0
    early = await filled(store, 12, tags=["x", None, "(other)"] * 4)
    late = batch(4, now=START + 5 * HOUR, seed=1)
    await store.put_predictions(late)
    await store.put_labels([Label(id_, 0) for id_ in (*early, *late.ids)])
    assert (await store.read_corrected_labels("m", "v1")).ids == []
    again = [Label(id_, 1, correct=True) for id_ in (*early[:5], late.ids[3])]
    assert (await store.put_labels(again)).corrected == 6
    assert (await store.put_labels([Label(early[5], 0, correct=True)])).already_known == 1
    await store.put_each_label([Label(early[0], 0, correct=True)])  # back again: it was corrected, twice
    corrected = await store.read_corrected_labels("m", "v1")
    assert (corrected.ids, corrected.label_L.tolist()) == ([*early[:5], late.ids[3]], [0, 1, 1, 1, 1, 1])
    assert (await store.read_corrected_labels("m", "v1", after=3)).sequence_L.tolist() == [4, 5, 16]

    count = functools.partial(store.count_corrected_labels, "m", "v1")
    assert (await count(), await count(after=4), await count(after=16)) == (6, 2, 0)
    assert (await count(START + HOUR), await count(until=START + 1)) == (1, 5)
    assert [await count(tag=tag) for tag in ("x", "", "(other)", "none")] == [2, 3, 1, 0]
    top = [int(k) for k in (*batch(12).index_N[:5], late.index_N[3])]
    assert [await count(class_=name) for name in CLASSES] == [top.count(k) for k in range(3)]
    tagged = [int(k) for k in batch(12).index_N[:5:3]]
    assert [await count(class_=name, tag="x") for name in CLASSES] == [tagged.count(k) for k in range(3)]


def counting(seen: list[int]) -> Callable[[Any, LabelBlock], Any]:
    def step(state: Any, block: LabelBlock) -> Any:
        last, count = state or (0, 0)
        numbers = block.sequence_L.tolist()
        assert numbers == list(range(last + 1, last + 1 + len(numbers)))
        seen.extend(numbers)
        return [last + len(numbers), count + int(block.first_correct_L.sum())]

    return step


async def test_a_state_takes_every_label_once_whoever_updates_it(store: Store, other: Store) -> None:
    ids, seen = await filled(store, 120), list[int]()
    step, stores = counting(seen), (store, other)
    jobs: list[Any] = []
    for k in range(0, 120, 5):
        jobs.append(stores[k % 2].put_labels([Label(id_, 0) for id_ in ids[k : k + 5]]))
        jobs.append(stores[k // 5 % 2].update_state("m", "v1", "alarm", step, limit=7))
    await asyncio.gather(*jobs)
    assert await store.read_state("m", "v1", "other") is None
    assert await store.read_progress("other") == [("m", "v1", 120, 0)]
    state = await other.update_state("m", "v1", "alarm", step, limit=7)
    assert state == await store.read_state("m", "v1", "alarm")
    await store.put_version(version("v2"))
    assert await store.read_progress("alarm") == [("m", "v1", 120, 120), ("m", "v2", 0, 0)]
    right = int((batch(120).index_N == 0).sum())
    assert state == [120, right]
    await store.put_labels([Label(id_, 1, correct=True) for id_ in ids])
    assert await store.update_state("m", "v1", "alarm", step) == [120, right]

    def fails(state: Any, block: LabelBlock) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.update_state("m", "v1", "alarm", fails)
    assert await store.read_state("m", "v1", "alarm") == [120, right]
    assert await other.update_state("m", "v1", "alarm", lambda state, block: [*state, len(block)]) == [
        120,
        right,
        0,
    ]


async def test_labelled_logits_in_blocks(store: Store) -> None:
    await store.put_version(version())
    early, late = batch(10, now=START), batch(10, now=START + HOUR, seed=1)
    for answers in (early, late):
        await store.put_predictions(answers)
        await store.put_labels([Label(id_, k % 3) for k, id_ in enumerate(answers.ids)])
    blocks = [block async for block in store.read_labelled_logits("m", "v1", block_bytes=4 * 3 * 4)]
    assert [len(block.ids) for block in blocks] == [4] * 5
    logits_NC = np.concatenate([early.logits_NC, late.logits_NC])
    assert (np.concatenate([block.logits_NC for block in blocks]) == logits_NC).all()
    assert [label for block in blocks for label in block.labels_N] == [k % 3 for k in range(10)] * 2
    recent = [block async for block in store.read_labelled_logits("m", "v1", START + 1)]
    assert [id_ for block in recent for id_ in block.ids] == late.ids
    assert all((block.created_ms_N == START + HOUR).all() for block in recent)
    for last, since, ids in ((12, None, [*early.ids[8:], *late.ids]), (20, START + 1, late.ids), (99, 0, None)):
        arrived = [id_ async for block in store.read_labelled_logits("m", "v1", since, last) for id_ in block.ids]
        assert arrived == (ids or early.ids + late.ids)
    last_ids = await store.read_last_answer_ids([("m", "v1"), ("m", "none")], START + 1, 3)
    assert sorted(last_ids) == sorted(late.ids[7:])
    named = store.read_labelled_logits("m", "v1", ids=[*last_ids, early.ids[0]], block_bytes=4 * 3 * 4)
    assert [id_ async for block in named for id_ in block.ids] == [early.ids[0], *late.ids[7:]]


async def test_retention_takes_rows_and_leaves_sums(store: Store) -> None:
    old = await filled(store, 10)
    own = batch(6, own=[f"own-{k}" for k in range(6)])
    new = batch(5, now=START + 48 * HOUR)
    await store.put_predictions(own)
    await store.put_predictions(new)
    await store.put_labels([Label(id_, 0) for id_ in (*old[:6], *own.ids[:3], new.ids[0])])
    await store.update_state("m", "v1", "alarm", lambda state, block: None)
    await store.put_labels([Label(old[6], 0)])  # the state has not taken it yet
    await store.put_labels([Label("never", 0, model="m")])
    before = await store.read_sums("m", "v1")
    assert await store.prune() == PruneCounts(0, 0, 0)
    assert await store.prune(START + HOUR, limit=4) == PruneCounts(15, 9, 0)
    assert_same(await store.read_sums("m", "v1"), before)
    assert set(await store.read_answers("m", [*old, *own.ids, *new.ids])) == {old[6], *new.ids}
    assert (await store.read_labels("m", "v1")).ids == [new.ids[0], old[6]]
    await store.update_state("m", "v1", "alarm", lambda state, block: None)
    assert await store.prune(START + HOUR, held_before=2**50, limit=4) == PruneCounts(1, 1, 1)
    await store.put_labels([Label(new.ids[1], 0)])
    assert (await store.read_labels("m", "v1")).sequence_L.tolist() == [10, 12]
    with pytest.raises(RefusedLabelsError, match="older than the retention time"):
        await store.put_labels([Label(old[0], 0)])
