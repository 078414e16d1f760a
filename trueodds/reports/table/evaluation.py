"""The report of probabilities and labels: numbers with their intervals, in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from trueodds import metrics
from trueodds.errors import ConfigError
from trueodds.evaluation.paired_differences import RowScores
from trueodds.processes.choices import TOLERANCE, Binning
from trueodds.reports.display.figure_table import LEVELS, at_least_rows, figure_rows, ordered_rows, positive_rows
from trueodds.reports.display.report_files import Content, DisplayedReport, json_tree
from trueodds.reports.figures import Figures, calibration_p_value, figures_of, positive_figures
from trueodds.reports.options import ReportOptions
from trueodds.reports.ordered_figures import ordered_figures
from trueodds.reports.resolution import rounded_figures
from trueodds.reports.schemas import Bin, Labelling, OrderedFigures, PositiveFigures, Rounding, Verdict, WorstBin
from trueodds.reports.table.classes import order_doubt
from trueodds.reports.table.multilabel import MultilabelReport, multilabel_report
from trueodds.reports.verdict.cautions import MEASURED_FROM
from trueodds.reports.verdict.headline import reading_at_one_look, reading_of_top_label
from trueodds.reports.verdict.rules import CERTAIN, beside, is_within, of_positive, verdict_at_one_look
from trueodds.reports.words import align
from trueodds.sums.answers import AnswerSums
from trueodds.sums.frames import check_columns, check_index
from trueodds.sums.inputs import Array, both_classes, check_labels, check_level, without_noise, without_tensors
from trueodds.sums.ordered import LevelSums, OrderedSums, check_level_names
from trueodds.sums.positive import PositiveClass, PositiveSums
from trueodds.sums.rounding import Given, Resolution, summing_to_1, with_resolution
from trueodds.sums.rows import TopRows, top_rows
from trueodds.sums.sums import CalibrationSums
from trueodds.sums.two_columns import is_vector, label_indices
from trueodds.texts import plural

TELLING = 20
"""Smallest number of rows of one column in which `_doubt` looks for confidences."""
FEW_LOW = 0.1
"""Largest share of probabilities below one half at which a column may hold confidences."""


@dataclass(frozen=True, eq=False)
class ReportedRows:
    """Scores and labels of a report's rows, which `trueodds.compare` needs: five numbers a row and its label."""

    scores: RowScores
    labels_N: npt.NDArray[np.intp]
    classes: tuple[str, ...] | None
    """Names of the classes, if the report has them."""


