"""Sums of a class and a tag together, counted from rows: those of the twin, or refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from service.store import Store
from service.store.rows import Label, PredictionBatch
from service.store.work.sums import class_and_tag
from tests.service.store.rows import CLASSES, HOUR, START, Twin, assert_same, batch, version
from trueodds.metrics import CELLS, cell_of
from trueodds.sums.answers import AnswerSums
from trueodds.sums.positive import PositiveClass

TAGS = ("", "t1", "t2")


async def filled(store: Store) -> Twin:
    """240 answers over five hours, half of them with ids of their own; labels, some of them corrected."""
    twin, rng = Twin(), np.random.default_rng(1)
    await store.put_version(version())
    for turn in range(20):
        tags = [TAGS[k] or None for k in rng.integers(0, 3, 12)]
        own = [f"own-{turn}-{k}" for k in range(12)] if turn % 2 else None
        answers = batch(12, now=START + turn * HOUR // 4, seed=turn, tags=tags, own=own)
        await store.put_predictions(answers)
        twin.add(answers)
        for _ in range(2):
            some = {answers.ids[int(k)]: int(rng.integers(0, 3)) for k in rng.integers(0, 12, 6)}
            await store.put_labels([Label(id_, label, correct=True) for id_, label in some.items()])
            twin.labels |= some
        if turn == 10:
            await store.compact()
    return twin


async def test_they_are_those_of_the_rows(store: Store) -> None:
    twin = await filled(store)
    windows = ((None, None), (START + HOUR, None), (None, START + 3 * HOUR), (START + HOUR, START + 2 * HOUR))
    for since, until in windows:
        for index, name in enumerate(CLASSES):
            for tag in TAGS:

                def chosen(a: PredictionBatch, k: int, index: int = index, tag: str = tag) -> bool:
                    inside = (since or 0) <= a.created_ms_N[k] < (until or 2**62)  # noqa: B023
                    return bool(inside and a.index_N[k] == index and (a.tags[k] or "") == tag)

                sums = await store.read_class_and_tag("m", "v1", name, tag, since, until)
                assert_same(sums.total(), twin.sums(chosen))
                points = sums.periods("hour", 5)
                assert sum(part.answers for _, part in points) == twin.sums(chosen).answers
                assert [ms % HOUR for ms, _ in points] == [0] * len(points)
    with pytest.raises(ValueError, match=r"periods of one minute; the limit is 2"):
        (await store.read_class_and_tag("m", "v1", "cat", "t1")).periods("minute", 2)
    assert (await store.read_class_and_tag("m", "v1", "cat", "nobody's")).total().answers == 0
    assert (await store.read_class_and_tag("m", "none", "cat", "t1")).total().answers == 0


async def test_by_the_probability_of_the_positive_class(store: Store) -> None:
    of = replace(version(classes=("malignant", "benign")), positive="malignant")
    await store.put_version(of)
    answers = batch(40, of, tags=["a", "b"] * 20)
    await store.put_predictions(answers)
    labels = {id_: k % 3 % 2 for k, id_ in enumerate(answers.ids[:30])}
    await store.put_labels([Label(id_, label) for id_, label in labels.items()])
    chosen_N = (answers.index_N == 1) & (np.arange(40) % 2 == 0)
    labelled_N = chosen_N & (np.arange(40) < 30)
    p_N, positive = answers.probabilities_NC[:, 0], PositiveClass("malignant", 0)
    is_positive_N = np.array([labels.get(id_) == 0 for id_ in answers.ids])
    wanted = AnswerSums(
        np.bincount(cell_of(p_N[chosen_N]), minlength=CELLS),
        positive.sums_of(p_N[labelled_N], is_positive_N[labelled_N]),
    )
    sums = await store.read_class_and_tag("m", "v1", "benign", "a")
    assert_same(sums.total(positive), wanted)
    assert sums.total().answers == wanted.answers > 0


async def test_never_a_part_of_them(store: Store) -> None:
    """What is not stored any more, or too much to read, is refused; a window without it is not."""
    twin = await filled(store)
    for name, most in (("MOST_ROWS", 20), ("MOST_SCANNED", 239)):
        with (
            mock.patch.object(class_and_tag, name, most),
            pytest.raises(ValueError, match=rf"has 240 answers, \d+ of that (class|tag); .* at most .*{most}"),
        ):
            await store.read_class_and_tag("m", "v1", "cat", "t1")
    await store.prune(START + HOUR)
    with pytest.raises(ValueError, match=r"only [\d,]+ and [\d,]+ are still stored \(retention"):
        await store.read_class_and_tag("m", "v1", "cat", "t1")
    sums = await store.read_class_and_tag("m", "v1", "cat", "t1", START + HOUR)
    assert 0 < sums.total().answers < len(twin.ids)
