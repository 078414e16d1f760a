"""Diagram of the effect of focal loss on the gradient of cross entropy, and of the exponents derived from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pipeline.figures.style import BAR, GAP, INK, LINE, PALE, bare, new_figure
from pipeline.methods.gamma import CAP, RULES, gamma_star, gradient_ratio, p_zero

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAMMAS = (1.0, 2.0, 3.0, 5.0, 7.0)
DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (4, 2)), (0, (2, 1.5)), (0, (1, 1.5)))
STEPS: dict[str, dict[str, Any]] = {
    "fla532": {"color": GAP, "linewidth": 3.0, "alpha": 0.55},
    "flsd53": {"color": BAR, "linewidth": 1.6, "linestyle": (0, (4, 2))},
}
MOST = 15.0  # largest gamma in the diagram


def gamma_curve(out: Path) -> Path:
    """Draw g(p, gamma) with its p0 (left), and gamma*(p0) with the exponents of methods (right).

    Similar to Mukhoti et al. 2020, figure 4a and proposition 2. Written to `out`.svg and `out`.png; returns the PNG.
    """
    with new_figure(out, "Focal loss: its gradient over that of cross entropy", (10.2, 4.3), png=True) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
        _ratios(left)
        _exponents(right)
    return out.with_suffix(".png")


def _ratios(axes: Axes) -> None:
    p = np.linspace(0, 1, 1001)
    axes.axhline(1, color=LINE, linewidth=1.2)
    axes.annotate("cross entropy (γ = 0)", (0.99, 0.985), ha="right", va="top", fontsize=8)
    for gamma, dash in zip(GAMMAS, DASHES, strict=True):
        zero = p_zero(gamma)
        axes.plot(p, gradient_ratio(p, gamma), color=BAR, linestyle=dash, linewidth=1.7,
                  label=f"γ = {gamma:g}: $p_0$ = {zero:.3f}")  # fmt: skip
        axes.plot(zero, 1, "o", color=INK, markersize=4.5, zorder=3)
    axes.set(xlim=(0, 1), ylim=(0, 1.62), xlabel="p, probability of the true class")
    axes.set_title(r"$g(p, γ) = (1 - p)^γ - γ\,p\,(1 - p)^{γ - 1}\,\log p$")
    words = "harder than cross entropy left of $p_0$,\nless hard right of it"
    axes.legend(fontsize=8, frameon=False, loc="upper right", title=words, title_fontsize=8, alignment="left")
    axes.grid(visible=True, linewidth=0.6)
    bare(axes)


def _exponents(axes: Axes) -> None:
    p = np.linspace(1e-3, 1, 2000)
    star = np.minimum(gamma_star(p), CAP)
    axes.fill_between(p[p <= 0.5], star[p <= 0.5], color=PALE, linewidth=0, label="g(p, γ) > 1")
    for name, style in STEPS.items():
        values = torch.as_tensor(RULES[name](torch.from_numpy(p), 0)).expand(len(p))
        axes.plot(p, values.numpy(), **style, label=name)
    axes.plot(
        p, star, color=INK, linewidth=1.8, label=f"γ*(p) by Lambert's W: g(p, γ*) = 1\n(lambert: at most {CAP:g})"
    )
    for gamma in GAMMAS:
        axes.plot(p_zero(gamma), gamma, "o", color=INK, markersize=4.5)
    axes.set(xlim=(0, 1), ylim=(0, MOST), xlabel="p, probability of the true class", ylabel="γ")
    axes.set_title("exponents γ chosen for each sample by its p")
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    axes.grid(visible=True, linewidth=0.6)
    bare(axes)