@dataclass(frozen=True, kw_only=True)
class CalibrationReport(DisplayedReport):
    """Calibration report of labelled rows. `print` it, or let a notebook show it.

    Each pair of `_lower` and `_upper` is an interval at the confidence level `level`, for one look at these rows.
    `floor_mean` is the mean ECE of a perfectly calibrated model on the same number of rows. It exceeds `floor_p95` in
    5% of samples.

    Examples:
        >>> rows = trueodds.report([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]] * 25, [0, 0, 1, 1] * 25)
        >>> print(f"accuracy {rows.accuracy:.3f}, {rows.accuracy_lower:.3f} to {rows.accuracy_upper:.3f}")
        accuracy 0.750, 0.653 to 0.831
        >>> print(f"ECE {rows.ece:.3f}, {rows.ece_lower:.3f} to {rows.ece_upper:.3f}; floor {rows.floor_mean:.3f}")
        ECE 0.300, 0.216 to 0.390; floor 0.066
    """

    n: int
    """Number of rows."""
    classes: int
    """Number of classes."""
    level: float
    """Confidence level of the intervals."""
    binning: Binning
    """Kind of bins: "width" or "mass"."""
    bins: list[Bin]
    """Bins of the reliability diagram."""
    accuracy: float
    accuracy_lower: float
    accuracy_upper: float
    error_rate: float
    mean_confidence: float
    signed_gap: float
    """Accuracy - mean confidence. Negative means over-confident."""
    signed_gap_lower: float
    signed_gap_upper: float
    ece: float
    """Expected calibration error (ECE) of the top label over `bins`, plug-in estimate."""
    ece_estimate: float
    """ECE without the part that chance adds."""
    ece_lower: float
    ece_upper: float
    floor_mean: float
    """Noise floor: mean ECE of a perfectly calibrated model."""
    floor_p95: float
    """95th percentile of the ECE of a perfectly calibrated model."""
    smooth_ece: float
    mce: float
    """Largest |accuracy - mean confidence| of a bin, which is `mce_bin`."""
    mce_bin: WorstBin
    classwise_ece: float
    ks: float
    ks_p_value: float
    calibration_p_value: float
    """p-value of the null hypothesis that every confidence is the probability of being right."""
    verdict: Verdict
    """Verdict: within an ECE of 0.02 at 95%, or else a verdict by `calibration_p_value`.

    If only p(positive) was given, the verdict is about p(positive), by its own `calibration_p_value`. Then expected /
    observed positives must also be within 1.2.
    """
    nll: float | None = None
    """Negative log-likelihood in nats. None if the probabilities are in steps above 0.02."""
    nll_lower: float | None = None
    """Lower limit of the NLL; of rounded probabilities, that of the least NLL that they allow."""
    nll_upper: float | None = None
    """Upper limit of the NLL. None: no limit, because the probabilities are rounded."""
    nll_unseen: float | None = None
    """Cost of a wrong row at the highest confidence, if one such row would lift the NLL above its limit."""
    brier: float
    """Brier score over all classes, 0 to 2."""
    brier_lower: float
    brier_upper: float
    rounding: Rounding
    """Resolution of the probabilities, and rows that ruled out what happened."""
    positive: PositiveFigures | None = None
    """Figures of p(positive) over all of [0, 1], if only p(positive) was given."""
    ordered: OrderedFigures | None = None
    """Ranked probability score, bias of the level, and each "at least level k", for ordered classes."""
    top_label_verdict: Verdict | None = None
    """Verdict on the more probable class, if `verdict` is about p(positive)."""
    doubt: str = ""
    """Sentence on numbers that may not be what they are read as."""
    rows: ReportedRows | None = field(default=None, repr=False, compare=False)
    """Scores and labels of the rows, for `trueodds.compare`. Not part of `to_dict()`."""

    @property
    def reading(self) -> str:
        """Meaning of the numbers in plain words."""
        n = f" Fewer than {MEASURED_FROM} rows: take the ECE's interval as a rough guide." * (self.n < MEASURED_FROM)
        figures = of_positive(self.positive) if self.positive else vars(self)
        reading = reading_at_one_look(self.verdict, figures, TOLERANCE, self.positive)
        if self.top_label_verdict:
            of_top = reading_of_top_label(self.top_label_verdict, TOLERANCE, self.positive, one_look=True)
            reading = f"{reading} {of_top}"
        of_levels = f" {self.ordered.reading}" if self.ordered else ""
        return " ".join(filter(None, [reading + of_levels + n, self.rounding.reading, self.doubt]))

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return (name, value, interval, note) of each number, formatted."""
        return [*figure_rows(vars(self)), *(ordered_rows(self.ordered) if self.ordered else [])]

    @property
    def title(self) -> str:
        """Number of rows and classes, and the confidence level of the intervals."""
        return (
            f"{plural(self.n, 'row')}, {plural(self.classes, 'class', 'classes')}; intervals at {100 * self.level:g}%"
        )

    def __str__(self) -> str:
        lines = align(self.table(), "<><<")
        if self.positive:
            p = [f"p({self.positive.label}), over all of 0% to 100%", *align(positive_rows(self.positive), "<><<")]
            lines = [*p, "The more probable class", *lines]
        if self.ordered:
            lines += align(at_least_rows(self.ordered), LEVELS)
        return "\n".join([self.title, *lines, self.reading])

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers by the names of their attributes, with `reading`, as values that JSON can hold."""
        figures = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "rows"}
        tree: dict[str, Any] = json_tree({**figures, "reading": self.reading})
        return tree

    def _content(self) -> Content:
        about = f"{plural(self.n, 'row')}, {plural(self.classes, 'class', 'classes')}"
        return Content(self.title, about, self.reading, vars(self), self.bins, self.level, self.positive, self.ordered)


