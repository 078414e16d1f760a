"""Calls of a model and their results."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from service.errors import ServiceError
from service.models.acting import Acting, acting_of
from service.models.model import of_logits
from service.store.rows import EarlierPrediction, PredictionBatch, Version
from trueodds.inputs import InputKind, Inputs
from trueodds.texts import short

MOST_LISTED = 20
"""Largest number of conflicting ids that an error lists."""
Versions = Callable[[str], Awaitable[Version]]


@dataclass(slots=True)
class PredictionCall:
    """Inputs of one call with the caller's details. Each list has one entry per input."""

    inputs: Inputs
    request_id: str
    ids: list[str] | None = None
    """Ids of the caller's own."""
    tags: list[str | None] | None = None
    propensities: list[float | None] | None = None
    columns: Mapping[str, str] | None = None
    """Columns of CSV or names in JSON that are spelled differently from the model's features, by feature name."""

    def __len__(self) -> int:
        return len(self.inputs)

    def digests(self, kind: InputKind) -> list[bytes | None]:
        """Return digests that identify the inputs, for callers' own ids."""
        if self.ids is None:
            return [None] * len(self)
        return [hashlib.blake2b(kind.encode(row), digest_size=16).digest() for row in self.inputs]


@dataclass
class PredictionResult:
    """Stored answers to one call."""

    version: Version
    ids: list[str]
    logits_NC: npt.NDArray[np.float32]
    """Logits, each row minus its maximum."""
    probabilities_NC: npt.NDArray[np.float64]
    index_N: npt.NDArray[np.intp]
    tags: list[str | None]
    propensities: list[float | None]
    repeats: dict[int, Version] = field(default_factory=dict)
    """Rows whose id was answered before: they hold the stored answers, of these versions."""

    def __len__(self) -> int:
        return len(self.ids)

    def classes(self, row: int) -> tuple[str, ...]:
        """Return the classes of a row's index and probabilities."""
        return self.version_of(row).classes

    def version_of(self, row: int) -> Version:
        """Return the version that gave a row's answer."""
        return self.repeats.get(row, self.version)

    @property
    def has_groups(self) -> bool:
        """Whether the calibrator of some answer reads the tags."""
        if not self.repeats:
            return bool(self.version.calibrator.known_groups)
        return any(version.calibrator.known_groups for version in (self.version, *self.repeats.values()))

    @property
    def groups(self) -> list[str | None]:
        """Tags whose calibration the rows have; None for that of all rows."""
        groups = self.version.calibrator.groups_of(self.tags)
        for row, version in self.repeats.items():
            (groups[row],) = version.calibrator.groups_of([self.tags[row]])
        return groups


def split(batch: PredictionBatch, version: Version, sizes: list[int]) -> list[PredictionResult]:
    """Split a batch into one result per call. `sizes` has the numbers of rows of the calls, in order."""
    results, start = [], 0
    for size in sizes:
        rows = slice(start, start + size)
        columns = (batch.logits_NC[rows], batch.probabilities_NC[rows], batch.index_N[rows])
        beside = batch.tags[rows], batch.propensities[rows]
        results.append(PredictionResult(version, batch.ids[rows], *columns, *beside))
        start += size
    return results


async def repeat(
    result: PredictionResult, earlier: list[EarlierPrediction | None], versions: Versions
) -> PredictionResult | ServiceError:
    """Return the result with earlier stored answers in place of new ones, or an error if inputs differ."""
    if conflicts := [result.ids[row] for row, known in enumerate(earlier) if known and known.logits is None]:
        shown = ", ".join(short(id_) for id_ in conflicts[:MOST_LISTED])
        message = (
            f"the id {shown} was used for another input; send the same input to get its stored answer, or a new id"
        )
        return ServiceError(409, "conflicting_input", message, details={"ids": conflicts[:MOST_LISTED]})
    # An earlier version may have other classes, and so rows of another length.
    logits, probabilities, index = list(result.logits_NC), list(result.probabilities_NC), result.index_N.copy()
    for row, known in enumerate(earlier):
        if known and known.logits is not None:
            version = await versions(known.version)
            logits_1C = np.frombuffer(known.logits, "<f4").reshape(1, len(version.classes))
            scores = of_logits(version.calibrator, logits_1C, [known.tag])
            logits[row], probabilities[row], index[row] = (
                scores.logits_NC[0],
                scores.probabilities_NC[0],
                scores.index_N[0],
            )
            result.repeats[row] = version
            result.tags[row], result.propensities[row] = known.tag, known.propensity
    if len({len(row) for row in logits}) > 1:
        message = "these ids were answered by versions with other classes; request them in separate calls"
        return ServiceError(409, "conflicting_versions", message)
    return replace(result, logits_NC=np.stack(logits), probabilities_NC=np.stack(probabilities), index_N=index)


def acting_rows(result: PredictionResult, share: float) -> list[Acting]:
    """Return the decision on each row; empty for rows of a version without a promise.

    `share` is the audited share of the acting answers.
    """
    rows: list[Acting] = []
    for n, (id_, i) in enumerate(zip(result.ids, result.index_N.tolist(), strict=True)):
        promise, confidence = result.version_of(n).act_alone, float(result.probabilities_NC[n, i])
        stored = result.tags[n], result.propensities[n]
        rows.append({} if promise is None else acting_of(promise, share, id_, confidence, *stored))
    return rows
