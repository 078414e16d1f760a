"""Rows that the service and its store exchange, and the store's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from service.choices import Meaning
from service.errors import ServiceError
from trueodds.bundle import ActAlone, Reference
from trueodds.calibrators import Calibrator
from trueodds.calibrators.conformal import SetRule
from trueodds.inputs.sources import ConfidenceSource
from trueodds.sums.inputs import Array
from trueodds.sums.maturity import Maturity
from trueodds.sums.positive import PositiveClass
from trueodds.sums.rounding import Resolution

Integers = npt.NDArray[np.int64]
By = Literal["class", "tag"]
Unit = Literal["minute", "hour", "day", "month"]

NO_SET = -1
"""Size of a set that is not known."""
UNKNOWN = -1
"""Value of an unknown first label."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> bool:
    """Return whether every database can store a text: it has no NUL and no half of a surrogate pair."""
    return not _UNSTORABLE.search(text)


class StoreError(ServiceError):
    """The store cannot be opened, read or written. The message gives the reason and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "store_unavailable", message, retry_after=1)


class StoreDamagedError(StoreError):
    """The store holds values that no store has written. Causes: a bad disk, a copy of an open file, another program."""

    def __init__(self, damage: str, store: object = "", cure: str = "Restore it from a backup") -> None:
        """Make the error.

        Args:
            damage: The damage and its place.
            store: Path or URL of the store, if the caller knows it.
            cure: What the user can do.
        """
        super().__init__(f"the store{f' {store}' if store else ''} is damaged: {damage}. {cure}")
        self.damage, self.code = damage, "store_damaged"
        self.headers = {}  # no retry-after: a retry does not help


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Raise StoreDamagedError, with `what` in its message, if the block cannot decode stored values."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, MemoryError) as error:
        words = str(error).splitlines() or [type(error).__name__]
        raise StoreDamagedError(f"{what} cannot be decoded ({words[0]:.200})") from error


class RowsError(StoreError):
    """The store works, but refuses these rows. Nothing of the call is stored; other calls are not affected."""


class OtherOriginError(RowsError):
    """A version of this name already has answers of another origin: this service, or another server."""


@dataclass(frozen=True)
class Version:
    """Version with stored answers: all that is needed to score its logits again and to show its offline values."""

    model: str
    version: str
    classes: tuple[str, ...]
    calibrator: Calibrator
    metrics: dict[str, Any]
    reference: Reference | None = None
    """Reference distribution of the validation rows' confidences, if the bundle has one."""
    is_observed: bool = False
    """Whether another server gives its answers, which are then sent to this service."""
    has_logits: bool = True
    """Whether its answers have probabilities of all classes; otherwise only that of the predicted class is known."""
    positive: str | None = None
    """Positive class of a binary model."""
    act_alone: ActAlone | None = None
    """Promise to act alone. It never changes, so decisions can be derived again from stored answers."""
    ordered: bool = False
    """Whether its classes are levels, the lowest first."""
    maturity: Maturity | None = None
    """Maturity window. None: a label counts as soon as it arrives."""
    resolution: Resolution | None = None
    """Resolution of the probabilities that another server sends. None: nothing has decided it, and they are exact."""
    set_rules: tuple[SetRule, ...] = ()
    """Rules of its conformal sets that the report watches. They never change. Empty: it has none."""

    @property
    def key(self) -> tuple[str, str]:
        """Model and version, the key of most reads of the store."""
        return self.model, self.version

    @property
    def watched_levels(self) -> tuple[str, ...] | None:
        """Levels that the alarm can watch; None without an order, and where it watches the same as p(positive)."""
        return self.classes if self.ordered and self.has_logits and self.positive is None else None

    @property
    def has_given_sets(self) -> bool:
        """Whether another server gives a conformal set with each answer."""
        return any(rule.method == "given" for rule in self.set_rules)

    def unpacked_set(self, members: bytes) -> list[str]:
        """Return the classes of a stored conformal set, in the order of the version's classes.

        Raises:
            StoreDamagedError: The set is of another number of classes.
        """
        with decoding("its table observed_sets"):
            if len(members) != (len(self.classes) + 7) // 8:
                raise ValueError("a set of another number of classes")
        inside_C = np.unpackbits(np.frombuffer(members, np.uint8), count=len(self.classes))
        return [name for name, inside in zip(self.classes, inside_C.tolist(), strict=True) if inside]

    @property
    def positive_class(self) -> PositiveClass | None:
        """Positive class with its index, or None."""
        return None if self.positive is None else PositiveClass.of(self.positive, self.classes)


