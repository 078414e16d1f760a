"""Diagrams of the training rows at single epochs: their reliability, and their gradients in the last layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.figures.style import BAR, GAP, INK, LINE, bare, new_figure
from trueodds.metrics import Bins, CalibrationSums, binomial_interval, ece
from trueodds.sums.inputs import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 25
LEVEL = 0.95
ACROSS = 4  # epochs in a row
CELLS = 60  # cells of the two-dimensional histogram in each direction
MERGED = 3  # cells for one value of the quantile lines
FEWEST = 20  # smallest number of rows for one value of the quantile lines
RIGHT: dict[str, Any] = {"histtype": "stepfilled", "color": BAR, "alpha": 0.75}
WRONG: dict[str, Any] = {"histtype": "step", "color": GAP, "linewidth": 1.8}

Arrays = dict[str, npt.NDArray[Any]]


def reliability(arrays: Arrays, out: Path, title: str) -> None:
    """Draw reliability in 25 equal-width bins at each epoch, with the share of rows in each bin below.

    Similar to Mukhoti et al. 2020, figure 2. Written to `out`.svg and `out`.png.
    """
    with new_figure(out, title, size(arrays, 3.9), png=True) as figure:
        for epoch, (top, low) in grid(figure, arrays, [2.4, 1]):
            confidence, correct = arrays["train_confidence"][epoch], arrays["train_correct"][epoch]
            sums = CalibrationSums.from_top(confidence, correct)
            bins = sums.bins(BINS)
            panel(top, bins, LEVEL)
            top.set_title(
                f"epoch {arrays['epochs'][epoch]}\nECE {ece(sums, bins=BINS):.4f}, error {1 - correct.mean():.4f}"
            )
            low.bar(bins.lo_B, 100 * bins.count_B / bins.n, 1 / BINS, align="edge", color=LINE, edgecolor="white")
            low.set(xlim=(0, 1), xlabel="confidence")
            _percent(low, int(bins.n))
            if epoch % ACROSS == 0:
                top.set_ylabel("accuracy")
                low.set_ylabel("% of rows (log)")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        for handle in filter(None, figure.legend(handles, labels, **legend(arrays)).legend_handles):
            handle.set_alpha(1)


def panel(axes: Axes, bins: Bins, level: float) -> None:
    """Draw one reliability diagram of several. Bars of bins with few rows are pale, as the ECE weighs them less."""
    filled = bins.count_B > 0
    lo, width, count = bins.lo_B[filled], (bins.hi_B - bins.lo_B)[filled], bins.count_B[filled]
    accuracy, confidence = bins.accuracy_B[filled], bins.mean_confidence_B[filled]
    low, high = binomial_interval(bins.correct_B[filled], count, level=level)
    weight = np.clip(np.sqrt(count / max(count.max(), 1) * 4), 0.15, 1)
    bars = axes.bar(
        lo,
        accuracy,
        width,
        align="edge",
        color=BAR,
        edgecolor="white",
        linewidth=0.6,
        label="accuracy (paler: fewer rows)",
    )
    for bar, alpha in zip(bars, weight, strict=True):
        bar.set_alpha(float(alpha))
    axes.bar(
        lo, confidence - accuracy, width, bottom=accuracy, align="edge", facecolor="none", edgecolor=GAP, hatch="////",
        linewidth=0.8, label="gap to mean confidence",
    )  # fmt: skip
    whiskers = np.maximum([accuracy - low, high - accuracy], 0.0)
    axes.errorbar(
        lo + width / 2,
        accuracy,
        whiskers,
        fmt="none",
        ecolor=INK,
        elinewidth=0.9,
        capsize=1.5,
        label=f"{level:.0%} binomial interval",
    )
    axes.plot([0, 1], [0, 1], color=INK, linestyle=(0, (4, 3)), linewidth=0.9, label="calibrated")
    axes.set(xlim=(0, 1), ylim=(0, 1.01))


def gradients(arrays: Arrays, out: Path, title: str) -> None:
    """Draw gradient norm against Brier score of each training row, and the norms' histogram, at each epoch.

    Similar to the BSCE-GRA paper, figure 4, and Mukhoti et al. 2020, figure 4. All epochs share one scale, whose axes
    are stretched by the square root because most rows of a trained net lie near the origin. Lines are the median and
    the 5% and 95% quantiles of the norm at a Brier score. Written to `out`.svg and `out`.png.
    """
    norms, briers = arrays["train_gradient_norm"], arrays["train_brier"]
    rows, edges = norms.shape[1], (stretch_edges(briers.max()), stretch_edges(norms.max()))
    with new_figure(out, title, size(arrays, 4.6), png=True) as figure:
        panels = grid(figure, arrays, [1.9, 1], share=False)
        for epoch, (top, low) in panels:
            norm, brier, right = norms[epoch], briers[epoch], arrays["train_correct"][epoch]
            mesh = cloud(top, brier, norm, edges)
            top.set_title(f"epoch {arrays['epochs'][epoch]}\nrank correlation {spearman(brier, norm):.3f}")
            top.set_xlabel("Brier score of the row")
            for chosen, words, style in ((right, "right", RIGHT), (~right, "wrong", WRONG)):
                weights = np.full(np.count_nonzero(chosen), 100 / rows)
                low.hist(norm[chosen], edges[1].tolist(), weights=weights, label=words, **style)
            _percent(low, rows)
            _stretch(low, "x", edges[1])
            low.set_xlabel("gradient norm")
            if epoch % ACROSS == 0:
                top.set_ylabel("gradient norm")
                low.set_ylabel("% of rows (log)")
        figure.colorbar(mesh, ax=[top for _, (top, _) in panels], label="rows (log scale)", pad=0.01, aspect=35)
        handles = [handle for axes in panels[0][1] for handle in axes.get_legend_handles_labels()[0]]
        figure.legend(handles=handles, **legend(arrays))


def cloud(axes: Axes, brier: Array, norm: Array, edges: tuple[Array, Array]) -> Any:
    """Draw rows by Brier score and norm as a two-dimensional histogram, with quantile lines of the norm."""
    from matplotlib.colors import LogNorm

    counts = np.histogram2d(brier, norm, edges)[0].T
    # Counts start at 0.2, so that a single row is visible on white.
    scale = LogNorm(0.2, len(brier))
    mesh = axes.pcolormesh(*edges, np.where(counts > 0, counts, np.nan), norm=scale, cmap="Blues", rasterized=True)
    wide = edges[0][::MERGED]
    cell_N = np.clip(np.digitize(brier, wide) - 1, 0, len(wide) - 2)
    levels = np.full((3, len(wide) - 1), np.nan)
    for cell in np.flatnonzero(np.bincount(cell_N) >= FEWEST):
        levels[:, cell] = np.quantile(norm[cell_N == cell], [0.05, 0.5, 0.95])
    middle, dashes = (wide[1:] + wide[:-1]) / 2, (0, (3, 2))
    axes.plot(middle, levels[1], color=INK, linewidth=1.6, label="median")
    axes.plot(middle, levels[0], color=INK, linewidth=0.9, linestyle=dashes, label="5% and 95% quantiles")
    axes.plot(middle, levels[2], color=INK, linewidth=0.9, linestyle=dashes)
    _stretch(axes, "x", edges[0])
    _stretch(axes, "y", edges[1])
    bare(axes)
    return mesh


def stretch_edges(most: float) -> Array:
    """Return the edges of CELLS cells from 0 to `most`, of equal width in the square root."""
    edges: Array = np.linspace(0, 1, CELLS + 1) ** 2 * max(float(most), 1e-12)
    return edges


def _stretch(axes: Axes, which: str, edges: Array) -> None:
    """Set a square-root scale over these edges, with round numbers that do not overlap."""
    most, ticks = edges[-1], [0.0]
    for tick in (digit * 10.0**power for power in range(-14, 9) for digit in (1, 2, 5)):
        if tick <= most and np.sqrt(tick / most) > np.sqrt(ticks[-1] / most) + 0.17:
            ticks.append(tick)
    functions = (lambda x: np.sqrt(np.maximum(x, 0)), np.square)
    (axes.set_xscale if which == "x" else axes.set_yscale)("function", functions=functions)
    axes.set(**{f"{which}lim": (0, most), f"{which}ticks": ticks, f"{which}ticklabels": [f"{t:g}" for t in ticks]})


def _percent(axes: Axes, rows: int) -> None:
    """Set a log scale of percent, from half a row to all rows."""
    least = 50 / rows
    ticks = [tick for tick in (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0) if tick > least]
    axes.set(yscale="log", ylim=(least, 150))
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.grid(visible=True, axis="y", linewidth=0.6)
    bare(axes)


def spearman(a: Array, b: Array) -> float:
    """Return the rank correlation; NaN if one of the two is constant."""
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic) if np.ptp(a) and np.ptp(b) else float("nan")


def size(arrays: Arrays, height: float) -> tuple[float, float]:
    """Return width and height of a figure with a panel per epoch, for rows of this height."""
    epochs = len(arrays["epochs"])
    return max(2.7 * min(epochs, ACROSS) + 0.6, 5.4), height * -(-epochs // ACROSS) + 0.6


def legend(arrays: Arrays) -> dict[str, Any]:
    """Return the legend's placement in a figure with a panel per epoch."""
    wide = len(arrays["epochs"]) > 2
    return {"loc": "outside lower center", "ncols": 4 if wide else 2, "fontsize": 8, "frameon": False}


def grid(
    figure: Figure, arrays: Arrays, heights: list[float], *, share: bool = True
) -> list[tuple[int, tuple[Axes, Axes]]]:
    """Return (index of the epoch, (upper axes, lower axes)) for each epoch."""
    epochs = len(arrays["epochs"])
    rows, across = -(-epochs // ACROSS), min(epochs, ACROSS)
    axes = figure.subplots(
        2 * rows, across, squeeze=False, height_ratios=heights * rows, sharex="col" if share else False
    )
    for empty in range(epochs, rows * across):
        for one in axes[2 * (empty // across) : 2 * (empty // across) + 2, empty % across]:
            one.set_visible(False)
    return [(k, (axes[2 * (k // across), k % across], axes[2 * (k // across) + 1, k % across])) for k in range(epochs)]
