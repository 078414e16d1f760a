"""The report of probabilities and labels: numbers with their intervals, in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trueodds import metrics
from trueodds.drawing.picture import CHART, DARK, LIGHT, read_css
from trueodds.drawing.reliability import TOP_LABEL, Axes, ReliabilityDiagram
from trueodds.evaluation.paired_differences import RowScores
from trueodds.files import write_json, write_text
from trueodds.processes.choices import TOLERANCE
from trueodds.reports.figures import Figures, calibration_p_value, diagram_of, figures_of, positive_figures
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import Bin, Labelling, PositiveFigures, Verdict, WorstBin
from trueodds.reports.table import report_files
from trueodds.reports.verdict.cautions import MEASURED_FROM
from trueodds.reports.verdict.headline import reading_at_one_look, reading_of_top_label
from trueodds.reports.verdict.rules import CERTAIN, beside, is_within, of_positive, verdict_at_one_look
from trueodds.reports.words import DASH, decimal, digits_of_rare, percent, signed, span, unseen
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import Binning
from trueodds.sums.forms import label_indices
from trueodds.sums.inputs import both_classes, check_labels, check_level, without_tensors
from trueodds.sums.losses import brier_of, nll_of
from trueodds.sums.positive import PositiveClass, PositiveSums
from trueodds.sums.rows import top_rows
from trueodds.sums.sums import CalibrationSums
from trueodds.texts import plural

if TYPE_CHECKING:
    import matplotlib.axes

_DARK_NOTEBOOKS = "[data-jp-theme-light=false] .trueodds,.vscode-dark .trueodds,html[theme=dark] .trueodds"
"""Selectors of JupyterLab, Notebook 7, Visual Studio Code and Colab. Their theme may differ from the system's."""
_LIGHT_NOTEBOOKS = "[data-jp-theme-light=true] .trueodds,.vscode-light .trueodds"
_STYLE = (
    f".trueodds{{{LIGHT}}}@media (prefers-color-scheme:dark){{.trueodds{{{DARK}}}}}"
    f"{_LIGHT_NOTEBOOKS}{{{LIGHT}}}{_DARK_NOTEBOOKS}{{{DARK}}}"
    f".trueodds{{{read_css(Path(__file__).parent / 'notebook.css')}{CHART}}}"
)


