"""Files and matplotlib axes of a calibration report: its JSON tree, its page, and its reliability diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from trueodds.drawing.reliability import WHISKERS_UP_TO, Axes
from trueodds.errors import ConfigError, MissingExtraError
from trueodds.files import atomic_write
from trueodds.reports.schemas import Bin

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
