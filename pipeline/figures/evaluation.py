"""The pictures of the evaluate stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.figures.bins import bin_robustness
from pipeline.figures.calibrators import comparison
from pipeline.figures.classes import per_class
from pipeline.figures.reliability import reliability_diagram
from trueodds.evaluation.results import Results


def draw(results: Results, class_names: Sequence[str], out: Path, subject: str) -> None:
    """Reliability, the number of bins, each class, and the calibrators beside each other, into the folder `out`.

    subject: what the titles name, such as data set and method.
    """
    before, after, settings = results.before, results.after, results.settings
    rows = f"{after.sums.n:,} test rows"
    reliability_diagram(before, after, settings, out / "reliability", f"{subject}: reliability on {rows}")
    bin_robustness(before, after, out / "bins", f"{subject}: what the number of bins makes of the ECE")
    per_class(before, after, class_names, out / "classes", f"{subject}: ECE of each class on {rows}")
    comparison(before, after, results.others, settings, out / "calibrators", f"{subject}: calibrators on {rows}")