@dataclass(frozen=True)
class PredictionBatch:
    """N answers of one version. The logits are exactly those that the calibrator was applied to."""

    model: str
    version: str
    created_ms_N: Integers
    """Times of the answers, in Unix milliseconds."""
    ids: list[str]
    """Ids: the service's (36 hex digits that sort by time), or callers' own (never 36 hex digits)."""
    request_ids: list[str]
    """Id of the HTTP request of each row."""
    logits_NC: npt.NDArray[np.float32]
    """Logits, each row minus its maximum. The shape is N x 0 if they are unknown."""
    probabilities_NC: npt.NDArray[np.float64]
    """Probabilities. They are not stored, because the calibrator computes them again."""
    index_N: npt.NDArray[np.intp]
    raw_confidence_N: npt.NDArray[np.float64]
    """softmax(logits)[index], the confidence before calibration."""
    confidence_N: npt.NDArray[np.float64]
    """Confidence after calibration."""
    digests: list[bytes | None]
    """16-byte blake2b of the input, or of an observed answer, for callers' own ids; otherwise None."""
    tags: list[str | None]
    """Tags of at most 64 characters."""
    propensities: list[float | None]
    """Probabilities in (0, 1] that the answers get a label, if the caller knows them."""
    confidence_sources: list[ConfidenceSource | None] | None = None
    """Sources of the confidences. None: not stated for any row."""
    label_masses: list[float | None] | None = None
    """Shares of the token probability on the classes. None: no row has one."""
    sets: list[bytes] | None = None
    """Conformal sets of observed answers: a bit for each class, as `numpy.packbits` packs them. None: without sets."""

    def rows(self, which: slice) -> PredictionBatch:
        """Return a slice of the answers as a batch."""
        columns = [f.name for f in fields(self) if f.name not in ("model", "version")]
        known = {name: values for name in columns if (values := getattr(self, name)) is not None}
        return replace(self, **{name: values[which] for name, values in known.items()})


@dataclass(frozen=True)
class EarlierPrediction:
    """Stored answer of a row whose id was the caller's own and was already in use."""

    logits: bytes | None
    """Little-endian float32, as stored. None if the id was used for another input or another observed answer."""
    version: str
    """Version that gave the stored answer."""
    tag: str | None = None
    propensity: float | None = None
    """Tag and propensity stored with the answer."""


class ConflictsError(Exception):
    """Some ids of a call were already used for other answers, so nothing of the call was stored."""

    def __init__(self, outcomes: list[list[EarlierPrediction | None]]) -> None:
        super().__init__("some ids were already used for other answers")
        self.outcomes = outcomes
        """Outcomes of the rows, per batch."""


@dataclass(frozen=True, slots=True)
class Label:
    """One row of feedback. The class is given by name (str) or by index (int)."""

    id: str
    label: str | int
    correct: bool = False
    """Whether the label may replace a different one."""
    model: str | None = None
    """Model of a caller's own id. Needed if the prediction has not arrived yet, or if two models have the id."""


@dataclass(frozen=True)
class LabelCounts:
    """Outcomes of accepted labels. The four counts add up to the number of labels."""

    stored: int
    already_known: int
    corrected: int
    held: int = 0
    """Labels that wait for their predictions."""


