"""Figures of the labelled answers: of the more probable class, the positive class, ordered classes, rounded rows."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from trueodds.metrics import DecisionCost, ExpectedDecision, PriorShare, Threshold
from trueodds.metrics.decisions.acting import ActingThreshold
from trueodds.processes.choices import Binning
from trueodds.reports.schemas.labelling import LOWER, UPPER


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


class ExpectedClass(BaseModel):
    """Expected results of one class against the rest. An alert is an answer that predicts the class."""

    name: str
    decision: ExpectedDecision


class ExpectedDecisions(BaseModel):
    """Expected results of alerts on the answers WITHOUT a label, by their probabilities alone.

    They hold only if the calibration holds on these answers. As soon as labels contradict it, they are withdrawn.
    """

    about: Literal["positive", "acting", "classes"] = Field(
        description="positive: alerts by p(positive); acting: answers that act alone, and whether they are right;"
        " classes: each class against the rest"
    )
    label: str = Field(description="the positive class; `right` for answers that act alone; else empty")
    threshold: float | None = Field(None, description="chosen threshold: the setting's, or that of the model's card")
    answers: int = Field(description="answers without a label")
    decisions: list[ExpectedDecision] = Field(description="results by threshold; empty if withdrawn")
    classes: list[ExpectedClass] = Field(description="results by class; empty if withdrawn")
    fit_rows: int | None = Field(
        None,
        description="rows that fitted the calibrator, which the limits allow for; null: not known, so they do not",
    )
    condition: str = Field(description="condition of the numbers in plain words")
    withdrawn: str | None = Field(None, description="how labels contradict the calibration; null: they do not")
    reading: str


class ClassShare(BaseModel):
    """Share of a class among the answers, if only the class shares have changed."""

    name: str
    reference: float = Field(description="its share among the reference rows")
    em: PriorShare = Field(description="by expectation maximisation on a bias-corrected temperature")
    bbse: PriorShare = Field(description="by the confusion matrix of the reference rows (BBSE)")
    bias: float = Field(description="its bias in the calibrator of the EM, beside `slope`")


class ClassShares(BaseModel):
    """Class shares of the answers under prior shift, by their scores alone: p(x | y) is that of the reference rows.

    They are missing where a test rejects this. As soon as labels contradict them, they are withdrawn.
    """

    answers: int = Field(description="all answers, whose labels are not used")
    reference_rows: int = Field(description="labelled rows from before the shift")
    classes: list[ClassShare] = Field(description="shares by class; empty if refused or withdrawn")
    changed_classes: list[str] = Field(
        default_factory=list,
        description="classes with another share in the answers' population than in that of the reference, at `level`"
        " for all classes at once",
    )
    slope: float | None = Field(
        None,
        description="slope of the EM's calibrator softmax(slope ln p + bias), fitted to the reference rows; null: no"
        " shares",
    )
    p_value: float | None = Field(
        None,
        description="p-value of the test that the scores of the reference's classes can give those of the answers;"
        " null: it was not possible",
    )
    condition: str = Field(description="condition of the shares in plain words")
    refused: str | None = Field(None, description="why there are no shares; null: nothing speaks against them")
    withdrawn: str | None = Field(None, description="how labels contradict the shares; null: they do not")
    reading: str


class MayAct(BaseModel):
    """Confidence from which on the answers of a table may act alone, at one look at its labels."""

    threshold: ActingThreshold
    reading: str = Field(description="the threshold and what it promises, in plain words")


class AtLeastFigures(BaseModel):
    """Calibration of "at least this level", a binary question. Its probability is that of the level and of those above.

    The numbers are those of a positive class with this probability (`PositiveFigures`).
    """

    name: str = Field(description="name of the level")
    mean_probability: float = Field(description="mean of the labelled answers; should equal the share")
    share: float = Field(description="share of the labels that are this level or a higher one")
    share_lower: float = Field(description="exact binomial (Clopper-Pearson)")
    share_upper: float
    signed_gap: float = Field(description="share - mean probability; negative: the probabilities are too high")
    signed_gap_lower: float = Field(description="see the report's `signed_gap_lower`")
    signed_gap_upper: float
    ece: float = Field(description="plug-in: mean |share - mean probability| over bins")
    ece_lower: float = Field(description=LOWER)
    ece_upper: float = Field(description=UPPER)
    floor_mean: float = Field(description="mean ECE of perfectly calibrated probabilities on as many answers")
    floor_p95: float = Field(description="95th percentile of that ECE")
    p_value: float = Field(description="p-value at one look; null hypothesis: every probability is the true one")
    more_than_chance: bool = Field(
        description="by the p-values of all levels together (Holm): if all are calibrated, any is marked in at most 5%"
        " of looks"
    )


class OrderedFigures(BaseModel):
    """Figures of classes that are levels. Null without labels."""

    levels: list[str] = Field(description="names of the levels, the lowest first")
    rps: float | None = Field(
        None,
        description="ranked probability score: mean of the sum over k of (P(level >= k) - [level >= k])^2, in levels",
    )
    rps_lower: float | None = Field(None, description="with `rps_upper`: limits at `level`, for one look")
    rps_upper: float | None = None
    rps_scale: str = Field(description="scale of `rps`, which is not divided by the number of levels")
    level_bias: float | None = Field(
        None, description="mean of expected level - true level, in levels; above 0: levels are predicted too high"
    )
    level_bias_lower: float | None = Field(
        None, description="valid after every label; in a window or for a table, for one look"
    )
    level_bias_upper: float | None = None
    expected_level: float | None = Field(None, description="mean expected level; the lowest level counts 0")
    observed_level: float | None = Field(None, description="mean true level; the lowest level counts 0")
    at_least: list[AtLeastFigures] = Field(
        default_factory=list, description="one entry per level but the lowest: calibration of `at least this level`"
    )
    reading: str = Field("", description="the figures in plain words")


class Rounding(BaseModel):
    """Resolution of a table's probabilities, and its zeros for classes that came true."""

    step: float | None = Field(None, description="step of rounded probabilities, such as 0.01; null: read as exact")
    source: Literal["given", "inferred"] = Field(
        "inferred", description="whether the user gave the resolution, or the rows themselves decided"
    )
    zeros: int = Field(0, description="labelled answers whose true class has a rounded 0: below half a step")
    zeros_read_as: float | None = Field(None, description="geometric mean of the readings of these zeros in the NLL")
    nll_at_least: float | None = Field(
        None, description="lower bound of the NLL: no probabilities that round to these have less"
    )
    ruled_out: int = Field(
        0, description="labelled answers whose true class has probability 0 at full resolution: a sure, wrong answer"
    )
    possible_step: float | None = Field(
        None, description="if some are ruled out: step of which all values are multiples although every row sums to 1"
    )
    nll_if_rounded: float | None = Field(None, description="NLL if the values were rounded to `possible_step`")
    nll_if_rounded_at_least: float | None = Field(None, description="lower bound of that NLL")
    reading: str = Field("", description="what was assumed, and what follows, in plain words")
