"""The calibration report: numbers, what each is an estimate of, and what to make of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from trueodds.reports.schemas.alarm import ActingAlone, Advice, Alarm
from trueodds.reports.schemas.figures import Bin, Binning, Decisions, Ece, MayAct, PositiveFigures, WorstBin
from trueodds.reports.schemas.groups import NO_TAG, Slice, Trend
from trueodds.reports.schemas.labelling import LOWER, UPPER, Labelling
from trueodds.texts import plural

Verdict = Literal[
    "no_answers",
    "no_labels",
    "cannot_tell",
    "within_tolerance",
    "leans_over_confident",
    "leans_under_confident",
    "leans_uneven",
    "leans_too_high",
    "leans_too_low",
    "over_confident",
    "under_confident",
    "uneven",
    "too_high",
    "too_low",
    "off_at_times",
]


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
    role: Literal["default", "shadow", "recalibrated", "published", "past", "observed", "unknown"] = Field(
        description="past: its bundle is gone; observed: another server answers, and its answers are sent here;"
        " unknown: to a service that only reads"
    )


class Held(BaseModel):
    """Labels of ids that no prediction has so far: they count once it comes."""

    labels: int
    oldest: datetime = Field(description="when the one that waits longest came")


class Maturing(BaseModel):
    """Answers of a version whose labels come late: each counts when its window closes, with the label it has then."""

    window: str = Field(description="from the answer on: 45d")
    unlabelled_means: Literal["ok", "unknown"] = Field(
        description="what no label means when the window closes. ok: of a positive class the other one, otherwise that"
        " the answer was right; unknown: nothing"
    )
    maturing: int = Field(description="answers of the version whose window is open: in no number of labels yet")
    matured: int = Field(description="answers whose window has closed")
    assumed: int = Field(description="of these, the ones that had no label then and count as ok")
    after_window: int = Field(
        description="labels that came, or replaced another, after the window. One that replaces another is a correction"
    )
    reading: str


class Report(BaseModel):
    """How well the confidences of one model version agree with the labels that came back; null without labels."""

    model: str
    version: str
    window: Window = Window()
    verdict: Verdict = Field(
        description="over_confident, under_confident, uneven, off_at_times: by the alarm's evidence, so however often"
        " one looks; leans_...: more than chance at one look; within_tolerance: the ECE's 95% interval is, at one look."
        " Of a model with a positive class it is the verdict of p(positive), with too_high and too_low in place of"
        " over_confident and under_confident"
    )
    top_label_verdict: Verdict | None = Field(
        None, description="of a model with a positive class: that of the more probable class's confidence"
    )
    tolerance: float = Field(0.02, description="calibration error (ECE) that is put up with: the alarm's")
    ratio_tolerance: float | None = Field(
        None, description="of a model with a positive class: expected / observed positives that are put up with"
    )
    reading: str = Field(description="what the numbers mean, in plain words")
    headline: str = Field(description="the reading's first part: what was found")
    acting: ActingAlone | None = Field(
        None, description="of a version with a promise to act alone: how much of its work it does, and how well"
    )
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
    nll_unseen: float | None = Field(
        None, description="nats that a wrong answer at the surest confidence would cost, where the limits leave it out"
    )
    brier: float | None = Field(None, description="Brier score over all classes, 0 to 2")
    brier_scale: str = Field("0 to 2, over all classes", description="of `brier`; that of `positive` has its own")
    brier_lower: float | None = None
    brier_upper: float | None = None
    bins: list[Bin]
    positive: PositiveFigures | None = Field(None, description="of a model with a positive class, one of two")
    decisions: Decisions | None = Field(
        None, description="of a model with a positive class, but for one class or tag: alerts by p(positive)"
    )
    may_act: MayAct | None = Field(
        None, description="of a table with labels: the confidence from which on its answers may act alone"
    )
    held: Held | None = Field(None, description="labels of the model that wait for their predictions; null: none")
    maturing: Maturing | None = Field(
        None, description="of a version whose labels count when a window closes; null: they count when they come"
    )
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
        if (acting := self.acting) is not None and acting.share is not None:
            risk = "unknown" if acting.risk is None else f"{acting.risk:.4f} of {plural(acting.labels, 'label')}"
            broken = ", PROMISE BROKEN" if acting.alarm.state == "fired" else ""
            lines.insert(0, f"acts alone          {acting.share:.4f} of the answers, wrong {risk}{broken}")
        of_top = " of the top class" if self.positive is not None else ""
        if self.ece is not None:
            interval = f"{100 * self.level:.6g}% interval {self.ece_lower:.4f} .. {self.ece_upper:.4f}"
            floor = f"noise floor {self.floor_mean:.4f} (95th percentile {self.floor_p95:.4f})"
            lines += [
                f"ECE{of_top:<17}{self.ece:.4f}, {interval}, {floor}",
                f"accuracy            {self.accuracy:.4f}, mean confidence {self.mean_confidence:.4f}",
            ]
        if (p := self.positive) is not None and p.ece is not None:
            mean = f"mean {p.mean_probability:.4f}, prevalence {p.prevalence:.4f}"
            lines.append(f"p({p.label})  ECE {p.ece:.4f}, interval {p.ece_lower:.4f} .. {p.ece_upper:.4f}, {mean}")
        if self.nll is not None:
            lines.append(f"NLL, Brier score    {self.nll:.4f}, {self.brier:.4f} (of {self.brier_scale})")
            if p is not None and p.brier is not None:
                lines.append(f"Brier score of p    {p.brier:.4f} (of {p.brier_scale})")
        return "\n".join([*lines, self.reading])
