"""Calibrators beside each other: is one better than chance makes it look, and what does it pay?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import isotonic_regression

from pipeline.figures.style import BAR, GAP, INK, LINE, PALE, bare, drawn
from trueodds.evaluation.measurement import Measurement, Problem, Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 3  # times the least entropy: beyond it the scale is logarithmic
BAND = 0.07  # of the height of the right picture, above it: where lines lead to their numbers


def comparison(
    before: Measurement,
    after: Measurement,
    others: Sequence[Measurement | Problem],
    settings: Settings,
    out: Path,
    title: str,
) -> None:
    """Left: a forest plot of the ECE. Right: ECE against average uncertainty. Written to `out`.svg.

    Forest: the plug-in ECE (hollow), the estimate (full; high where the error is in few bins) with
    its interval, and the range that chance alone reaches 19 times in 20 (grey); error and NLL in words, because a low
    ECE can be bought with either.

    Right, after Karandikar et al. 2021, figure 10: the mean entropy of the answers. A calibrator that lowers the ECE by
    moving to the right says less; numbers are those of the rows on the left.
    """
    rows = [before, after, *others]
    with drawn(out, title, (10.6, 1.9 + 0.34 * max(len(rows), 5))) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[1.4, 1])
        _forest(left, rows, settings)
        _uncertainty(right, rows)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def _colour(row: int) -> str:
    return {0: GAP, 1: BAR}.get(row, INK)


def _forest(axes: Axes, rows: Sequence[Measurement | Problem], settings: Settings) -> None:
    for row, one in enumerate(rows):
        if isinstance(one, Problem):
            axes.text(0.01, row, "could not be fitted", transform=axes.get_yaxis_transform(), va="center", fontsize=8)
            continue
        values, labelled = one.values, row == 0
        axes.barh(row, values["floor_p95"], 0.62, color=PALE, edgecolor=LINE, linewidth=0.6,
                  label="where 95% of calibrated models lie" if labelled else None)  # fmt: skip
        axes.plot([values["ece_lower"], values["ece_upper"]], [row, row], color=_colour(row), linewidth=1.8)
        axes.plot(values["ece_estimate"], row, "o", color=_colour(row), markersize=6.5, clip_on=False, zorder=3,
                  label=f"estimate with {settings.level:.0%} interval" if labelled else None)  # fmt: skip
        axes.plot(values["ece"], row, "D", color=_colour(row), markerfacecolor="white", markersize=4.5, zorder=4,
                  label=f"ECE, {settings.bins} bins" if labelled else None)  # fmt: skip
        words = f"{values['error_rate']:.4f}  {values['nll']:.4f}"
        axes.text(1.01, row, words, transform=axes.get_yaxis_transform(), va="center", fontsize=8, family="monospace")
    axes.text(1.01, -0.75, "error   NLL", transform=axes.get_yaxis_transform(), fontsize=8, family="monospace")
    roles = {0: " (before)", 1: " (after)"}
    axes.set_yticks(range(len(rows)), [f"{one.name}{roles.get(row, '')}  {row + 1}" for row, one in enumerate(rows)])
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, None), xlabel="ECE (fraction)")
    axes.grid(visible=True, axis="x", linewidth=0.6)
    bare(axes)


def _uncertainty(axes: Axes, rows: Sequence[Measurement | Problem]) -> None:
    from matplotlib.ticker import LogLocator

    shown = [(one.values, row) for row, one in enumerate(rows) if isinstance(one, Measurement)]
    for values, row in shown:
        entropy = values["mean_entropy"]
        axes.plot([entropy, entropy], [values["ece_lower"], values["ece_upper"]], color=_colour(row), linewidth=1.4)
        axes.plot(entropy, values["ece_estimate"], "o", color=_colour(row), markersize=6, clip_on=False, zorder=3)
    axes.set(xlabel="average uncertainty (mean entropy, nats)", ylabel="ECE (fraction), estimate and interval")
    entropies = [values["mean_entropy"] for values, _ in shown]
    if 0 < WIDE * min(entropies) < max(entropies):
        axes.set(xscale="log", xlabel="average uncertainty\n(mean entropy, nats, log scale)")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    axes.margins(x=0.08, y=0.12)
    axes.set_ylim(0, None)
    # Numbers stand in a row above, apart from each other: many calibrators end up at nearly the same point. Lines go
    # straight up and bend in the free band between, so that none crosses another or a point that is not its own.
    shown.sort(key=lambda one: one[0]["mean_entropy"])
    top = axes.get_ylim()[1]
    across = axes.transScale + axes.transLimits
    at = [float(across.transform((values["mean_entropy"], top))[0]) for values, _ in shown]
    for place, own, (values, row) in zip(_apart(at), at, shown, strict=True):
        path = [own, own, place], [values["ece_upper"] / top, 1.0, 1 + BAND]
        axes.plot(*path, color=LINE, linewidth=0.6, transform=axes.transAxes, clip_on=False, zorder=0.5)
        axes.text(place, 1 + BAND, str(row + 1), transform=axes.transAxes, ha="center", va="bottom", fontsize=8)
    axes.grid(visible=True, linewidth=0.6)
    bare(axes)


def _apart(places: list[float], least: float = 0.058) -> list[float]:
    """Ascending places in [0, 1], moved as little as can be to lie at least so far apart, if there is room."""
    least = min(least, 1 / max(len(places), 1))
    steps = least * np.arange(len(places))
    moved = isotonic_regression(places - steps).x if places else steps
    return list(np.clip(moved, 0, 1 - least * max(len(places) - 1, 0)) + steps)