@dataclass(frozen=True, eq=False)
class ReportedRows:
    """Scores and labels of a report's rows, which `trueodds.compare` needs: five numbers a row and its label."""

    scores: RowScores
    labels_N: npt.NDArray[np.intp]
    classes: tuple[str, ...] | None
    """Names of the classes, if the report has them."""


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
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
    nll: float
    """Negative log-likelihood in nats."""
    nll_lower: float
    nll_upper: float | None
    """Upper limit of the NLL. None (no limit) if some true class has probability 0."""
    nll_unseen: float | None
    """Cost of a wrong row at the highest confidence, if one such row would lift the NLL above its limit."""
    brier: float
    """Brier score over all classes, 0 to 2."""
    brier_lower: float
    brier_upper: float
    positive: PositiveFigures | None = None
    """Figures of p(positive) over all of [0, 1], if only p(positive) was given."""
    top_label_verdict: Verdict | None = None
    """Verdict on the more probable class, if `verdict` is about p(positive)."""
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
        return reading + n

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return (name, value, interval, note) of each number, formatted."""
        return figure_rows(vars(self))

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
        return "\n".join([self.title, *lines, self.reading])

    def _repr_html_(self) -> str:
        return self._html(self._diagram().svg())

    def svg(self) -> str:
        """Draw the reliability diagram as an SVG file with title, legend, the ECE with its interval, and its colours.

        The file needs no other file, and its text is readable in viewers without style sheets.
        """
        return self._diagram().picture(self._caption(), self.level)

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw the reliability diagram on matplotlib axes, with title, legend and the ECE with its interval.

        Args:
            ax: Axes to draw on. Default: those of a new figure.

        Returns:
            The axes.

        Raises:
            MissingExtraError: matplotlib is not installed (extra `plot`).
        """
        ax = report_files.new_axes() if ax is None else ax
        bins, axes = self._bins_and_axes()
        report_files.draw(ax, bins, axes, "\n".join([axes.title, *self._caption()]), self.level)
        return ax

    def save(self, path: str | Path) -> None:
        """Write the report to a file. The suffix chooses the form.

        `.svg` holds the reliability diagram. `.png` holds it too, drawn by matplotlib (extra `plot`). `.html` holds all
        numbers and the diagram, in one page without other files. `.json` holds `to_dict()`.

        Args:
            path: Path of the file. An existing file is replaced.

        Raises:
            ConfigError: The file has another suffix.
            MissingExtraError: For `.png`: matplotlib is not installed.
            OSError: The file cannot be written. An existing file is then unchanged.
        """
        path = Path(path)
        suffix = report_files.suffix_of(path)
        if suffix == ".png":
            figure, ax = report_files.figure_axes()
            self.plot(ax)
            report_files.write_png(path, figure)
        elif suffix == ".json":
            write_json(path, self.to_dict())
        else:
            write_text(path, self.svg() if suffix == ".svg" else report_files.page(self.title, self._html(self.svg())))

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers by the names of their attributes, with `reading`, as values that JSON can hold."""
        figures = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "rows"}
        tree: dict[str, Any] = report_files.json_tree({**figures, "reading": self.reading})
        return tree

    def _caption(self) -> list[str]:
        """Return the lines above the diagram: the number of rows, and the ECE with its noise floor and interval."""
        figures: Mapping[str, Any] = vars(self.positive) if self.positive else vars(self)
        limits = f"{100 * self.level:g}% interval {span(figures['ece_lower'], figures['ece_upper'], 'decimal', 4)}"
        floor = f"noise floor {decimal(figures['floor_mean'], 4)} (up to {decimal(figures['floor_p95'], 4)} by chance)"
        return [
            f"{plural(self.n, 'row')}, {plural(self.classes, 'class', 'classes')}",
            f"ECE{' of p' * (self.positive is not None)} {decimal(figures['ece'], 4)}, {floor}",
            f"estimate of the ECE {decimal(figures['ece_estimate'], 4)}, {limits}",
        ]

    def _html(self, drawing: str) -> str:
        rows = positive_rows(self.positive) if self.positive else []
        return _html(self.title, [*rows, *self.table()], self.reading, drawing)

    def _diagram(self) -> ReliabilityDiagram:
        return diagram_of(*self._bins_and_axes())

    def _bins_and_axes(self) -> tuple[list[Bin], Axes]:
        if self.positive is None:
            return self.bins, TOP_LABEL
        return self.positive.bins, Axes.of_positive(self.positive.label)


def _html(title: str, table: Iterable[tuple[str, str, str, str]], reading: str, drawing: str) -> str:
    """Lay out a table of (name, value, interval, note) beside the element `svg` of a drawing.

    There is no script. The colours follow the notebook's light or dark theme.
    """
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="value">{escape(value)}</td><td>{escape(interval)}</td>'
        f'<td class="note">{escape(note)}</td></tr>'
        for name, value, interval, note in table
    )
    return (
        f'<div class="trueodds"><style>{_STYLE}</style><p>{escape(reading)}</p><div class="parts"><div class="numbers">'
        f'<p>{escape(title)}</p><table>{rows}</table></div><div class="chart">{drawing}</div></div></div>'
    )


def figure_rows(figures: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return (name, value, interval, note) of each number of a report, formatted, with a dash for unknown ones."""

    def limits(name: str, how: str = "decimal") -> str:
        return span(figures[f"{name}_lower"], figures[f"{name}_upper"], how, 4 if how == "decimal" else 1)

    bins = f"{len(figures['bins'])} bins of equal {'width' if figures['binning'] == 'width' else 'count'}"
    floor = f"of a calibrated model; up to {decimal(figures['floor_p95'], 4)} by chance"
    worst = figures["mce_bin"]
    place = f"{plural(worst.count, 'row')}, {worst.lo:.0%} to {worst.hi:.0%}"
    scores = "" if figures["nll"] is not None else "not known without the probabilities of all classes"
    of_top = "of the more probable class; " if figures.get("positive") is not None else ""
    classwise = ("classwise ECE", decimal(figures.get("classwise_ece"), 4), "", "mean over the classes")
    return [
        ("accuracy", percent(figures["accuracy"]), limits("accuracy", "percent"), ""),
        ("mean confidence", percent(figures["mean_confidence"]), "", "should equal the accuracy"),
        ("gap, points", signed(figures["signed_gap"], ""), limits("signed_gap", "signed"), ""),
        ("ECE", decimal(figures["ece"], 4), "", of_top + bins),
        ("  estimate", decimal(figures["ece_estimate"], 4), limits("ece"), "without what chance adds"),
        ("  noise floor", decimal(figures["floor_mean"], 4), "", floor),
        ("smooth ECE", decimal(figures["smooth_ece"], 4), "", "without bins"),
        *([classwise] if "classwise_ece" in figures else []),
        ("worst bin (MCE)", decimal(figures["mce"], 4), "", place),
        (
            "NLL, nats",
            decimal(figures["nll"], 4),
            limits("nll") if not scores else "",
            scores or unseen(figures.get("nll_unseen")),
        ),
        (
            "Brier score",
            decimal(figures["brier"], 4),
            limits("brier") if not scores else "",
            scores or "0 to 2, over all classes",
        ),
    ]


