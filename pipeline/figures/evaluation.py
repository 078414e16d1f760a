"""The pictures of the evaluate stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.figures.across import robustness
from trueodds.drawing.calibrators import comparison
from trueodds.drawing.classes import per_class
from trueodds.drawing.reliability import before_and_after
from trueodds.evaluation.results import Results
from trueodds.files import write_text


def draw(results: Results, class_names: Sequence[str], out: Path, subject: str) -> None:
    """Draw reliability, each class, the calibrators beside each other and the number of bins, into the folder `out`.

    subject: what the titles name, such as data set and method.
    """
    before, after, settings = results.before, results.after, results.settings
    rows = f"{after.sums.n:,} test rows"
    pictures = {
        "reliability": before_and_after(before, after, settings, f"{subject}: reliability on {rows}"),
        "classes": per_class(before, after, class_names, f"{subject}: ECE of each class on {rows}"),
        "calibrators": comparison(before, after, results.others, settings, f"{subject}: calibrators on {rows}"),
    }
    for name, svg in pictures.items():
        write_text(out / f"{name}.svg", svg)
    both = {f"{when} ({one.name})": [one.sums] for when, one in (("before", before), ("after", after))}
    robustness(both, out / "bins", f"{subject}: what the number of bins makes of the ECE", png=False)
