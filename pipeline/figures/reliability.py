"""The reliability diagram: accuracy against confidence, with what chance alone would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.figures.style import BAR, GAP, INK, LINE, drawn
from trueodds.evaluation.measurement import Measurement, Settings
from trueodds.metrics import Bins, binomial_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def reliability_diagram(before: Measurement, after: Measurement, settings: Settings, out: Path, title: str) -> None:
    """Before and after, the confidence histogram beneath; written to `out`.svg and `out`.png.

    Bars of bins with few rows are pale: the eye should weigh a bin as the ECE does. ECE, its estimate
    (high where the error is in few bins) with the interval, and the noise floor stand above each
    panel, as fractions.
    """
    with drawn(out, title, (8.8, 6.0), png=True) as figure:
        axes = figure.subplots(2, 2, height_ratios=[3.2, 1], sharex=True, sharey="row")
        for column, (when, judged) in enumerate((("before", before), ("after", after))):
            bins = judged.sums.bins(settings.bins)
            panel(axes[0, column], bins, settings.level)
            axes[0, column].set_title(_words(when, judged, bins, settings.level), fontsize=8.8)
            _histogram(axes[1, column], bins, judged.values)
        axes[0, 0].set_ylabel("accuracy")
        axes[1, 0].set_ylabel("rows (log scale)")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
        for handle in filter(None, legend.legend_handles):
            handle.set_alpha(1)


def _words(when: str, judged: Measurement, bins: Bins, level: float) -> str:
    values = judged.values
    return (
        f"{when} ({judged.name}): ECE {values['ece']:.4f} in {len(bins.count_B)} bins\n"
        f"estimate {values['ece_estimate']:.4f}, {level:.0%} interval"
        f" {values['ece_lower']:.4f} .. {values['ece_upper']:.4f}\n"
        f"noise floor {values['floor_mean']:.4f} (95%: {values['floor_p95']:.4f}), MCE {values['mce']:.3f}"
    )


def panel(axes: Axes, bins: Bins, level: float) -> None:
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


def _histogram(axes: Axes, bins: Bins, values: dict[str, float]) -> None:
    axes.bar(bins.lo_B, bins.count_B, bins.hi_B - bins.lo_B, align="edge", color=LINE, edgecolor="white", linewidth=0.6)
    axes.axvline(values["accuracy"], color=INK, linewidth=1.1, label=f"accuracy {values['accuracy']:.3f}")
    axes.axvline(
        values["mean_confidence"], color=GAP, linestyle="--", linewidth=1.6,
        label=f"mean confidence {values['mean_confidence']:.3f}",
    )  # fmt: skip
    axes.set(xlabel="confidence", yscale="log", ylim=(0.7, float(bins.count_B.max()) * 15))
    axes.legend(loc="upper left", fontsize=7.5, frameon=False)
