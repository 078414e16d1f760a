"""Voiding labels: both stores, against the slow and obvious way."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.store import Store
from service.store.rows import Label, LabelBlock, LabelSelection, VoidCounts, Voiding
from service.store.work.statements import Query, Work
from service.store.work.voiding import Restart
from tests.service.store.rows import START, Twin, assert_same, batch, version
from trueodds.bundle.contents import shadow_of

RESTART: Restart = {"log": lambda tree, first: ([], 0)}


def voiding(**selection: Any) -> Voiding:
    return Voiding(LabelSelection(**selection), START, "Ada", "wrong file")


def log_of(tree: Any, block: LabelBlock) -> Any:
    """A state that holds every label that it took, and whether its first form was right."""
    rows = zip(block.ids, block.first_correct_L.tolist(), strict=True)
    return (tree or []) + [[id_, correct] for id_, correct in rows]


async def filled(store: Store, count: int) -> tuple[Twin, list[str]]:
    await store.put_version(version())
    answers = batch(count)
    await store.put_predictions(answers)
    twin = Twin()
    twin.add(answers)
    return twin, answers.ids


@pytest.mark.parametrize("seed", range(3))
async def test_what_remains_is_as_if_void_labels_had_never_come(store: Store, other: Store, seed: int) -> None:
    """Some random imports of labels and corrections; sums, log and evidence are those of the labels that remain."""
    draw = random.Random(seed)
    twin, ids = await filled(store, 40)
    history: dict[str, list[tuple[str, int]]] = {id_: [] for id_ in ids}
    for _ in range(12):
        name, chosen = draw.choice("abc"), draw.sample(ids, 9)
        rows = {id_: draw.randrange(3) for id_ in chosen}
        await store.put_labels([Label(id_, label, correct=True) for id_, label in rows.items()], name)
        for id_, label in rows.items():
            if not history[id_] or history[id_][-1][1] != label:
                history[id_].append((name, label))
    await store.update_state("m", "v1", "log", log_of)
    void = voiding(import_id="b")
    planned = await other.void_labels(void, RESTART, dry_run=True)
    assert await other.void_labels(void, RESTART, limit=7) == planned
    remaining = {id_: [entry for entry in past if entry[0] != "b"] for id_, past in history.items()}
    twin.labels = {id_: past[-1][1] for id_, past in remaining.items() if past}
    assert_same(await store.read_sums("m", "v1"), twin.sums())
    log = await store.read_labels("m", "v1")
    assert dict(zip(log.ids, log.label_L.tolist(), strict=True)) == twin.labels
    assert (np.diff(log.sequence_L) > 0).all()
    counts = {"removed": 0, "restored": 0, "kept": 0}
    for id_, past in history.items():
        if any(name == "b" for name, _ in past):
            outcome = "removed" if not remaining[id_] else "restored" if past[-1][0] == "b" else "kept"
            counts[outcome] += 1
    assert planned == ({("m", "v1"): VoidCounts(**counts)}, 0)
    predicted = dict(zip(ids, batch(40).index_N.tolist(), strict=True))
    state = await store.update_state("m", "v1", "log", log_of)
    firsts = {id_: past[0][1] == predicted[id_] for id_, past in remaining.items() if past}
    assert dict(state) == firsts and len(state) == len(firsts)
    assert await store.count_corrected_labels("m", "v1") == sum(len(past) > 1 for past in remaining.values())
    assert await store.void_labels(void, RESTART) == ({}, 0)
    (noted,) = await store.read_voidings("m", "v1")
    assert noted == replace(void, counts=VoidCounts(**counts))
    assert await store.is_voided("b") and not await store.is_voided("a")


async def test_evidence_is_kept_unless_what_it_took_has_changed(store: Store) -> None:
    _, ids = await filled(store, 6)
    predicted = batch(6).index_N.tolist()
    await store.put_labels([Label(id_, k) for id_, k in zip(ids[:4], predicted, strict=False)], "first")
    await store.put_labels([Label(ids[0], (predicted[0] + 1) % 3, correct=True)], "corrections")
    before = await store.update_state("m", "v1", "log", log_of)
    restarts: list[int] = []

    def noting(tree: Any, first: int) -> tuple[Any, int]:
        restarts.append(first)
        return [], 0

    await store.void_labels(voiding(import_id="corrections"), {"log": noting})
    assert restarts == [] and await store.read_state("m", "v1", "log") == before
    await store.void_labels(voiding(import_id="corrections"), {"log": noting})
    await store.void_labels(voiding(import_id="first", model="m"), {"log": lambda tree, first: None})
    assert await store.read_state("m", "v1", "log") == before
    await store.put_labels([Label(ids[5], 0)], "last")
    await store.update_state("m", "v1", "log", log_of)
    await store.void_labels(voiding(import_id="last"), {"log": noting})
    assert restarts == [5] and await store.update_state("m", "v1", "log", log_of) == []


async def test_a_time_selects_labels_by_their_arrival(store: Store) -> None:
    twin, ids = await filled(store, 3)
    await store.put_labels([Label(ids[0], 0)])
    await asyncio.sleep(0.01)
    await store.put_labels([Label(ids[0], 1, correct=True), Label(ids[1], 1)])
    await asyncio.sleep(0.01)
    await store.put_labels([Label(ids[2], 1)])
    first, second, third = (await store.read_labels("m", "v1")).arrived_ms_L.tolist()
    none = await store.void_labels(voiding(since_ms=third + 1, until_ms=third + 1000), RESTART)
    other = await store.void_labels(voiding(since_ms=first, until_ms=third, model="other"), RESTART)
    assert none == other == ({}, 0)
    counts, _ = await store.void_labels(voiding(since_ms=second, until_ms=third), RESTART)
    assert counts == {("m", "v1"): VoidCounts(removed=1, restored=1)}
    twin.labels = {ids[0]: 0, ids[2]: 1}
    assert_same(await store.read_sums("m", "v1"), twin.sums())


async def test_shadows_and_held_labels_are_voided_too(store: Store) -> None:
    """Of a shadow whose rows came before the labels, and after their corrections."""
    _, ids = await filled(store, 4)
    shadow = replace(version("v2"), model=shadow_of("m"))
    await store.put_version(shadow)
    scored = replace(batch(4), model=shadow.model, version="v2", ids=ids)
    await store.put_predictions(scored.rows(slice(0, 2)))
    await store.put_labels([Label(id_, 0) for id_ in ids], "good")
    bad = [*(Label(id_, 1, correct=True) for id_ in ids), Label("early", 1, model="m")]
    await store.put_labels(bad, "bad")
    await store.put_predictions(scored.rows(slice(2, 4)))
    await store.put_labels([Label("early", 2, model="m", correct=True), Label("next", 2, model="m")], "worse")
    counts, held = await store.void_labels(voiding(import_id="bad"), RESTART)
    assert counts == {("m", "v1"): VoidCounts(restored=4), (shadow.model, "v2"): VoidCounts(restored=4)}
    assert held == 0
    for name in (("m", "v1"), (shadow.model, "v2")):
        log = await store.read_labels(*name)
        assert log.label_L.tolist() == [0] * 4
    assert await store.void_labels(voiding(import_id="worse", model="m"), RESTART, dry_run=True) == ({}, 2)
    assert await store.void_labels(voiding(import_id="worse", model="m"), RESTART) == ({}, 2)
    await store.put_predictions(batch(2, own=["early", "next"]))
    assert (await store.read_sums("m", "v1")).labelled.n == 4
    assert await store.is_voided("worse") and await store.last_voiding("m", "v1")


async def test_retention_forgets_what_was_replaced(store: Store) -> None:
    def rows() -> Work[int]:
        ((number,),) = yield Query("SELECT count(*) FROM replaced")
        return int(number)

    _, ids = await filled(store, 2)
    await store.put_labels([Label(ids[0], 0)])
    await store.put_labels([Label(ids[0], 1, correct=True)])
    assert await store.database.read(rows) == 1
    await store.prune(START + 1)
    assert await store.database.read(rows) == 0
