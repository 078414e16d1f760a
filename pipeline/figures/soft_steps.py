"""Diagrams of the two soft steps of the soft calibration objectives: bins of confidence, and certain or uncertain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pipeline.figures.across import line_style
from pipeline.figures.style import bare, new_figure
from pipeline.methods.penalties.bins import gaussian_memberships
from pipeline.methods.penalties.uncertainty import soft_uncertainty

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 501
BINS = 5
BIN_TEMPERATURES = (0.1, 0.01, 0.001)
UNCERTAINTIES = ((0.5, 1.0), (0.5, 0.1), (0.3, 0.1), (0.7, 0.1))
"""Pairs of kappa and T."""


def memberships(out: Path) -> Path:
    """Draw the memberships of a confidence in five soft bins, at three temperatures, to `out`.svg and `out`.png.

    Karandikar et al. 2021, figure 3 and equation 8. Returns the PNG.
    """
    c_N = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    with new_figure(out, "How much of a confidence falls into each of five soft bins", (10.4, 3.3), png=True) as figure:
        panels = figure.subplots(1, len(BIN_TEMPERATURES), sharey=True)
        for axes, temperature in zip(panels, BIN_TEMPERATURES, strict=True):
            for k, u_N in enumerate(gaussian_memberships(c_N, 0.0, BINS, temperature).T):
                axes.plot(c_N, u_N, **line_style(k), markevery=POINTS // 8, markersize=3.5)
            _unit(axes, f"temperature {temperature:g}", "confidence")
        panels[0].set_ylabel("membership of each bin")
    return out.with_suffix(".png")


def uncertainty(out: Path) -> Path:
    """Draw the soft uncertainty by the relative entropy, to `out`.svg and `out`.png.

    Karandikar et al. 2021, figure 4 and equation 15. Returns the PNG.
    """
    h_N = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    with new_figure(out, "How uncertain a row counts, by its entropy", (5.4, 3.6), png=True) as figure:
        axes = figure.subplots()
        for k, (kappa, temperature) in enumerate(UNCERTAINTIES):
            style = line_style(k) | {"label": f"kappa {kappa:g}, T {temperature:g}"}
            t_N = soft_uncertainty(h_N, kappa, temperature)
            axes.plot(h_N, t_N, **style, markevery=POINTS // 8, markersize=3.5)
        _unit(axes, "", "entropy, as a share of the largest")
        axes.set_ylabel("soft uncertainty t")
        axes.legend(fontsize=8, frameon=False)
    return out.with_suffix(".png")


def _unit(axes: Axes, title: str, xlabel: str) -> None:
    axes.set(title=title, xlabel=xlabel, xlim=(0, 1), ylim=(0, 1.02))
    bare(axes)
