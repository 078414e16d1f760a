"""Sums by level in both stores, against those of the rows that remain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.store import Store
from service.store.rows import Label, LabelBlock, LabelSelection, PredictionBatch, Version, Voiding
from tests.service.store.rows import HOUR, START, batch, lived, version
from trueodds.bundle.contents import shadow_of
from trueodds.metrics import OrderedSums
from trueodds.sums.ordered import at_least
from trueodds.sums.positive import PositiveClass

STARS = replace(version(classes=("1", "2", "3", "4")), ordered=True)


def expected(answers: PredictionBatch, labels: dict[str, int], chosen_N: np.ndarray) -> OrderedSums:
    """Of the rows themselves."""
    rows = [n for n, id_ in enumerate(answers.ids) if id_ in labels and chosen_N[n]]
    if not rows:
        return OrderedSums.zero(4)
    label_N = np.array([labels[answers.ids[n]] for n in rows])
    return OrderedSums.from_probabilities(answers.probabilities_NC[rows], label_N)


def assert_same(found: OrderedSums | None, wanted: OrderedSums) -> None:
    assert found is not None and found.levels == wanted.levels
    np.testing.assert_allclose(found.rows, wanted.rows, atol=1e-9)
    for one, other in zip(found.at_least, wanted.at_least, strict=True):
        np.testing.assert_allclose(one.cells, other.cells, atol=1e-9)
        np.testing.assert_allclose(one.fine, other.fine, atol=1e-9)  # type: ignore[attr-defined]


async def compare(store: Store, answers: PredictionBatch, labels: dict[str, int]) -> None:
    everything = np.ones(len(answers.ids), bool)
    assert_same(await store.read_ordered_sums("m", "v1"), expected(answers, labels, everything))
    first_N = answers.created_ms_N < START + HOUR
    assert_same(await store.read_ordered_sums("m", "v1", None, START + HOUR), expected(answers, labels, first_N))


async def test_labels_corrections_voiding_and_retention(store: Store, other: Store) -> None:
    await store.put_version(STARS)
    hours_N = np.random.default_rng(0).integers(0, 3, 60)
    answers = replace(batch(60, STARS), created_ms_N=START + HOUR * hours_N)
    await store.put_predictions(answers)
    assert_same(await store.read_ordered_sums("m", "v1"), OrderedSums.zero(4))
    async for reader, labels in lived(store, other, answers, 4):
        await compare(reader, answers, labels)
    (known,) = [one for one in await other.read_versions() if one.key == ("m", "v1")]
    assert known.ordered and known.classes == STARS.classes


@pytest.mark.parametrize("ordered", [False, True])
async def test_the_order_is_kept_with_the_version(store: Store, other: Store, ordered: bool) -> None:
    own = replace(STARS, ordered=ordered)
    await store.put_version(own)
    answers = batch(5, own)
    await store.put_predictions(answers)
    await store.put_labels([Label(id_, 2) for id_ in answers.ids])
    (known,) = await other.read_versions()
    assert known.ordered == ordered
    sums = await other.read_ordered_sums("m", "v1")
    assert (sums is not None) == ordered and (sums is None or sums.n == 5)
    assert await other.read_ordered_sums("m", "unknown") is None


async def test_two_levels_are_the_sums_of_the_upper_one(store: Store, other: Store) -> None:
    own: Version = replace(version(classes=("low", "high")), ordered=True, positive="high")
    await store.put_version(own)
    answers = batch(40, own)
    await store.put_predictions(answers)
    await store.put_labels([Label(id_, n % 2) for n, id_ in enumerate(answers.ids)])
    for compacted in (False, True):
        if compacted:
            await store.compact()
        sums = await other.read_ordered_sums("m", "v1")
        positive = (await other.read_sums("m", "v1", positive=True)).labelled
        assert sums is not None
        np.testing.assert_allclose(sums.at_least[0].cells, positive.cells, atol=1e-9)
        label_N = np.arange(40) % 2
        of_rows = PositiveClass("high", 1).sums(answers.probabilities_NC, label_N)
        np.testing.assert_allclose(sums.at_least[0].cells, of_rows.cells, atol=1e-9)


def taking_all(tree: Any, block: LabelBlock) -> Any:
    """A state of the first label and the levels' probabilities of each label that it took."""
    rows = zip(block.ids, block.first_label_L.tolist(), block.at_least_LK.tolist(), strict=True)
    return (tree or []) + [list(row) for row in rows]


