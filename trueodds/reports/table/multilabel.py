"""The report of independent yes/no labels: of each label, and pooled with the row as the unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from trueodds.metrics.intervals.clustered import design_effect
from trueodds.processes.choices import Binning
from trueodds.reports.display.figure_table import positive_rows
from trueodds.reports.display.notebook import notebook_html
from trueodds.reports.display.report_files import Content, DisplayedReport, json_tree
from trueodds.reports.display.report_files import page as html_page
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import LabelFigures, PositiveFigures
from trueodds.reports.table.multilabel_rows import MultilabelRows, figures_of_labels, pooled_figures
from trueodds.reports.verdict.cautions import MEASURED_FROM
from trueodds.reports.words import DASH, align, decimal, digits_of_rare, level, percent, signed_points, span
from trueodds.sums.bins import check_bins
from trueodds.sums.frames import check_index, check_order
from trueodds.sums.inputs import check_level
from trueodds.sums.label_matrix import check_label_matrix, check_label_probabilities, label_names
from trueodds.sums.rounding import EXACT, Given, Resolution, check_steps
from trueodds.texts import plural, quotes

MOST_LINES = 40
"""Largest number of labels in the printed table. The JSON file and the page hold all of them."""
FEW = 20
"""Rows with the rarer truth of a label, below which the reading says that errors of this label may stay unseen."""
SHOWN = 5e-4
"""Smallest gap that is not 0.0 points when printed. Rows that sum to 1 have gaps of their rounding only."""
HEAD = ("label", "rows", "says", "true", "interval", "log loss", "Brier", "ECE", "estimate", "by chance up to", "")
SIDES = "<>>>>>>>>><"


@dataclass(frozen=True, kw_only=True)
class MultilabelReport(DisplayedReport):
    """Calibration report of independent yes/no labels. `print` it, or let a notebook show it.

    `whole` is about all pairs of a row and a label with a known truth. Its intervals take the row as the unit, because
    the labels of one row depend on each other. Each interval in `by_label` is about its label alone.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> p_NL = rng.random((2_000, 3))
        >>> labels_NL = rng.random((2_000, 3)) < p_NL * [1, 1, 0.8]
        >>> report = trueodds.report(p_NL, labels_NL, multilabel=True, classes=["rain", "snow", "fog"])
        >>> [one.name for one in report.by_label if one.more_than_chance]
        ['fog']
    """

    n: int
    """Number of rows with a known truth."""
    labels: int
    """Number of labels."""
    pairs: int
    """Number of pairs of a row and a label with a known truth."""
    level: float
    """Confidence level of the intervals."""
    binning: Binning
    """Kind of bins: "width" or "mass"."""
    whole: PositiveFigures
    """Figures of all pairs together."""
    by_label: list[LabelFigures]
    """Figures of each label, in the order of the columns."""
    design_effect: float
    """Variance of the pooled gap, divided by that of independent pairs."""
    source: str = ""
    """Name of the file, or of the model of a service."""
    notes: tuple[str, ...] = ()
    """Notes about the rows."""

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> Self:
        """Build the report from a service's answer to `GET /multi-label-report`.

        Raises:
            LookupError, TypeError, ValueError: The answer has another form.
        """
        plain = {name: tree[name] for name in ("n", "labels", "pairs", "level", "binning", "design_effect")}
        return cls(
            **plain,
            whole=PositiveFigures.model_validate(tree["whole"]),
            by_label=[LabelFigures.model_validate(one) for one in tree["by_label"]],
            source=tree["model"],
            notes=tuple(tree["notes"]),
        )

    @property
    def reading(self) -> str:
        """Meaning of the numbers in plain words."""
        return " ".join([self._marks(), self._pooled_words(), *self._cautions()])

    @property
    def title(self) -> str:
        """Number of rows and labels, and the confidence level of the intervals."""
        return f"{self._about()}; intervals at {level(self.level)}"

    def __str__(self) -> str:
        labels = self._table()
        more = len(labels) - 1 - MOST_LINES
        if more > 0:
            worst = [self.by_label[k].name for k in self._worst_first()]
            by_name = {row[0]: row for row in labels[1:]}
            labels = [labels[0], *(by_name[name] for name in worst[:MOST_LINES])]
        lines = align(labels, SIDES)
        if more > 0:
            lines.append(f"and {plural(more, 'more label')} with larger p-values: report.save, --json, --html")
        title = f"{self.source}: {self.title}" if self.source else self.title
        pooled = [
            "All labels together; the unit of the intervals is the row",
            *align(positive_rows(self.whole), "<><<"),
        ]
        return "\n".join([title, *lines, "", *pooled, "", self.reading])

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers by the names of their attributes, with `reading`, as values that JSON can hold."""
        tree: dict[str, Any] = json_tree({**{one.name: getattr(self, one.name) for one in fields(self)}})
        return {**tree, "reading": self.reading}

    def _about(self) -> str:
        return f"{plural(self.n, 'row')}, {plural(self.labels, 'label')}, {plural(self.pairs, 'known truth')}"

    def _content(self) -> Content:
        pooled = self.whole
        return Content(self.title, self._about(), self.reading, vars(pooled), pooled.bins, self.level, pooled)

    def _repr_html_(self) -> str:
        return self._html(self._content().diagram().svg())

    def page(self) -> str:
        """Return the report as a whole HTML page without scripts."""
        return html_page(f"{self.source}: {self.title}" if self.source else self.title, self._html(self.svg()))

    def _page(self) -> str:
        return self.page()

    def _html(self, drawing: str) -> str:
        return notebook_html(self.title, self._pooled_table(), self.reading, drawing, self._table())

    def _pooled_table(self) -> list[tuple[str, str, str, str]]:
        p = self.whole
        limits = DASH if p.nll is None else span(p.nll_lower, p.nll_upper, digits=4)
        return [*positive_rows(p), ("log loss, nats", decimal(p.nll, 4), limits, "")]

    def _worst_first(self) -> list[int]:
        """Return the places of the labels, those with the smallest p-value first."""
        p_value = [2.0 if one.p_value is None else one.p_value for one in self.by_label]
        return sorted(range(self.labels), key=p_value.__getitem__)

    def _table(self) -> list[tuple[str, ...]]:
        """Return the table of the labels. The first row names its columns."""
        return [HEAD, *map(_line, self.by_label)]

    def _marks(self) -> str:
        """Name the labels that are off by more than chance."""
        marked = [one.name for one in self.by_label if one.more_than_chance]
        tested = sum(one.labelled > 0 for one in self.by_label)
        if tested == 1:
            off = "is" if marked else "is not shown to be"
            return f"The label {off} off by more than chance."
        among = f"{len(marked):,} of {tested:,} labels" if marked else f"None of {tested:,} labels"
        verb = "is" if len(marked) < 2 else "are"
        names = f": {quotes(marked)}" if marked else ""
        return (
            f"{among} {verb} off by more than chance{names}. If all labels were calibrated, there would be such a label"
            " in at most 5% of tables (Holm)."
        )

    def _pooled_words(self) -> str:
        p = self.whole
        words = (
            f"Over all labels, the estimate of the calibration error is {decimal(p.ece_estimate)}"
            f" ({level(self.level)} interval {span(p.ece_lower, p.ece_upper)})."
        )
        gap, low, high = p.signed_gap or 0.0, p.signed_gap_lower or 0.0, p.signed_gap_upper or 0.0
        if (low > 0 or high < 0) and abs(gap) >= SHOWN:
            way = "low" if low > 0 else "high"
            words += (
                f" The probabilities are too {way} by {signed_points(abs(gap), '').lstrip('+')} points on average"
                f" ({span(low, high, 'signed')})."
            )
        return words

    def _cautions(self) -> list[str]:
        found = list(self.notes)
        rare = [one.name for one in self.by_label if min(one.positives, one.labelled - one.positives) < FEW]
        if rare:
            verb = "has" if len(rare) == 1 else "have"
            found.append(
                f"{plural(len(rare), 'label')} {verb} fewer than {FEW} true or fewer than {FEW} false rows, so errors"
                f" there may stay unseen: {quotes(rare)}."
            )
        if self.n < MEASURED_FROM:
            found.append(f"Fewer than {MEASURED_FROM} rows: take the intervals as a rough guide.")
        return found


