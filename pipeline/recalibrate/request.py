"""A recalibration as it is ordered, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pipeline.recalibrate.choice import Choice
from pipeline.recalibrate.comparison import Comparison, Rules
from trueodds.bundle import SHADOW, SLOTS, PublishedModels, Reason, Slot
from trueodds.client import Client
from trueodds.errors import ConfigError, UserError

LABELS = 10_000
LEAST_LABELS = 200


class FewLabelsError(UserError, ValueError):
    """Too few labels to fit a calibrator on."""

    @classmethod
    def check(cls, labels: int, version: str) -> None:
        """Raises it for fewer than LEAST_LABELS of a version, which is named with its model."""
        if labels < LEAST_LABELS:
            raise cls(
                f"{version} has {labels:,} labelled answers; at least {LEAST_LABELS} are needed. Send labels to POST"
                " /feedback; of a model with a maturity window, each counts when the window of its answer closes"
            )


class DisagreementError(UserError, RuntimeError):
    """A service that serves another model directory, or another model, than the command is about."""


Promote = Literal["now", "when-better", "never"]
"""now: at once, whatever the evidence. when-better: the verdict "better" promotes, "worse" withdraws. never: a person
decides."""
PROMOTE: tuple[Promote, ...] = get_args(Promote)
Decision = Literal["stays", "promoted", "withdrawn", "gone"]
"""gone: somebody else has changed the roles meanwhile."""
Status = Literal["kept", "published", "promoted", "withdrawn", "waits", "nothing", "fitted"]


@dataclass(frozen=True)
class Recalibration:
    """The model to recalibrate, and how far to go.

    Raises:
        ConfigError: fewer than 200 labels, a negative time.
        AuditLogError: `why` or `who` is not a plain line.
    """

    client: Client
    models: PublishedModels
    model: str | None = None
    """None: the one that answers when nothing is named."""
    version: str | None = None
    """None: the one that answers for the model. Another one has been replaced, and nothing is done."""
    labels: int = LABELS
    """Of those that arrived last, at most."""
    candidates: tuple[str, ...] = ()
    promote: Promote = "when-better"
    """Rule for calibrators: the one that is fitted, or is under judgement."""
    promote_net: Promote = "never"
    """Rule for a net in the shadow's place. Never by default, because nobody has looked at it."""
    slot: Slot | None = None
    """To judge; None: both."""
    displace: bool = False
    """A fit takes the place of a calibrator under judgement, whatever evidence there is about that."""
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
        _check("promote", self.promote, PROMOTE)
        _check("promote net", self.promote_net, PROMOTE)
        _check("slot", self.slot, (None, *SLOTS))
        Reason.of(self.why, self.who)

    def promote_of(self, slot: Slot) -> Promote:
        """Return the rule for the version in a slot."""
        return self.promote_net if slot == SHADOW else self.promote

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
class Judged:
    """A version under judgement, the evidence about it, and what was decided."""

    slot: Slot
    version: str
    comparison: Comparison
    decision: Decision = "stays"
    words: str = ""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a recalibration, and the evidence about what is under judgement."""

    status: Status
    """kept: the served calibrator is as good. published: a calibrator is under judgement from now on. waits: what was
    judged stays so. promoted, withdrawn: a verdict, or a person's order, decided. fitted: of a model that another
    server serves, so that nothing changes here."""
    model: str
    served: str
    candidate: str | None
    words: str
    choice: Choice | None = None
    judged: tuple[Judged, ...] = ()

    @property
    def undecided(self) -> bool:
        """Whether something is still under judgement without a verdict."""
        return any(one.decision == "stays" and one.comparison.verdict == "undecided" for one in self.judged)


def _check(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        named = ", ".join(str(one) for one in allowed if one is not None)
        raise ConfigError(f"{name} is {value!r}; allowed are {named}")
