"""Common style of the diagrams. None depends on colour alone: lines differ in dash and width, points in shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from trueodds.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, BAR, GAP, LINE, PALE = "#1f2933", "#4c78a8", "#e8a33d", "#9aa5b1", "#e4e7eb"
BEFORE: dict[str, Any] = {"color": GAP, "linestyle": (0, (4, 2)), "marker": "s", "markerfacecolor": "white"}
AFTER: dict[str, Any] = {"color": BAR, "linestyle": "-", "marker": "o"}
LETTERS = 9.2
"""Letters of a title per inch."""
LINE_HEIGHT = 0.2
"""Height of a title's line in inches."""
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "trueodds",
    "font.size": 9,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def new_figure(out: Path, title: str, size: tuple[float, float], *, png: bool = False) -> Iterator[Figure]:
    """Yield a figure to draw on, then write `out`.svg and, with `png`, `out`.png, without dates and program names.

    The folder is made if it does not exist.
    """
    import matplotlib
    from matplotlib.figure import Figure

    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        words = fill(title, round(LETTERS * size[0]))
        figure = Figure(figsize=(size[0], size[1] + LINE_HEIGHT * words.count("\n")), layout="constrained")
        figure.suptitle(words, fontsize=11.5, x=0.01, ha="left", weight="bold")
        yield figure
        _settle(figure)
        with atomic_write(out.with_suffix(".svg")) as aside:
            figure.savefig(aside, format="svg", metadata={"Date": None})
        if png:
            with atomic_write(out.with_suffix(".png")) as aside:
                figure.savefig(aside, format="png", dpi=140, metadata={"Software": None})


def _settle(figure: Figure) -> None:
    """Fix the rounded layout, because its solver's last bits differ between equal figures, and SVG ids depend on it."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(float(value), 5) for value in axes.get_position(original=True).bounds)
        axes.set_position((left, bottom, width, height))


def bare(axes: Axes) -> None:
    """Hide the upper and right side of the frame."""
    axes.spines[["top", "right"]].set_visible(False)
