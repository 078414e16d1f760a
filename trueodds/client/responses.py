"""The service's answers as typed objects, and `CallError`, the one error of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from trueodds.errors import UserError

T = TypeVar("T")
NO_ANSWER = "no_answer"
"""Error code for no answer: the service is not reachable."""


class CallError(UserError):
    """A call that the service refused, or did not answer within the client's tries and time.

    Attributes:
        code: The service's error code, such as `unknown_id`. `no_answer` if no answer came.
        message: The service's message in words.
        status: The HTTP status, or None if no answer came.
        request_id: The id of the request in the service's log.
        details: Everything else that the service sent. For refused labels this is `problems`, row by row.
        answered: The rows that were answered and stored before a later request of the same `predict` failed.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.status = status

        self.request_id = request_id

        self.details = details or {}

        self.answered: Predictions | LabelPredictions | None = None

    def __str__(self) -> str:
        return f"{self.message} (request {self.request_id})" if self.request_id and self.status else self.message


@dataclass(frozen=True, eq=False)
class Predictions:
    """Calibrated predictions, one row per input in the order of the inputs. The service has stored each of them."""

    ids: tuple[str, ...]
    """Ids of the predictions. Send them with the true labels as soon as these are available."""
    labels: tuple[str, ...]
    """Name of the most probable class of each row."""
    index_N: npt.NDArray[np.int64]
    """Column of the most probable class of each row."""
    confidence_N: npt.NDArray[np.float64]
    """Probability of the most probable class."""
    probabilities_NC: npt.NDArray[np.float64]
    """Calibrated probability of every class."""
    classes: tuple[str, ...]
    """Names of the columns."""
    model: str
    version: str
    positive: str | None = None
    """Name of the positive class, if the model has one."""
    positive_N: npt.NDArray[np.float64] | None = None
    """Probability of the positive class.

    NaN for a row whose stored answer comes from a version without a positive class.
    """
    acts_N: npt.NDArray[np.bool_] | None = None
    """Whether each row acts alone (`decision: act`). None if the version makes no promise about acting alone."""
    audit_N: npt.NDArray[np.bool_] | None = None
    """Rows that act alone and whose true label the service asks for. None if the version makes no promise."""
    repeated: dict[int, str] = field(default_factory=dict)
    """Rows whose id had been answered before. They hold the stored answer; the value is the version that gave it."""
    sets: tuple[tuple[str, ...] | None, ...] | None = None
    """Conformal set of each row, the most probable class first, if you asked for sets (`set=0.9`).

    None for a row whose stored answer comes from a version without sets of this level.
    """
    groups: tuple[str | None, ...] | None = None
    """Tag whose temperature each row has, if the version's calibrator has groups; None for that of all answers."""
    columns: dict[str, str] = field(default_factory=dict)
    """Names in the inputs that are spelled differently from the model's features, by feature name."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on how the inputs were read: each name that is spelled differently from the model's feature."""
        return _notes(self.columns)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def read(cls, trees: Sequence[dict[str, Any]]) -> Predictions:
        """Build the predictions from one answer of /predict or from several.

        Raises:
            LookupError, TypeError, ValueError: The trees are not answers of /predict.
        """
        rows = [row for tree in trees for row in tree["predictions"]]
        of_positive = [row.get("positive") or {} for row in rows]
        names = [one["label"] for one in of_positive if one]
        promised = any("decision" in row for row in rows)
        return cls(
            ids=tuple(row["id"] for row in rows),
            labels=tuple(row["label"] for row in rows),
            index_N=np.array([row["index"] for row in rows], np.int64),
            confidence_N=np.array([row["confidence"] for row in rows], np.float64),
            probabilities_NC=np.array([row["probabilities"] for row in rows], np.float64),
            classes=tuple(trees[0]["classes"]),
            model=trees[0]["model"],
            version=trees[0]["version"],
            positive=names[0] if names else None,
            positive_N=np.array([one.get("probability", np.nan) for one in of_positive], np.float64) if names else None,
            acts_N=np.array([row.get("decision") == "act" for row in rows], bool) if promised else None,
            audit_N=np.array([row.get("audit", False) for row in rows], bool) if promised else None,
            repeated={n: row["version"] for n, row in enumerate(rows) if row.get("repeated")},
            sets=tuple(None if row["set"] is None else tuple(row["set"]) for row in rows)
            if rows and all("set" in row for row in rows)
            else None,
            groups=tuple(row.get("group") for row in rows) if any("group" in row for row in rows) else None,
            columns={name: own for tree in trees for name, own in tree.get("columns", {}).items()},
        )


@dataclass(frozen=True)
class LabelPredictions:
    """Calibrated probabilities of independent labels, one row per input in the order of the inputs."""

    ids: tuple[str, ...]
    """Ids of the predictions. Send them with each truth as soon as it is available."""
    probabilities_NL: npt.NDArray[np.float64]
    """Probability that each label is true. Rows need not sum to 1."""
    labels: tuple[str, ...]
    """Names of the columns."""
    questions: tuple[str, ...]
    """Question of each label: `question` of `client.feedback`."""
    model: str
    version: str
    repeated: dict[int, str] = field(default_factory=dict)
    """Rows whose id had been answered before. They hold the stored answers; the value is the version that gave them.

    Labels that this version lacked were answered by `version`. If several versions gave the stored answers of a row,
    the value is that of the first label.
    """
    columns: dict[str, str] = field(default_factory=dict)
    """Names in the inputs that are spelled differently from the model's features, by feature name."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on how the inputs were read: each name that is spelled differently from the model's feature."""
        return _notes(self.columns)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def read(cls, trees: Sequence[dict[str, Any]]) -> LabelPredictions:
        """Build the predictions from one answer of /predict or from several.

        Raises:
            LookupError, TypeError, ValueError: The trees are not answers of a model of independent labels.
        """
        rows = [row for tree in trees for row in tree["predictions"]]
        return cls(
            ids=tuple(row["id"] for row in rows),
            probabilities_NL=np.array([[a["probability"] for a in row["answers"]] for row in rows], np.float64),
            labels=tuple(trees[0]["classes"]),
            questions=tuple(answer["name"] for answer in rows[0]["answers"]),
            model=trees[0]["model"],
            version=trees[0]["version"],
            repeated={n: row["version"] for n, row in enumerate(rows) if row.get("repeated")},
            columns={name: own for tree in trees for name, own in tree.get("columns", {}).items()},
        )