@dataclass(frozen=True)
class StoredPrediction:
    """Row of a prediction in the store."""

    id: str
    model: str
    version: str
    created_ms: int
    predicted: int
    raw_confidence: float
    confidence: float
    logits: bytes
    """Little-endian float32, each row minus its maximum. Empty if they are unknown or were not requested."""
    tag: str | None
    propensity: float | None
    label: int | None
    """Current label."""
    labelled_ms: int | None
    """Time at which that label arrived. None without a label, and for an assumed label."""
    corrected: bool | None
    """Whether the label has replaced another one; None without a label."""
    import_id: str | None
    """Import of the label."""
    due_ms: int | None = None
    """Time at which the answer begins to count, while its maturity window is open. Its label is not read before."""
    confidence_source: str | None = None
    judge_label: int | None = None
    """Label of a judge, which counts nowhere as a human one."""
    members: bytes | None = None
    """Conformal set that another server gave: a bit for each class (`Version.unpacked_set`). None without a set."""


class JudgedCounts(NamedTuple):
    """Numbers of answers with labels of people and of a judge."""

    answers: int = 0
    judge_labels: int = 0
    labels: int = 0
    """Human labels."""
    labels_with_propensity: int = 0
    propensities: int = 0
    """Answers with a propensity."""


@dataclass(frozen=True, eq=False)
class JudgedAnswers:
    """Answers of a version with the labels that people and a judge gave."""

    confidence_N: npt.NDArray[np.float64]
    predicted_N: Integers
    label_N: Integers
    """Human label; UNKNOWN without one."""
    judge_N: Integers
    """Label of the judge; UNKNOWN without one."""
    propensity_N: npt.NDArray[np.float64]
    """Propensity of the human label; NaN without one."""

    def __len__(self) -> int:
        return len(self.predicted_N)


@dataclass(frozen=True, eq=False)
class LabelledSets:
    """Conformal sets of L labelled answers, for each of K rules."""

    size_LK: Integers
    """Number of classes in each set; NO_SET without a set."""
    covered_LK: npt.NDArray[np.bool_]
    """Whether each set holds the first label."""


@dataclass(frozen=True, eq=False)
class LabelBlock:
    """L labels of one version in the order of their arrival.

    The values follow the current label, except `first_correct_L` and `first_label_L`. Only a sequential test uses
    these, because evidence that was once reported must not change.
    """

    sequence_L: Integers
    """1, 2, ... without gaps at first; retention may have removed some."""
    ids: list[str]
    created_ms_L: Integers
    """Times of the predictions."""
    arrived_ms_L: Integers
    """Times at which the first labels arrived, at least those of the predictions. With a window: its end."""
    label_L: Integers
    predicted_L: Integers
    confidence_L: Array
    correct_L: npt.NDArray[np.bool_]
    first_correct_L: npt.NDArray[np.bool_]
    """Whether the answer was right according to the first label."""
    nll_L: Array
    """Negative log-likelihood. NaN, like `brier_L`, if only the predicted class's probability is known."""
    brier_L: Array
    propensity_L: Array
    """Propensity; NaN if the caller gave none."""
    tags: list[str | None]
    first_label_L: Integers
    """First label; UNKNOWN for some that an earlier release has stored."""
    at_least_LK: Array
    """Probabilities of "at least level k", for k = 1 .. K - 1. The shape is L x 0 unless a state has asked for them."""
    sets: LabelledSets | None = None
    """Conformal sets of the labels' answers. None unless a state has asked for them."""

    def __len__(self) -> int:
        return len(self.sequence_L)


@dataclass(frozen=True, eq=False)
class LabelledLogits:
    """Labelled answers of one version in the order of their labels' arrival, for recalibration."""

    logits_NC: npt.NDArray[np.float32]
    labels_N: Integers
    ids: list[str]
    created_ms_N: Integers
    propensity_N: Array
    """Chance of each answer to get its label; NaN if unknown."""
    tags: list[str | None]
    """Tags of the answers."""
    arrived_ms_N: Integers
    """Time at which each label arrived or, with a maturity window, from which it counts."""
    shadow_logits_NC: npt.NDArray[np.float32] | None = None
    """Logits of the requested shadow on the same inputs."""


