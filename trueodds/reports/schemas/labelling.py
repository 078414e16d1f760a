"""Labelling bias: estimates for all answers from the labelled ones, and their limits, as parts of the report."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

LOWER = "`level` holds for the pair of both limits; one limit alone of a 95% interval is not a 97.5% limit"
UPPER = LOWER


class Finding(BaseModel):
    """Test for something that would make the figures misleading."""

    warning: bool
    p_value: float
    statistic: float
    reading: str


class WeightedFigures(BaseModel):
    """Estimates for ALL answers, from labelled answers that are weighted to represent them."""

    how: Literal["strata", "propensity"] = Field(
        description="strata: by the number of all answers per stratum of confidence; propensity: by the given ones"
    )
    ece: float
    ece_estimate: float
    ece_lower: float = Field(description=LOWER)
    ece_upper: float = Field(description=UPPER)
    accuracy: float
    signed_gap: float
    effective_n: float = Field(description="number of randomly chosen labels with the same precision")
    reading: str


class Crowded(BaseModel):
    """Many of all answers share one cell of confidence. A choice of labels inside the cell cannot be detected."""

    share: float = Field(description="share of all answers")
    lower: float = Field(description="lower limit of the cell")
    upper: float
    refused: bool = Field(description="more than half: no weighting by strata, and no sensitivity")
    warning: bool = Field(description="refused, and the labels are not a random choice")
    reading: str


class Sensitivity(BaseModel):
    """Figures of all answers if a wrong answer were `ratio` times as likely to get a label as a right one."""

    ratio: float
    ece: float
    accuracy: float
    signed_gap: float
    lowest_accuracy: float = Field(description="accuracy of all answers if all unlabelled ones were wrong")
    highest_accuracy: float = Field(description="accuracy of all answers if all unlabelled ones were right")
    impossible: float = Field(
        description="share of answers where too few are unlabelled for this ratio; the nearest ratio is used"
    )
    reading: str


class ExpectedAccuracy(BaseModel):
    """Accuracy of the answers WITHOUT a label, by their confidences alone. It is valid only if they are calibrated."""

    accuracy: float = Field(description="their mean confidence, by centres of cells")
    lower: float = Field(description="with `upper`: range of the share of right answers at `level`, if calibrated")
    upper: float
    answers: int = Field(description="answers without a label")
    reading: str


class Drift(BaseModel):
    """Confidences of all answers in the window compared with those of the bundle's validation rows."""

    distance: float = Field(description="largest difference of the two distribution functions (Kolmogorov-Smirnov)")
    p_value: float
    warning: bool
    validation_rows: int
    mean_confidence: float = Field(description="mean over all answers")
    validation_mean_confidence: float
    reading: str


class LabelQueueFigures(BaseModel):
    """Answers that were drawn for labelling, and limits of the accuracy if some were skipped."""

    sample_size: int = Field(description="answers that were drawn and are still stored")
    labelled: int
    skips: int = Field(description="drawn answers that people could not label")
    waiting: int
    maturing: int = Field(description="drawn answers whose label counts when their window closes")
    lowest_accuracy: float | None = Field(
        description="weighted accuracy of all answers if all skipped ones were wrong; of the labelled and"
        " skipped ones if the report has no weighted estimate of all answers"
    )
    highest_accuracy: float | None = Field(description="the same if all skipped ones were right")
    reading: str


class Labelling(BaseModel):
    """Limits of the labels, and estimates that hold under a condition. Parts without a result are null."""

    coverage: float | None = Field(None, description="labelled / answers")
    coverage_reading: str = ""
    choice: Finding | None = Field(None, description="chi-square test of labelled against all answers over strata")
    crowded: Crowded | None = Field(
        None, description="set if more than a fifth of the answers are in one cell of confidence"
    )
    weighted: list[WeightedFigures] = Field(default_factory=list)
    queue: LabelQueueFigures | None = Field(None, description="null if no answers were drawn by POST /label-queue")
    uneven: str = Field("", description="caution if labels were drawn with different propensities")
    delay: Finding | None = Field(None, description="z test of fast labels against slow labels")
    sensitivity: list[Sensitivity] = Field(
        default_factory=list, description="empty if fewer than 1% of the answers have no label"
    )
    expected_accuracy: ExpectedAccuracy | None = Field(None, description="null if every answer has a label")
    drift: Drift | None = None
