"""Groups and periods of answers beside each other, as fields of the report."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from trueodds.reports.schemas.labelling import LOWER, UPPER

Unit = Literal["minute", "hour", "day", "month"]
MOST_MINUTES = 180
"""Minutes from its first point to its last up to which a trend is by minute, where its unit is left to us."""
NO_TAG = "(no tag)"
"""The name of answers that have none."""
ROUNDING = 1e-9
"""Shares of the same count may differ in their last digits."""


class Slice(BaseModel):
    """One predicted class, tag or version beside the others."""

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
    p_value: float | None = Field(None, description="chance of as large an ECE under perfect calibration")
    more_than_chance: bool = Field(
        False,
        description="by the p-values of all rows of the table (Benjamini-Hochberg): of those marked, at most 5% are"
        " calibrated, in the mean over many tables",
    )


class TrendPoint(BaseModel):
    """One minute, hour, day or month of predictions; null without labels."""

    start: datetime
    answers: int
    labelled: int
    accuracy: float | None = None
    mean_confidence: float | None = Field(None, description="of the labelled answers")
    ece: float | None = None
    ece_estimate: float | None = None
    ece_lower: float | None = Field(None, description=LOWER)
    ece_upper: float | None = Field(None, description=UPPER)
    floor_p95: float | None = None
    expected_accuracy: float | None = Field(
        None, description="of ALL its answers, if they are calibrated: their mean confidence, by centres of cells"
    )
    expected_lower: float | None = Field(None, description="with `expected_upper`, where it lies at `level`, if so")
    expected_upper: float | None = None
    calibrated_lower: float | None = Field(
        None, description="with `calibrated_upper`, where `accuracy` lies at `level` if the labelled are calibrated"
    )
    calibrated_upper: float | None = None

    @property
    def is_as_promised(self) -> bool:
        """Whether as many of the labelled answers are right as calibrated ones would be."""
        low, value, high = self.calibrated_lower or 0.0, self.accuracy or 0.0, self.calibrated_upper or 0.0
        return low - ROUNDING <= value <= high + ROUNDING


class Confirmation(BaseModel):
    """Whether labels that have come confirm or contradict what the confidences promised: how many are right."""

    periods: int = Field(description="of the trend, with labels")
    within: int = Field(description="of them, with `accuracy` between calibrated_lower and calibrated_upper")
    p_value: float = Field(description="chance of as many outside, or more, if all are calibrated")
    labels: int
    expected_accuracy: float = Field(description="of the labelled answers of all periods: their mean confidence")
    lower: float = Field(description="with `upper`, where their accuracy lies at (1 + level) / 2 if calibrated")
    upper: float
    accuracy: float
    gap_lower: float = Field(
        description="with `gap_upper`, the exact interval of accuracy minus expected_accuracy at `level`, at one look"
    )
    gap_upper: float
    visible_less: float | None = Field(
        description="how much less often answers would have to be right to contradict with a chance of 80%; null: none"
    )
    visible_more: float | None = Field(description="the same, more often")
    contradicted: bool = Field(
        description="accuracy lies outside of `lower` to `upper`, or p_value < (1 - level) / 2: so of calibrated"
        " answers in 1 - level of looks at most"
    )
    confirmed: bool = Field(description="not contradicted, and gap_lower and gap_upper lie within the tolerance")
    reading: str


class Trend(BaseModel):
    unit: Unit
    points: list[TrendPoint]
    confirmation: Confirmation | None = Field(None, description="null without labels")
