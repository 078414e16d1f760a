"""The rows that flow between the service and its store, and the store's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from service.errors import ServiceError
from trueodds.bundle import ActAlone, Reference
from trueodds.calibrators import Calibrator
from trueodds.sums.inputs import Array
from trueodds.sums.maturity import Maturity
from trueodds.sums.positive import PositiveClass

Integers = npt.NDArray[np.int64]
By = Literal["class", "tag"]
Unit = Literal["minute", "hour", "day", "month"]

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> bool:
    """Whether every database can hold a text: no NUL, no half of a surrogate pair."""
    return not _UNSTORABLE.search(text)


class StoreError(ServiceError):
    """The store cannot be opened, read or written; the message says why and what helps."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "store_unavailable", message, retry_after=1)


class StoreDamagedError(StoreError):
    """The store holds what no store writes: a bad disk, a copy of an open file, another program."""

    def __init__(self, found: str, store: object = "", cure: str = "Restore it from a backup") -> None:
        """`found`: what is wrong and where; `store`: its path or URL, as far as whoever finds it knows."""
        super().__init__(f"the store{f' {store}' if store else ''} is damaged: {found}. {cure}")
        self.found, self.code = found, "store_damaged"
        self.headers = {}  # trying again does not help


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Raise StoreDamagedError, which names `what`, where stored values cannot be decoded in the block."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, MemoryError) as error:
        words = str(error).splitlines() or [type(error).__name__]
        raise StoreDamagedError(f"{what} cannot be decoded ({words[0]:.200})") from error


class RowsError(StoreError):
    """The store works, but not with these rows: nothing of the call was stored, and other calls are not concerned."""


class OtherOriginError(RowsError):
    """A version of this name has answers of another origin: of this service, or of another server."""


@dataclass(frozen=True)
class Version:
    """A model version whose answers are stored: enough to score its logits again and to show its offline values."""

    model: str
    version: str
    classes: tuple[str, ...]
    calibrator: Calibrator
    metrics: dict[str, Any]
    reference: Reference | None = None
    """Of the validation rows' confidences, if the bundle has it."""
    is_observed: bool = False
    """Whether another server answers, and its answers are sent here."""
    has_logits: bool = True
    """Whether its answers have probabilities of all classes; otherwise only the predicted one's is known."""
    positive: str | None = None
    """Of two classes the one that the model is asked about."""
    act_alone: ActAlone | None = None
    """The promise of the version to act alone; it never changes, so decisions are made anew from stored answers."""
    maturity: Maturity | None = None
    """How long its answers wait before they count; None: a label counts when it comes."""

    @property
    def key(self) -> tuple[str, str]:
        """Model and version, by which the store is asked."""
        return self.model, self.version

    @property
    def positive_class(self) -> PositiveClass | None:
        """The positive class with its place among the classes; None where there is none."""
        return None if self.positive is None else PositiveClass.of(self.positive, self.classes)


@dataclass(frozen=True)
class PredictionBatch:
    """N answers of one model version. The logits are those the calibrator was applied to, bit for bit."""

    model: str
    version: str
    created_ms_N: Integers
    """When each answer was given: Unix time in milliseconds."""
    ids: list[str]
    """Ours (36 hex digits, sorting by time), or the caller's own (never 36 hex digits)."""
    request_ids: list[str]
    """Of the HTTP request each row came with."""
    logits_NC: npt.NDArray[np.float32]
    """Each row minus its maximum; N x 0 where they are not known."""
    probabilities_NC: npt.NDArray[np.float64]
    """Not stored: the calibrator gives them again."""
    index_N: npt.NDArray[np.intp]
    raw_confidence_N: npt.NDArray[np.float64]
    """softmax(logits)[index]: before the calibrator."""
    confidence_N: npt.NDArray[np.float64]
    """After it."""
    digests: list[bytes | None]
    """16-byte blake2b of the input, or of an observed answer, where the id is the caller's own, else None."""
    tags: list[str | None]
    """At most 64 characters each."""
    propensities: list[float | None]
    """Chance in (0, 1] that this answer gets a label, where the caller knows it."""

    def rows(self, which: slice) -> PredictionBatch:
        """Some of the answers, as a batch of their own."""
        columns = [f.name for f in fields(self) if f.name not in ("model", "version")]
        return replace(self, **{name: getattr(self, name)[which] for name in columns})


@dataclass(frozen=True)
class EarlierPrediction:
    """The stored answer of a row whose id was the caller's own and was known already."""

    logits: bytes | None
    """Little-endian float32, as stored; None: another input, or another observed answer, came with this id."""
    version: str
    """The model version that had answered."""
    tag: str | None = None
    propensity: float | None = None
    """Tag and propensity that were stored with the answer."""


class ConflictsError(Exception):
    """Ids of a call came with other answers before, so nothing of the call was stored."""

    def __init__(self, outcomes: list[list[EarlierPrediction | None]]) -> None:
        super().__init__("ids that came with other answers before")
        self.outcomes = outcomes
        """Of each row of each batch."""


@dataclass(frozen=True, slots=True)
class Label:
    """One row of feedback: a class by name (str) or by index (int)."""

    id: str
    label: str | int
    correct: bool = False
    """Whether it may replace a different label."""
    model: str | None = None
    """Needed only for an own id that is not there yet (the label is then held), or that two models know."""


