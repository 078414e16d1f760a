"""What the labels tell of all answers, and the limits of it, as fields of the report."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

LOWER = "with the upper limit, at `level` for the pair; alone it is no 97.5% limit (of 95%)"
UPPER = "with the lower limit, at `level` for the pair; alone it is no 97.5% limit (of 95%)"


class Finding(BaseModel):
    """A test for something that would make the figures mislead."""

    warning: bool
    p_value: float
    statistic: float
    reading: str


class WeightedFigures(BaseModel):
    """Estimates for ALL answers, from the labelled ones weighted to look like them."""

    how: Literal["strata", "propensity"] = Field(
        description="strata: by the number of all answers in strata of confidence; propensity: as the caller gave"
    )
    ece: float
    ece_estimate: float
    ece_lower: float = Field(description=LOWER)
    ece_upper: float = Field(description=UPPER)
    accuracy: float
    signed_gap: float
    effective_n: float = Field(description="as many labels chosen at random would say as much")
    reading: str


class Crowded(BaseModel):
    """Many of all answers share one cell of confidence, inside which a choice of labels cannot be seen."""

    share: float = Field(description="of all answers")
    lower: float = Field(description="confidences of the cell")
    upper: float
    refused: bool = Field(description="more than half: nothing is weighted by strata, and no sensitivity given")
    warning: bool = Field(description="refused, and the labels are not a fair choice")
    reading: str


class Sensitivity(BaseModel):
    """All answers, if a wrong one were `ratio` times as likely to be labelled as a right one."""

    ratio: float
    ece: float
    accuracy: float
    signed_gap: float
    lowest_accuracy: float = Field(description="of all answers, if those without a label were all wrong")
    highest_accuracy: float = Field(description="of all answers, if those without a label were all right")
    impossible: float = Field(description="share of answers where too few lack labels: the nearest ratio is taken")
    reading: str


class ExpectedAccuracy(BaseModel):
    """Accuracy of the answers WITHOUT a label, by their confidences alone: true only if they are calibrated."""

    accuracy: float = Field(description="their mean confidence, by centres of cells")
    lower: float = Field(description="with `upper`, where the share that is right lies at `level`, if calibrated")
    upper: float
    answers: int = Field(description="without a label")
    reading: str


class Drift(BaseModel):
    """Confidences of all answers in the window against those of the bundle's validation rows."""

    distance: float = Field(description="largest difference of the two distribution functions (Kolmogorov-Smirnov)")
    p_value: float
    warning: bool
    validation_rows: int
    mean_confidence: float = Field(description="of all answers")
    validation_mean_confidence: float
    reading: str


class Labelling(BaseModel):
    """Limits of what the labels tell, and what they tell under a condition; null where there is nothing to say."""

    coverage: float | None = Field(None, description="labelled / answers")
    coverage_reading: str = ""
    choice: Finding | None = Field(None, description="chi-square of labelled against all answers over strata")
    crowded: Crowded | None = Field(None, description="more than a fifth of the answers in one cell of confidence")
    weighted: list[WeightedFigures] = Field(default_factory=list)
    delay: Finding | None = Field(None, description="labels that came fast against labels that came slowly; z")
    sensitivity: list[Sensitivity] = Field(
        default_factory=list, description="empty where fewer than 1% of the answers have no label"
    )
    expected_accuracy: ExpectedAccuracy | None = Field(None, description="null where every answer has a label")
    drift: Drift | None = None
