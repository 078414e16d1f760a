"""Part of the report about the live coverage of conformal sets."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from trueodds.processes.choices import SetMethod


class SetGroup(BaseModel):
    """Coverage of a group of labelled answers."""

    name: str
    labels: int
    hits: int = Field(description="labels that are in the set of their answer")
    coverage: float = Field(description="covered / labels")
    lower: float = Field(description="lower end of the exact binomial interval, for one look at one group")
    upper: float


class CoverageAlarm(BaseModel):
    """Sequential test of the coverage. It stays valid if it is looked at after every label, without end."""

    state: Literal["quiet", "fired", "refused"] = Field(
        description="refused: labels had different chances, so the test has stopped"
    )
    statement: str = Field(description="what is shown once the alarm has fired")
    floor: float = Field(description="null hypothesis: at every label, the coverage is at least this")
    threshold: float = Field(description="the alarm fires when the e-value reaches this")
    labels: int = Field(description="labels that the test has used")
    log_e: float = Field(description="natural logarithm of the e-value now; may fall again")
    p_value: float = Field(description="valid at any number of looks: 1 / the largest e-value so far")
    fired_at: datetime | None = None
    fired_after: int | None = None


class LevelCoverage(BaseModel):
    """Live coverage of the sets of one level, over all labels so far."""

    level: float
    method: SetMethod | Literal["given"] = Field(description="method; given: another server makes the sets")
    calibration_rows: int = Field(description="calibration rows of the thresholds; 0: not known, for given sets")
    floor: float = Field(description="coverage that sound sets reach in 95% of calibrations")
    labels: int
    hits: int
    coverage: float | None = Field(description="share of the labels in their sets; weighted by given propensities")
    how: Literal["plain", "propensity", "refused"] = Field(
        description="refused: the labels are no random sample of the answers, so no coverage of all answers is given"
    )
    lower: float | None = Field(
        description="lower limit at `confidence`; with an alarm and plain: valid at every label, else for one look"
    )
    upper: float | None
    confidence: float = 0.95
    p_value: float | None = Field(
        None,
        description="of a table, which is looked at once: probability of so few hits, or fewer, if the coverage were"
        " `floor`; null: there is an alarm, or the labels are weighted or refused",
    )
    mean_size: float | None = Field(description="mean number of classes in a set, of the labelled answers")
    sizes: list[SetGroup] = Field(description="by number of classes in the set")
    classes: list[SetGroup] = Field(description="by true class")
    tags: list[SetGroup] = Field(description="by tag")
    alarm: CoverageAlarm | None = Field(None, description="null: a table, which is looked at once")
    reading: str


class SetCoverage(BaseModel):
    """Coverage of the conformal sets of a version or of a table, one entry for each level."""

    levels: list[LevelCoverage]
    left_out: int = Field(0, description="labels whose first value is unknown")

    @property
    def fired_levels(self) -> list[LevelCoverage]:
        """Levels whose alarm has fired."""
        return [one for one in self.levels if one.alarm is not None and one.alarm.state == "fired"]
