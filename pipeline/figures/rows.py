"""Diagrams of single rows at single epochs over several runs: densities, gradients, outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.figures.across import ACROSS, legend, line_style
from pipeline.figures.close_look import RIGHT, WRONG, cloud, spearman, stretch_edges
from pipeline.figures.labels import label
from pipeline.figures.style import bare, new_figure
from trueodds.sums.inputs import Array

POINTS = 256
"""Number of points of a density."""
MOST = 5_000
"""Largest number of rows for a density. The time grows with the rows, the width shrinks only as their fifth root."""
CELLS = 25
"""Number of cells in a histogram of probabilities."""
Rows = Mapping[str, npt.NDArray[Any]]
"""Arrays of epoch_rows.npz."""


def densities(of: Mapping[str, Rows], array: str, out: Path, title: str) -> None:
    """Draw the density of a number of each row: a panel per epoch, a line per model.

    The kernel is Gaussian with Scott's width, reflected at the ends of a bounded range (fractions; norms at 0).
    Gradient norms are drawn by their square root, because most lie near 0. Written to `out`.svg and `out`.png (BSCE-GRA
    paper, figs. 4, 5 and 8).
    """
    epochs = next(iter(of.values()))["epochs"]
    across, lines = min(len(epochs), ACROSS), -(-len(epochs) // ACROSS)
    root = array.endswith("norm")
    most = 1.0 if array.endswith(("confidence", "_p")) else max(float(rows[array].max()) for rows in of.values())
    ends = (0.0, np.sqrt(most) if root else most)
    with new_figure(out, title, (max(2.9 * across, 5.4), 2.7 * lines + 0.6), png=True) as figure:
        grid = figure.subplots(lines, across, squeeze=False, sharex=True)
        for axes in grid.flat[len(epochs) :]:
            axes.set_visible(False)
        for k, (axes, epoch) in enumerate(zip(grid.flat, epochs, strict=False)):
            for number, (name, rows) in enumerate(of.items()):
                values_N = rows[array][k].astype(np.float64)
                at, density = _density(np.sqrt(values_N) if root else values_N, ends)
                style = line_style(number) | {"markevery": POINTS // 8, "markersize": 3.5}
                axes.plot(at, density, **style, linewidth=1.3, label=name)
            axes.set(title=f"epoch {epoch}", ylim=(0, None), xlim=ends, yticks=[])
            bare(axes)
        split, name = array.split("_", 1)
        figure.supxlabel(f"{'square root of the ' if root else ''}{label(name)}, {label(split)} rows", fontsize=9)
        for axes in grid[:, 0]:
            axes.set_ylabel("density")
        legend(figure, grid[0, 0])


def gradients(of: Mapping[str, Rows], out: Path, title: str) -> None:
    """Draw gradient norm against Brier score of each training row at the last epoch, a panel per model.

    All panels share one scale. Lines are the median and the 5% and 95% quantiles of the norm at a Brier score. Written
    to `out`.svg and `out`.png (BSCE-GRA paper, fig. 4).
    """
    across, lines = min(len(of), ACROSS), -(-len(of) // ACROSS)
    last = {name: {key: values[-1] for key, values in rows.items() if key != "epochs"} for name, rows in of.items()}
    edges = tuple(
        stretch_edges(max(float(rows[key].max()) for rows in last.values())) for key in ("train_brier", _NORM)
    )
    with new_figure(out, title, (max(2.9 * across + 0.4, 5.4), 3.2 * lines + 0.6), png=True) as figure:
        grid = figure.subplots(lines, across, squeeze=False)
        for axes in grid.flat[len(of) :]:
            axes.set_visible(False)
        meshes = []
        for axes, (name, rows) in zip(grid.flat, last.items(), strict=False):
            meshes.append(cloud(axes, rows["train_brier"], rows[_NORM], (edges[0], edges[1])))
            epoch = of[name]["epochs"][-1]
            rank = spearman(rows["train_brier"], rows[_NORM])
            axes.set_title(f"{name}, epoch {epoch}\nrank correlation {rank:.3f}")
            axes.set_xlabel("Brier score of the row")
        for axes in grid[:, 0]:
            axes.set_ylabel("gradient norm")
        figure.colorbar(meshes[0], ax=list(grid.flat[: len(of)]), label="rows (log scale)", pad=0.01, aspect=35)
        handles = grid[0, 0].get_legend_handles_labels()[0]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)


def outcomes(of: Mapping[str, Rows], out: Path, title: str) -> None:
    """Draw correct and wrong test rows by p_y, the probability of their true class, at each epoch.

    Each model has a row of panels. Written to `out`.svg and `out`.png (BSCE-GRA paper, figs. 7 and 8).
    """
    epochs = next(iter(of.values()))["epochs"]
    edges = np.linspace(0, 1, CELLS + 1).tolist()
    size = (max(2.6 * len(epochs), 5.4), 2.1 * len(of) + 0.8)
    with new_figure(out, title, size, png=True) as figure:
        grid = figure.subplots(len(of), len(epochs), squeeze=False, sharex=True, sharey=True)
        for line, (name, rows) in zip(grid, of.items(), strict=True):
            for k, axes in enumerate(line):
                p_N, right_N = rows["test_p"][k], rows["test_correct"][k].astype(bool)
                for chosen, words, style in ((right_N, "right", RIGHT), (~right_N, "wrong", WRONG)):
                    weights = np.full(np.count_nonzero(chosen), 100 / len(p_N))
                    axes.hist(p_N[chosen], edges, weights=weights, label=words, **style)
                axes.set_title(f"{name}, epoch {epochs[k]}\nerror {100 * (1 - right_N.mean()):.1f}%")
                axes.set(yscale="log", ylim=(50 / len(p_N), 100), xlim=(0, 1))
                axes.grid(visible=True, axis="y", linewidth=0.6)
                bare(axes)
        for axes in grid[:, 0]:
            axes.set_ylabel("% of rows (log)")
        for axes in grid[-1]:
            axes.set_xlabel("probability of the true class")
        handles = grid[0, 0].get_legend_handles_labels()[0]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)


_NORM = "train_gradient_norm"


def _density(values_N: Array, ends: tuple[float, float]) -> tuple[Array, Array]:
    """Return a density on POINTS points. It is reflected at the ends, so that it integrates to 1 between them."""
    chosen = values_N[np.linspace(0, len(values_N) - 1, min(MOST, len(values_N))).astype(int)]
    width = max(float(chosen.std()) * len(chosen) ** -0.2, (ends[1] - ends[0]) / POINTS)
    at = np.linspace(*ends, POINTS)
    density = np.zeros(POINTS)
    for centres in (chosen, 2 * ends[0] - chosen, 2 * ends[1] - chosen):
        density += np.exp(-0.5 * ((at[:, None] - centres) / width) ** 2).sum(axis=1)
    return at, density / (len(chosen) * width * np.sqrt(2 * np.pi))
