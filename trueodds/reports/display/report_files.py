"""Files and matplotlib axes of calibration reports: the JSON tree, the page, and the reliability diagram."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from trueodds.drawing.reliability import TOP_LABEL, WHISKERS_UP_TO, Axes, ReliabilityDiagram
from trueodds.errors import ConfigError, MissingExtraError
from trueodds.files import atomic_write, write_json, write_text
from trueodds.reports.display.figure_table import at_least_rows, figure_rows, ordered_rows, positive_rows
from trueodds.reports.display.notebook import notebook_html
from trueodds.reports.figures import diagram_of
from trueodds.reports.schemas import Bin, OrderedFigures, PositiveFigures
from trueodds.reports.words import decimal, span

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

SUFFIXES = (".svg", ".html", ".json", ".png")
"""Suffixes of the files that a report can write."""
BAR, OVER, UNDER, INK = "#8fadcd", "#b4512a", "#3a7f60", "#22252a"
"""Colours of the bars, of the gaps and of the lines, as in our own drawings."""
INCHES = (6.0, 6.6)
DPI = 150


def json_tree(value: Any) -> Any:
    """Convert figures to values that JSON can hold: objects, lists, texts, numbers, booleans and None."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): json_tree(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_tree(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def suffix_of(path: Path) -> str:
    """Return the suffix of a report's file in lower case.

    Raises:
        ConfigError: A report has no file of this kind.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        allowed = f"allowed are {', '.join(SUFFIXES)}"
        raise ConfigError(f"{path} has the suffix {suffix!r}; {allowed}. Give the file a name such as report.svg")
    return suffix


def page(title: str, content: str) -> str:
    """Return a whole HTML page without scripts and without addresses of other files."""
    style = "body{margin:2rem auto;max-width:64rem;padding:0 1rem;font-family:system-ui,sans-serif}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="color-scheme" content="light dark"><style>{style}</style></head>\n<body>{content}</body></html>\n'
    )


def new_axes() -> matplotlib.axes.Axes:
    """Create the axes of a figure of its own, which pyplot shows if the program uses pyplot.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise MissingExtraError("report.plot", "matplotlib", "plot") from None
    _, ax = pyplot.subplots(figsize=INCHES, layout="constrained")
    return ax


