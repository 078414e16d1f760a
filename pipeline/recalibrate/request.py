"""The request for a recalibration, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pipeline.choices import GROUPS, LABELS, PROMOTE, Groups, Promote
from pipeline.recalibrate.calibrator_choice import CalibratorChoice
from pipeline.recalibrate.candidate_comparison import CandidateComparison, Rules
from pipeline.recalibrate.label_choice import LabelChoice
from trueodds import calibrators
from trueodds.bundle import SHADOW, SLOTS, PublishedModels, Reason, Slot
from trueodds.client import Client, Labelled
from trueodds.errors import ConfigError, UserError

LEAST_LABELS = 200


class FewLabelsError(UserError, ValueError):
    """There are too few labels to fit a calibrator."""

    @classmethod
    def check(cls, labels: int, version: str) -> None:
        """Raise this error if a version, given with its model, has fewer than LEAST_LABELS labels."""
        if labels < LEAST_LABELS:
            raise cls(
                f"{version} has {labels:,} labelled answers; at least {LEAST_LABELS} are needed. Send labels to POST"
                " /feedback. If the model has a maturity window, a label counts when the window of its answer closes"
            )


class NoTagsError(UserError, ValueError):
    """The labelled answers have no tags, by which a calibrator should have groups."""

    @classmethod
    def check(cls, labelled: Labelled, version: str) -> None:
        """Raise this error if no answer has a tag."""
        if labelled.tags_N is None or not any(tag is not None for tag in labelled.tags_N.tolist()):
            raise cls(
                f"groups is 'tag', and no labelled answer of {version} has a tag; send tags to POST /predict, or leave"
                " groups out"
            )


class NoClassSharesError(UserError, ValueError):
    """There are no class shares by which a calibrator could be corrected."""


class DisagreementError(UserError, RuntimeError):
    """The service serves another model directory, or another model, than the command expects."""


Decision = Literal["stays", "promoted", "withdrawn", "gone"]
"""Decision about a version. gone: somebody else changed the roles in the meantime."""
Status = Literal["kept", "published", "promoted", "withdrawn", "waits", "nothing", "fitted"]


@dataclass(frozen=True)
class Recalibration:
    """The model to recalibrate, and the rules.

    Raises:
        ConfigError: Fewer than 200 labels, a negative time, an unknown rule, groups that no candidate reads, or options
            that do not fit together.
        AuditLogError: `why` or `who` is not a single plain line.
    """

    client: Client
    models: PublishedModels
    model: str | None = None
    """Name of the model; None: the model for calls that name none."""
    version: str | None = None
    """Served version of the model; None: whichever is served. If another one is served, nothing is done."""
    labels: int = LABELS
    """Largest number of labels, the newest first."""
    candidates: tuple[str, ...] = ()
    promote: Promote | None = None
    """Rule for calibrators, the fitted one, or the one under judgement. None: when-better."""
    promote_net: Promote = "never"
    """Rule for a net that is the shadow. The default is never, because nobody has reviewed the net."""
    slot: Slot | None = None
    """Slot to judge; None: both."""
    displace: bool = False
    """Whether a better fit replaces a calibrator under judgement, whatever the evidence about that one."""
    wait_seconds: float = 0.0
    """Seconds to wait for enough labels for a verdict."""
    why: str = ""
    who: str | None = None
    say: Callable[[str], object] = field(default=lambda words: None, repr=False)
    shadow: str | None = None
    """Shadow to judge, for a model that another server serves; None: the newest."""
    rules: Rules = field(default_factory=Rules)
    """Rules of the comparison. The candidate's number is looked up."""
    groups: Groups | None = None
    """tag: a temperature for each tag is a candidate. None: only if the served calibrator has groups."""
    out: Path | None = None
    """File for the calibrator of a model that another server serves."""
    prior_shift: bool = False
    """Whether the candidate is the served calibrator, corrected for the class shares of answers without labels."""
    since: datetime | str | None = None
    """With `prior_shift`: only answers given since then. None: all answers of the version."""

    def __post_init__(self) -> None:
        if self.labels < LEAST_LABELS:
            raise ConfigError(f"labels is {self.labels}; allowed is a whole number from {LEAST_LABELS}")
        if not self.wait_seconds >= 0:
            raise ConfigError(f"wait is {self.wait_seconds}; allowed is a number of seconds from 0")
        _check_choice("promote", self.promote, (None, *PROMOTE))
        _check_choice("promote net", self.promote_net, PROMOTE)
        _check_choice("slot", self.slot, (None, *SLOTS))
        _check_choice("groups", self.groups, (None, *GROUPS))
        if self.groups and self.candidates and not any(calibrators.get(name).uses_groups for name in self.candidates):
            raise ConfigError(
                f"groups is {self.groups!r}, and none of the candidates {', '.join(self.candidates)} reads groups; add"
                " group_temperature, or leave groups out"
            )
        if self.prior_shift and (given := [name for name in ("candidates", "groups") if getattr(self, name)]):
            raise ConfigError(
                f"prior_shift and {' and '.join(given)} given; prior_shift corrects the served calibrator and fits no"
                " other: leave one out"
            )
        if self.since is not None and not self.prior_shift:
            raise ConfigError(f"since is {self.since}; allowed only with prior_shift (--prior-shift)")
        Reason.of(self.why, self.who)

    def promote_of(self, slot: Slot) -> Promote:
        """Return the rule for the version in a slot."""
        return self.promote_net if slot == SHADOW else self.promote or "when-better"

    def model_name(self) -> str:
        """Return the given model, or the one for calls that name none.

        Raises:
            BundleError: There is no model for calls that name none.
        """
        return self.model or self.models.default().parent.name

    def reason(self, words: str) -> str:
        """Return the audit log's reason for a change: `why`, if it is set, and the result that led to the change."""
        return f"{self.why}: {words}" if self.why else words


@dataclass(frozen=True, eq=False)
class Judgement:
    """A version under judgement, the evidence about it, and the decision."""

    slot: Slot
    version: str
    comparison: CandidateComparison
    decision: Decision = "stays"
    words: str = ""


@dataclass(frozen=True, eq=False)
class RecalibrationOutcome:
    """The result of a recalibration, and the evidence about the versions under judgement."""

    status: Status
    """Result in one word.

    kept: the served calibrator is as good. published: a calibrator is now under judgement. waits: the judged version
    stays under judgement. promoted, withdrawn: decided by a verdict or a person's order. nothing: nothing was done.
    fitted: for a model that another server serves, so that nothing changes here.
    """
    model: str
    served: str
    candidate: str | None
    words: str
    choice: CalibratorChoice | LabelChoice | None = None
    judgements: tuple[Judgement, ...] = ()

    @property
    def is_undecided(self) -> bool:
        """Return whether a version is still under judgement without a verdict."""
        return any(one.decision == "stays" and one.comparison.verdict == "undecided" for one in self.judgements)


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ConfigError if a value is not one of those allowed."""
    if value not in choices:
        named = ", ".join(str(one) for one in choices if one is not None)
        raise ConfigError(f"{name} is {value!r}; allowed are {named}")
