"""Rows about decision models that the service and its store exchange: questions, their answers, notices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

NoticeKind = Literal["served_model_changed", "wording_changed", "refusals_rising"]
LOW_MASS = 0.5
"""An answer with less option mass counts as one whose options do not fit the prompt."""


@dataclass(frozen=True)
class QuestionVersion:
    """Question as one served model answers it in one wording."""

    model: str
    """Name of the question in the store."""
    version: str
    name: str
    """Name of the question as it was sent."""
    type: str
    """Type on the wire."""
    served: str
    """Served model, as the response names it."""
    wording: str
    """Hash of type, instructions and options."""
    is_ordered: bool
    """Whether its classes are levels in an order."""

    @property
    def key(self) -> tuple[str, str]:
        """Model and version."""
        return self.model, self.version


@dataclass(frozen=True)
class DecisionRow:
    """One answered or declined question, beside its prediction. A declined question has no prediction."""

    id: str
    created_ms: int
    is_declined: bool = False
    mass: float | None = None
    """Share of the next-token probability that fell on the offered options."""
    input: str | None = None
    """Keyed hash of the input, in hex. None for a declined question, and if the request has no input."""
    kept: str | None = None
    """Input as JSON, if the service keeps inputs."""


@dataclass(frozen=True)
class QuestionDecisions:
    """Rows of one question version in one call, in the order of the call."""

    of: QuestionVersion
    rows: list[DecisionRow]


@dataclass(frozen=True)
class QuestionCounts:
    """Counts of one question version. Deletion and retention of single answers leave them unchanged."""

    of: QuestionVersion
    answered: int
    declined: int
    repeated: int
    """Answers whose input was asked before under the same version."""
    masses: int
    """Answers with an option mass."""
    mass_sum: float
    low_masses: int
    """Answers with an option mass below LOW_MASS."""
    first_ms: int
    last_ms: int

    @property
    def mean_mass(self) -> float | None:
        """Mean option mass; None if no answer has one."""
        return self.mass_sum / self.masses if self.masses else None


@dataclass(frozen=True)
class Notice:
    """Finding about a question that needs no label. Each is made once, whichever process makes it."""

    model: str
    version: str
    """Version at which it was found."""
    kind: NoticeKind
    at_ms: int
    details: dict[str, Any]
    deliveries: dict[str, Any]
    """Deliveries to webhooks, by webhook."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, version and kind, which are unique together."""
        return self.model, self.version, self.kind
