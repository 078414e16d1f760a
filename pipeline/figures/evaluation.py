"""The diagrams of the evaluate stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trueodds.drawing.bin_counts import by_number_of_bins
from trueodds.drawing.calibrators import comparison
from trueodds.drawing.class_chart import per_class
from trueodds.drawing.reliability import before_and_after
from trueodds.evaluation.results import Results
from trueodds.files import write_text


def draw(results: Results, class_names: Sequence[str], out: Path, subject: str) -> None:
    """Draw reliability, the classes, the compared calibrators and the number of bins, into the folder `out`.

    `subject` is the beginning of the titles, such as data set and method.
    """
    before, after, settings = results.before, results.after, results.settings
    rows = f"{after.sums.n:,} test rows"
    pictures = {
        "reliability": before_and_after(before, after, settings, f"{subject}: reliability on {rows}"),
        "classes": per_class(before, after, class_names, f"{subject}: ECE of each class on {rows}"),
        "calibrators": comparison(before, after, results.others, settings, f"{subject}: calibrators on {rows}"),
        "bins": by_number_of_bins(before, after, f"{subject}: calibration error by the number of bins on {rows}"),
    }
    for name, svg in pictures.items():
        write_text(out / f"{name}.svg", svg)