def _notes(columns: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"The column {own!r} was read as the feature {name!r}." for name, own in columns.items())


def add_fields(one: T, other: T) -> T:
    """Add two summaries, field by field."""
    return type(one)(*(getattr(one, name) + getattr(other, name) for name in one.__annotations__))


@dataclass(frozen=True)
class LabelSummary:
    """Number of labels of one `feedback` by outcome. The four numbers add up to the labels sent.

    If a request is sent again because its answer was lost, labels that the first request stored count as
    `already_known`.
    """

    stored: int = 0
    """Labels stored for the first time."""
    already_known: int = 0
    """Labels that were stored already, with the same class. They count once."""
    corrected: int = 0
    """Labels that replaced a different label (`correct=True`)."""
    held: int = 0
    """Labels kept for an id of your own whose prediction has not arrived yet."""

    def __add__(self, other: LabelSummary) -> LabelSummary:
        return add_fields(self, other)


@dataclass(frozen=True)
class JudgeSummary:
    """Number of labels of one `judge` by outcome. The three numbers add up to the labels sent."""

    stored: int = 0
    """Labels of a judge stored for the first time."""
    already_known: int = 0
    """Labels that were stored already, with the same class."""
    replaced: int = 0
    """Labels that replaced a different label of the judge."""

    def __add__(self, other: JudgeSummary) -> JudgeSummary:
        return add_fields(self, other)


@dataclass(frozen=True)
class ObservationSummary:
    """Number of answers of one `observe` by outcome. The two numbers add up to the answers sent."""

    stored: int = 0
    """Answers stored for the first time."""
    already_known: int = 0
    """Answers that were stored already. They count once."""
    acts_N: npt.NDArray[np.bool_] | None = field(default=None, repr=False, compare=False)
    """Whether each answer acts alone (`decision: act`). None unless the call had `act_alone`."""
    audit_N: npt.NDArray[np.bool_] | None = field(default=None, repr=False, compare=False)
    """Answers that act alone and whose true label the service asks for."""

    def __add__(self, other: ObservationSummary) -> ObservationSummary:
        return ObservationSummary(
            self.stored + other.stored,
            self.already_known + other.already_known,
            _concatenate(self.acts_N, other.acts_N),
            _concatenate(self.audit_N, other.audit_N),
        )


def _concatenate(
    first_N: npt.NDArray[np.bool_] | None, second_N: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.bool_] | None:
    """Concatenate the parts that are not None; None if both are."""
    parts = [part_N for part_N in (first_N, second_N) if part_N is not None]
    return np.concatenate(parts) if parts else None


@dataclass(frozen=True)
class ModelVersion:
    """A version of a model."""

    model: str
    version: str


@dataclass(frozen=True)
class PublishedModel:
    """A model that the service serves: the version in each role, and all published versions."""

    model: str
    default: str | None
    """The version that answers requests."""
    shadow: str | None
    """The version that is scored on the same inputs without answering."""
    recalibrated: str | None
    """The version whose calibrator is applied to the same logits without answering."""
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Versions:
    """All versions that a service serves or watches."""

    folder: str | None
    """Id of the service's model directory."""
    models: tuple[PublishedModel, ...]
    observed: dict[str, tuple[str, ...]]
    """Models served by other servers. Their versions are in the order of their first answers."""
    problems: tuple[str, ...]
    """Names that point to no version, and bundles that the service refuses or that were altered."""

    @classmethod
    def read(cls, tree: dict[str, Any]) -> Versions:
        """Build the versions from an answer of /models.

        Raises:
            LookupError, TypeError: The answer has another form.
        """
        models = [{**row, "versions": tuple(one["version"] for one in row["versions"])} for row in tree["models"]]
        observed = {row["model"]: tuple(row["versions"]) for row in tree["observed"]}
        published = tuple(fields_of(PublishedModel, row) for row in models)
        return cls(tree["folder"], published, observed, tuple(tree["problems"]))


@dataclass(frozen=True)
class VoidSummary:
    """Number of labels that a `void` removed."""

    labels: int
    """Voided labels of answers and of shadows."""
    held: int
    """Voided labels that were waiting for their predictions."""
    reading: str
    """The numbers as a sentence."""


@dataclass(frozen=True)
class DeleteSummary:
    """Number of rows that a `delete` removed."""

    predictions: int
    """The answer, and the shadow's answer for the same input."""
    labels: int
    held: int
    """Labels that were waiting for a prediction with this id."""


def fields_of(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Build a dataclass from the entries of an answer that have its fields' names.

    Raises:
        LookupError: An entry is missing.
    """
    return kind(**{name: tree[name] for name in kind.__annotations__})
