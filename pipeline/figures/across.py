"""Diagrams of several runs: reliability, number of bins, training curves, trade-offs, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.figures.close_look import panel
from pipeline.figures.labels import label
from pipeline.figures.style import BAR, GAP, INK, LINE, bare, new_figure
from trueodds.drawing.bin_counts import BINS
from trueodds.metrics import CalibrationSums, ece, mce, noise_floor
from trueodds.sums.inputs import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 4
"""Largest number of panels in a row."""
BANDS_UP_TO = 2
"""Largest number of models with bands. More bands would cover each other."""
COLOURS = (BAR, GAP, INK, "#54a24b", "#b279a2", LINE)
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MARKERS = "osD^vPX*"
HATCHES = ("", "////", "....", "xxxx")
LONGEST = 14
"""Largest number of entries in one column of a legend."""


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Point:
    """A setting in a plane of two measures."""

    name: str
    x: Interval
    y: Interval
    on_front: bool = False


def reliability_grid(sums: Mapping[str, CalibrationSums], bins: int, level: float, out: Path, title: str) -> None:
    """Draw a reliability diagram for each model to `out`.svg and `out`.png (gamma-net paper, figs. 2, 4, 7, 9)."""
    across, rows = min(len(sums), ACROSS), -(-len(sums) // ACROSS)
    with new_figure(out, title, (2.5 * max(across, 2), 2.9 * rows + 0.6), png=True) as figure:
        grid = figure.subplots(rows, across, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(sums) :]:
            axes.set_visible(False)
        for axes, (name, of) in zip(grid.flat, sums.items(), strict=False):
            panel(axes, of.bins(bins), level)
            floor = noise_floor(of, bins=bins).mean
            axes.set_title(f"{name}\nECE {ece(of, bins=bins):.4f} in {bins} bins\nnoise floor {floor:.4f}", fontsize=8)
        for axes in grid[:, 0]:
            axes.set_ylabel("accuracy")
        for axes in grid[-1]:
            axes.set_xlabel("confidence")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=2 if across < 3 else 4, fontsize=8, frameon=False
        )


def robustness(sums: Mapping[str, Sequence[CalibrationSums]], out: Path, title: str) -> None:
    """Draw ECE and MCE for 10 to 1,000 equal-width bins, averaged over the seeds of each model.

    The thin line of a model is its noise floor: the mean ECE that it would have if it were calibrated. For one or two
    models a band reaches from there to the floor's 95th percentile. The plug-in ECE grows with the number of bins, and
    so does the floor. Only their distance is informative, not the height alone. For many bins the MCE is that of a bin
    with a single row. Written to `out`.svg and `out`.png (gamma-net paper, figs. 5, 8).
    """
    with new_figure(out, title, (8.8, 4.2), png=True) as figure:
        left, right = figure.subplots(1, 2)
        for number, (name, of_seeds) in enumerate(sums.items()):
            style = line_style(number)
            floors = [[noise_floor(of, bins=bins) for bins in BINS] for of in of_seeds]
            mean = np.mean([[floor.mean for floor in of_bins] for of_bins in floors], axis=0)
            left.plot(BINS, mean, color=style["color"], linewidth=0.7, linestyle=(0, (1, 2)))
            if len(sums) <= BANDS_UP_TO:
                p95 = np.mean([[floor.p95 for floor in of_bins] for of_bins in floors], axis=0)
                left.fill_between(BINS, mean, p95, color=style["color"], alpha=0.2, linewidth=0)
            for axes, metric in ((left, ece), (right, mce)):
                values = np.mean([[metric(of, bins=bins) for bins in BINS] for of in of_seeds], axis=0)
                axes.plot(BINS, values, **style, markersize=3, linewidth=1.3, label=name)
        to = ", to 95%" if len(sums) <= BANDS_UP_TO else ""
        left.set(title=f"ECE (fraction; thin: its noise floor{to})", ylim=(0, None))
        right.set(title="MCE (fraction)", ylim=(0, 1.02))
        for axes in (left, right):
            axes.set(xscale="log", xlabel="equal-width bins (log scale)")
            axes.set_xticks([10, 30, 100, 300, 1000], ["10", "30", "100", "300", "1,000"])
            axes.set_xticks(np.array([]), minor=True)
            axes.grid(visible=True, linewidth=0.6)
            bare(axes)
        legend(figure, left)


def overlay(
    curves: Mapping[str, Sequence[Mapping[str, Array]]], columns: Sequence[str], smoothing: float, out: Path, title: str
) -> None:
    """Draw columns of epochs.csv by epoch, one panel each: the mean over each model's seeds, and their range.

    `smoothing` is s in a_t = s a_{t-1} + (1 - s) x_t; 0 means none. Written to `out`.svg and `out`.png (Mukhoti et al.
    2020, fig. 3; gamma-net paper, figs. 3, 6; BSCE-GRA paper, fig. 5).
    """
    from matplotlib.ticker import MaxNLocator

    across = min(len(columns), 3)
    rows = -(-len(columns) // across)
    with new_figure(out, title, (max(3.4 * across, 5.4), 2.9 * rows + 0.7), png=True) as figure:
        grid = figure.subplots(rows, across, squeeze=False, sharex=True)
        for axes in grid.flat[len(columns) :]:
            axes.set_visible(False)
        for axes, column in zip(grid.flat, columns, strict=False):
            for number, (name, of_seeds) in enumerate(curves.items()):
                values_SE = np.stack([_smooth(of[column], smoothing) for of in of_seeds])
                epochs = of_seeds[0]["epoch"]
                style = line_style(number) | {"markevery": max(1, len(epochs) // 6)}
                axes.plot(epochs, values_SE.mean(axis=0), **style, markersize=3.5, linewidth=1.3, label=name)
                if len(of_seeds) > 1:
                    band = values_SE.min(axis=0), values_SE.max(axis=0)
                    axes.fill_between(epochs, *band, color=style["color"], alpha=0.15, linewidth=0)
            axes.set_title(label(column))
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.grid(visible=True, axis="y", linewidth=0.6)
            bare(axes)
        for axes in grid[-1]:
            axes.set_xlabel("epoch" + (f" (smoothed, {smoothing:g})" if smoothing else ""))
        legend(figure, grid[0, 0])


def points(of: Sequence[Point], labels: tuple[str, str], out: Path, title: str) -> None:
    """Draw settings in a plane with the interval of each measure. A line joins the Pareto front, if there is one.

    Written to `out`.svg and `out`.png (gamma-net paper, fig. 10; Karandikar et al. 2021, fig. 10).
    """
    with new_figure(out, title, (7.4, 4.8), png=True) as figure:
        axes = figure.subplots()
        front = sorted((one for one in of if one.on_front), key=lambda one: one.x.value)
        if front:
            axes.step([one.x.value for one in front], [one.y.value for one in front], where="post", color=LINE)
        for number, one in enumerate(of):
            style = line_style(number)
            spread = [[[e.value - e.lower], [e.upper - e.value]] for e in (one.x, one.y)]
            axes.errorbar(
                one.x.value, one.y.value, xerr=np.maximum(spread[0], 0), yerr=np.maximum(spread[1], 0),
                color=style["color"], marker=style["marker"], markersize=8 if one.on_front else 5, linestyle="none",
                markerfacecolor=style["markerfacecolor"], elinewidth=0.8, capsize=2,
                label=one.name + (" (on the front)" if one.on_front else ""),
            )  # fmt: skip
        axes.set(xlabel=labels[0], ylabel=labels[1])
        if all(min(one.x.lower, one.y.lower) >= 0 for one in of):
            axes.set(xlim=(max(0.0, axes.get_xlim()[0]), None), ylim=(max(0.0, axes.get_ylim()[0]), None))
        axes.grid(visible=True, linewidth=0.6)
        bare(axes)
        legend(figure, axes)


def shift(lines: Mapping[str, Sequence[tuple[int, Interval]]], measure: str, out: Path, title: str) -> None:
    """Draw the mean of each model by severity, with one standard error. Severity 0 has no corruption.

    Written to `out`.svg and `out`.png (Karandikar et al. 2021, figs. 2, 7, 8, 9).
    """
    with new_figure(out, title, (8.2, 4.4), png=True) as figure:
        axes = figure.subplots()
        for number, (name, of) in enumerate(lines.items()):
            beside = (number - (len(lines) - 1) / 2) * 0.04
            at, means = zip(*of, strict=True)
            spread = [[one.value - one.lower for one in means], [one.upper - one.value for one in means]]
            axes.errorbar(
                [severity + beside for severity in at], [one.value for one in means], yerr=spread,
                **line_style(number), markersize=4.5, linewidth=1.4, elinewidth=0.9, capsize=2, label=name,
            )  # fmt: skip
        axes.set(xlabel="severity of the corruption (0: none; bars: one standard error)", ylabel=measure)
        axes.set_ylim(0, 1.05 * max(one.upper for of in lines.values() for _, one in of))
        axes.set_xticks(sorted({severity for of in lines.values() for severity, *_ in of}))
        axes.grid(visible=True, axis="y", linewidth=0.6)
        bare(axes)
        legend(figure, axes)


def bars(
    groups: Mapping[str, Mapping[str, Interval]], measure: str, out: Path, title: str, *, intervals: bool = True
) -> None:
    """Draw a bar for each model in groups, with its interval unless `intervals` is False.

    Written to `out`.svg and `out`.png (Karandikar et al. 2021, fig. 5; BSCE-GRA paper, fig. 3).
    """
    names = list(dict.fromkeys(name for of in groups.values() for name in of))
    width = 0.8 / max(1, len(names))
    with new_figure(out, title, (max(6.4, 0.34 * len(names) * len(groups) + 2), 4.4), png=True) as figure:
        axes = figure.subplots()
        for number, name in enumerate(names):
            at = [(k - 0.4 + (number + 0.5) * width, of[name]) for k, of in enumerate(groups.values()) if name in of]
            errors: dict[str, Any] = {}
            if intervals:
                spread = [[max(0.0, v.value - v.lower) for _, v in at], [max(0.0, v.upper - v.value) for _, v in at]]
                errors = {"yerr": spread, "error_kw": {"ecolor": INK, "elinewidth": 0.9, "capsize": 2}}
            hatch = HATCHES[number // len(COLOURS) % len(HATCHES)]
            axes.bar(
                [x for x, _ in at], [one.value for _, one in at], width, color=COLOURS[number % len(COLOURS)],
                edgecolor="white", hatch=hatch, label=name, **errors,
            )  # fmt: skip
        axes.set_xticks(range(len(groups)) if any(groups) else [], list(groups) if any(groups) else [])
        axes.axhline(0, color=LINE if intervals else INK, linewidth=0.8)
        axes.set(ylabel=measure)
        if intervals:
            ends = [end for of in groups.values() for one in of.values() for end in (one.lower, one.value, one.upper)]
            axes.set(ylim=(min(0.0, 1.05 * min(ends)), 1.05 * max(*ends, 1e-9)))
        axes.grid(visible=True, axis="y", linewidth=0.6)
        bare(axes)
        legend(figure, axes)


def effects(groups: Mapping[str, Mapping[str, float]], measure: str, out: Path, title: str) -> None:
    """Draw effect sizes as bars from 0, in groups, to `out`.svg and `out`.png (Karandikar et al. 2021, fig. 1)."""
    values = {group: {name: Interval(d, d, d) for name, d in of.items()} for group, of in groups.items()}
    bars(values, measure, out, title, intervals=False)


def line_style(number: int) -> dict[str, Any]:
    """Return the n-th of many line styles that differ in colour, dash and marker."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markerfacecolor": "white" if number % 2 else COLOURS[number % len(COLOURS)],
    }


def _smooth(values: Array, smoothing: float) -> Array:
    """Return exponentially smoothed values, which start at the first one. Missing values stay missing."""
    out, level = np.array(values, np.float64), np.nan
    for k, value in enumerate(values):
        if np.isfinite(value):
            level = value if np.isnan(level) else smoothing * level + (1 - smoothing) * value
            out[k] = level
    return out


def legend(figure: Figure, axes: Axes) -> None:
    """Draw the legend of these axes on the right of the figure."""
    handles, labels = axes.get_legend_handles_labels()
    columns = -(-len(labels) // LONGEST)
    figure.legend(handles, labels, loc="outside right center", ncols=columns, fontsize=7.5, frameon=False)
