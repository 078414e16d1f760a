"""The calibration report: numbers, what each is an estimate of, and what to make of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from trueodds.reports.alarm import Advice, Alarm
from trueodds.reports.labelling_schemas import LOWER, UPPER, Labelling
from trueodds.texts import plural

Verdict = Literal[
    "no_answers",
    "no_labels",
    "cannot_tell",
    "within_tolerance",
    "leans_over_confident",
    "leans_under_confident",
    "leans_uneven",
    "over_confident",
    "under_confident",
    "uneven",
    "off_at_times",
]
Binning = Literal["width", "mass"]
Unit = Literal["minute", "hour", "day", "month"]
MOST_MINUTES = 180
"""Minutes from its first point to its last up to which a trend is by minute, where its unit is left to us."""
NO_TAG = "(no tag)"
"""The name of answers that have none."""
ROUNDING = 1e-9
"""Shares of the same count may differ in their last digits."""


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
    brier: float | None = Field(None, description="mean of (p(positive) - [label is positive])^2, 0 to 1")
    brier_lower: float | None = None
    brier_upper: float | None = None
    bins: list[Bin] = Field(description="confidence: p(positive); accuracy: the share of positive labels")


class Window(BaseModel):
    """Which answers the report is about. Times are those of the PREDICTION; sums are kept by whole hours."""

    since: datetime | None = Field(None, description="reached out to the whole hour; null: from the first answer on")
    until: datetime | None = Field(None, description="not included; reached out to the whole hour; null: until now")
    last: int | None = Field(None, description="only the labels that arrived last, this many at most")
    predicted_class: str | None = Field(None, description="only answers of this class")
    tag: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether it holds all answers since the start."""
        return self == Window()

    @property
    def is_group(self) -> bool:
        """Whether it holds the answers of one class or tag only."""
        return self.predicted_class is not None or self.tag is not None

    @property
    def parameters(self) -> dict[str, str]:
        """Those of the report's address that ask for it; `class_` for class."""
        times = {"since": self.since, "until": self.until}
        groups = {"tag": self.tag, "class_": self.predicted_class}
        known = {name: f"{time:%Y-%m-%dT%H:%M:%SZ}" for name, time in times.items() if time}
        return known | {name: group for name, group in groups.items() if group is not None}

    @property
    def words(self) -> str:
        """Which answers, in words; empty for all of them."""
        words = []
        if self.predicted_class is not None:
            words.append(f"of class {self.predicted_class}")
        if self.tag is not None:
            words.append("without a tag" if self.tag == NO_TAG else f"with tag {self.tag}")
        if self.since:
            words.append(f"given from {self.since:%Y-%m-%d %H:%M} UTC on")
        if self.until:
            words.append(f"given before {self.until:%Y-%m-%d %H:%M} UTC")
        return " ".join(words)


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
    """Whether labels that have come confirm what the confidences promised before: how many answers are right."""

    periods: int = Field(description="of the trend, with labels")
    within: int = Field(description="of them, with `accuracy` between calibrated_lower and calibrated_upper")
    p_value: float = Field(description="chance of as many outside, or more, if all are calibrated")
    labels: int
    expected_accuracy: float = Field(description="of the labelled answers of all periods: their mean confidence")
    lower: float = Field(description="with `upper`, where their accuracy lies at (1 + level) / 2 if calibrated")
    upper: float
    accuracy: float
    confirmed: bool = Field(
        description="accuracy lies within, and p_value >= (1 - level) / 2: so at `level` of looks at calibrated answers"
    )
    reading: str


class Trend(BaseModel):
    unit: Unit
    points: list[TrendPoint]
    confirmation: Confirmation | None = Field(None, description="null without labels")


class Check(BaseModel):
    """What to look at first where the model is off."""

    about: Literal["time", "tag", "class"]
    reading: str
    window: Window | None = Field(
        None, description="the answers that it points at; null: none stand out, or they are parts of hours"
    )


class KnownVersion(BaseModel):
    model: str
    version: str
    role: Literal["default", "shadow", "published", "past", "observed"] = Field(
        description="past: its bundle is gone; observed: another server answers, and its answers are sent here"
    )