@dataclass(frozen=True)
class HeldLabel:
    """A label that waits for its prediction."""

    model: str
    id: str
    label: str | int
    """Name of the class, or its index."""
    given_ms: int
    import_id: str | None


@dataclass(frozen=True)
class HeldLabels:
    """Labels of a model that wait for their predictions."""

    count: int
    oldest_ms: int
    """Time at which the oldest of them arrived."""


@dataclass(frozen=True)
class MaturedCounts:
    """Counts of a version with a maturity window."""

    answers: int
    """Answers whose window has closed."""
    assumed: int
    """Matured answers without a label, which count with the model's default."""
    late: int
    """Labels that arrived after the window, or that replaced another label after it."""


@dataclass(frozen=True)
class DeletionCounts:
    """Counts of the rows deleted for one id."""

    predictions: int
    """The answer, and the shadows' answers to the same input."""
    labels: int
    held: int
    """Labels that waited for the prediction."""


@dataclass(frozen=True)
class PruneCounts:
    """Counts of the rows that retention removed."""

    predictions: int
    labels: int
    held: int
    """Labels whose prediction never arrived."""


@dataclass(frozen=True)
class ArchiveFile:
    """File of answers that waits for the archive. Its content is decided."""

    key: int
    model: str
    version: str
    day: int
    """Day of the answers in UTC, counted from 1970."""
    answers: int


@dataclass(frozen=True)
class ArchiveState:
    """Counts of the archive, over all files since the first."""

    files: int
    answers: int
    labelled: int
    last_ms: int | None
    """Time of the last file."""
    waiting: int
    """Answers that have left the live tables and are not in the archive yet. The store keeps them until they are."""
    failures: int
    """Rounds that failed."""
    problem: str | None
    """Reason why the last round failed; None if it did not."""

    @property
    def is_used(self) -> bool:
        """Whether a service of this store has an archive, or had one. A first round may have failed or been killed."""
        return bool(self.files or self.waiting or self.failures)


@dataclass(frozen=True)
class LabelSelection:
    """Selection of labels by import, by time of arrival, or by both together."""

    import_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """End of the time, exclusive."""
    model: str | None = None
    """Model of the labels. None selects all models."""

    def holds(self, given_ms: int, import_id: str | None) -> bool:
        """Return whether the selection includes a label of the model."""
        return (
            self.import_id in (None, import_id)
            and (self.since_ms is None or given_ms >= self.since_ms)
            and (self.until_ms is None or given_ms < self.until_ms)
        )


@dataclass(frozen=True)
class VoidCounts:
    """Results of a voiding for the answers of one version."""

    removed: int = 0
    """Answers that now have no label."""
    restored: int = 0
    """Answers that have their earlier label back, which a voided label had replaced."""
    kept: int = 0
    """Answers that keep a later label, which had already replaced the voided one."""

    def __add__(self, other: VoidCounts) -> VoidCounts:
        return VoidCounts(self.removed + other.removed, self.restored + other.restored, self.kept + other.kept)

    @property
    def labels(self) -> int:
        """Total number of answers."""
        return self.removed + self.restored + self.kept


@dataclass(frozen=True)
class Voiding:
    """Labels that were voided together: which, when, by whom and why."""

    selection: LabelSelection
    at_ms: int
    who: str
    why: str
    counts: VoidCounts = VoidCounts()
    """Results for one version."""


@dataclass(frozen=True)
class SettleCounts:
    """Results of a settlement for answers with doubtful labels."""

    confirmed: int = 0
    """Answers that have their label back."""
    voided: int = 0
    waiting: int = 0
    """Answers that stay in doubt, because no class is named like the stored index."""

    def __add__(self, other: SettleCounts) -> SettleCounts:
        return SettleCounts(self.confirmed + other.confirmed, self.voided + other.voided, self.waiting + other.waiting)


@dataclass(frozen=True)
class Settlement:
    """Doubtful labels that were settled together: how, when, by whom and why."""

    decision: Meaning
    at_ms: int
    who: str
    why: str
    labels: int = 0
    """Number of labels of one version."""
