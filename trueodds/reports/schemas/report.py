"""The calibration report: numbers, the quantity that each estimates, and what to do."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from trueodds.processes.choices import Binning
from trueodds.reports.schemas.alarm import ActingAlone, Advice, Alarm
from trueodds.reports.schemas.figures import (
    Bin,
    ClassShares,
    Decisions,
    Ece,
    ExpectedDecisions,
    MayAct,
    OrderedFigures,
    PositiveFigures,
    Rounding,
    WorstBin,
)
from trueodds.reports.schemas.group_alarms import GroupAlarms
from trueodds.reports.schemas.groups import NO_TAG, Slice, Trend
from trueodds.reports.schemas.judge import JudgeFigures
from trueodds.reports.schemas.labelling import LOWER, UPPER, Labelling
from trueodds.reports.schemas.sets import SetCoverage
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
    """Answers that the report covers. Times are those of the PREDICTION; sums are kept by whole hours."""

    since: datetime | None = Field(None, description="rounded down to the whole hour; null: from the first answer on")
    until: datetime | None = Field(None, description="exclusive; rounded up to the whole hour; null: until now")
    last: int | None = Field(None, description="only the labels that arrived last, this many at most")
    predicted_class: str | None = Field(None, description="only answers of this class")
    tag: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether the window holds all answers since the start."""
        return self == Window()

    @property
    def is_group(self) -> bool:
        """Whether the window holds the answers of one class or tag only."""
        return self.predicted_class is not None or self.tag is not None

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of the report's address that select this window; `class_` for class."""
        times = {"since": self.since, "until": self.until}
        groups = {"tag": self.tag, "class_": self.predicted_class}
        known = {name: f"{time:%Y-%m-%dT%H:%M:%SZ}" for name, time in times.items() if time}
        return known | {name: group for name, group in groups.items() if group is not None}

    @property
    def words(self) -> str:
        """Description of the answers in words; empty for all answers."""
        words = []
        if self.predicted_class is not None:
            words.append(f"of class {self.predicted_class}")
        if self.tag is not None:
            words.append("without a tag" if self.tag == NO_TAG else f"with tag {self.tag}")
        since, until = (None if time is None else f"{time:%Y-%m-%d %H:%M} UTC" for time in (self.since, self.until))
        if since and until:
            words.append(f"given from {since} to before {until}")
        elif since or until:
            words.append(f"given from {since} on" if since else f"given before {until}")
        return " ".join(words)


class Check(BaseModel):
    """First thing to look at if the model is off."""

    about: Literal["time", "tag", "class"]
    reading: str
    window: Window | None = Field(
        None, description="answers to look at; null: none stand out, or they are not whole hours"
    )


class KnownVersion(BaseModel):
    """A version that a report can be asked for."""

    model: str
    version: str
    role: Literal["default", "shadow", "recalibrated", "published", "past", "observed", "unknown"] = Field(
        description="past: its bundle is gone; observed: another server answers and sends its answers here;"
        " unknown: the service only reads its store"
    )


class Held(BaseModel):
    """Labels for ids that no prediction has yet. They count once the prediction arrives."""

    labels: int
    oldest: datetime = Field(description="arrival of the label that has waited longest")


class Maturing(BaseModel):
    """Answers of a version with late labels. Each answer counts when its window closes, with the label it has then."""

    window: str = Field(description="length of the window after the answer, such as 45d")
    unlabelled_means: Literal["ok", "unknown"] = Field(
        description="meaning of a missing label when the window closes. ok: the answer was right (with a positive"
        " class: the true class is the other one); unknown: no label"
    )
    maturing: int = Field(description="answers whose window is open; they do not count yet")
    matured: int = Field(description="answers whose window has closed")
    assumed: int = Field(description="of these, answers without a label that count as ok")
    after_window: int = Field(
        description="labels that arrived after the window; one that replaces another is a correction"
    )
    reading: str


