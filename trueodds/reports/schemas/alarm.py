"""The report's parts about its alarms: the evidence on calibration, whether to recalibrate, and acting alone."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

Watched = Literal["ece", "point", "positive"]
"""Nulls that are watched: two of the more probable class; of p(positive) one, where there is a positive class."""


class EvidencePoint(BaseModel):
    """The evidence after a number of labels, in the order of their arrival."""

    labels: int
    at: datetime = Field(description="arrival of the last of them")
    log_e: float = Field(description="natural logarithm of the e-value")


class Acknowledgement(BaseModel):
    who: str
    why: str
    at: datetime


class Rearming(BaseModel):
    """The end of a watch that had alarmed, and the beginning of the next: evidence is of the labels since."""

    who: str
    why: str
    at: datetime
    labels: int = Field(description="on which the watch that ended was based")
    fired_at: datetime | None = Field(description="when it had alarmed; null: of a notice only")


class AlarmOf(BaseModel):
    """The sequential test of one null hypothesis; it may be looked at after every label, for ever.

    ece: at every label, given what came before, the ECE of the answers that get labels is within the tolerance. point:
    so is every confidence. positive: at every label expected / observed positives are within the ratio tolerance, and
    mean p(positive) within the tolerance of their share. None is about all answers or about an average over time.
    """

    null: Watched
    statement: str = Field(description="what has been refuted once it has fired, in plain words")
    pages: bool = Field(description="whether it calls the webhook; otherwise a notice only")
    tolerance: float
    ratio_tolerance: float | None = Field(None, description="of the null positive: of expected / observed positives")
    threshold: float = Field(description="it fires when the e-value reaches this")
    state: Literal["quiet", "fired", "acknowledged"]
    labels: int
    log_e: float = Field(description="natural logarithm of the e-value now; may fall again")
    p_value: float = Field(description="valid whenever one looks: 1 / the largest e-value so far")
    fired_at: datetime | None = Field(None, description="arrival of the label that completed the evidence")
    fired_after: int | None = Field(None, description="labels until then")
    acknowledged: Acknowledgement | None = None
    history: list[EvidencePoint] = Field(default_factory=list, description="thinned out to at most 200 points")


class WeightedEvidence(BaseModel):
    """The sequential test of "the ECE of all answers so far is within the tolerance", by labels with a propensity."""

    statement: str = Field(description="what has been refuted once it has fired, in plain words")
    tolerance: float
    floor: float = Field(description="answers of a smaller propensity are not spoken of")
    threshold: float = Field(description="it fires when the e-value reaches this")
    state: Literal["quiet", "fired"]
    labels: int = Field(description="labels that came with a propensity of the floor or more")
    left_out: int = Field(description="labels that came with a smaller one")
    log_e: float = Field(description="natural logarithm of the e-value now; may fall again")
    p_value: float = Field(description="valid whenever one looks: 1 / the largest e-value so far")
    fired_at: datetime | None = None
    fired_after: int | None = None
    reading: str


class Alarm(BaseModel):
    """Never reset by a restart; a new version starts anew, and so does one that is re-armed."""

    state: Literal["quiet", "notice", "fired", "acknowledged"] = Field(
        description="fired: the null that pages is refuted; notice: another one is"
    )
    reading: str
    nulls: list[AlarmOf] = Field(description="those that page first; all are about the labelled traffic")
    weighted: WeightedEvidence | None = Field(None, description="about all answers; null where no propensity was given")
    notice: str | None = Field(None, description="where the labelled traffic is not like all traffic")
    rearmings: list[Rearming] = Field(default_factory=list, description="all else is of the labels since the last")

    @property
    def refuted(self) -> AlarmOf | None:
        """The null that is refuted, one that pages first, of those the one that fired first."""
        refuted = [null for null in self.nulls if null.state != "quiet"]
        return min(refuted, key=lambda null: (not null.pages, null.fired_after or 0), default=None)

    @property
    def of_positive(self) -> AlarmOf | None:
        """The null of p(positive), where it is watched."""
        return next((null for null in self.nulls if null.null == "positive"), None)

    @property
    def of_positive_fired(self) -> bool:
        """Whether p(positive) itself is refuted."""
        return self.of_positive is not None and self.of_positive.state != "quiet"

    @property
    def ratio_tolerance(self) -> float | None:
        """Expected / observed positives that are put up with; None where p(positive) is not watched."""
        return None if self.of_positive is None else self.of_positive.ratio_tolerance


class Advice(BaseModel):
    """Whether recalibrating on the labels seen would help: each label scored by a fit to the labels before it."""

    helps: Literal["yes", "no", "not_known"] = Field(
        description="yes: e-value 20 or more, mean gain above 0; no: it did not score better; else not known yet"
    )
    labels: int
    served_log_loss: float | None = Field(
        None, description="nats per label, of whether the answer is right under its confidence"
    )
    recalibrated_log_loss: float | None = None
    log_e: float = Field(0.0, description="evidence that the mean gain so far is above 0, in nats")
    reading: str = Field(description="the advice, one sentence")
    basis: str = Field("", description="what it rests on: log losses and evidence")
    command: str | None = None


class BrokenPromise(BaseModel):
    """The sequential test of "at every label, acting answers are wrong at most as often as promised"."""

    state: Literal["quiet", "fired"]
    statement: str = Field(description="what has been refuted once it has fired, in plain words")
    threshold: float = Field(description="it fires when the e-value reaches this")
    log_e: float = Field(description="natural logarithm of the e-value now; may fall again")
    p_value: float = Field(description="valid whenever one looks: 1 / the largest e-value so far")
    fired_at: datetime | None = None
    fired_after: int | None = Field(None, description="labels of acting answers until then")


class ActingAlone(BaseModel):
    """How a version with a promise to act alone keeps it; of all its answers so far."""

    answers: int
    acted: int = Field(description="answers that acted alone: their confidence reached the threshold")
    share: float | None = Field(description="acted / answers; null without answers")
    share_lower: float | None = Field(None, description="exact binomial (Clopper-Pearson) interval, for one look")
    share_upper: float | None = None
    level: float
    threshold: float | None = Field(description="null: only tags have thresholds")
    tags: dict[str, float | None] = Field(default_factory=dict, description="thresholds of tags")
    promised_risk: float = Field(description="at most this share of the acting answers is wrong")
    promised_confidence: float
    promised_share: float | None = Field(None, description="of the answers that the threshold was chosen on")
    labels: int = Field(description="labels of acting answers on which the evidence rests, as they first came")
    wrong: int
    risk: float | None = Field(None, description="wrong / labels")
    risk_lower: float | None = Field(None, description="confidence sequence: holds after every label at once")
    risk_upper: float | None = None
    escalated_labels: int = Field(description="labels of answers that were escalated")
    left_out: int = Field(description="labels of acting answers under the audit that nobody had asked for")
    audit_share: float = Field(description="of the acting answers, those whose labels the service asks for; 0: none")
    more_labels: int | None = Field(
        None, description="labels, about, until an error rate of twice the promised one from now on would be found"
    )
    alarm: BrokenPromise
    reading: str
