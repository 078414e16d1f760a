"""Rows about the label queue that the service and its store exchange: draws, and answers that wait for their label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trueodds.processes.choices import LabelGoal


class Drawable(NamedTuple):
    """Answer without a label and without a propensity, from which a sample can be drawn."""

    id: str
    confidence: float
    tag: str | None


@dataclass(frozen=True)
class LabelDraw:
    """Draw of answers to label. The window of a draw overlaps with no other one of the version."""

    at_ms: int
    since_ms: int
    until_ms: int
    goal: LabelGoal
    threshold: float | None
    tag: str | None
    floor: float
    budget: int
    answers: int
    """Number of answers from which the sample was drawn."""
    who: str


@dataclass(frozen=True)
class QueuedAnswer:
    """Drawn answer that waits for its label, leased to one person."""

    id: str
    propensity: float
    created_ms: int
    predicted: int
    confidence: float
    tag: str | None
    logits: bytes
    digest: bytes | None
    """Digest of the input, if the caller gave an id of its own."""
    lease_until_ms: int


@dataclass(frozen=True)
class ClosedAnswer:
    """Drawn answer that was labelled or skipped."""

    id: str
    who: str | None
    """Person who did it in the queue. None: its label came from elsewhere."""
    at_ms: int
    is_skip: bool
    """Whether it has no label."""
    skipped_by: str | None = None
    """Person who skipped it, whether or not it has a label by now."""
    skipped_ms: int | None = None
    corrected_ms: int | None = None
    """Time at which another label replaced that one."""
    import_id: str | None = None
    """Import of the label that holds now."""


@dataclass(frozen=True)
class QueueCounts:
    """State of all drawn answers of a version."""

    right: int = 0
    """Drawn answers with a label that agrees with the prediction."""
    wrong: int = 0
    skips: int = 0
    waiting: int = 0
    """Drawn answers without a label that nobody has skipped."""
    maturing: int = 0
    """Drawn answers whose label counts when their window closes."""
    right_weight: float = 0.0
    """Sum of 1 / propensity."""
    wrong_weight: float = 0.0
    skip_weight: float = 0.0

    @property
    def sample_size(self) -> int:
        """Number of drawn answers that are still stored."""
        return self.right + self.wrong + self.skips + self.waiting + self.maturing


class OverlapError(Exception):
    """A draw begins before the end of the one before, so an answer could be drawn twice."""

    def __init__(self, until_ms: int) -> None:
        super().__init__(until_ms)
        self.until_ms = until_ms
