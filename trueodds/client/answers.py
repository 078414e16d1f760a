"""Answers of the service as typed objects, and the one error of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from trueodds.errors import UserError

T = TypeVar("T")
NO_ANSWER = "no_answer"
"""Code of the error where no answer came: the service is away."""


class CallError(UserError):
    """A call that the service refused, or did not answer within the client's tries and seconds."""

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
        """The service's own, such as `unknown_id`; `no_answer` where no answer came."""
        self.message = message
        self.status = status
        """The status of HTTP; None where no answer came."""
        self.request_id = request_id
        """The id under which the service's log has the request."""
        self.details = details or {}
        """Whatever else the service says: for refused labels the `problems`, row by row."""
        self.answered: Predictions | None = None
        """The rows that were answered, and stored, before a later request of the same `predict` failed."""

    def __str__(self) -> str:
        return f"{self.message} (request {self.request_id})" if self.request_id and self.status else self.message


@dataclass(frozen=True, eq=False)
class Predictions:
    """Calibrated predictions, row by row in the order of the inputs; each is stored by the service."""

    ids: tuple[str, ...]
    """To be sent with the true labels, whenever those are known."""
    labels: tuple[str, ...]
    """The most probable class of each row, by name."""
    index_N: npt.NDArray[np.int64]
    """The most probable class of each row, by its column."""
    confidence_N: npt.NDArray[np.float64]
    """Its probability."""
    probabilities_NC: npt.NDArray[np.float64]
    classes: tuple[str, ...]
    """The names of the columns."""
    model: str
    version: str
    positive: str | None = None
    """The positive class, of a model that has one."""
    positive_N: npt.NDArray[np.float64] | None = None
    """Its probability, row by row; NaN where an earlier version without one had answered."""
    acts_N: npt.NDArray[np.bool_] | None = None
    """Whether each row acts alone (`decision: act`), of a version with a promise; None without one."""
    audit_N: npt.NDArray[np.bool_] | None = None
    """Rows that act, and whose true label the service asks for; None without a promise."""
    repeated: dict[int, str] = field(default_factory=dict)
    """Rows whose id was answered before, which got their stored answer, and the version that had given it."""

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def read(cls, trees: Sequence[dict[str, Any]]) -> Predictions:
        """The rows of one answer of /predict or of several.

        Raises:
            LookupError, TypeError, ValueError: they are not what /predict answers.
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
        )


@dataclass(frozen=True)
class LabelSummary:
    """Outcomes of the labels of one `feedback`; the four add up to the labels sent.

    Of a request that was sent again because its answer was lost, what the first one stored is `already_known`.
    """

    stored: int = 0
    already_known: int = 0
    """The same label again: counted once."""
    corrected: int = 0
    """Replaced by a different label, with `correct=True`."""
    held: int = 0
    """For an id of your own whose prediction has not come yet."""

    def __add__(self, other: LabelSummary) -> LabelSummary:
        return LabelSummary(
            self.stored + other.stored,
            self.already_known + other.already_known,
            self.corrected + other.corrected,
            self.held + other.held,
        )


@dataclass(frozen=True)
class ObservationSummary:
    """Outcomes of the answers of one `observe`; the two add up to the answers sent."""

    stored: int = 0
    already_known: int = 0
    """The same again: counted once."""
    acts_N: npt.NDArray[np.bool_] | None = field(default=None, repr=False, compare=False)
    """Whether each answer acts alone (`decision: act`), where `act_alone` was said; else None."""
    audit_N: npt.NDArray[np.bool_] | None = field(default=None, repr=False, compare=False)
    """Answers that act, and whose true label the service asks for."""

    def __add__(self, other: ObservationSummary) -> ObservationSummary:
        return ObservationSummary(
            self.stored + other.stored,
            self.already_known + other.already_known,
            _joined(self.acts_N, other.acts_N),
            _joined(self.audit_N, other.audit_N),
        )


def _joined(
    first_N: npt.NDArray[np.bool_] | None, second_N: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.bool_] | None:
    parts = [part_N for part_N in (first_N, second_N) if part_N is not None]
    return np.concatenate(parts) if parts else None


@dataclass(frozen=True)
class ModelVersion:
    """A version of a model."""

    model: str
    version: str


@dataclass(frozen=True)
class PublishedModel:
    """A model that the service serves: the version in each role, and all versions that are published."""

    model: str
    default: str | None
    """The version that answers."""
    shadow: str | None
    """The version that is scored on the same inputs."""
    recalibrated: str | None
    """The version whose calibrator is applied to the same logits."""
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Versions:
    """Every version that a service knows."""

    folder: str | None
    """The id of its model directory."""
    models: tuple[PublishedModel, ...]
    observed: dict[str, tuple[str, ...]]
    """Models that other servers answer for, with their versions in the order of their first answers."""
    problems: tuple[str, ...]
    """Names that lead nowhere, and bundles that are refused or altered."""

    @classmethod
    def read(cls, tree: dict[str, Any]) -> Versions:
        """Read the answer of /models. Raises LookupError or TypeError for another form."""
        models = [{**row, "versions": tuple(one["version"] for one in row["versions"])} for row in tree["models"]]
        observed = {row["model"]: tuple(row["versions"]) for row in tree["observed"]}
        published = tuple(fields_of(PublishedModel, row) for row in models)
        return cls(tree["folder"], published, observed, tuple(tree["problems"]))


@dataclass(frozen=True)
class VoidSummary:
    """Outcome of a `void`."""

    labels: int
    """Labels that are void: of answers and of shadows."""
    held: int
    """Labels that waited for their predictions."""
    reading: str
    """The numbers in words."""


@dataclass(frozen=True)
class DeleteSummary:
    """Outcome of a `delete`."""

    predictions: int
    """The answer, and what a shadow said about the same input."""
    labels: int
    held: int
    """Labels that waited for a prediction with this id."""


def fields_of(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Make a dataclass of an answer's entries of those names. Raises LookupError where one is missing."""
    return kind(**{name: tree[name] for name in kind.__annotations__})
