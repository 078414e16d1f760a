"""Figures of the labelled answers, for the more probable class and for the positive class."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from trueodds.metrics import DecisionCost, Threshold
from trueodds.metrics.decisions.acting import ActingThreshold
from trueodds.reports.schemas.labelling import LOWER, UPPER

Binning = Literal["width", "mass"]


class Bin(BaseModel):
    """Labelled answers with a confidence in (lo, hi]. Means are null in an empty bin."""

    lo: float
    hi: float
    count: int
    mean_confidence: float | None
    accuracy: float | None
    accuracy_lower: float | None = Field(description="exact binomial (Clopper-Pearson) interval of the accuracy")
    accuracy_upper: float | None
    gap: float | None = Field(description="accuracy - mean confidence; negative: over-confident")


class WorstBin(BaseModel):
    """Bin of the largest gap (MCE). With a small count it says little."""

    lo: float
    hi: float
    count: int


class Ece(BaseModel):
    """Expected calibration error with one kind of bins."""

    ece: float = Field(description="plug-in: mean |accuracy - confidence| over bins")
    estimate: float = Field(description="ECE without the part that chance adds; too high if the error is in few bins")
    lower: float = Field(description=LOWER)
    upper: float = Field(description=UPPER)
    floor_mean: float = Field(description="mean ECE of a perfectly calibrated model on the same number of answers")
    floor_p95: float = Field(description="95th percentile of that ECE")


class PositiveFigures(BaseModel):
    """Figures of p(positive), the probability of one of two classes, over all of [0, 1]. Null without labels.

    Errors above and below one half can cancel in the figures of the more probable class. Here they add up.
    """

    label: str = Field(description="the positive class")
    prevalence: float | None = Field(None, description="share of the labels that are positive")
    prevalence_lower: float | None = Field(None, description="exact binomial (Clopper-Pearson)")
    prevalence_upper: float | None = None
    mean_probability: float | None = Field(
        None, description="mean of the labelled answers; should equal the prevalence"
    )
    signed_gap: float | None = Field(None, description="prevalence - mean probability; negative: p is too high")
    signed_gap_lower: float | None = Field(None, description="see the report's `signed_gap_lower`")
    signed_gap_upper: float | None = None
    expected: float | None = Field(None, description="expected positives: sum of p(positive) over the labels")
    observed: int | None = Field(None, description="positive labels")
    ratio: float | None = Field(
        None, description="expected / observed (calibration in the large); above 1: p is too high; null: none observed"
    )
    ratio_lower: float | None = Field(None, description="exact for one look, also with few positives")
    ratio_upper: float | None = Field(None, description="null: no limit, because none was observed")
    positives_to_come: int | None = Field(
        None, description="about how many more positives would show the ratio within its tolerance at 95%; null: none"
    )
    labels_to_come: int | None = Field(None, description="about how many labels contain them, at the rate so far")
    binning: Binning = Field("mass", description="kind of bins of `ece`, `bins` and the test")
    ece: float | None = Field(None, description="plug-in: mean |share of positive labels - mean probability| over bins")
    ece_estimate: float | None = Field(None, description="ECE without the part that chance adds")
    ece_lower: float | None = Field(None, description=LOWER)
    ece_upper: float | None = Field(None, description=UPPER)
    floor_mean: float | None = Field(
        None, description="mean ECE of a perfectly calibrated p on the same number of answers"
    )
    floor_p95: float | None = Field(None, description="95th percentile of that ECE")
    ece_by_binning: dict[Binning, Ece] = Field(default_factory=dict)
    smooth_ece: float | None = None
    mce: float | None = None
    mce_bin: WorstBin | None = None
    ks: float | None = None
    ks_p_value: float | None = None
    calibration_p_value: float | None = Field(
        None, description="p-value at one look; null hypothesis: every p(positive) is the true probability"
    )
    nll: float | None = Field(None, description="same as the report's NLL, because there are two classes")
    nll_lower: float | None = None
    nll_upper: float | None = None
    nll_unseen: float | None = Field(
        None, description="nats that a wrong answer at the highest confidence would cost, if the limits exclude it"
    )
    brier: float | None = Field(None, description="mean of (p(positive) - [label is positive])^2, 0 to 1")
    brier_scale: str = Field("0 to 1", description="scale of `brier`, half of the score over both classes")
    brier_lower: float | None = None
    brier_upper: float | None = None
    bins: list[Bin] = Field(description="confidence: p(positive); accuracy: the share of positive labels")


class Decisions(BaseModel):
    """Results of alerts on the labelled answers at several thresholds of p(positive), at one look."""

    label: str = Field(description="the positive class")
    thresholds: list[Threshold]
    cost: DecisionCost | None = Field(None, description="with costs: result at the threshold that they imply")
    reading: str = Field("", description="the cost in plain words")


class MayAct(BaseModel):
    """Confidence from which on the answers of a table may act alone, at one look at its labels."""

    threshold: ActingThreshold
    reading: str = Field(description="the threshold and what it promises, in plain words")
