"""The report's part about acting alone: how much is automated, and how often that is wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field


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