def positive_rows(positive: PositiveFigures) -> list[tuple[str, str, str, str]]:
    """Return the rows of `figure_rows` for p(positive)."""
    figures = positive.model_dump()

    def limits(name: str, how: str = "decimal") -> str:
        return span(figures[f"{name}_lower"], figures[f"{name}_upper"], how, 4 if how == "decimal" else fine)

    fine = digits_of_rare(positive.prevalence, positive.mean_probability)
    floor = f"of a calibrated p; up to {decimal(positive.floor_p95, 4)} by chance"
    kind = "width" if positive.binning == "width" else "count"

    def ratio(value: float | None) -> str:
        return "∞" if value is None else f"{value:#.3g}"

    nothing = not positive.expected and not positive.observed
    between = f"{ratio(positive.ratio_lower)} {DASH} {ratio(positive.ratio_upper)}"
    return [
        (f"{positive.label}, share", percent(positive.prevalence, fine), limits("prevalence", "percent"), ""),
        ("mean p", percent(positive.mean_probability, fine), "", "should equal the share"),
        ("expected", decimal(positive.expected, 1), "", f"{positive.observed or 0:,} observed"),
        ("  over observed", DASH if nothing else ratio(positive.ratio), between, ""),
        ("gap, points", signed(positive.signed_gap, "", fine), limits("signed_gap", "signed"), ""),
        ("ECE of p", decimal(positive.ece, 4), "", f"{plural(len(positive.bins), 'bin')} of equal {kind}"),
        ("  estimate", decimal(positive.ece_estimate, 4), limits("ece"), "without what chance adds"),
        ("  noise floor", decimal(positive.floor_mean, 4), "", floor),
        ("Brier score of p", decimal(positive.brier, 4), limits("brier"), "0 to 1"),
    ]


