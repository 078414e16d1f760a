"""Groups and periods of answers, as parts of the report."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from trueodds.reports.schemas.labelling import LOWER, UPPER

Unit = Literal["minute", "hour", "day", "month"]
MOST_MINUTES = 180
"""Longest trend in minutes that is shown by minute if no unit is requested."""
NO_TAG = "(no tag)"
"""Name of the answers without a tag."""
ROUNDING = 1e-9
"""Largest rounding error between two shares of the same count."""


class Slice(BaseModel):
    """One predicted class, tag or version, as a row of a table."""

    name: str
    answers: int
    labelled: int
    accuracy: float | None = None
    accuracy_lower: float | None = None
    accuracy_upper: float | None = None
    mean_confidence: float | None = None
    signed_gap: float | None = None
    ece: float | None = None
    floor_p95: float | None = None
    p_value: float | None = Field(None, description="probability of an ECE this large under perfect calibration")
    more_than_chance: bool = Field(
        False,
        description="marked. With `limit`: by the alarms by group. Else for one look, by the p-values of all rows"
        " of the table (Benjamini-Hochberg): on average over many tables, at most 5% of the marked rows are calibrated",
    )
    limit: float | None = Field(
        None,
        description="error that a marked row exceeds, by evidence that holds at each look; null: one look, or beside"
        " rows with a limit: a tag without an alarm, which is never marked",
    )


class TrendPoint(BaseModel):
    """One minute, hour, day or month of predictions. Null without labels."""

    start: datetime
    answers: int
    labelled: int
    accuracy: float | None = None
    mean_confidence: float | None = Field(None, description="mean of the labelled answers")
    ece: float | None = None
    ece_estimate: float | None = None
    ece_lower: float | None = Field(None, description=LOWER)
    ece_upper: float | None = Field(None, description=UPPER)
    floor_p95: float | None = None
    expected_accuracy: float | None = Field(
        None, description="accuracy of ALL its answers if they are calibrated: mean confidence, by centres of cells"
    )
    expected_lower: float | None = Field(
        None, description="with `expected_upper`: range of the accuracy at `level`, if calibrated"
    )
    expected_upper: float | None = None
    calibrated_lower: float | None = Field(
        None, description="with `calibrated_upper`: range of `accuracy` at `level` if the labelled ones are calibrated"
    )
    calibrated_upper: float | None = None

    @property
    def is_as_promised(self) -> bool:
        """Whether the accuracy of the labelled answers is in the range of calibrated answers."""
        low, value, high = self.calibrated_lower or 0.0, self.accuracy or 0.0, self.calibrated_upper or 0.0
        return low - ROUNDING <= value <= high + ROUNDING


class Confirmation(BaseModel):
    """Whether the labels confirm or contradict the accuracy that the confidences promised."""

    periods: int = Field(description="periods of the trend with labels")
    within: int = Field(description="periods whose `accuracy` is between calibrated_lower and calibrated_upper")
    p_value: float = Field(description="probability of this many periods outside, or more, if all are calibrated")
    labels: int
    expected_accuracy: float = Field(description="mean confidence of the labelled answers of all periods")
    lower: float = Field(description="with `upper`: range of their accuracy at (1 + level) / 2 if calibrated")
    upper: float
    accuracy: float
    gap_lower: float = Field(
        description="with `gap_upper`: exact interval of accuracy - expected_accuracy at `level`, for one look"
    )
    gap_upper: float
    visible_less: float | None = Field(
        description="drop of the accuracy that would contradict with a probability of 80%; null: no drop would"
    )
    visible_more: float | None = Field(description="the same for a rise of the accuracy")
    contradicted: bool = Field(
        description="accuracy is outside of `lower` to `upper`, or p_value < (1 - level) / 2. Calibrated answers"
        " contradict in at most 1 - level of looks"
    )
    confirmed: bool = Field(description="not contradicted, and gap_lower and gap_upper are within the tolerance")
    reading: str


class Trend(BaseModel):
    """Figures of the answers by period."""

    unit: Unit
    points: list[TrendPoint]
    confirmation: Confirmation | None = Field(None, description="null without labels")