class Report(BaseModel):
    """Calibration report of one model version: agreement of its confidences with the labels. Null without labels.

    `trueodds.Client.report` reads it from a service, `trueodds report` computes it from a table. `str(report)` gives
    the main numbers and the reading in a few lines; `model_dump_json` gives all numbers.

    Examples:
        >>> from trueodds.reports import report_of
        >>> from trueodds.sums.answers import AnswerSums
        >>> from trueodds.sums.sums import CalibrationSums
        >>> sums = CalibrationSums.from_top([0.9, 0.8, 0.7, 0.6] * 100, [True, True, False, True] * 100)
        >>> report = report_of("mail", "7", AnswerSums(sums.cells[0].astype(int), sums))
        >>> report.answers, report.verdict, round(report.ece, 3)
        (400, 'leans_uneven', 0.35)
        >>> print(str(report).splitlines()[0])
        mail 7: 400 answers, 400 with their labels
    """

    model: str
    version: str
    window: Window = Window()
    verdict: Verdict = Field(
        description="over_confident, under_confident, uneven, off_at_times: by the alarm's evidence, valid at any"
        " number of looks; leans_...: more than chance at one look; within_tolerance: the ECE's 95% interval is within"
        " it, at one look. For a model with a positive class this is the verdict on p(positive), with too_high and"
        " too_low in place of over_confident and under_confident"
    )
    top_label_verdict: Verdict | None = Field(
        None, description="for a model with a positive class: verdict on the more probable class's confidence"
    )
    tolerance: float = Field(0.02, description="largest acceptable calibration error (ECE), as the alarm uses it")
    ratio_tolerance: float | None = Field(
        None, description="for a model with a positive class: largest acceptable expected / observed positives"
    )
    reading: str = Field(description="meaning of the numbers in plain words")
    headline: str = Field(description="first part of the reading: the result")
    acting: ActingAlone | None = Field(
        None, description="for a version with a promise to act alone: its share of the answers, and its errors"
    )
    cautions: list[str] = Field(description="second part of the reading: what to keep in mind")
    answers: int
    labelled: int
    corrected: int = Field(
        0,
        description="labels that another class has replaced since. All numbers use the labels as they are now, except"
        " the alarm's evidence. Labels removed by retention are not counted",
    )
    coverage: float | None = Field(description="labelled / answers")
    one_look: bool = Field(False, description="true for a table of answers, all there at once, without an alarm")
    error_rate: float | None = Field(None, description="1 - accuracy")
    accuracy: float | None = None
    accuracy_lower: float | None = None
    accuracy_upper: float | None = None
    mean_confidence: float | None = None
    signed_gap: float | None = Field(None, description="accuracy - mean confidence; negative: over-confident")
    signed_gap_lower: float | None = Field(
        None, description="confidence sequence: valid after every label; in a window, exact for one look"
    )
    signed_gap_upper: float | None = None
    level: float = Field(description="confidence level of the intervals")
    binning: Binning = Field("width", description="kind of bins of `ece`, `bins` and the verdict")
    ece: float | None = Field(
        None, description="expected calibration error, plug-in: mean |accuracy - confidence| over bins"
    )
    ece_estimate: float | None = Field(
        None,
        description="ECE without the part that chance adds; too high if the error is in few bins",
    )
    ece_lower: float | None = Field(None, description=LOWER)
    ece_upper: float | None = Field(None, description=UPPER)
    floor_mean: float | None = Field(
        None, description="mean ECE of a perfectly calibrated model on the same number of answers"
    )
    floor_p95: float | None = Field(None, description="95th percentile of that ECE")
    ece_by_binning: dict[Binning, Ece] = Field(default_factory=dict)
    smooth_ece: float | None = Field(None, description="smooth ECE: without bins, Gaussian kernel at its fixed point")
    mce: float | None = Field(None, description="the largest |accuracy - mean confidence| of a bin")
    mce_bin: WorstBin | None = None
    ks: float | None = Field(None, description="largest |cumulative accuracy - confidence|")
    ks_p_value: float | None = Field(None, description="probability of a KS this large under perfect calibration")
    calibration_p_value: float | None = Field(
        None, description="for a table, at one look; null hypothesis: every confidence is the true probability"
    )
    nll: float | None = Field(
        None, description="negative log-likelihood in nats; null (like brier) without all probabilities"
    )
    nll_lower: float | None = None
    nll_upper: float | None = None
    nll_unseen: float | None = Field(
        None, description="nats that a wrong answer at the highest confidence would cost, if the limits exclude it"
    )
    brier: float | None = Field(None, description="Brier score over all classes, 0 to 2")
    brier_scale: str = Field("0 to 2, over all classes", description="scale of `brier`; `positive` has its own")
    brier_lower: float | None = None
    brier_upper: float | None = None
    rounding: Rounding | None = Field(
        None,
        description="for a table with all probabilities: their resolution, and answers that ruled out what happened",
    )
    bins: list[Bin]
    positive: PositiveFigures | None = Field(
        None, description="figures of p(positive), for a model with a positive class"
    )
    ordered: OrderedFigures | None = Field(
        None,
        description="figures of the levels, for ordered classes; not for one class or tag, nor with `last`",
    )
    decisions: Decisions | None = Field(
        None, description="alerts by p(positive), for a model with a positive class; not for one class or tag"
    )
    expected: list[ExpectedDecisions] = Field(
        default_factory=list,
        description="expected precision and recall of the answers without a label; not for one class or tag",
    )
    class_shares: ClassShares | None = Field(
        None,
        description="class shares of the answers by their scores, if only the shares have changed (prior shift). The"
        " reference rows are those of the card, else (with `since`) the answers with a label from before. null: there"
        " are no reference rows, or every answer has a label; not for one class or tag",
    )
    may_act: MayAct | None = Field(
        None, description="for a table with labels: confidence from which on its answers may act alone"
    )
    judge: JudgeFigures | None = Field(
        None, description="estimates from a judge's labels and human ones; null: no judge's labels"
    )
    held: Held | None = Field(
        None, description="labels of the model that are waiting for their predictions; null: none"
    )
    maturing: Maturing | None = Field(
        None, description="for a version whose labels count when a window closes; null: they count on arrival"
    )
    groups: GroupAlarms | None = Field(None, description="alarms by tag and by predicted class; null: no service")
    sets: SetCoverage | None = Field(
        None, description="coverage of conformal sets, live over all labels so far; null: there are no sets"
    )
    offline: dict[str, Any] = Field(description="the same numbers on the test set, from the model's card")
    estimands: dict[str, str] = Field(default_factory=dict, description="the quantity that each number estimates")
    versions: list[Slice] = Field(default_factory=list, description="one row for each version of the model")
    classes: list[Slice] | None = Field(None, description="with by=class: one row for each predicted class")
    tags: list[Slice] | None = Field(None, description="with by=tag: one row for each tag")
    confidence_sources: list[Slice] | None = Field(
        None,
        description="with by=confidence_source: one row for each source of confidences, such as logprob or votes",
    )
    trend: Trend | None = Field(None, description="with trend=...: figures over time")
    labelling: Labelling = Labelling()
    alarm: Alarm | None = None
    advice: Advice | None = None
    checks: list[Check] = Field(
        default_factory=list, description="if it is off: since when, which tag, which class; else empty"
    )
    known: list[KnownVersion] = Field(default_factory=list, description="versions that a report can be asked for")

    @property
    def counts(self) -> str:
        """The model's name and version, and the numbers of answers and of labels in words."""
        labelled = f"{self.labelled:,} with {'its label' if self.labelled == 1 else 'their labels'}"
        return f"{self.model} {self.version}: {plural(self.answers, 'answer')}, {labelled}"

    def __str__(self) -> str:
        """Return the main numbers and the reading in a few lines."""
        lines = [self.counts]
        for one in self.sets.levels if self.sets else ():
            if one.coverage is not None:
                limits, size = f"interval {one.lower:.4f} .. {one.upper:.4f}", f"mean size {one.mean_size:.2f}"
                lines.append(f"sets of {one.level:<12.6g}{one.coverage:.4f} covered, {limits}, {size}")
        if (acting := self.acting) is not None and acting.share is not None:
            risk = "unknown" if acting.risk is None else f"{acting.risk:.4f} of {plural(acting.labels, 'label')}"
            broken = ", PROMISE BROKEN" if acting.alarm.state == "fired" else ""
            lines.insert(0, f"acts alone          {acting.share:.4f} of the answers, wrong {risk}{broken}")
        lines += [one.reading for one in self.expected]
        lines += [] if self.class_shares is None else [self.class_shares.reading]
        of_top = " of top class" if self.positive is not None else ""
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
        if (o := self.ordered) is not None and o.rps is not None:
            lines.append(f"RPS                 {o.rps:.4f} (of {o.rps_scale}), bias of the level {o.level_bias:+.4f}")
        return "\n".join([*lines, self.reading])