def _line(one: LabelFigures) -> tuple[str, ...]:
    digits = digits_of_rare(one.prevalence, one.mean_probability) if one.labelled else 1
    return (
        one.name,
        f"{one.labelled:,}",
        percent(one.mean_probability, digits),
        percent(one.prevalence, digits),
        span(one.prevalence_lower, one.prevalence_upper, "percent", digits) if one.labelled else DASH,
        decimal(one.nll),
        decimal(one.brier),
        decimal(one.ece),
        span(one.ece_lower, one.ece_upper) if one.labelled else DASH,
        decimal(one.floor_p95),
        "more than chance" if one.more_than_chance else "",
    )


def multilabel_report(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    classes: Sequence[object] | None = None,
    bins: int = 15,
    binning: Binning = "mass",
    level: float = 0.95,
    resolution: Given = None,
) -> MultilabelReport:
    """Report the calibration of independent yes/no labels. `trueodds.report(..., multilabel=True)` documents it.

    Raises:
        ValueError: The probabilities or labels are invalid, or the bins or the level.
        ConfigError: The names of the labels do not fit the columns, or data frames have them in different orders.
    """
    check_index(probabilities=probabilities, labels=labels)
    check_order(probabilities=probabilities, labels=labels, classes=None if classes is None else tuple(classes))
    p_NL = check_label_probabilities(probabilities)
    rows, count = p_NL.shape
    truth_NL = check_label_matrix(labels, (rows, count))
    read_as = EXACT if resolution is None else _resolution(resolution)
    check_steps(p_NL, read_as)
    return report_of_rows(
        MultilabelRows(p_NL, truth_NL, label_names(classes, count), read_as),
        ReportOptions(bins=bins, binning_of_positive=binning, level=level, one_look=True),
    )


