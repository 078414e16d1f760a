"""Resolutions and sources of confidences in both databases: kept, decided once, and read again by other processes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.store import Store
from service.store.rows import Label, PredictionBatch, Version
from tests.service.store.rows import batch
from trueodds.calibrators import Identity
from trueodds.sums.losses import rounded_losses
from trueodds.sums.rounding import Resolution, logits_of

CLASSES = ("a", "b", "c", "d")
ROUNDED = Version("m", "v1", CLASSES, Identity(), {}, is_observed=True)
P_NC = np.array([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.33, 0.33, 0.33, 0.0], [0.97, 0.01, 0.01, 0.0]])
IDS = ["i0", "i1", "i2", "i3"]
STEP = Resolution(0.01, "inferred")


def sent(version: Version = ROUNDED) -> PredictionBatch:
    z_NC = logits_of(P_NC, resolution="exact")
    rows = batch(len(P_NC), version, own=IDS)
    return replace(
        rows,
        logits_NC=(z_NC - z_NC.max(axis=1, keepdims=True)).astype(np.float32),
        probabilities_NC=P_NC,
        index_N=P_NC.argmax(axis=1),
        confidence_N=P_NC.max(axis=1),
        raw_confidence_N=P_NC.max(axis=1),
        confidence_sources=["native", None, "votes", "logprob"],
        label_masses=[None, None, None, 0.25],
    )


async def check_sums(store: Store, labels_N: np.ndarray) -> None:
    losses = rounded_losses(P_NC, labels_N, 0.01)
    sums = (await store.read_sums("m", "v1")).labelled
    np.testing.assert_allclose(sums.total("nll"), losses.nll_N.sum(), rtol=1e-6)
    np.testing.assert_allclose(sums.total("brier"), losses.brier_N.sum(), rtol=1e-5)
    np.testing.assert_allclose(sums.total("confidence"), STEP.confidence(P_NC.max(axis=1)).sum(), rtol=1e-9)
    bounds = await store.read_rounded_sums("m", "v1")
    np.testing.assert_allclose(bounds.total("nll"), losses.least_N.sum(), rtol=1e-6)
    zero_N = P_NC[np.arange(4), labels_N] == 0
    assert bounds.total("correct") == zero_N.sum() and bounds.n == 4
    np.testing.assert_allclose(bounds.total("brier"), losses.nll_N[zero_N].sum(), rtol=1e-6)
    block = await store.read_labels("m", "v1")
    np.testing.assert_allclose(block.nll_L, losses.nll_N, rtol=1e-6)


async def test_answers_and_labels_before_the_decision_are_read_again(store: Store) -> None:
    await store.put_version(ROUNDED)
    await store.put_observations([sent()], each=True)
    await store.put_labels([Label(id_, k) for id_, k in zip(IDS, (1, 0, 3, 0), strict=True)])
    assert (await store.read_rounded_sums("m", "v1")).total("correct") == 2
    await store.decide_resolution("m", "v1", STEP)
    (kept,) = await store.read_versions()
    assert kept.resolution == STEP
    for _ in range(2):
        await check_sums(store, np.array([1, 0, 3, 0]))
        await store.compact()
    await store.decide_resolution("m", "v1", Resolution(None))
    (kept,) = await store.read_versions()
    assert kept.resolution == STEP, "a version keeps its first resolution"
    await store.put_labels([Label(id_, k, correct=True) for id_, k in zip(IDS, (0, 2, 3, 3), strict=True)])
    await check_sums(store, np.array([0, 2, 3, 3]))


async def test_a_process_with_an_older_cache_scores_by_the_decided_step(store: Store) -> None:
    await store.put_version(ROUNDED)
    await store.put_observations([sent()], each=True)
    other = Store(store.database)
    await other.read_versions()
    await store.decide_resolution("m", "v1", STEP)
    await other.put_labels([Label(id_, k) for id_, k in zip(IDS, (1, 0, 3, 0), strict=True)])
    await check_sums(store, np.array([1, 0, 3, 0]))


async def test_resolution_source_and_logits_come_back(store: Store) -> None:
    decided = replace(ROUNDED, version="v2", resolution=Resolution(None))
    await store.put_version(replace(ROUNDED, resolution=Resolution(0.01)))
    await store.put_version(decided)
    assert [version.resolution for version in await store.read_versions()] == [Resolution(0.01), Resolution(None)]
    await store.put_observations([sent()], each=True)
    await store.put_labels([Label(id_, 0) for id_ in IDS])
    rows = [row async for block in store.export("m", "v1", logits=True) for row in block]
    assert {row.id: row.confidence_source for row in rows} == dict(
        zip(IDS, sent().confidence_sources or [], strict=True)
    )
    (block,) = [block async for block in store.read_labelled_logits("m", "v1")]
    expected_NC = logits_of(P_NC, resolution=0.01)
    np.testing.assert_allclose(block.logits_NC, expected_NC - expected_NC.max(axis=1, keepdims=True), atol=1e-5)


async def test_sums_by_source_are_those_of_the_rows(store: Store) -> None:
    await store.put_version(ROUNDED)
    await store.put_observations([sent()], each=True)
    await store.put_labels([Label("i0", 0), Label("i3", 2)])
    by_source = await store.read_sums_by_source("m", "v1")
    counts = {source: (sums.answers, sums.labelled.n) for source, sums in by_source.items()}
    assert counts == {"native": (1, 1), "": (1, 0), "votes": (1, 0), "logprob": (1, 1)}
    assert by_source["logprob"].labelled.total("correct") == 0
    whole = await store.read_sums("m", "v1")
    assert sum(sums.answers for sums in by_source.values()) == whole.answers
