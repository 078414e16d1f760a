"""How much a calibration error owes to the number of bins."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.figures.style import AFTER, BAR, BEFORE, GAP, bare, drawn
from trueodds.evaluation.measurement import Measurement
from trueodds.metrics import CELLS, ece, mce, noise_floor

BINS = [bins for bins in range(10, 1001) if CELLS % bins == 0]


def bin_robustness(before: Measurement, after: Measurement, out: Path, title: str) -> None:
    """ECE with its noise floor (left) and MCE (right) in 10 to 1,000 equal-width bins; written to `out`.svg.

    The plug-in ECE grows with the number of bins, and so does what a calibrated model would show: their distance says
    something, the height alone does not. The MCE soon is that of a bin with a single row.
    """
    with drawn(out, title, (8.8, 3.9)) as figure:
        left, right = figure.subplots(1, 2)
        for judged, style, when, colour in ((before, BEFORE, "before", GAP), (after, AFTER, "after", BAR)):
            floors = [noise_floor(judged.sums, bins=bins) for bins in BINS]
            mean, p95 = [floor.mean for floor in floors], [floor.p95 for floor in floors]
            words = f"noise floor {when}: mean to 95%"
            left.fill_between(BINS, mean, p95, color=colour, alpha=0.28, linewidth=0, label=words)
            for axes, metric, name in ((left, ece, "ECE"), (right, mce, "MCE")):
                values = [metric(judged.sums, bins=bins) for bins in BINS]
                axes.plot(BINS, values, **style, markersize=3.5, linewidth=1.4, label=f"{name} {when} ({judged.name})")
        left.set(title="ECE (fraction)", ylim=(0, None))
        right.set(title="MCE (fraction)", ylim=(0, 1.02))
        for axes in (left, right):
            axes.set(xscale="log", xlabel="equal-width bins (log scale)", xlim=(9.4, 1060))
            axes.set_xticks([10, 15, 30, 100, 300, 1000], ["10", "15", "30", "100", "300", "1,000"])
            axes.set_xticks(np.array([]), minor=True)
            axes.grid(visible=True, linewidth=0.6)
            axes.legend(fontsize=7.5, frameon=False, loc="upper left" if axes is left else "lower right")
            bare(axes)