@overload
def report(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    classes: Sequence[object] | None = None,
    bins: int = 15,
    binning: Binning | None = None,
    level: float = 0.95,
    resolution: Given = None,
    ordered: bool = False,
    multilabel: Literal[False] = False,
) -> CalibrationReport: ...
@overload
def report(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    classes: Sequence[object] | None = None,
    bins: int = 15,
    binning: Binning | None = None,
    level: float = 0.95,
    resolution: Given = None,
    multilabel: Literal[True],
) -> MultilabelReport: ...
def report(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    classes: Sequence[object] | None = None,
    bins: int = 15,
    binning: Binning | None = None,
    level: float = 0.95,
    resolution: Given = None,
    ordered: bool = False,
    multilabel: bool = False,
) -> CalibrationReport | MultilabelReport:
    """Report the calibration of probabilities with their labels: accuracy, ECE, noise floor, proper scores, tests.

    Args:
        probabilities: N x C, or (N,) or (N, 1) for the probabilities of the positive class. With these the report
            begins with the figures of p(positive) over all of [0, 1]. Confidences of the predicted class are not such
            probabilities: pass them to `CalibrationSums.from_top`, with whether each answer is right. With
            `multilabel`, N x L probabilities of independent labels.
        labels: True classes, as indices, or as names with `classes`. With `multilabel`, N x L of 0, 1, and NaN for a
            truth that is not known.
        classes: Names of the columns in their order (scikit-learn: `model.classes_`). For the labels -1 and 1, pass
            [-1, 1].
        bins: Number of bins.
        binning: "width" for bins of equal width, "mass" for bins with the same number of rows. None: "width", and
            "mass" with `multilabel`.
        level: Confidence level of the intervals.
        resolution: Step of rounded probabilities, such as 0.01, or "exact". None: the step is inferred if rows do not
            sum to 1; else exact. A rounded 0 means "below half a step". It bounds the NLL only from below, so there is
            no upper limit. Steps above 0.02 have no NLL.
        ordered: The classes are levels, the lowest first. The report adds the ranked probability score, the bias of the
            expected level, and the calibration of each "at least level k".
        multilabel: Each column is a yes/no label of its own, as a sigmoid gives it; rows need not sum to 1. The report
            has the figures of each label, and pooled ones whose intervals take the row as the unit. Labels are marked
            by Holm's procedure.

    Returns:
        The report, with `multilabel` a `MultilabelReport`. `print` it, or let a notebook show it.

    Raises:
        ValueError: Probabilities are outside [0, 1] or between the steps of the resolution, or rows do not sum to 1
            (they may be logits); values are masked or missing; `trueodds.metrics.ece` refuses the bins; `level` is
            outside (0, 1).
        ConfigError: A label is not a class, or the number of names differs from the number of columns. Or a data frame
            has the columns of `classes` or the index of the labels in another order. It is a ValueError.

    Examples:
        >>> p_ham, labels = [0.9, 0.8, 0.4, 0.3], ["ham", "ham", "spam", "ham"]
        >>> trueodds.report(p_ham, labels, classes=["spam", "ham"]).accuracy
        0.75
    """
    check_level(level)
    if not isinstance(multilabel, bool):
        raise ConfigError(f"multilabel is {multilabel!r}; allowed are True and False")
    if multilabel:
        if ordered:
            raise ConfigError("ordered and multilabel are both True; levels are exclusive classes: leave out one")
        options_of_labels: dict[str, Any] = {"bins": bins, "binning": binning or "mass", "level": level}
        return multilabel_report(probabilities, labels, classes=classes, resolution=resolution, **options_of_labels)
    binning = binning or "width"
    if (shape := np.shape(without_tensors(labels)))[1:] not in ((), (1,)):
        raise ConfigError(
            f"labels has shape {shape}; allowed is one class for each row: for independent yes/no labels pass"
            " multilabel=True, for one column a class pass labels.argmax(axis=1)"
        )
    check_index(probabilities=probabilities, labels=labels)
    check_columns(probabilities, labels, classes)
    p_NC, read_as = with_resolution(both_classes(probabilities), resolution)
    labels_N = labels if classes is None else label_indices(labels, classes, p_NC.shape[1])
    sums = CalibrationSums.from_probabilities(p_NC, labels_N, resolution=read_as)
    rounded = rounded_figures(without_noise(p_NC), check_labels(labels_N, *p_NC.shape), read_as, level)
    names = tuple(map(str, range(p_NC.shape[1]) if classes is None else classes))
    levels = None
    if ordered:
        by_level = OrderedSums.from_probabilities(p_NC, labels_N, resolution=read_as)
        levels = LevelSums(check_level_names(names), by_level)
    options = ReportOptions(bins=bins, binning=binning, level=level, one_look=True)
    figures = figures_of(sums, bins, binning, level, False)
    p_value = calibration_p_value(sums, bins, binning)
    figures = figures | {"calibration_p_value": p_value}
    shown = {**figures, **rounded.limits}
    answers = AnswerSums(sums.cells[0].astype(np.int64), sums)
    certain = figures_of(sums, bins, binning, CERTAIN, False)
    verdict, of_top_label, positive = _verdict(answers, figures, certain), None, None
    if is_vector(probabilities):
        by_p = PositiveClass("positive", 1).sums(p_NC, labels_N, resolution=read_as)
        counts_C = by_p.cells[0].astype(np.int64)
        of_p = PositiveSums("positive" if classes is None else str(classes[1]), AnswerSums(counts_C, by_p))
        positive = positive_figures(of_p, options)
        of_p_certainly = positive_figures(of_p, replace(options, level=CERTAIN))
        positive = positive.model_copy(update=dict(rounded.limits))
        of_top_label = beside(positive, verdict)
        verdict = _verdict(answers, of_positive(positive), certain, of_p_certainly)
    doubt = ""
    if figures["accuracy"] <= 0.5:
        doubt = order_doubt(p_NC.argmax(axis=1), check_labels(labels_N, *p_NC.shape), names)
    if positive and classes is None:
        doubt = doubt or _doubt(p_NC[:, 1])
    return CalibrationReport(
        n=sums.n,
        classes=p_NC.shape[1],
        level=level,
        binning=binning,
        classwise_ece=metrics.classwise_ece(summing_to_1(p_NC, read_as), labels_N, bins=bins),
        rounding=rounded.rounding,
        verdict=verdict,
        top_label_verdict=of_top_label,
        positive=positive,
        ordered=None if levels is None else ordered_figures(levels, options),
        doubt=doubt,
        rows=_reported_rows(p_NC, labels_N, None if classes is None else names, positive is not None, read_as),
        **{name: value for name, value in shown.items() if name in CalibrationReport.__dataclass_fields__},
    )


