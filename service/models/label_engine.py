"""Engine of a model of independent labels. It stores each label as a yes/no question of the model, under one id.

The question of the label rain of the model tagger is `tagger-rain`. Its answers are those of a model with the classes
false and true, so its labels, report, alarm and metrics are those of every such model.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.errors import ServiceError
from service.ids import new_ids
from service.models.calls import MOST_LISTED, PredictionCall
from service.models.engine import Engine, Find, QueuedEngine
from service.models.model import Model, RunnableModel, of_logits
from service.store import RowsError, Store
from service.store.decision_rows import DecisionRow, QuestionDecisions, QuestionVersion
from service.store.rows import ConflictsError, EarlierPrediction, PredictionBatch, Version
from service.telemetry.metrics import Telemetry
from trueodds.bundle import BundleError, LabelBundle
from trueodds.bundle.stored_bundle import read_card
from trueodds.inputs.decisions import model_name
from trueodds.inputs.decisions.questions import BINARY, POSITIVE
from trueodds.texts import quotes, short

PREDICATE = "predicate"
"""Type of a question that is answered with yes or no."""
OWN_WORDING = "label"
"""Wording of the questions of models that this service runs. Those of other servers have a hash."""

REFUSED = (
    "{model} has independent labels, and this call is about one question; name one of its questions as the model"
    " ({questions}), or use POST /predict and GET /multi-label-report"
)
"""Message of a route that answers about exclusive classes."""


class LabelModel(RunnableModel[LabelBundle]):
    """Model of independent labels."""

    @classmethod
    def _read(cls, directory: Path) -> LabelBundle:
        return LabelBundle.load(directory)

    def questions(self) -> list[QuestionVersion]:
        """Return the question of each label, in the order of the labels."""
        name, version = self.bundle.card.name, self.bundle.version
        asked = [f"{name}-{label}" for label in self.bundle.card.classes]
        return [
            QuestionVersion(model_name(one), version, one, PREDICATE, name, OWN_WORDING, is_ordered=False)
            for one in asked
        ]

    def versions(self) -> list[Version]:
        """Return the version of each label: a binary model with the label's curve as its calibrator."""
        return [
            Version(question.model, question.version, BINARY, curve, metrics={}, positive=POSITIVE)
            for question, curve in zip(self.questions(), self.bundle.binary_calibrators(), strict=True)
        ]


def load_model(directory: Path, threads: int, **options: Any) -> Model | LabelModel:
    """Load a bundle of either kind. Options and errors are those of `RunnableModel.load`."""
    if read_card(directory, str(directory)).card.multilabel:
        return LabelModel.load(directory, threads, **options)
    return Model.load(directory, threads, **options)


class LabelScores(NamedTuple):
    """Answers of several calls, one batch for each label."""

    batches: list[PredictionBatch]
    calls: list[PredictionCall]


@dataclass
class LabelResult:
    """Stored answers to one call."""

    ids: list[str]
    probabilities_NL: npt.NDArray[np.float64]
    """Probability that each label is true."""
    repeats: dict[int, dict[int, str]] = field(default_factory=dict)
    """Rows whose id was answered before: the version of each stored answer, by the label's place.

    Labels that are missing there had no answer yet: a later version has added them.
    """


