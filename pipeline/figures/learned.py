"""Diagrams of quantities that a run learned besides its net: gamma, outer loss, L2 by layer, smoothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.figures.close_look import ACROSS, FEWEST, RIGHT, WRONG, grid, legend, size
from pipeline.figures.style import BAR, GAP, INK, bare, new_figure
from trueodds.sums.inputs import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Columns = dict[str, Array]
Arrays = dict[str, npt.NDArray[Any]]
SPLITS: dict[str, tuple[str, dict[str, Any]]] = {
    "train": ("training rows, as their steps had it", {"color": GAP, "linestyle": (0, (4, 2))}),
    "test": ("test rows", {"color": BAR, "linestyle": "-"}),
}
BINS = 30
CELLS = 20  # cells of confidence for the quantile lines
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1.5)), (0, (1, 1.2)))


def learned_figure(columns: Columns, out: Path, title: str) -> bool:
    """Draw gamma, the outer loss and the learned strengths by epoch to `out`.svg and `out`.png.

    Similar to the gamma-net paper, figure 3 (c) and (d): the mean of gamma with the band of its 5% and 95% quantiles,
    instead of one standard deviation, because gamma is far from normally distributed. Returns False if the run has none
    of these columns.
    """
    layers = [name for name in columns if name.startswith("l2_")]
    panels: list[tuple[str, Callable[[Axes], None]]] = []
    if np.isfinite(columns.get("test_gamma_mean", np.nan)).any():
        panels.append(("γ: mean, and the band of 90% of the rows", lambda axes: _gamma(axes, columns)))
    if "outer_before" in columns:
        panels.append(("outer loss, on set-aside rows", lambda axes: _outer(axes, columns)))
    if layers:
        panels.append(("learned L2, mean of a layer", lambda axes: _lines(axes, columns, layers, "l2_")))
    if bins := [name for name in columns if name.startswith("gamma_bin_")]:
        panels.append(("γ of each bin of confidence", lambda axes: _lines(axes, columns, bins, "gamma_bin_", "bin ")))
    for prefix, label, words in (
        ("factor_", "", "learned factors on the weights of penalties"),
        ("relative_", "", "weights of penalties that follow the loss"),
        ("centre_", "bin ", "centres of the learned histogram"),
        ("width_", "bin ", "widths of its bins"),
    ):
        if names := [name for name in columns if name.startswith(prefix)]:
            panels.append((words, partial(_lines, columns=columns, names=names, prefix=prefix, label=label)))
    panels += [
        ("learned label smoothing ε", partial(_smoothing, columns=columns, which=which))
        for which in ("smoothing", "class_smoothing")
        if f"{which}_mean" in columns
    ]
    if "noise" in columns:
        panels.append(("strength of the noise", lambda axes: _noise(axes, columns)))
    if not panels:
        return False
    with new_figure(out, title, (max(5.2 * len(panels), 6.2), 3.9), png=True) as figure:
        for axes, (words, draw) in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
            draw(axes)
            axes.set(title=words, xlabel="epoch")
            axes.grid(visible=True, axis="y", linewidth=0.6)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend(fontsize=8, frameon=False)
            bare(axes)
    return True


def gammas(arrays: Arrays, out: Path, title: str) -> None:
    """Draw gamma of the test rows against their confidence, and its histogram by outcome, at each epoch.

    Lines are the median and the 5% and 95% quantiles of gamma at a confidence. Written to `out`.svg and `out`.png.
    """
    gamma = arrays["test_gamma"]
    margin = 0.05 * float(np.ptp(gamma)) or 0.5
    edges = np.linspace(gamma.min() - margin, gamma.max() + margin, BINS + 1)
    with new_figure(out, title, size(arrays, 4.6), png=True) as figure:
        for epoch, (top, low) in grid(figure, arrays, [1.9, 1], share=False):
            values, confidence = gamma[epoch], arrays["test_confidence"][epoch]
            right = arrays["test_correct"][epoch]
            for chosen, words, style in ((right, "right", RIGHT), (~right, "wrong", WRONG)):
                top.plot(confidence[chosen], values[chosen], ".", markersize=1.5, color=style["color"], alpha=0.5)
                weights = np.full(np.count_nonzero(chosen), 100 / max(int(np.count_nonzero(chosen)), 1))
                low.hist(values[chosen], edges.tolist(), weights=weights, label=words, **style)
            _quantiles(top, confidence, values)
            top.set(xlim=(0, 1), ylim=(edges[0], edges[-1]), xlabel="confidence")
            top.set_title(f"epoch {arrays['epochs'][epoch]}")
            low.set(xlim=(edges[0], edges[-1]), xlabel="γ")
            bare(top)
            bare(low)
            if epoch % ACROSS == 0:
                top.set_ylabel("γ of a test row")
                low.set_ylabel("% of the outcome's rows")
        handles = [handle for axes in (top, low) for handle in axes.get_legend_handles_labels()[0]]
        figure.legend(handles=handles, **legend(arrays))


def _gamma(axes: Axes, columns: Columns) -> None:
    for split, (words, style) in SPLITS.items():
        low, high = (columns[f"{split}_gamma_{name}"] for name in ("q05", "q95"))
        axes.fill_between(columns["epoch"], low, high, color=style["color"], alpha=0.18, linewidth=0)
        axes.plot(columns["epoch"], columns[f"{split}_gamma_mean"], linewidth=1.8, label=words, **style)


def _outer(axes: Axes, columns: Columns) -> None:
    axes.plot(columns["epoch"], columns["outer_before"], color=GAP, linestyle=(0, (4, 2)), label="before the step")
    axes.plot(columns["epoch"], columns["outer_after"], color=BAR, label="after the step, as looked ahead")


def _lines(axes: Axes, columns: Columns, names: list[str], prefix: str, label: str = "") -> None:
    for place, name in enumerate(names):
        shade = place / max(len(names) - 1, 1)
        style = {"linestyle": DASHES[place % len(DASHES)], "color": (0.18 + 0.1 * shade, 0.3 + 0.4 * shade, 0.65)}
        shown = label + name.removeprefix(prefix) if place in (0, len(names) - 1) else None
        axes.plot(columns["epoch"], columns[name], linewidth=1.1, label=shown, **style)
    axes.axhline(0, color=INK, linewidth=0.6)


def _smoothing(axes: Axes, columns: Columns, which: str) -> None:
    if f"{which}_min" in columns:
        band: dict[str, Any] = {"color": BAR, "alpha": 0.18, "linewidth": 0, "label": "least to greatest class"}
        axes.fill_between(columns["epoch"], columns[f"{which}_min"], columns[f"{which}_max"], **band)
    axes.plot(columns["epoch"], columns[f"{which}_mean"], color=BAR, linewidth=1.8, label="mean")


def _noise(axes: Axes, columns: Columns) -> None:
    axes.plot(columns["epoch"], columns["noise"], color=BAR, linewidth=1.8, label="fitted on the validation rows")


def _quantiles(axes: Axes, confidence: Array, values: Array) -> None:
    cell_N = np.minimum((confidence * CELLS).astype(int), CELLS - 1)
    levels = np.full((3, CELLS), np.nan)
    for cell in np.flatnonzero(np.bincount(cell_N, minlength=CELLS) >= FEWEST):
        levels[:, cell] = np.quantile(values[cell_N == cell], [0.05, 0.5, 0.95])
    middle = (np.arange(CELLS) + 0.5) / CELLS
    axes.plot(middle, levels[1], color=INK, linewidth=1.6, label="median")
    axes.plot(middle, levels[0], color=INK, linewidth=0.9, linestyle=(0, (3, 2)), label="5% and 95% quantiles")
    axes.plot(middle, levels[2], color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