def _doubt(p_N: npt.NDArray[Any]) -> str:
    """Return a sentence on one column that looks like confidences of the predicted class; "" for any other."""
    low = int((p_N < 0.5).sum())
    if len(p_N) < TELLING or low > len(p_N) * FEW_LOW:
        return ""
    return (
        f"{low or 'None'} of the {len(p_N):,} probabilities {'is' if low < 2 else 'are'} below one half. They are read"
        " as p(positive). If they are confidences of the predicted class, pass them to CalibrationSums.from_top."
    )


def _reported_rows(
    p_NC: npt.NDArray[Any],
    labels: npt.ArrayLike,
    classes: tuple[str, ...] | None,
    of_positive: bool,
    resolution: Resolution,
) -> ReportedRows:
    """Keep what a comparison of reports needs. The rows are checked already."""
    labels_N = check_labels(labels, *p_NC.shape)
    if of_positive:
        of_p = RowScores.of_positive(p_NC[:, 1].astype(np.float64), labels_N == 1, resolution)
        return ReportedRows(of_p, labels_N, classes)
    blocks = list(top_rows(p_NC, labels_N, scores=True, resolution=resolution))
    rows = TopRows(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
    nll_N: Array = rows.nll if resolution.has_nll else np.full(len(rows.nll), np.nan)
    wrong_N = (~rows.correct).astype(np.float64)
    scores = RowScores(wrong_N, nll_N, rows.brier, rows.confidence, rows.correct)
    return ReportedRows(scores, labels_N, classes)


def _verdict(
    answers: AnswerSums, figures: Figures, certain: Figures, of_p_certainly: PositiveFigures | None = None
) -> Verdict:
    """Return the verdict on the rows, at one look."""
    within = is_within(answers, certain, Labelling(), TOLERANCE, of_p_certainly)
    return verdict_at_one_look(figures, within=within, positive=of_p_certainly is not None)
