"""Part of the report about a judge: estimates from its labels and human ones together, and its own error rates."""

from __future__ import annotations

from pydantic import BaseModel, Field


class PoweredFigure(BaseModel):
    """Estimate for all answers, beside that from the human labels alone."""

    value: float
    lower: float = Field(description="with `upper`: interval at `level`, for one look")
    upper: float
    human_value: float = Field(description="from the human labels alone")
    human_lower: float
    human_upper: float
    weight: float = Field(description="weight of the judge's labels, 0 to 1, as the data chose it")
    saving: float = Field(description="human labels alone would have to be this many times as many")
    squared_correlation: float = Field(description="of the judge's and the human labels")


class JudgeBin(BaseModel):
    """Signed calibration error of a bin of confidence: accuracy - mean confidence."""

    lo: float
    hi: float
    answers: int
    labels: int = Field(description="human labels")
    mean_confidence: float = Field(description="of all answers in the bin")
    gap: PoweredFigure | None = Field(description="null with fewer than 10 human labels")


class JudgeClass(BaseModel):
    """Error rates of the judge on one class, with human labels as the truth."""

    name: str
    labels: int = Field(description="human labels of this class")
    judge_labels: int = Field(description="of the answers with a human label, those that the judge gives this class")
    sensitivity: float | None = Field(description="share of the answers of this class that the judge finds")
    sensitivity_lower: float
    sensitivity_upper: float
    specificity: float | None = Field(description="share of the other answers that the judge does not give this class")
    specificity_lower: float
    specificity_upper: float


class Confusion(BaseModel):
    """A pair of classes that the judge confuses."""

    human: str
    judge: str
    answers: int


class JudgeFigures(BaseModel):
    """Estimates from few human labels and a judge's labels of all answers (prediction-powered inference).

    All other figures of the report use human labels only.
    """

    column: str = Field(description="column of the judge's labels; in a service that of an export")
    answers: int
    judge_labels: int = Field(description="answers with a judge's label")
    labels: int = Field(description="human labels, with a propensity if the table has propensities")
    effective_n: float | None = Field(None, description="number of plainly drawn human labels with the same precision")
    accuracy: PoweredFigure | None = Field(None, description="null with fewer than 30 human labels")
    signed_gap: PoweredFigure | None = Field(None, description="accuracy - mean confidence; negative: over-confident")
    prevalence: PoweredFigure | None = Field(None, description="share of the positive class, if there is one")
    label: str | None = Field(None, description="the positive class")
    bins: list[JudgeBin] = Field(default_factory=list, description="bins of equal width")
    agreement: float | None = Field(None, description="share of the human labels with which the judge agrees")
    agreement_lower: float = 0.0
    agreement_upper: float = 1.0
    classes: list[JudgeClass] = Field(
        default_factory=list, description="empty if the table says only whether answers are right"
    )
    confusions: list[Confusion] = Field(default_factory=list, description="commonest first, at most 20; not weighted")
    unlike_p_value: float | None = Field(
        None, description="probability that a random sample of human labels looks as unlike all answers to the judge"
    )
    warning: bool = Field(False, description="that p-value is below 0.001: the human labels are no random sample")
    reading: str
