"""Diagram of the weights that losses give to a row of three classes by the net's uncertainty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline.figures.style import INK, new_figure
from pipeline.methods.losses.bsce import bsce
from pipeline.methods.losses.dual_focal import dual_focal
from pipeline.methods.losses.focal import focal
from trueodds.sums.inputs import Array

SIDE = 120
"""Number of steps along a side of the triangle's grid."""
WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "focal: $(1 - p_y)^2$": lambda z, y: focal(z, y, gamma=2.0),
    "dual focal: $(1 - p_y + p_j)^2$": lambda z, y: dual_focal(z, y, gamma=2.0),
    "BSCE: $||p - y||_2^2$": lambda z, y: bsce(z, y, gamma=2.0, norm=2.0),
}
CORNERS = np.array([[0.5, np.sqrt(0.75)], [0.0, 0.0], [1.0, 0.0]])


def simplex(out: Path) -> Path:
    """Draw three weights of a row whose class is the upper corner, to `out`.svg and `out`.png (BSCE-GRA paper, fig. 2).

    p_j is the largest probability below p_y, or 0. Returns the PNG.
    """
    p_N3 = points()
    x_N, y_N = (p_N3 @ CORNERS).T
    title = "Weight of a row by its probabilities of three classes; its class is the upper corner"
    with new_figure(out, title, (10.4, 3.9), png=True) as figure:
        panels = figure.subplots(1, len(WEIGHTS))
        for axes, (name, loss) in zip(panels, WEIGHTS.items(), strict=True):
            mesh = axes.tripcolor(x_N, y_N, weights(loss, p_N3), vmin=0, vmax=2, cmap="Blues", shading="gouraud",
                                  rasterized=True)  # fmt: skip
            axes.tricontour(x_N, y_N, weights(loss, p_N3), levels=[0.25, 0.5, 1.0, 1.5], colors=INK, linewidths=0.7)
            axes.set(title=name, aspect="equal")
            axes.axis("off")
        figure.colorbar(mesh, ax=list(panels), label="weight (lines at 0.25, 0.5, 1 and 1.5)", pad=0.02)
    return out.with_suffix(".png")


def points() -> Array:
    """Return a grid of points inside the triangle. The border is left out, where a logarithm is infinite."""
    grid = [(a, b, SIDE - a - b) for a in range(1, SIDE) for b in range(1, SIDE - a)]
    found: Array = np.array(grid, np.float64) / SIDE
    return found


def weights(loss: Callable[[Tensor, Tensor], Tensor], p_N3: Array) -> Array:
    """Return the loss of rows of class 0 divided by their cross entropy, by the code used in training."""
    log_p_N3 = torch.from_numpy(np.log(p_N3))
    found: Array = (loss(log_p_N3, torch.zeros(len(p_N3), dtype=torch.long)) / -log_p_N3[:, 0]).numpy()
    return found
