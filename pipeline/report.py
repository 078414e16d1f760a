"""Pictures of calibration: matplotlib, readable in grey, the same bytes on every run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.metrics import Bins, CalibrationSums, binomial_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, BAR, GAP, LINE = "#1f2933", "#4c78a8", "#e8a33d", "#9aa5b1"
TITLES = {"before": "before calibration", "after": "after calibration"}


def reliability_diagram(sums: dict[str, CalibrationSums], table: dict[str, Any], out: Path, title: str) -> None:
    """One panel for each of `sums`, its confidence histogram beneath; written to `out`.svg and `out`.png.

    `table` is the content of metrics.json: its ECE, interval and noise floor stand above the panel. Bars of bins with
    few rows are pale: the eye should weigh a bin as the ECE does.
    """
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.hashsalt": "trueodds",
        "font.size": 9,
        "axes.edgecolor": LINE,
        "text.color": INK,
        "axes.labelcolor": INK,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(4.4 * len(sums), 6.0), layout="constrained")
        axes = figure.subplots(2, len(sums), height_ratios=[3.2, 1], squeeze=False, sharex=True, sharey="row")
        for column, (when, s) in enumerate(sums.items()):
            bins = s.bins(int(table["bins"]))
            _panel(axes[0, column], bins, table[when], TITLES.get(when, when))
            _histogram(axes[1, column], bins, table[when])
        axes[0, 0].set_ylabel("accuracy")
        axes[1, 0].set_ylabel("rows (log scale)")
        figure.suptitle(title, fontsize=11.5, x=0.01, ha="left", weight="bold")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
        for handle in filter(None, legend.legend_handles):
            handle.set_alpha(1)
        figure.savefig(out.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(out.with_suffix(".png"), dpi=140, metadata={"Software": None})


def _panel(axes: Axes, bins: Bins, values: dict[str, float], title: str) -> None:
    filled = bins.count_B > 0
    lo, width, count = bins.lo_B[filled], (bins.hi_B - bins.lo_B)[filled], bins.count_B[filled]
    accuracy, confidence = bins.accuracy_B[filled], bins.mean_confidence_B[filled]
    low, high = binomial_interval(bins.correct_B[filled], count)
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
        label="95% binomial interval",
    )
    axes.plot([0, 1], [0, 1], color=INK, linestyle=(0, (4, 3)), linewidth=0.9, label="calibrated")
    axes.set(xlim=(0, 1), ylim=(0, 1.01))
    words = (
        f"{title}\nECE {values['ece']:.4f}    noise floor {values['floor_mean']:.4f} (95%: {values['floor_p95']:.4f})\n"
        f"estimate {values['ece_estimate']:.4f}  "
        f"[{values['ece_lower']:.4f}, {values['ece_upper']:.4f}]    n = {int(bins.n):,}"
    )
    axes.set_title(words, fontsize=8.8, loc="left")


def _histogram(axes: Axes, bins: Bins, values: dict[str, float]) -> None:
    axes.bar(bins.lo_B, bins.count_B, bins.hi_B - bins.lo_B, align="edge", color=LINE, edgecolor="white", linewidth=0.6)
    axes.axvline(values["accuracy"], color=INK, linewidth=1.1, label=f"accuracy {values['accuracy']:.3f}")
    axes.axvline(
        values["mean_confidence"], color=GAP, linestyle="--", linewidth=1.6,
        label=f"mean confidence {values['mean_confidence']:.3f}",
    )  # fmt: skip
    axes.set(xlabel="confidence", yscale="log", ylim=(0.7, float(bins.count_B.max()) * 15))
    axes.legend(loc="upper left", fontsize=7.5, frameon=False)
