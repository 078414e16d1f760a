"""A recalibration as it is ordered, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pipeline.recalibrate.choice import Choice
from pipeline.recalibrate.client import Client
from pipeline.recalibrate.comparison import Comparison, Rules
from trueodds.bundle import ModelFolder, Reason
from trueodds.errors import ConfigError, UserError

LABELS = 10_000
LEAST_LABELS = 200
WHY = "A person decides, because nothing is promised of the labels to come."
"""Why nothing is promoted or withdrawn by itself."""


class FewLabelsError(UserError, ValueError):
    """Too few labels to fit a calibrator on."""

    @classmethod
    def check(cls, labels: int, version: str) -> None:
        """Raises it for fewer than LEAST_LABELS of a version, which is named with its model."""
        if labels < LEAST_LABELS:
            raise cls(
                f"{version} has {labels:,} labelled answers; at least {LEAST_LABELS} are needed. Send labels to POST"
                " /feedback"
            )


Promote = Literal["now", "never"]


@dataclass(frozen=True)
class Recalibration:
    """The model to recalibrate, and how far to go.

    Raises:
        ConfigError: fewer than 200 labels, a negative time.
        AuditLogError: `why` or `who` is not a plain line.
    """

    client: Client
    models: ModelFolder
    model: str | None = None
    """None: the one that answers when nothing is named."""
    version: str | None = None
    """None: the one that answers for the model. Another one has been replaced, and nothing is done."""
    labels: int = LABELS
    """Of those that arrived last, at most."""
    candidates: tuple[str, ...] = ()
    promote: Promote = "never"
    """now: the fitted candidate answers at once, because a person ordered it."""
    wait_seconds: float = 0.0
    """For labels that are enough for a verdict."""
    why: str = ""
    who: str | None = None
    say: Callable[[str], object] = field(default=lambda words: None, repr=False)
    shadow: str | None = None
    """To judge, of a model that another server serves; None: the newest."""
    rules: Rules = field(default_factory=Rules)
    """The rules of the comparison; the candidate's number is looked up."""
    out: Path | None = None
    """The file that a calibrator for such a model is written to."""

    def __post_init__(self) -> None:
        if self.labels < LEAST_LABELS:
            raise ConfigError(f"labels is {self.labels}; allowed is a whole number from {LEAST_LABELS} on")
        if not self.wait_seconds >= 0:
            raise ConfigError(f"wait is {self.wait_seconds}; allowed is a number of seconds from 0 on")
        Reason.of(self.why, self.who)

    def model_name(self) -> str:
        """The model that is named, else the one that answers when nothing is named.

        Raises:
            BundleError: no model answers when nothing is named.
        """
        return self.model or self.models.default().parent.name

    def reason(self, words: str) -> str:
        """The audit log's entry on a change: `why`, if it is set, and the result that led to the change."""
        return f"{self.why}: {words}" if self.why else words


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a recalibration, and the evidence about the candidate."""

    status: Literal["kept", "published", "promoted", "waits", "nothing", "fitted"]
    """kept: the served calibrator is as good. published, waits: a candidate waits for a person. promoted: a person
    ordered `promote` "now". fitted: of a model that another server serves, so that nothing changes here."""
    model: str
    served: str
    candidate: str | None
    words: str
    choice: Choice | None = None
    comparison: Comparison | None = None