def align(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Format rows of equal length as lines with columns. `sides` has < or > for each column.

    >>> align([("cat", "7"), ("hippo", "12")], "<>")
    ['cat     7', 'hippo  12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    forms = [f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True)]
    return ["  ".join(form.format(cell) for form, cell in zip(forms, row, strict=True)).rstrip() for row in rows]


def report(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    classes: Sequence[object] | None = None,
    bins: int = 15,
    binning: Binning = "width",
    level: float = 0.95,
) -> CalibrationReport:
    """Report the calibration of probabilities with their labels: accuracy, ECE, noise floor, proper scores, tests.

    Args:
        probabilities: N x C, or (N,) for the probabilities of the positive class. With (N,) the report begins with the
            figures of p(positive) over all of [0, 1].
        labels: True classes, as indices, or as names with `classes`.
        classes: Names of the columns in their order (scikit-learn: `model.classes_`). For the labels -1 and 1, pass
            [-1, 1].
        bins: Number of bins.
        binning: "width" for bins of equal width, "mass" for bins with the same number of rows.
        level: Confidence level of the intervals.

    Returns:
        The report. `print` it, or let a notebook show it.

    Raises:
        ValueError: Probabilities are outside [0, 1] or rows do not sum to 1 (they may be logits); values are masked or
            missing; `trueodds.metrics.ece` refuses the bins; `level` is outside (0, 1).
        ConfigError: A label is not a class, or the number of names differs from the number of columns. It is a
            ValueError.

    Examples:
        >>> p_ham, labels = [0.9, 0.8, 0.4, 0.3], ["ham", "ham", "spam", "ham"]
        >>> trueodds.report(p_ham, labels, classes=["spam", "ham"]).accuracy
        0.75
    """
    check_level(level)
    p_NC = both_classes(probabilities)
    labels_N = labels if classes is None else label_indices(labels, classes, p_NC.shape[1])
    sums = CalibrationSums.from_probabilities(p_NC, labels_N)
    figures = figures_of(sums, bins, binning, level, False)
    p_value = calibration_p_value(sums, bins, binning)
    figures = figures | {"calibration_p_value": p_value}
    answers = AnswerSums(sums.cells[0].astype(np.int64), sums)
    certain = figures_of(sums, bins, binning, CERTAIN, False)
    verdict, of_top_label, positive = _verdict(answers, figures, certain), None, None
    probabilities = without_tensors(probabilities)
    if np.ndim(probabilities) == 1:
        by_p = PositiveClass("positive", 1).sums(p_NC, labels_N)
        counts_C = by_p.cells[0].astype(np.int64)
        of_p = PositiveSums("positive" if classes is None else str(classes[1]), AnswerSums(counts_C, by_p))
        options = ReportOptions(bins=bins, binning=binning, level=level, one_look=True)
        positive = positive_figures(of_p, options)
        of_p_certainly = positive_figures(of_p, replace(options, level=CERTAIN))
        of_top_label = beside(positive, verdict)
        verdict = _verdict(answers, of_positive(positive), certain, of_p_certainly)
    return CalibrationReport(
        n=sums.n,
        classes=p_NC.shape[1],
        level=level,
        binning=binning,
        classwise_ece=metrics.classwise_ece(p_NC, labels_N, bins=bins),
        verdict=verdict,
        top_label_verdict=of_top_label,
        positive=positive,
        rows=_reported_rows(
            p_NC, labels_N, None if classes is None else tuple(map(str, classes)), positive is not None
        ),
        **{name: value for name, value in figures.items() if name in CalibrationReport.__dataclass_fields__},
    )


def _reported_rows(
    p_NC: npt.NDArray[Any], labels: npt.ArrayLike, classes: tuple[str, ...] | None, of_positive: bool
) -> ReportedRows:
    """Keep what a comparison of reports needs. The rows are checked already."""
    labels_N = check_labels(labels, *p_NC.shape)
    if of_positive:
        return ReportedRows(RowScores.of_positive(p_NC[:, 1].astype(np.float64), labels_N == 1), labels_N, classes)
    blocks = list(top_rows(p_NC, labels_N, scores=True))
    confidence_N, correct_N, true_N, squares_N = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    scores = RowScores(1.0 - correct_N, nll_of(true_N), brier_of(true_N, squares_N), confidence_N, correct_N)
    return ReportedRows(scores, labels_N, classes)


def _verdict(
    answers: AnswerSums, shown: Figures, certain: Figures, of_p_certainly: PositiveFigures | None = None
) -> Verdict:
    """Return the verdict on the rows, at one look."""
    within = is_within(answers, certain, Labelling(), TOLERANCE, of_p_certainly)
    return verdict_at_one_look(shown, within=within, positive=of_p_certainly is not None)
