"""The report of labelled rows: numbers with their intervals, in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy.typing as npt

from trueodds import metrics
from trueodds.errors import unknown
from trueodds.reports import notebook
from trueodds.reports.figures import figures_of
from trueodds.reports.reliability import reliability
from trueodds.reports.schemas import Bin, WorstBin
from trueodds.reports.style import picture
from trueodds.reports.verdict import MEANS, MEASURED_FROM, direction_of
from trueodds.reports.words import decimal, p_value, percent, signed, span
from trueodds.sums.bins import Binning
from trueodds.sums.inputs import as_array, both_classes, check_level
from trueodds.sums.sums import CalibrationSums
from trueodds.texts import plural

SURE = 0.05
"""Level of the calibration test in `reading`."""


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """How well the probabilities of labelled rows hold: `print` it, or let a notebook show it.

    Every pair of `_lower` and `_upper` is an interval at `level`, for one look at these rows. `floor_mean` is the ECE
    that a perfectly calibrated model shows on as many rows on average, `floor_p95` what it exceeds in 5% of samples.

    >>> rows = trueodds.report([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]] * 25, [0, 0, 1, 1] * 25)
    >>> print(f"accuracy {rows.accuracy:.3f}, {rows.accuracy_lower:.3f} to {rows.accuracy_upper:.3f}")
    accuracy 0.750, 0.653 to 0.831
    >>> print(f"ECE {rows.ece:.3f}, {rows.ece_lower:.3f} to {rows.ece_upper:.3f}; floor {rows.floor_mean:.3f}")
    ECE 0.300, 0.216 to 0.390; floor 0.066
    """

    n: int
    """Rows."""
    classes: int
    level: float
    binning: Binning
    bins: list[Bin]
    accuracy: float
    accuracy_lower: float
    accuracy_upper: float
    error_rate: float
    mean_confidence: float
    signed_gap: float
    """Accuracy - mean confidence; negative: over-confident."""
    signed_gap_lower: float
    signed_gap_upper: float
    ece: float
    """Expected calibration error of the top label over `bins`, plug-in."""
    ece_estimate: float
    """The ECE without the part that chance adds."""
    ece_lower: float
    ece_upper: float
    floor_mean: float
    floor_p95: float
    smooth_ece: float
    mce: float
    """The largest |accuracy - mean confidence| of a bin, `mce_bin`."""
    mce_bin: WorstBin
    classwise_ece: float
    ks: float
    ks_p_value: float
    calibration_p_value: float
    """Of the null that every confidence is the probability of being right."""
    nll: float
    """Nats."""
    nll_lower: float
    nll_upper: float | None
    """None: no limit, for some true class has probability 0."""
    brier: float
    """Over all classes, 0 to 2."""
    brier_lower: float
    brier_upper: float

    @property
    def reading(self) -> str:
        """The numbers in plain words."""
        n = f" Fewer than {MEASURED_FROM} rows: take the ECE's interval as a rough guide." * (self.n < MEASURED_FROM)
        p = p_value(self.calibration_p_value)
        if self.calibration_p_value < SURE:
            return f"The gaps are more than chance ({p}). {MEANS[direction_of(self.signed_gap, self.ece)]}{n}"
        fits = f"but an ECE of up to {self.ece_upper:.3f} would fit these rows as well"
        return f"The gaps are no larger than chance makes them ({p}), {fits}.{n}"

    def table(self) -> list[tuple[str, str, str, str]]:
        """(name, value, interval, note) of each number, as it is shown."""
        accuracy = span(self.accuracy_lower, self.accuracy_upper, "percent")
        gap = span(self.signed_gap_lower, self.signed_gap_upper, "signed")
        ece, nll, brier = (
            span(lower, upper, digits=4)
            for lower, upper in (
                (self.ece_lower, self.ece_upper),
                (self.nll_lower, self.nll_upper),
                (self.brier_lower, self.brier_upper),
            )
        )
        bins = f"{len(self.bins)} bins of equal {'width' if self.binning == 'width' else 'count'}"
        floor = f"of a calibrated model; up to {decimal(self.floor_p95, 4)} by chance"
        worst = f"{plural(self.mce_bin.count, 'row')}, {self.mce_bin.lo:.0%} to {self.mce_bin.hi:.0%}"
        return [
            ("accuracy", percent(self.accuracy), accuracy, ""),
            ("mean confidence", percent(self.mean_confidence), "", "should equal the accuracy"),
            ("gap, points", signed(self.signed_gap, ""), gap, ""),
            ("ECE", decimal(self.ece, 4), "", bins),
            ("  estimate", decimal(self.ece_estimate, 4), ece, "without what chance adds"),
            ("  noise floor", decimal(self.floor_mean, 4), "", floor),
            ("smooth ECE", decimal(self.smooth_ece, 4), "", "without bins"),
            ("classwise ECE", decimal(self.classwise_ece, 4), "", "mean over the classes"),
            ("worst bin (MCE)", decimal(self.mce, 4), "", worst),
            ("NLL, nats", decimal(self.nll, 4), nll, ""),
            ("Brier score", decimal(self.brier, 4), brier, ""),
        ]

    @property
    def title(self) -> str:
        """The rows, and the level of the intervals."""
        return (
            f"{plural(self.n, 'row')}, {plural(self.classes, 'class', 'classes')}; intervals at {100 * self.level:g}%"
        )

    def __str__(self) -> str:
        rows = self.table()
        name, value, interval = (max(len(row[column]) for row in rows) for column in range(3))
        lines = [f"{a:<{name}}  {b:>{value}}  {c:<{interval}}  {d}".rstrip() for a, b, c, d in rows]
        return "\n".join([self.title, *lines, self.reading])

    def _repr_html_(self) -> str:
        return notebook.html(self.title, self.table(), self.reading, reliability(self.bins).svg())

    def svg(self) -> str:
        """The reliability diagram as a picture for a file, in colours of its own."""
        return picture(reliability(self.bins).svg())


def report(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    classes: Sequence[object] | None = None,
    bins: int = 15,
    binning: Binning = "width",
    level: float = 0.95,
) -> CalibrationReport:
    """Accuracy, ECE with its interval and noise floor, proper scores and tests of probabilities beside their labels.

    Probabilities are N x C, or those of the positive class alone, (N,). Labels are class indices, or names of
    `classes`, which has the columns in their order (scikit-learn: `model.classes_`).

    Raises:
        ValueError: probabilities outside [0, 1] or rows that do not sum to 1 (logits, perhaps), labels outside the
            classes (ConfigError), bins that `trueodds.metrics.ece` refuses, a level outside (0, 1).

    >>> print(trueodds.report([0.9, 0.8, 0.4, 0.3], ["ham", "ham", "spam", "ham"], classes=["spam", "ham"]).accuracy)
    0.75
    """
    check_level(level)
    p_NC = both_classes(probabilities)
    labels_N = labels if classes is None else _indices(labels, list(classes))
    sums = CalibrationSums.from_probabilities(p_NC, labels_N)
    figures = figures_of(sums, bins, binning, level, False)
    return CalibrationReport(
        n=sums.n,
        classes=p_NC.shape[1],
        level=level,
        binning=binning,
        classwise_ece=metrics.classwise_ece(p_NC, labels_N, bins=bins),
        calibration_p_value=metrics.calibration_test(sums, bins=bins if binning == "width" else 15).p_value,
        **{name: value for name, value in figures.items() if name in CalibrationReport.__dataclass_fields__},
    )


def _indices(labels: npt.ArrayLike, classes: list[object]) -> list[int]:
    """Labels by their place among the classes.

    Raises:
        ConfigError: a label that is none of them.
    """
    place = {name: k for k, name in enumerate(classes)}
    names = as_array(labels, "labels").tolist()
    for name in names:
        if name not in place:
            raise unknown("label", name, map(str, classes))
    return [place[name] for name in names]