async def test_a_state_gets_first_labels_and_levels(store: Store, other: Store) -> None:
    """After corrections, of rows in one call, and of a shadow; the levels only where the state asks."""
    shadow = replace(STARS, model=shadow_of("m"), version="v2")
    for of in (STARS, shadow):
        await store.put_version(of)
    answers = batch(30, STARS, own=[f"own-{n}" for n in range(30)])
    await store.put_predictions(answers)
    firsts = {id_: (int(k) + n % 3) % 4 for n, (id_, k) in enumerate(zip(answers.ids, answers.index_N, strict=True))}
    first = [Label(id_, label, model="m") for id_, label in firsts.items()]
    twice = Label("own-0", (firsts["own-0"] + 1) % 4, correct=True, model="m")
    await store.put_each_label([*first, twice])
    for steps in (1, 2):
        again = [Label(f"own-{n}", (firsts[f"own-{n}"] + steps) % 4, correct=True, model="m") for n in range(1, 9)]
        await other.put_labels(again, f"again-{steps}")
    later = replace(batch(30, shadow, own=answers.ids), created_ms_N=answers.created_ms_N)
    await other.put_predictions(later)
    expected = at_least(answers.probabilities_NC)
    for of, levels_NK in ((STARS, expected), (shadow, at_least(later.probabilities_NC))):
        taken = await store.update_state(*of.key, "all", taking_all, limit=7, needs_levels=lambda tree: True)
        assert {id_: first for id_, first, _ in taken} == firsts, of.model
        found = {id_: row for id_, _, row in taken}
        np.testing.assert_allclose([found[id_] for id_ in answers.ids], levels_NK, atol=1e-6)
    needs = [tree for tree in (await store.update_state("m", "v1", "none", taking_all)) if tree[2]]
    assert not needs
    void = Voiding(LabelSelection(import_id="again-2"), START, "Ada", "wrong file")
    await store.void_labels(void, {"all": lambda tree, first: None})
    log = await other.read_labels("m", "v1")
    assert dict(zip(log.ids, log.first_label_L.tolist(), strict=True)) == firsts


async def test_voiding_restarts_evidence_where_another_wrong_level_comes_first(store: Store) -> None:
    """Classes without an order need no restart: their evidence depends on right and wrong only."""
    for of in (STARS, replace(STARS, model="plain", ordered=False)):
        await store.put_version(of)
        answers = batch(6, of)
        await store.put_predictions(answers)
        index = answers.index_N.tolist()
        await store.put_labels([Label(id_, index[n]) for n, id_ in enumerate(answers.ids) if n != 4])
        await store.put_labels([Label(answers.ids[4], (index[4] + 1) % 4)], f"wrong file of {of.model}")
        await store.put_labels([Label(answers.ids[4], (index[4] + 2) % 4, correct=True)])
        await store.update_state(of.model, "v1", "all", taking_all)
        firsts = list[int]()

        def restart(tree: Any, first: int, firsts: list[int] = firsts) -> tuple[Any, int]:
            firsts.append(first)
            return [], 0

        void = Voiding(LabelSelection(import_id=f"wrong file of {of.model}"), START, "Ada", "another day")
        counts, _ = await store.void_labels(void, {"all": restart})
        assert counts[of.key].kept == 1
        log = await store.read_labels(of.model, "v1")
        assert log.first_label_L[5] == (index[4] + 2) % 4
        assert firsts == ([6] if of.ordered else [])