def report_of_rows(rows: MultilabelRows, options: ReportOptions) -> MultilabelReport:
    """Report on checked rows.

    Raises:
        ValueError: `trueodds.metrics.ece` refuses the bins, or the level is outside (0, 1).
    """
    check_level(options.level)
    check_bins(options.bins, options.binning_of_positive)
    pairs = rows.pairs
    return MultilabelReport(
        n=pairs.rows,
        labels=len(rows.names),
        pairs=len(pairs.p_M),
        level=options.level,
        binning=options.binning_of_positive,
        whole=pooled_figures(rows, options),
        by_label=figures_of_labels(rows, options),
        design_effect=design_effect(pairs),
        source=rows.source,
        notes=(*rows.notes, *_ruled_out_note(rows), *_exclusive_note(rows)),
    )


def _resolution(setting: Given) -> Resolution:
    return setting if isinstance(setting, Resolution) else Resolution.of(setting)


def _ruled_out_note(rows: MultilabelRows) -> list[str]:
    """Describe labels that came true at probability 0, or false at 1. Rounded probabilities bound these instead."""
    if rows.resolution.step is not None:
        return []
    count = int((np.abs(rows.truth_NL - rows.p_NL) == 1).sum())
    if not count:
        return []
    known = int((~np.isnan(rows.truth_NL)).sum())
    return [
        f"The model ruled out what happened: {count:,} of {plural(known, 'known truth')} had probability 0."
        f" Each counts as {-np.log(np.finfo(np.float64).tiny):.1f} nats in the log loss. If the probabilities are"
        " rounded, give their step as the resolution, such as 0.01."
    ]


def _exclusive_note(rows: MultilabelRows) -> list[str]:
    """Describe rows whose probabilities sum to 1 and that have one true label each, as exclusive classes have."""
    p_NL, truth_NL = rows.p_NL, rows.truth_NL
    if p_NL.shape[1] < 2 or np.isnan(truth_NL).any():
        return []
    if (np.abs(p_NL.sum(axis=1) - 1) > 1e-3).any() or (truth_NL.sum(axis=1) != 1).any():
        return []
    return [
        "Every row has one true label and probabilities that sum to 1, as exclusive classes have: if they are"
        " exclusive, report on them as classes."
    ]
