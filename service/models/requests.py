"""What is asked of a model and what it answered, request by request."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from service.errors import ServiceError, short
from service.models.model import Scores, of_logits
from service.store.records import EarlierAnswer, PredictionBatch, Version
from trueodds.inputs.pictures import Pixels

SHOWN = 20
"""Conflicting ids that an error lists."""
Versions = Callable[[str], Awaitable[Version]]


@dataclass(frozen=True)
class Asked:
    """The images of one request, and what its caller says about them; a list has an entry for every image."""

    images_NHWC: Pixels
    request_id: str
    ids: list[str] | None = None
    """The caller's own."""
    tags: list[str | None] | None = None
    propensities: list[float | None] | None = None

    def __len__(self) -> int:
        return len(self.images_NHWC)

    def digests(self) -> list[bytes | None]:
        """What tells the same input from another, for ids of the caller's own."""
        if self.ids is None:
            return [None] * len(self)
        return [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in self.images_NHWC]


def images_of(asked: list[Asked]) -> Pixels:
    """The images of all requests, one after the other.

    As bytes: `np.concatenate` gives the interpreter's lock back for every request's pixels, and each time it may wait
    for the event loop to let go of it again.
    """
    if len(asked) == 1:
        return asked[0].images_NHWC
    pixels = b"".join(np.ascontiguousarray(a.images_NHWC).data for a in asked)
    return np.frombuffer(pixels, np.uint8).reshape(-1, *asked[0].images_NHWC.shape[1:])


@dataclass
class Answers:
    """The stored answers to one request."""

    version: Version
    ids: list[str]
    logits_NC: npt.NDArray[np.float32]
    """Each row minus its maximum."""
    probabilities_NC: npt.NDArray[np.float64]
    index_N: npt.NDArray[np.intp]
    repeated: dict[int, Version] = field(default_factory=dict)
    """Rows whose id was known already: they are the stored answers, of these versions."""

    def __len__(self) -> int:
        return len(self.ids)

    def classes(self, row: int) -> tuple[str, ...]:
        """The classes that row's index and probabilities are of."""
        return self.repeated.get(row, self.version).classes


def split(batch: PredictionBatch, version: Version, sizes: list[int]) -> list[Answers]:
    """One `Answers` for each of the requests of these sizes, whose rows follow each other in the batch."""
    found, start = [], 0
    for size in sizes:
        rows = slice(start, start + size)
        columns = (batch.logits_NC[rows], batch.probabilities_NC[rows], batch.index_N[rows])
        found.append(Answers(version, batch.ids[rows], *columns))
        start += size
    return found


async def repeat(answers: Answers, earlier: list[EarlierAnswer | None], versions: Versions) -> Answers | ServiceError:
    """The answers with what was stored earlier in place of what was scored again; an error where inputs differ."""
    if conflicts := [answers.ids[row] for row, found in enumerate(earlier) if found and found.logits is None]:
        shown = ", ".join(short(id_) for id_ in conflicts[:SHOWN])
        message = (
            f"another input came earlier with the id {shown}; send the same input to get its stored answer, or a new id"
        )
        return ServiceError(409, "conflicting_input", message, details={"ids": conflicts[:SHOWN]})
    # Another version may have other classes: then its rows have another length.
    logits, probabilities, index = list(answers.logits_NC), list(answers.probabilities_NC), answers.index_N.copy()
    for row, found in enumerate(earlier):
        if found and found.logits is not None:
            version = await versions(found.version)
            scores = _stored(found.logits, version)
            logits[row], probabilities[row], index[row] = (
                scores.logits_NC[0],
                scores.probabilities_NC[0],
                scores.index_N[0],
            )
            answers.repeated[row] = version
    if len({len(row) for row in logits}) > 1:
        message = "these ids were answered by versions with other classes; ask for them in calls of their own"
        return ServiceError(409, "conflicting_versions", message)
    return Answers(answers.version, answers.ids, np.stack(logits), np.stack(probabilities), index, answers.repeated)


def _stored(logits: bytes, version: Version) -> Scores:
    return of_logits(version.calibrator, np.frombuffer(logits, "<f4").reshape(1, len(version.classes)))
