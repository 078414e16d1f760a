"""Answers of other servers in both databases: versions of one origin, conflicts, shadows that come first, pairs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from service.store import Store
from service.store.rows import ConflictsError, Label, OtherOriginError, PredictionBatch, Version
from tests.service.store.rows import CLASSES, START, batch, version
from trueodds.bundle.contents import shadow_of
from trueodds.calibrators import Identity

OBSERVED = Version("m", "v1", CLASSES, Identity(), {}, is_observed=True)
SHADOW = replace(OBSERVED, model=shadow_of("m"), version="v2")
ONLY_CONFIDENCE = replace(OBSERVED, version="v3", has_logits=False)


def without_logits(answers: PredictionBatch) -> PredictionBatch:
    none_NC = np.empty((len(answers.ids), 0))
    return replace(answers, logits_NC=none_NC.astype(np.float32), probabilities_NC=none_NC)


async def test_a_version_is_of_one_origin_and_comes_back_as_it_was(store: Store) -> None:
    await store.put_version(OBSERVED)
    await store.put_version(ONLY_CONFIDENCE)
    assert await store.read_versions() == [OBSERVED, ONLY_CONFIDENCE]
    with pytest.raises(OtherOriginError, match="the store has another server's answers under m/v1"):
        await store.put_version(version())
    await store.put_version(version("own"))
    with pytest.raises(OtherOriginError, match="the store has answers of this service under m/own"):
        await store.put_version(replace(OBSERVED, version="own"))


async def test_all_or_none_across_versions(store: Store) -> None:
    for one in (OBSERVED, SHADOW):
        await store.put_version(one)
    first = batch(2, OBSERVED, own=["a", "b"])
    assert await store.put_observations([first], each=False) == [[None, None]]
    calls = [batch(1, SHADOW, own=["c"]), batch(2, OBSERVED, own=["d", "b"], digest=b"another 16 bytes")]
    with pytest.raises(ConflictsError) as refused:
        await store.put_observations(calls, each=False)
    ((_,), (new, known)) = refused.value.outcomes
    assert new is None and known is not None and known.logits is None and known.version == "v1"
    assert set(await store.read_answers("m", ["a", "b", "c", "d"])) == {"a", "b"}
    assert (await store.read_sums(SHADOW.model, "v2")).answers == 0
    outcomes = await store.put_observations(calls, each=True)
    assert [row is None for row in outcomes[1]] == [True, False]
    assert (await store.read_sums(SHADOW.model, "v2")).answers == 1


async def test_of_confidences_alone_scores_are_unknown_through_corrections_and_compaction(store: Store) -> None:
    await store.put_version(ONLY_CONFIDENCE)
    ids = [f"i{k}" for k in range(20)]
    await store.put_observations([without_logits(batch(20, ONLY_CONFIDENCE, own=ids))], each=True)
    await store.put_labels([Label(id_, 0) for id_ in ids])
    await store.put_labels([Label(id_, 1, correct=True) for id_ in ids[:5]])
    for _ in range(2):
        sums = (await store.read_sums("m", "v3")).labelled
        assert sums.n == 20 and not sums.has("nll")
        await store.compact()
    block = await store.read_labels("m", "v3")
    assert np.isnan(block.nll_L).all() and np.isnan(block.brier_L).all()
    assert block.label_L[:5].tolist() == [1] * 5


@pytest.mark.parametrize("same_classes", [True, False])
async def test_a_shadow_that_comes_first_gets_the_label_that_came_before(store: Store, same_classes: bool) -> None:
    """Unless its classes are in another order: the label's index would be another class."""
    shadow = SHADOW if same_classes else replace(SHADOW, classes=CLASSES[::-1])
    for one in (OBSERVED, shadow):
        await store.put_version(one)
    await store.put_labels([Label("a", 2, model="m")])
    await store.put_observations([batch(1, shadow, own=["a"])], each=True)
    await store.put_observations([batch(1, OBSERVED, own=["a"], seed=3)], each=True)
    assert (await store.read_sums("m", "v1")).labelled.n == 1
    assert (await store.read_sums(shadow.model, "v2")).labelled.n == int(same_classes)
    await store.put_labels([Label("b", 1, model="m")])
    for answers in (batch(1, OBSERVED, own=["b"], seed=3), batch(1, shadow, own=["b"])):
        await store.put_observations([answers], each=True)
    assert (await store.read_sums("m", "v1")).labelled.n == 2
    assert (await store.read_sums(shadow.model, "v2")).labelled.n == 2 * same_classes


async def test_shadow_and_answer_at_once_both_get_the_held_label(store: Store) -> None:
    for one in (OBSERVED, SHADOW):
        await store.put_version(one)
    ids = [f"i{k}" for k in range(40)]
    await store.put_labels([Label(id_, 2, model="m") for id_ in ids])
    work = [store.put_observations([batch(1, one, own=[id_])], each=True) for id_ in ids for one in (OBSERVED, SHADOW)]
    await asyncio.gather(*work)
    for one in (OBSERVED, SHADOW):
        assert (await store.read_sums(one.model, one.version)).labelled.n == 40


async def test_times_of_their_own(store: Store) -> None:
    await store.put_version(OBSERVED)
    answers = batch(3, OBSERVED, own=["a", "b", "c"])
    times = np.array([START, START + 7_200_000, START + 86_400_000])
    await store.put_observations([replace(answers, created_ms_N=times)], each=True)
    stored = await store.read_answers("m", ["a", "b", "c"])
    assert [stored[id_].created_ms for id_ in "abc"] == times.tolist()
    assert (await store.read_sums("m", "v1", START + 3_600_000)).answers == 2


async def test_halves_find_each_other_and_wait_no_longer_than_they_should(store: Store) -> None:
    assert await store.put_half("m", "1", "request", b"ids") is None
    assert await store.put_half("m", "1", "response", b"answer") == b"ids"
    await store.remove_pair("m", "1")
    halves = await asyncio.gather(
        *(store.put_half("m", str(k), half, half.encode()) for k in range(2, 30) for half in ("response", "request"))
    )
    assert len([other for other in halves if other is not None]) == 28, "one of each two sees the other"
    await asyncio.gather(*(store.remove_pair("m", str(k)) for k in range(2, 30)))
    await store.put_half("m", "40", "request", b"")
    await store.put_half("m", "41", "response", b"")
    await store.put_half("m", "42", "response", b"")
    assert await store.drop_halves(0) == (0, 0)
    assert await store.drop_halves(2**62) == (1, 2)
    assert await store.drop_halves(2**62) == (0, 0)
