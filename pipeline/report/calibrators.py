"""Calibrators beside each other: is one better than chance makes it look, and what does it pay?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config import Evaluation
from pipeline.evaluate import Judged, Problem
from pipeline.report.style import BAR, GAP, INK, LINE, PALE, bare, drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def comparison(
    before: Judged,
    after: Judged,
    others: Sequence[Judged | Problem],
    settings: Evaluation,
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


def _forest(axes: Axes, rows: Sequence[Judged | Problem], settings: Evaluation) -> None:
    for row, one in enumerate(rows):
        if isinstance(one, Problem):
            axes.text(0.01, row, "could not be fitted", transform=axes.get_yaxis_transform(), va="center", fontsize=8)
            continue
        values, labelled = one.values, row == 0
        axes.barh(row, values["floor_p95"], 0.62, color=PALE, edgecolor=LINE, linewidth=0.6,
                  label="where 95% of calibrated models lie" if labelled else None)  # fmt: skip
        axes.plot([values["ece_lower"], values["ece_upper"]], [row, row], color=_colour(row), linewidth=1.8)
        axes.plot(values["ece_estimate"], row, "o", color=_colour(row), markersize=6.5,
                  label=f"estimate with {settings.level:.0%} interval" if labelled else None)  # fmt: skip
        axes.plot(values["ece"], row, "D", color=_colour(row), markerfacecolor="white", markersize=4.5,
                  label=f"ECE, {settings.bins} bins" if labelled else None)  # fmt: skip
        words = f"{values['error']:.4f}  {values['nll']:.4f}"
        axes.text(1.01, row, words, transform=axes.get_yaxis_transform(), va="center", fontsize=8, family="monospace")
    axes.text(1.01, -0.75, "error   NLL", transform=axes.get_yaxis_transform(), fontsize=8, family="monospace")
    roles = {0: " (before)", 1: " (after)"}
    axes.set_yticks(range(len(rows)), [f"{one.name}{roles.get(row, '')}  {row + 1}" for row, one in enumerate(rows)])
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, None), xlabel="ECE (fraction)")
    axes.grid(visible=True, axis="x", linewidth=0.6)
    bare(axes)


def _uncertainty(axes: Axes, rows: Sequence[Judged | Problem]) -> None:
    shown = [(one.values, row) for row, one in enumerate(rows) if isinstance(one, Judged)]
    for values, row in shown:
        entropy = values["mean_entropy"]
        axes.plot([entropy, entropy], [values["ece_lower"], values["ece_upper"]], color=_colour(row), linewidth=1.4)
        axes.plot(entropy, values["ece_estimate"], "o", color=_colour(row), markersize=6)
    axes.set(xlabel="average uncertainty (mean entropy, nats)", ylabel="ECE (fraction), estimate and interval")
    axes.margins(x=0.08, y=0.12)
    axes.set_ylim(0, None)
    # Numbers stand in a row above, apart from each other: many calibrators end up at nearly the same point.
    shown.sort(key=lambda one: one[0]["mean_entropy"])
    (left, right), top = axes.get_xlim(), axes.get_ylim()[1]
    places = _apart([(values["mean_entropy"] - left) / (right - left) for values, _ in shown])
    for place, (values, row) in zip(places, shown, strict=True):
        axes.annotate(
            str(row + 1),
            (values["mean_entropy"], values["ece_upper"]),
            (left + place * (right - left), top),
            ha="center",
            va="bottom",
            fontsize=8.5,
            arrowprops={"arrowstyle": "-", "color": LINE, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 1},
        )
    axes.grid(visible=True, linewidth=0.6)
    bare(axes)


def _apart(places: list[float], least: float = 0.065) -> list[float]:
    """Ascending places in [0, 1] moved to lie at least so far from each other, if there is room."""
    least = min(least, 1 / max(len(places), 1))
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + least)
    for i in range(len(places) - 1, -1, -1):
        places[i] = min(places[i], 1 - least * (len(places) - 1 - i))
    return places
