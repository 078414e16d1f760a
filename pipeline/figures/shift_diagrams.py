"""Diagrams of the effect of corruption on a model: each figure by severity, one line per calibrator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.figures.labels import limits
from pipeline.figures.style import AFTER, BEFORE, INK, LINE, bare, drawn
from trueodds.evaluation.shift import ShiftMeasurement, ShiftResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = (
    ("adaptive_ece_l2", "ECE, equal mass, l2 norm (fraction)"),
    ("ece", "ECE (fraction)"),
    ("nll", "NLL (nats)"),
    ("error_rate", "error (fraction)"),
)
OTHERS: tuple[dict[str, Any], ...] = (
    {"color": INK, "linestyle": (0, (1, 1.2)), "marker": "^"},
    {"color": "#b14d6b", "linestyle": (0, (6, 1.5, 1, 1.5)), "marker": "D"},
    {"color": "#3f8f6b", "linestyle": (0, (3, 1)), "marker": "v"},
    {"color": "#7b61a8", "linestyle": (0, (8, 2)), "marker": "P"},
    {"color": LINE, "linestyle": "-", "marker": "X"},
)
APART = 0.035
"""Sideways distance of lines in severities, so that error bars do not cover each other."""


def draw(results: ShiftResults, out: Path, subject: str) -> None:
    """Draw both diagrams into `out`. `subject` is the beginning of the titles, such as data set and method."""
    origin = {"published": "published files", "computed": "computed here"}[results.description["source"]]
    count = len(results.corruptions)
    types = f"{count} corruptions" if count > 1 else results.corruptions[0].replace("_", " ")
    rows = f"{results.description['rows']:,} test rows under {types} ({origin})"
    severities(results, out / "severities", f"{subject}: {rows}")
    corruptions(results, out / "corruptions", f"{subject}: {rows}")


def severities(results: ShiftResults, out: Path, title: str) -> None:
    """Draw four panels like Karandikar et al. 2021, figures 2, 7, 8 and 9: means over corruptions with standard errors.

    The standard error is that of `trueodds.metrics.intervals.within_types`; severity 0 has none. Written to `out`.svg
    and `out`.png.
    """
    with drawn(out, title, (11.2, 6.6), png=True) as figure:
        axes_P = figure.subplots(2, 2).ravel()
        for axes, (name, label) in zip(axes_P, PANELS, strict=True):
            _lines(axes, results, name)
            axes.set(xlabel="severity", ylabel=label)
        handles, labels = axes_P[0].get_legend_handles_labels()
        bars = "bars: one standard error over the corruptions, without differences that are equal at every severity"
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False, title=bars,
                      title_fontsize=8)  # fmt: skip


def corruptions(results: ShiftResults, out: Path, title: str) -> None:
    """Draw the ECE (equal mass, l2 norm) by severity, before and after, a panel per corruption, to `out`.svg."""
    columns = min(5, len(results.corruptions))
    rows = -(-len(results.corruptions) // columns)
    with drawn(out, title, (2.3 * columns + 0.4, 1.8 * rows + 1.0)) as figure:
        axes_P = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for number, (axes, corruption) in enumerate(zip(axes_P, results.corruptions, strict=False)):
            for one, style in zip(results.measurements, _styles(results.measurements), strict=True):
                if one.role == "compared":
                    continue
                value = one.values_FTS[-1, number].tolist()
                axes.plot([0, *results.severities], [one.clean(PANELS[0][0]), *value], label=_label(one), **style,
                          linewidth=1.4, markersize=4)  # fmt: skip
            axes.set(title=corruption.replace("_", " "), xticks=[0, *results.severities])
            if number >= len(results.corruptions) - columns:  # no panel below it
                axes.set_xlabel("severity")
                axes.tick_params(labelbottom=True)
            axes.grid(visible=True, axis="y", linewidth=0.6)
            bare(axes)
        for axes in axes_P[len(results.corruptions) :]:
            axes.set_visible(False)
        axes_P[0].set_ylim(0, None)  # all panels share this axis, so it is set after the last one is drawn
        figure.supylabel(PANELS[0][1], fontsize=9)
        handles, labels = axes_P[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)


def _lines(axes: Axes, results: ShiftResults, figure: str) -> None:
    count = len(results.measurements)
    for number, (one, style) in enumerate(zip(results.measurements, _styles(results.measurements), strict=True)):
        within = one.within(figure)
        beside = (number - (count - 1) / 2) * APART
        error = within.standard_error if within.degrees else 0.0
        at = [severity + beside for severity in (0, *results.severities)]
        values, errors = [one.clean(figure), *within.mean_S.tolist()], [0.0, *[error] * len(results.severities)]
        least, most = limits(figure)
        spread = [[min(e, v - least) for v, e in zip(values, errors, strict=True)],
                  [min(e, most - v) for v, e in zip(values, errors, strict=True)]]  # fmt: skip
        axes.errorbar(at, values, yerr=spread, label=_label(one), linewidth=1.5, markersize=5, capsize=2.5,
                      elinewidth=1, **style)  # fmt: skip
    axes.set(xticks=[0, *results.severities])
    axes.margins(y=0.08)
    if "ece" in figure:  # the ideal ECE is 0; the smallest possible NLL and error are unknown
        axes.set_ylim(0, None)
    axes.grid(visible=True, axis="y", linewidth=0.6)
    bare(axes)


def _styles(measurements: Sequence[ShiftMeasurement]) -> list[dict[str, Any]]:
    return [{"before": BEFORE, "after": AFTER}.get(one.role, OTHERS[(number - 2) % len(OTHERS)])
            for number, one in enumerate(measurements)]  # fmt: skip


def _label(one: ShiftMeasurement) -> str:
    return one.name if one.role == "compared" else f"{one.name} ({one.role})"
