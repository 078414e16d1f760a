"""Which classes are badly calibrated, beyond what so few rows would show anyway."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.figures.style import AFTER, BEFORE, INK, LINE, PALE, bare, drawn
from trueodds.evaluation.measurement import Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 15
LONGEST = 24


def per_class(before: Measurement, after: Measurement, names: Sequence[str], out: Path, title: str) -> None:
    """The ECE of every class's probability, before and after, with its noise floor; written to `out`.svg.

    Classes are sorted by their ECE after calibration: all of them on the left, and the 15 worst by name on the right
    (with up to 15 classes only these). The mean over classes is the classwise ECE.
    """
    order_C, many = np.argsort(-after.ece_C, kind="stable"), len(after.ece_C) > NAMED
    worst = order_C[:NAMED]
    with drawn(out, title, (8.8, 1.7 + 0.2 * max(len(worst), 8))) as figure:
        if many:
            left, right = figure.subplots(1, 2)
            _all(left, before, after, order_C)
            right.set_title(f"the {NAMED} worst after calibration\n")
        else:
            right = figure.subplots()
            right.set_title(f"mean over classes: {_mean(before, after)}")
        _worst(right, before, after, worst, names)
        handles, labels = right.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def _mean(before: Measurement, after: Measurement) -> str:
    both = (("before", before.values), ("after", after.values))
    return ", ".join(f"{when} {v['classwise_ece']:.5f} (floor {v['classwise_floor']:.5f})" for when, v in both)


def _all(axes: Axes, before: Measurement, after: Measurement, order_C: np.ndarray) -> None:
    rank_C = np.arange(1, len(order_C) + 1)
    axes.fill_between(rank_C, after.floor_C[order_C], color=PALE, linewidth=0)
    axes.plot(rank_C, after.floor_C[order_C], color=LINE, linewidth=0.9)
    axes.plot(rank_C, before.ece_C[order_C], **(BEFORE | {"linestyle": "none"}), markersize=2.6, markeredgewidth=0.7)
    axes.plot(rank_C, after.ece_C[order_C], **(AFTER | {"marker": None}), linewidth=1.8)
    axes.set(xlabel=f"classes, worst first ({len(order_C):,})", ylabel="ECE of the class (fraction)", ylim=(0, None))
    axes.set_xlim(0, len(order_C) + 1)
    axes.set_title(f"mean over classes:\n{_mean(before, after)}")
    bare(axes)


def _worst(axes: Axes, before: Measurement, after: Measurement, worst: np.ndarray, names: Sequence[str]) -> None:
    place = np.arange(len(worst))
    axes.barh(place, after.floor_C[worst], 0.62, color=PALE, edgecolor=LINE, linewidth=0.6, label="noise floor (mean)")
    axes.hlines(place, before.ece_C[worst], after.ece_C[worst], color=INK, linewidth=0.7)
    axes.plot(before.ece_C[worst], place, **(BEFORE | {"linestyle": "none"}), markersize=5, label="ECE before")
    axes.plot(after.ece_C[worst], place, **(AFTER | {"linestyle": "none"}), markersize=5.5, label="ECE after")
    shown = [_short(str(names[k])) for k in worst]
    axes.set_yticks(place, shown, fontsize=8)
    axes.set(ylim=(len(worst) - 0.4, -0.6), xlim=(0, None), xlabel="ECE of the class (fraction)")
    axes.grid(visible=True, axis="x", linewidth=0.6)
    bare(axes)


def _short(name: str) -> str:
    """At most 24 letters; matplotlib would read what stands between two dollar signs as a formula."""
    return (name if len(name) <= LONGEST else name[: LONGEST - 1] + "…").replace("$", r"\$")
