"""Rows for the stores, and what their sums must be, from scratch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from service.ids import new_ids
from service.store import Store
from service.store.rows import Label, LabelSelection, PredictionBatch, Version, Voiding
from service.store.work.statements import Query, Work
from service.store.work.voiding import Restart
from trueodds.calibrators import Temperature
from trueodds.metrics import CELLS, CalibrationSums, cell_of, softmax
from trueodds.sums.answers import AnswerSums

CLASSES = ("cat", "dog", "café")  # composed é
HOUR = 3_600_000
START = 1_699_900_000_000 - 1_699_900_000_000 % HOUR
"""A whole hour of November 2023."""


def version(name: str = "v1", model: str = "m", classes: tuple[str, ...] = CLASSES, heat: float = 1.7) -> Version:
    return Version(model, name, classes, Temperature(heat), {"after": {"ece": 0.1}})


def batch(
    count: int,
    of: Version | None = None,
    *,
    now: int = START,
    seed: int = 0,
    own: Iterable[str] | None = None,
    digest: bytes = b"0123456789abcdef",
    tags: Iterable[str | None] | None = None,
) -> PredictionBatch:
    """Answers to `count` random rows; with `own`, under ids of the caller."""
    of = of or version()
    logits_NC = np.random.default_rng(seed).normal(0, 3, (count, len(of.classes))).astype(np.float32)
    logits_NC -= logits_NC.max(axis=1, keepdims=True)
    probabilities_NC = of.calibrator(logits_NC)
    index_N, row_N = probabilities_NC.argmax(axis=1), np.arange(count)
    return PredictionBatch(
        model=of.model,
        version=of.version,
        created_ms_N=np.full(count, now),
        ids=new_ids(count, now) if own is None else list(own),
        request_ids=["request"] * count,
        logits_NC=logits_NC,
        probabilities_NC=probabilities_NC,
        index_N=index_N,
        raw_confidence_N=softmax(logits_NC.astype(np.float64))[row_N, index_N],
        confidence_N=probabilities_NC[row_N, index_N],
        digests=[None if own is None else digest] * count,
        tags=[None] * count if tags is None else list(tags),
        propensities=[None if k % 2 else 0.5 for k in range(count)],
    )


@dataclass
class Twin:
    """What a store must hold, kept the slow and obvious way."""

    rows: list[tuple[PredictionBatch, int]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def add(self, answers: PredictionBatch) -> None:
        self.rows += [(answers, k) for k in range(len(answers.ids))]

    @property
    def ids(self) -> list[str]:
        return [answers.ids[k] for answers, k in self.rows]

    def sums(self, chosen: Callable[[PredictionBatch, int], bool] = lambda *_: True) -> AnswerSums:
        rows = [(answers, k) for answers, k in self.rows if chosen(answers, k)]
        labelled_rows = [(answers, k) for answers, k in rows if answers.ids[k] in self.labels]
        cells = cell_of(np.array([answers.confidence_N[k] for answers, k in rows]))
        labelled = CalibrationSums.zero()
        if labelled_rows:
            labelled = CalibrationSums.from_probabilities(
                np.array([answers.probabilities_NC[k] for answers, k in labelled_rows]),
                np.array([self.labels[answers.ids[k]] for answers, k in labelled_rows]),
            )
        return AnswerSums(np.bincount(cells, minlength=CELLS), labelled)


def assert_same(actual: AnswerSums, expected: AnswerSums, cells: int = CELLS) -> None:
    """Counts exactly, sums to rounding, on `cells` equal cells; empty cells hold exact zeros."""
    for sums in (actual, expected):
        assert (sums.labelled.cells[:, sums.labelled.cells[0] == 0] == 0).all()
    grouped = [sums.answers_C.reshape(cells, -1).sum(axis=1) for sums in (actual, expected)]
    assert (grouped[0] == grouped[1]).all()
    table, wanted = (sums.labelled.cells.reshape(7, cells, -1).sum(axis=2) for sums in (actual, expected))
    assert (table[[0, 2]] == wanted[[0, 2]]).all()
    np.testing.assert_allclose(table, wanted, rtol=1e-11, atol=1e-11)


async def lived(
    store: Store, other: Store, answers: PredictionBatch, classes: int
) -> AsyncIterator[tuple[Store, dict[str, int]]]:
    """Labels, corrections, voidings and retention. After each of them: where to read, and the labels that remain."""
    labels = dict(zip(answers.ids[:50], np.random.default_rng(1).integers(0, classes, 50).tolist(), strict=True))
    await store.put_labels([Label(id_, label) for id_, label in labels.items()], "first")
    await store.compact()
    corrected = {id_: (labels[id_] + 1) % classes for id_ in answers.ids[:12]}
    await other.put_labels([Label(id_, now, correct=True) for id_, now in corrected.items()], "second")
    await other.put_labels([Label(id_, 0) for id_ in answers.ids[50:55]], "third")
    yield store, labels | corrected | dict.fromkeys(answers.ids[50:55], 0)
    await store.update_state("m", "v1", "log", lambda tree, block: tree)
    void = Voiding(LabelSelection(import_id="second"), START, "Ada", "wrong file")
    restart: Restart = {"log": lambda tree, first: ([], 0)}
    await store.void_labels(void, restart)
    await store.void_labels(replace(void, selection=LabelSelection(import_id="third")), restart)
    yield other, labels
    await store.compact()
    await store.prune(START + 10 * HOUR)
    yield store, labels


def count(table: str) -> Work[int]:
    """Work that counts the rows of a table."""
    ((number,),) = yield Query(f"SELECT count(*) FROM {table}")
    return int(number)