class LabelEngine(QueuedEngine[LabelScores, LabelResult]):
    """Engine of a model of independent labels."""

    def __init__(
        self,
        model: LabelModel,
        store: Store,
        telemetry: Telemetry,
        find: Find,
        *,
        max_batch: int,
        max_waiting: int,
        alpha: float,
    ) -> None:
        """Make an engine. `alpha` is the significance level of the tests that the store makes of questions."""
        super().__init__(model, store, telemetry, find, max_batch=max_batch, max_waiting=max_waiting)
        self._model, self._alpha = model, alpha
        self.questions = model.questions()
        self.versions = model.versions()

    async def _add_versions(self) -> None:
        """Add a version for each label.

        Raises:
            BundleError: Two labels have the same question, or a question has the name of a model with other classes.
        """
        names = [version.model for version in self.versions]
        others = {known.model: known.classes for known in await self._store.read_versions() if known.classes != BINARY}
        if taken := next((name for name in names if name in others or names.count(name) > 1), None):
            other = f"a model with the classes {quotes(others[taken])}" if taken in others else "two labels"
            raise BundleError(f"{taken} is the name of {other}; import this model under another name (--name)")
        for version in self.versions:
            await self._store.put_version(version)

    def _score(self, calls: list[PredictionCall], alone: bool) -> LabelScores:
        inputs = self.input.join([call.inputs for call in calls])
        now, began = time.time_ns() // 1_000_000, time.perf_counter()
        z_NL = self._model.finite_logits(inputs, alone=alone)
        scores = [of_logits(version.calibrator, _two(z_NL[:, k])) for k, version in enumerate(self.versions)]
        self._telemetry.count_model_batch(time.perf_counter() - began)
        shared: dict[str, Any] = {
            "created_ms_N": np.full(len(inputs), now),
            "ids": [id_ for call in calls for id_ in call.ids or new_ids(len(call), now)],
            "request_ids": [call.request_id for call in calls for _ in range(len(call))],
            "digests": [digest for call in calls for digest in call.digests(self.input)],
            "tags": [tag for call in calls for tag in call.tags or [None] * len(call)],
            "propensities": [share for call in calls for share in call.propensities or [None] * len(call)],
        }
        batches = [
            PredictionBatch(model=version.model, version=version.version, **shared, **vars(one))
            for version, one in zip(self.versions, scores, strict=True)
        ]
        return LabelScores(batches, calls)

    async def _store_and_answer(self, work: LabelScores) -> list[LabelResult | BaseException]:
        try:
            return await self._store_calls(work)
        except (RowsError, ConflictsError) as error:  # concerns one request; the others are stored by themselves
            if len(work.calls) == 1:
                raise _refusal(error, work.batches[0].ids) from None
        results: list[LabelResult | BaseException] = []
        for call, rows in zip(work.calls, _slices(work.calls), strict=True):
            try:
                results += await self._store_calls(LabelScores([batch.rows(rows) for batch in work.batches], [call]))
            except (RowsError, ConflictsError) as error:
                results.append(_refusal(error, work.batches[0].ids[rows]))
        return results

    async def _store_calls(self, work: LabelScores) -> list[LabelResult | BaseException]:
        """Store all answers of calls, or none: an input's labels are never those of two inputs.

        Raises:
            ConflictsError: An id was used for another input.
        """
        ids, created = work.batches[0].ids, work.batches[0].created_ms_N.tolist()
        rows = [DecisionRow(id_, created_ms) for id_, created_ms in zip(ids, created, strict=True)]
        asked = [QuestionDecisions(question, rows) for question in self.questions]
        earlier = await self._store.put_decisions(work.batches, asked, self._alpha, each=False)
        new = sum(all(known is None for known in of_row) for of_row in zip(*earlier, strict=True))
        waiting = sum(batcher.waiting for batcher in self._batchers)
        self._telemetry.batch(len(ids), new_predictions=new, waiting=waiting)
        p_NL = np.stack([batch.probabilities_NC[:, 1] for batch in work.batches], axis=1)
        results: list[LabelResult | BaseException] = []
        for part in _slices(work.calls):
            try:
                results.append(await self._with_earlier(ids[part], p_NL[part], [known[part] for known in earlier]))
            except Exception as error:  # concerns this request only; the answers of all are stored
                results.append(error)
        return results

    async def _with_earlier(
        self, ids: list[str], p_NL: npt.NDArray[np.float64], earlier: Sequence[Sequence[EarlierPrediction | None]]
    ) -> LabelResult:
        """Return a result with the stored answers in place of those to a repeated id."""
        result = LabelResult(ids, p_NL.copy())
        for label, of_label in enumerate(earlier):
            for row, known in enumerate(of_label):
                if known is None or known.logits is None:
                    continue
                version = await self._find(self.versions[label].model, known.version)
                logits_12 = np.frombuffer(known.logits, "<f4").reshape(1, 2)
                result.probabilities_NL[row, label] = of_logits(version.calibrator, logits_12).probabilities_NC[0, 1]
                result.repeats.setdefault(row, {})[label] = known.version
        return result


AnyEngine = Engine | LabelEngine


def _two(z_N: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the logits (0, z) of false and true, each row minus its maximum, so that their difference stays exact."""
    zeros_N = np.zeros_like(z_N)
    return np.stack([np.minimum(-z_N, zeros_N), np.minimum(z_N, zeros_N)], axis=1)


def _refusal(error: RowsError | ConflictsError, ids: Sequence[str]) -> RowsError | ServiceError:
    """Return the error of a call of which nothing is stored: 409 if an id was used for another input."""
    if isinstance(error, RowsError):
        return error
    outcomes = ((id_, known) for of_label in error.outcomes for id_, known in zip(ids, of_label, strict=True))
    used = dict.fromkeys(id_ for id_, known in outcomes if known is not None and known.logits is None)
    listed = [*used][:MOST_LISTED]
    message = f"the id {', '.join(map(short, listed))} was used for another input; send the same input to get its"
    return ServiceError(409, "conflicting_input", f"{message} stored answer, or a new id", details={"ids": listed})


def _slices(calls: Sequence[PredictionCall]) -> list[slice]:
    """Return the rows of each call in its batch."""
    ends = np.cumsum([0, *map(len, calls)]).tolist()
    return [slice(first, end) for first, end in pairwise(ends)]
