"""Sums by p(positive) in both stores, against those of the rows that remain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from service.store import Store
from service.store.rows import Label, PredictionBatch, Version
from tests.service.store.rows import HOUR, START, assert_same, batch, lived, version
from trueodds.calibrators import Identity
from trueodds.metrics import CELLS, cell_of
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import COARSE_CELLS
from trueodds.sums.positive import PositiveClass

CLASSES = ("malignant", "benign")
BINARY = replace(version(classes=CLASSES), positive="malignant")
POSITIVE = PositiveClass("malignant", 0)


def expected(answers: PredictionBatch, labels: dict[str, int], chosen_N: np.ndarray) -> AnswerSums:
    """Of the rows themselves, p(positive) taken from their probabilities."""
    p_N = answers.probabilities_NC[:, 0]
    labelled_N = chosen_N & np.array([id_ in labels for id_ in answers.ids])
    is_positive_N = np.array([labels.get(id_) == 0 for id_ in answers.ids])
    answers_C = np.bincount(cell_of(p_N[chosen_N]), minlength=CELLS)
    return AnswerSums(answers_C, POSITIVE.sums_of(p_N[labelled_N], is_positive_N[labelled_N]))


async def test_labels_corrections_voiding_and_retention(store: Store, other: Store) -> None:
    await store.put_version(BINARY)
    draw = np.random.default_rng(0)
    tags = [None if tag == "z" else tag for tag in draw.choice(list("xyz"), 60).tolist()]
    answers = batch(60, BINARY, tags=tags)
    answers = replace(answers, created_ms_N=START + HOUR * draw.integers(0, 3, 60))
    await store.put_predictions(answers)
    async for reader, labels in lived(store, other, answers, 2):
        await compare(reader, answers, labels)
    await store.put_version(version("plain"))
    await store.put_predictions(batch(3, version("plain")))
    assert (await store.read_sums("m", "plain", positive=True)).answers == 0


async def compare(store: Store, answers: PredictionBatch, labels: dict[str, int]) -> None:
    """All of them, an hour, a predicted class and a tag."""
    everything = np.ones(len(answers.ids), bool)
    assert_same(await store.read_sums("m", "v1", positive=True), expected(answers, labels, everything))
    hour_N = answers.created_ms_N == START + HOUR
    window = START + HOUR, START + 2 * HOUR
    assert_same(await store.read_sums("m", "v1", *window, positive=True), expected(answers, labels, hour_N))
    by_class = await store.read_sums_by("class", "m", "v1", positive=True)
    for name, sums in by_class.items():
        chosen_N = answers.index_N == CLASSES.index(name)
        assert_same(sums, expected(answers, labels, chosen_N), COARSE_CELLS)
    of_tag = await store.read_sums_by("tag", "m", "v1", *window, only="x", positive=True)
    tagged_N = np.array([tag == "x" for tag in answers.tags])
    assert_same(of_tag["x"], expected(answers, labels, hour_N & tagged_N), COARSE_CELLS)


@pytest.mark.parametrize("has_logits", [True, False])
async def test_round_probabilities_of_another_server(store: Store, has_logits: bool) -> None:
    """Edges of bins among them, which 1 - confidence would put into the bin above; and a threshold of its own."""
    of = Version("m", "v1", CLASSES, Identity(), {}, is_observed=True, has_logits=has_logits, positive="malignant")
    await store.put_version(of)
    p_N = np.arange(101) / 100
    probabilities_NC = np.column_stack([p_N, 1 - p_N])
    with np.errstate(divide="ignore"):
        logits_NC = np.log(np.maximum(probabilities_NC, 1e-300))
    logits_NC = (logits_NC - logits_NC.max(axis=1, keepdims=True)).astype(np.float32)
    index_N = (p_N < (0.5 if has_logits else 0.3)).astype(np.intp)
    answers = replace(
        batch(101, of, own=[f"a{k}" for k in range(101)]),
        logits_NC=logits_NC if has_logits else np.empty((101, 0), np.float32),
        probabilities_NC=probabilities_NC,
        index_N=index_N,
        confidence_N=probabilities_NC[np.arange(101), index_N],
    )
    await store.put_observations([answers], each=False)
    labels = {id_: k % 3 % 2 for k, id_ in enumerate(answers.ids) if 0 < k < 100}
    await store.put_labels([Label(id_, label) for id_, label in labels.items()])
    sums = await store.read_sums("m", "v1", positive=True)
    wanted = expected(answers, labels, np.ones(101, bool))
    assert (sums.answers_C == wanted.answers_C).all()
    np.testing.assert_allclose(sums.labelled.cells, wanted.labelled.cells, rtol=1e-6, atol=1e-9)