def figure_axes() -> tuple[matplotlib.figure.Figure, matplotlib.axes.Axes]:
    """Create a figure that pyplot does not know, for a file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise MissingExtraError("a report in a .png file", "matplotlib", "plot") from None
    figure = Figure(figsize=INCHES, layout="constrained")
    return figure, figure.add_subplot()


def write_png(path: Path, figure: matplotlib.figure.Figure) -> None:
    """Write a figure without dates and program names.

    Raises:
        OSError: The file cannot be written.
    """
    with atomic_write(path) as aside:
        figure.savefig(aside, format="png", dpi=DPI, metadata={"Software": None})


def draw(ax: matplotlib.axes.Axes, bins: Sequence[Bin], axes: Axes, title: str, level: float) -> None:
    """Draw a reliability diagram on matplotlib axes, with title and legend.

    The bars are the share of right answers in each bin. Their gaps to the mean confidence are hatched if the model is
    over-confident there. The whiskers are intervals at the confidence level `level`.
    """
    rows = [b for b in bins if b.count]
    lo_B, width_B = np.array([b.lo for b in rows]), np.array([b.hi - b.lo for b in rows])
    p_B, right_B = (np.array([getattr(b, name) for b in rows]) for name in ("mean_confidence", "accuracy"))
    lower_B, upper_B = (np.array([getattr(b, name) for b in rows]) for name in ("accuracy_lower", "accuracy_upper"))
    says, occurs = axes.plain()
    bar: dict[str, Any] = {"align": "edge", "linewidth": 0.8}
    ax.bar(lo_B, right_B, width_B, color=BAR, edgecolor="white", label=occurs, **bar)
    for is_gap_B, colour, hatch, label in (
        (p_B > right_B, OVER, "////", axes.over),
        (p_B < right_B, UNDER, "", axes.under),
    ):
        height_B = np.abs(p_B - right_B)[is_gap_B]
        bottom_B = np.minimum(p_B, right_B)[is_gap_B]
        fill = {"facecolor": "none"} if hatch else {"facecolor": colour, "alpha": 0.8}
        ax.bar(
            lo_B[is_gap_B],
            height_B,
            width_B[is_gap_B],
            bottom_B,
            edgecolor=colour,
            hatch=hatch,
            label=label,
            **fill,
            **bar,
        )
    if len(bins) <= WHISKERS_UP_TO:
        errors = np.maximum([right_B - lower_B, upper_B - right_B], 0)
        middle_B = lo_B + width_B / 2
        ax.errorbar(
            middle_B,
            right_B,
            errors,
            fmt="none",
            ecolor=INK,
            elinewidth=1.2,
            capsize=3,
            label=f"{100 * level:g}% interval",
        )
    ax.plot([0, 1], [0, 1], color=INK, linestyle=":", label=axes.on_the_diagonal)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel=says, ylabel=occurs)
    ax.set_title(title, loc="left", fontsize="medium")
    ax.set_aspect("equal")
    ax.legend(loc="upper left", fontsize="small")


class Content(NamedTuple):
    """Parts of a report that its pictures and files show."""

    title: str
    """Title of the table of numbers."""
    about: str
    """Number of rows or answers in words, as the first line above the diagram."""
    reading: str
    figures: Mapping[str, Any]
    """The numbers by name. `ece` is None without labels."""
    bins: list[Bin]
    level: float
    """Confidence level of the intervals."""
    positive: PositiveFigures | None
    ordered: OrderedFigures | None = None

    def caption(self) -> list[str]:
        """Return the lines above the diagram: number of rows, and with labels the ECE, noise floor and interval."""
        figures: Mapping[str, Any] = self.figures if self.positive is None else vars(self.positive)
        if figures["ece"] is None:
            return [self.about]
        limits = f"{100 * self.level:g}% interval {span(figures['ece_lower'], figures['ece_upper'], 'decimal', 4)}"
        floor = f"noise floor {decimal(figures['floor_mean'], 4)} (up to {decimal(figures['floor_p95'], 4)} by chance)"
        return [
            self.about,
            f"ECE{' of p' * (self.positive is not None)} {decimal(figures['ece'], 4)}, {floor}",
            f"estimate of the ECE {decimal(figures['ece_estimate'], 4)}, {limits}",
        ]

    def bins_and_axes(self) -> tuple[list[Bin], Axes]:
        """Return the bins of the diagram with its axes: those of p(positive) if the report has them."""
        if self.positive is None:
            return self.bins, TOP_LABEL
        return self.positive.bins, Axes.of_positive(self.positive.label)

    def diagram(self) -> ReliabilityDiagram:
        """Return the geometry of the diagram."""
        return diagram_of(*self.bins_and_axes())

    def html(self, drawing: str) -> str:
        """Lay out the numbers beside a drawing, for a notebook or a page. Without labels there are no numbers."""
        rows = positive_rows(self.positive) if self.positive else []
        known = self.figures["ece"] is not None
        rows += figure_rows(self.figures) if known else []
        levels: list[tuple[str, ...]] = []
        if self.ordered is not None:
            rows, levels = [*rows, *ordered_rows(self.ordered)], at_least_rows(self.ordered)
        return notebook_html(self.title, rows if known else [], self.reading, drawing, levels)


class DisplayedReport(ABC):
    """Pictures and files of a calibration report, of arrays or of a service's answers.

    If the report has figures of p(positive), the diagram is about p(positive).

    Examples:
        >>> report = trueodds.report([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]] * 25, [0, 0, 1, 1] * 25)
        >>> report.save("report.svg")
        >>> report.to_dict()["accuracy"]
        0.75
    """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return all numbers by name, with `reading`, as values that JSON can hold."""

    @abstractmethod
    def _content(self) -> Content:
        """Return the parts that pictures and files show."""

    def _page(self) -> str:
        """Return the report as a whole HTML page."""
        content = self._content()
        return page(content.title, content.html(self.svg()))

    def _repr_html_(self) -> str:
        content = self._content()
        return content.html(content.diagram().svg())

    def svg(self) -> str:
        """Draw the reliability diagram as an SVG file with title, legend, the ECE with its interval, and its colours.

        The file needs no other file, and its text is readable in viewers without style sheets.
        """
        content = self._content()
        return content.diagram().picture(content.caption(), content.level)

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw the reliability diagram on matplotlib axes, with title, legend and the ECE with its interval.

        Args:
            ax: Axes to draw on. Default: those of a new figure.

        Returns:
            The axes.

        Raises:
            MissingExtraError: matplotlib is not installed (extra `plot`).
        """
        ax = new_axes() if ax is None else ax
        content = self._content()
        bins, axes = content.bins_and_axes()
        draw(ax, bins, axes, "\n".join([axes.title, *content.caption()]), content.level)
        return ax

    def save(self, path: str | Path) -> None:
        """Write the report to a file. The suffix chooses the form.

        `.svg` holds the reliability diagram. `.png` holds it too, drawn by matplotlib (extra `plot`). `.html` holds all
        numbers and the diagram, in one page without other files. `.json` holds `to_dict()`.

        Args:
            path: Path of the file. An existing file is replaced.

        Raises:
            ConfigError: The file has another suffix.
            MissingExtraError: For `.png`, matplotlib is not installed. For `.html` of a service's report, jinja2 is not
                installed (extra `report`).
            OSError: The file cannot be written. An existing file is then unchanged.
        """
        path = Path(path)
        suffix = suffix_of(path)
        if suffix == ".png":
            figure, ax = figure_axes()
            self.plot(ax)
            write_png(path, figure)
        elif suffix == ".json":
            write_json(path, self.to_dict())
        else:
            write_text(path, self.svg() if suffix == ".svg" else self._page())
