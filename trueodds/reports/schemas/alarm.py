"""Parts of the report about alarms: evidence of miscalibration, advice on recalibrating, and acting alone."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

Watched = Literal["ece", "positive", "levels", "point"]
"""Null hypotheses that an alarm tests.

Two are about the more probable class. The others are about p(positive) or about the levels, if there are any.
"""


class EvidencePoint(BaseModel):
    """Evidence after a number of labels, in the order of their arrival."""

    labels: int
    at: datetime = Field(description="arrival of the last of them")
    log_e: float = Field(description="natural logarithm of the e-value")


class Acknowledgement(BaseModel):
    """Record of an acknowledged alarm."""

    who: str
    why: str
    at: datetime


class Rearming(BaseModel):
    """End of a watch whose alarm had fired, and start of the next. The evidence is that of the labels since then."""

    who: str
    why: str
    at: datetime
    labels: int = Field(description="labels of the watch that ended")
    fired_at: datetime | None = Field(description="when its alarm had fired; null: it gave a notice only")


class AlarmOf(BaseModel):
    """Sequential test of one null hypothesis. It stays valid if it is looked at after every label, without end.

    `ece`: at every label, given the past, the ECE of the answers that get labels is within the tolerance. `point`:
    every confidence is within the tolerance. `positive`: at every label, expected / observed positives are within the
    ratio tolerance, and the mean p(positive) is within the tolerance of the share of positives. `levels`: at every
    label and for every level k, the ECE of the probability of "at least k" is within the tolerance. No null hypothesis
    is about all answers or about an average over time.
    """

    null: Watched
    statement: str = Field(description="null hypothesis that is refuted once the alarm has fired, in plain words")
    pages: bool = Field(description="whether it calls the webhook; if not, it gives a notice only")
    tolerance: float
    ratio_tolerance: float | None = Field(
        None, description="for the null `positive`: largest acceptable expected / observed positives"
    )
    threshold: float = Field(description="the alarm fires when the e-value reaches this")
    state: Literal["quiet", "fired", "acknowledged"]
    labels: int
    log_e: float = Field(description="natural logarithm of the e-value now; may fall again")
    p_value: float = Field(description="valid at any number of looks: 1 / the largest e-value so far")
    level: str | None = Field(None, description="for the null `levels`: the level k with the largest e-value now")
    fired_at: datetime | None = Field(None, description="arrival of the label that completed the evidence")
    fired_after: int | None = Field(None, description="labels until then")
    acknowledged: Acknowledgement | None = None
    history: list[EvidencePoint] = Field(default_factory=list, description="thinned out to at most 200 points")


class WeightedEvidence(BaseModel):
    """Sequential test of "the ECE of all answers so far is within the tolerance", by labels with a propensity."""

    statement: str = Field(description="null hypothesis that is refuted once the alarm has fired, in plain words")
    tolerance: float
    floor: float = Field(description="answers with a smaller propensity are excluded")
    threshold: float = Field(description="the alarm fires when the e-value reaches this")
    state: Literal["quiet", "fired"]
    labels: int = Field(description="labels whose propensity is the floor or more")
    left_out: int = Field(description="labels whose propensity is smaller")
    log_e: float = Field(description="natural logarithm of the e-value now; may fall again")
    p_value: float = Field(description="valid at any number of looks: 1 / the largest e-value so far")
    fired_at: datetime | None = None
    fired_after: int | None = None
    reading: str


class Alarm(BaseModel):
    """State of a version's alarm. A restart does not reset it; a new version, or re-arming, starts it anew."""

    state: Literal["quiet", "notice", "fired", "acknowledged"] = Field(
        description="fired: the null that pages is refuted; notice: another one is"
    )
    reading: str
    nulls: list[AlarmOf] = Field(description="the tests, paging ones first; all are about the labelled traffic")
    weighted: WeightedEvidence | None = Field(None, description="about all answers; null without propensities")
    notice: str | None = Field(None, description="set if the labelled traffic differs from all traffic")
    rearmings: list[Rearming] = Field(
        default_factory=list, description="all other fields are about the labels since the last one"
    )

    @property
    def refuted_null(self) -> AlarmOf | None:
        """Refuted null hypothesis: one that pages before one that does not, then the one that fired first."""
        refuted = [null for null in self.nulls if null.state != "quiet"]
        return min(refuted, key=lambda null: (not null.pages, null.fired_after or 0), default=None)

    @property
    def refuted_statement(self) -> str | None:
        """Statement that the evidence refutes: the refuted null hypothesis, else that of the weighted evidence."""
        if (null := self.refuted_null) is not None:
            return null.statement
        return self.weighted.statement if self.weighted and self.weighted.state == "fired" else None

    @property
    def of_positive(self) -> AlarmOf | None:
        """Test of p(positive), if there is one."""
        return next((null for null in self.nulls if null.null == "positive"), None)

    @property
    def is_positive_refuted(self) -> bool:
        """Whether the null hypothesis about p(positive) is refuted."""
        return self.of_positive is not None and self.of_positive.state != "quiet"

    @property
    def is_about_levels_only(self) -> bool:
        """Whether null hypotheses are refuted, and all of them are about levels."""
        refuted = {null.null for null in self.nulls if null.state != "quiet"}
        return refuted == {"levels"}

    @property
    def ratio_tolerance(self) -> float | None:
        """Largest acceptable expected / observed positives; None if p(positive) is not tested."""
        return None if self.of_positive is None else self.of_positive.ratio_tolerance


class Advice(BaseModel):
    """Whether recalibrating on the labels so far would help. Each label is scored by a fit to the labels before it."""

    helps: Literal["yes", "no", "not_known"] = Field(
        description="yes: e-value 20 or more, mean gain above 0; no: it did not score better; else not known yet"
    )
    labels: int
    served_log_loss: float | None = Field(
        None, description="mean log loss in nats per label, of right or wrong under the confidence"
    )
    recalibrated_log_loss: float | None = None
    log_e: float = Field(0.0, description="evidence that the mean gain so far is above 0, in nats")
    reading: str = Field(description="the advice, one sentence")
    basis: str = Field("", description="numbers behind the advice: log losses and evidence")
    command: str | None = None


class BrokenPromise(BaseModel):
    """Sequential test of "at every label, acting answers are wrong at most as often as promised"."""

    state: Literal["quiet", "fired"]
    statement: str = Field(description="null hypothesis that is refuted once the alarm has fired, in plain words")
    threshold: float = Field(description="the alarm fires when the e-value reaches this")
    log_e: float = Field(description="natural logarithm of the e-value now; may fall again")
    p_value: float = Field(description="valid at any number of looks: 1 / the largest e-value so far")
    fired_at: datetime | None = None
    fired_after: int | None = Field(None, description="labels of acting answers until then")


class ActingAlone(BaseModel):
    """Evidence on a version's promise to act alone, from all its answers so far."""

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
    promised_share: float | None = Field(
        None, description="share of acting answers on the data that the threshold was chosen on"
    )
    labels: int = Field(description="labels of acting answers that the evidence uses, as they first arrived")
    wrong: int
    risk: float | None = Field(None, description="wrong / labels")
    risk_lower: float | None = Field(None, description="confidence sequence: holds after every label at once")
    risk_upper: float | None = None
    escalated_labels: int = Field(description="labels of answers that were escalated")
    left_out: int = Field(description="labels of acting answers that the audit had not asked for")
    audit_share: float = Field(description="share of the acting answers whose labels the service asks for; 0: none")
    more_labels: int | None = Field(
        None, description="about how many labels it takes to detect an error rate of twice the promised one from now on"
    )
    alarm: BrokenPromise
    reading: str