@dataclass(frozen=True)
class LabelCounts:
    """The outcomes of the rows of accepted labels; the four add up to the number of labels."""

    stored: int
    already_known: int
    corrected: int
    held: int = 0
    """Their predictions have not arrived yet."""


@dataclass(frozen=True)
class StoredPrediction:
    """The row that the store holds of a prediction."""

    id: str
    model: str
    version: str
    created_ms: int
    predicted: int
    raw_confidence: float
    confidence: float
    logits: bytes
    """Little-endian float32, each row minus its maximum; empty where they are not known, or were not asked for."""
    tag: str | None
    propensity: float | None
    label: int | None
    """The label as it now is."""
    labelled_ms: int | None
    """When that label came; None, too, where none came and that counts as one."""
    corrected: bool | None
    """Whether it has replaced another; None without a label."""
    import_id: str | None
    """The import of the label."""
    due_ms: int | None = None
    """When it begins to count, of an answer whose maturity window is open; its label is not given before."""


@dataclass(frozen=True, eq=False)
class LabelBlock:
    """L labels of one model version in the order in which they arrived.

    Values are those of the label as it now is, save `first_correct_L`: only a sequential test uses that one, for
    evidence once shown cannot be taken back.
    """

    sequence_L: Integers
    """1, 2, ... without holes as they came; retention may have taken some out."""
    ids: list[str]
    created_ms_L: Integers
    """Of the prediction."""
    arrived_ms_L: Integers
    """Arrival of the first label, never before the prediction; with a maturity window, when it began to count."""
    label_L: Integers
    predicted_L: Integers
    confidence_L: Array
    correct_L: npt.NDArray[np.bool_]
    first_correct_L: npt.NDArray[np.bool_]
    """Whether the label that came first said that the answer was right."""
    nll_L: Array
    """NaN, as `brier_L`, where only the predicted class's probability is known."""
    brier_L: Array
    propensity_L: Array
    """NaN where the caller gave none."""
    tags: list[str | None]

    def __len__(self) -> int:
        return len(self.sequence_L)


@dataclass(frozen=True, eq=False)
class LabelledLogits:
    """Some labelled answers of one version, in the order of their labels' arrival: what recalibration needs."""

    logits_NC: npt.NDArray[np.float32]
    labels_N: Integers
    ids: list[str]
    created_ms_N: Integers
    propensity_N: Array
    """Chance of each answer to get its label; NaN where it is not known."""
    shadow_logits_NC: npt.NDArray[np.float32] | None = None
    """Of the shadow that the caller named, on the same inputs."""


@dataclass(frozen=True)
class HeldLabels:
    """Labels of a model that wait for their predictions."""

    count: int
    oldest_ms: int
    """When the one came that has waited longest."""


@dataclass(frozen=True)
class Matured:
    """Counts of a version whose answers wait for their window to close."""

    answers: int
    """Their window has closed."""
    assumed: int
    """Matured answers without a label, which count as the setting says."""
    late: int
    """Labels that came after the window, or replaced another then."""


@dataclass(frozen=True)
class DeletionCounts:
    """What is gone of one id."""

    predictions: int
    """The answer, and what shadows said about the same input."""
    labels: int
    held: int
    """Labels that waited for their prediction."""


@dataclass(frozen=True)
class PruneCounts:
    """How many rows retention removed."""

    predictions: int
    labels: int
    held: int
    """Labels whose prediction never came."""


@dataclass(frozen=True)
class LabelSelection:
    """Labels by the import that they came with, or by the time at which they arrived; both: of which both hold."""

    import_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """Not included."""
    model: str | None = None
    """None: of all models."""

    def holds(self, given_ms: int, import_id: str | None) -> bool:
        """Whether a label of the model is one of them."""
        return (
            self.import_id in (None, import_id)
            and (self.since_ms is None or given_ms >= self.since_ms)
            and (self.until_ms is None or given_ms < self.until_ms)
        )


@dataclass(frozen=True)
class VoidCounts:
    """What became of the answers of a version whose labels are voided."""

    removed: int = 0
    """They have no label now."""
    restored: int = 0
    """The label is back that a voided one had replaced."""
    kept: int = 0
    """The voided label had been replaced since, and the label stays."""

    def __add__(self, other: VoidCounts) -> VoidCounts:
        return VoidCounts(self.removed + other.removed, self.restored + other.restored, self.kept + other.kept)

    @property
    def labels(self) -> int:
        """Answers in all."""
        return self.removed + self.restored + self.kept


@dataclass(frozen=True)
class Voiding:
    """Labels that were voided together: which, when, by whom and why."""

    selection: LabelSelection
    at_ms: int
    who: str
    why: str
    counts: VoidCounts = VoidCounts()
    """Of one version."""


Decision = Literal["as_stored", "as_names", "void"]
"""What labels in doubt are: the classes that are stored; the classes whose names the stored indices are; or void."""


@dataclass(frozen=True)
class SettleCounts:
    """What became of answers whose labels were in doubt."""

    confirmed: int = 0
    """They have their label back."""
    voided: int = 0
    waiting: int = 0
    """They wait on: the stored index is no class's name."""

    def __add__(self, other: SettleCounts) -> SettleCounts:
        return SettleCounts(self.confirmed + other.confirmed, self.voided + other.voided, self.waiting + other.waiting)


@dataclass(frozen=True)
class Settlement:
    """Labels in doubt that were settled together: how, when, by whom and why."""

    decision: Decision
    at_ms: int
    who: str
    why: str
    labels: int = 0
    """Of one version."""
