"""Figures of labelled answers, of the more probable class and of the positive one, as fields of the report."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from trueodds.metrics import DecisionCost, Threshold
from trueodds.metrics.decisions.acting import ActingThreshold
from trueodds.reports.schemas.labelling import LOWER, UPPER

Binning = Literal["width", "mass"]


class Bin(BaseModel):
    """Labelled answers with a confidence in (lo, hi]; means are null in an empty bin."""

    lo: float
    hi: float
    count: int
    mean_confidence: float | None
    accuracy: float | None
    accuracy_lower: float | None = Field(description="exact binomial (Clopper-Pearson) interval of the accuracy")
    accuracy_upper: float | None
    gap: float | None = Field(description="accuracy - mean confidence; negative: over-confident")


class WorstBin(BaseModel):
    """Where the MCE comes from; with a small count it says little."""

    lo: float
    hi: float
    count: int


class Ece(BaseModel):
    """The expected calibration error in one kind of bins."""

    ece: float = Field(description="plug-in: mean |accuracy - confidence| over bins")
    estimate: float = Field(description="the part that chance adds taken out; high where the error is in few bins")
    lower: float = Field(description=LOWER)
    upper: float = Field(description=UPPER)
    floor_mean: float = Field(description="mean ECE of a perfectly calibrated model on as many answers")
    floor_p95: float = Field(description="its 95th percentile")


class PositiveFigures(BaseModel):
    """Figures of p(positive), the probability of one of two classes, over all of [0, 1]; null without labels.

    Errors above and below one half, which may cancel in the figures of the more probable class, add up in these.
    """

    label: str = Field(description="the positive class")
    prevalence: float | None = Field(None, description="share of the labels that are positive")
    prevalence_lower: float | None = Field(None, description="exact binomial (Clopper-Pearson)")
    prevalence_upper: float | None = None
    mean_probability: float | None = Field(None, description="of the labelled answers; should equal the prevalence")
    signed_gap: float | None = Field(None, description="prevalence - mean probability; negative: p is too high")
    signed_gap_lower: float | None = Field(None, description="as that of the report")
    signed_gap_upper: float | None = None
    expected: float | None = Field(None, description="sum of p(positive) over the labels: the positives it expects")
    observed: int | None = Field(None, description="positive labels")
    ratio: float | None = Field(
        None, description="expected / observed, calibration in the large; above 1: p is too high; null: none observed"
    )
    ratio_lower: float | None = Field(None, description="exact for one look, with few positives, too")
    ratio_upper: float | None = Field(None, description="null: no limit, for none was observed")
    positives_to_come: int | None = Field(
        None, description="about how many more would show the ratio within its tolerance, at 95%; null: none would"
    )
    labels_to_come: int | None = Field(None, description="how many labels bring them, at the rate so far")
    binning: Binning = Field("mass", description="of `ece`, `bins` and the test")
    ece: float | None = Field(None, description="plug-in: mean |share of positive labels - mean probability| over bins")
    ece_estimate: float | None = Field(None, description="the part that chance adds taken out")
    ece_lower: float | None = Field(None, description=LOWER)
    ece_upper: float | None = Field(None, description=UPPER)
    floor_mean: float | None = Field(None, description="mean ECE of perfectly calibrated ones on as many answers")
    floor_p95: float | None = Field(None, description="its 95th percentile")
    ece_by_binning: dict[Binning, Ece] = Field(default_factory=dict)
    smooth_ece: float | None = None
    mce: float | None = None
    mce_bin: WorstBin | None = None
    ks: float | None = None
    ks_p_value: float | None = None
    calibration_p_value: float | None = Field(
        None, description="at one look: of the null that every p(positive) is the probability of being positive"
    )
    nll: float | None = Field(None, description="as that of the report: of two classes it is the same")
    nll_lower: float | None = None
    nll_upper: float | None = None
    nll_unseen: float | None = Field(
        None, description="nats that a wrong answer at the surest confidence would cost, where the limits leave it out"
    )
    brier: float | None = Field(None, description="mean of (p(positive) - [label is positive])^2, 0 to 1")
    brier_scale: str = Field("0 to 1", description="of `brier`: half of that over both classes")
    brier_lower: float | None = None
    brier_upper: float | None = None
    bins: list[Bin] = Field(description="confidence: p(positive); accuracy: the share of positive labels")


class Decisions(BaseModel):
    """Of the labelled answers, with an alert wherever p(positive) is above a threshold; at one look."""

    label: str = Field(description="the positive class")
    thresholds: list[Threshold]
    cost: DecisionCost | None = Field(None, description="with costs: at the threshold that they call for")
    reading: str = Field("", description="the cost in plain words")


class MayAct(BaseModel):
    """From which confidence on the answers of a table may act alone, at one look at its labels."""

    threshold: ActingThreshold
    reading: str = Field(description="the threshold and what it promises, in plain words")