class Report(BaseModel):
    """How well the confidences of one model version agree with the labels that came back; null without labels."""

    model: str
    version: str
    window: Window = Window()
    verdict: Verdict = Field(
        description="over_confident, under_confident, uneven, off_at_times: by the alarm's evidence, so however often"
        " one looks; leans_...: more than chance at one look; within_tolerance: the ECE's 95% interval is, at one look"
    )
    tolerance: float = Field(0.02, description="calibration error (ECE) that is put up with: the alarm's")
    reading: str = Field(description="what the numbers mean, in plain words")
    headline: str = Field(description="the reading's first part: what was found")
    cautions: list[str] = Field(description="the reading's second part: what to keep in mind")
    answers: int
    labelled: int
    corrected: int = Field(
        0,
        description="labels that another class has replaced since they first came: all numbers but the alarm's"
        " evidence are of labels as they are now. Labels removed by retention are not counted",
    )
    coverage: float | None = Field(description="labelled / answers")
    one_look: bool = Field(False, description="answers of a table, all there at once; no alarm watches over them")
    error_rate: float | None = Field(None, description="1 - accuracy")
    accuracy: float | None = None
    accuracy_lower: float | None = None
    accuracy_upper: float | None = None
    mean_confidence: float | None = None
    signed_gap: float | None = Field(None, description="accuracy - mean confidence; negative: over-confident")
    signed_gap_lower: float | None = Field(
        None, description="confidence sequence: holds after every label at once; in a window, exact for one look"
    )
    signed_gap_upper: float | None = None
    level: float = Field(description="nominal coverage of the intervals")
    binning: Binning = Field("width", description="of `ece`, `bins` and the verdict")
    ece: float | None = Field(
        None, description="expected calibration error, plug-in: mean |accuracy - confidence| over bins"
    )
    ece_estimate: float | None = Field(
        None,
        description="estimate of the ECE, the part that chance adds taken out; high where the error is in few bins",
    )
    ece_lower: float | None = Field(None, description=LOWER)
    ece_upper: float | None = Field(None, description=UPPER)
    floor_mean: float | None = Field(None, description="mean ECE of a perfectly calibrated model on as many answers")
    floor_p95: float | None = Field(None, description="its 95th percentile")
    ece_by_binning: dict[Binning, Ece] = Field(default_factory=dict)
    smooth_ece: float | None = Field(None, description="smooth ECE: without bins, Gaussian kernel at its fixed point")
    mce: float | None = Field(None, description="the largest |accuracy - mean confidence| of a bin")
    mce_bin: WorstBin | None = None
    ks: float | None = Field(None, description="largest |cumulative accuracy - confidence|")
    ks_p_value: float | None = Field(None, description="chance of as large a KS under perfect calibration")
    calibration_p_value: float | None = Field(
        None, description="at one look at a table: of the null that every confidence is the probability of being right"
    )
    nll: float | None = Field(
        None, description="negative log-likelihood, nats; null, as brier, where answers come without all probabilities"
    )
    nll_lower: float | None = None
    nll_upper: float | None = None
    brier: float | None = Field(None, description="Brier score over all classes, 0 to 2")
    brier_lower: float | None = None
    brier_upper: float | None = None
    bins: list[Bin]
    positive: PositiveFigures | None = Field(None, description="of a model with a positive class, one of two")
    offline: dict[str, Any] = Field(description="the same numbers on the test set, from the model's card")
    estimands: dict[str, str] = Field(default_factory=dict, description="what each number is an estimate of")
    versions: list[Slice] = Field(default_factory=list, description="the model's versions beside each other")
    classes: list[Slice] | None = Field(None, description="with by=class: by predicted class")
    tags: list[Slice] | None = Field(None, description="with by=tag")
    trend: Trend | None = Field(None, description="with trend=...")
    labelling: Labelling = Labelling()
    alarm: Alarm | None = None
    advice: Advice | None = None
    checks: list[Check] = Field(
        default_factory=list, description="where it is off: since when, which tag, which class; empty where it is not"
    )
    known: list[KnownVersion] = Field(default_factory=list, description="what can be asked for")

    def __str__(self) -> str:
        """The main numbers and the reading, a few lines."""
        labelled = f"{self.labelled:,} with {'its label' if self.labelled == 1 else 'their labels'}"
        lines = [f"{self.model} {self.version}: {plural(self.answers, 'answer')}, {labelled}"]
        if self.ece is not None:
            interval = f"{100 * self.level:.6g}% interval {self.ece_lower:.4f} .. {self.ece_upper:.4f}"
            floor = f"noise floor {self.floor_mean:.4f} (95th percentile {self.floor_p95:.4f})"
            lines += [
                f"ECE                 {self.ece:.4f}, {interval}, {floor}",
                f"accuracy            {self.accuracy:.4f}, mean confidence {self.mean_confidence:.4f}",
            ]
        if (p := self.positive) is not None and p.ece is not None:
            mean = f"mean {p.mean_probability:.4f}, prevalence {p.prevalence:.4f}"
            lines.append(f"p({p.label})  ECE {p.ece:.4f}, interval {p.ece_lower:.4f} .. {p.ece_upper:.4f}, {mean}")
        if self.nll is not None:
            lines.append(f"NLL, Brier score    {self.nll:.4f}, {self.brier:.4f}")
        return "\n".join([*lines, self.reading])
