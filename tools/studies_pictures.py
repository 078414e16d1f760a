"""The pictures of the page on the papers' methods: ECE of each paper's methods beside its floor; ECE, NLL by epoch.

`python -m tools.studies_pictures` writes them from the result of benchmarks/training/studies.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.training.paper_claims import EPOCHS, PAPERS, SHOWN, VAL_NLL, methods_of_paper
from tools import ROOT
from tools.tables.results import read
from trueodds.drawing.axis import Across, Scale, line, n, nice_top
from trueodds.drawing.picture import LegendEntry, Panel, picture

FOLDER = ROOT / "docs"
RESULT = "studies"
LEFT, WIDTH, ROW = 120.0, 480.0, 26.0
HEIGHT = 190.0
"""Height of a plot by epochs."""
DOTS = {"identity": ("before", "as trained"), "temperature": ("after", "after temperature scaling")}
"""Class of the dots and words of each calibrator."""
LINES = dict(zip(EPOCHS, (("other", "training error"), ("before", "ECE of the test rows")), strict=True))
"""Class of the lines and words of each column by epoch."""
LOOKS = ("before", "after", "other")
"""Class of the line of each method of SHOWN, where they share a panel."""
Method = Mapping[str, Any]


def by_method(paper: str, methods: Sequence[Method]) -> str | None:
    """Draw the ECE of a paper's methods with the floor's 95th percentile; None without two of them."""
    of = {one["method"]: one for one in methods}
    rows = [of[name] for name in methods_of_paper(paper) if name in of]
    if len(rows) < 2:
        return None
    values = [figures[key] for one in rows for figures in one["calibrators"].values() for key in ("ece", "floor_p95")]
    across = Across(0, nice_top(max(values), 0.01), LEFT, WIDTH)
    bottom = ROW * len(rows)
    parts = [across.grid(0, bottom)]
    for k, one in enumerate(rows):
        parts += _row(one, ROW * k + ROW / 2, across)
    parts.append(f'<text class="m label" x="{n(LEFT + WIDTH / 2)}" y="{n(bottom + 40)}">ECE, 15 bins</text>')
    seeds = sorted({one["seeds"] for one in rows})
    counted = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    runs = "one seed" if seeds == [1] else f"mean of {counted} seeds"
    title = f"{PAPERS[paper]}: ECE on over-confident nets, {runs}"
    legend = [LegendEntry(_dot(9, 6, look), words) for look, words in DOTS.values()]
    legend.append(LegendEntry(_tick(9, 6), "95th percentile of the noise floor, as trained"))
    panel = Panel(LEFT + WIDTH + 20, bottom + 50, "\n".join(parts))
    return picture(title, [panel], legend, "One row for each method: its ECE before and after temperature scaling.")


def _row(one: Method, y: float, across: Across) -> list[str]:
    """Draw a method's name, its floor, and a dot for each calibrator."""
    parts = [f'<text class="e" x="{n(LEFT - 10)}" y="{n(y + 4)}">{one["method"]}</text>']
    parts.append(_tick(across(one["calibrators"]["identity"]["floor_p95"]), y))
    parts += [
        _dot(across(one["calibrators"][entry]["ece"]), y, look)
        for entry, (look, _) in DOTS.items()
        if entry in one["calibrators"]
    ]
    return parts


def _dot(x: float, y: float, look: str) -> str:
    return f'<path class="{look}" d="M{n(x - 4)} {n(y)}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"/>'


def _tick(x: float, y: float) -> str:
    return f'<path class="edge line" d="M{n(x)} {n(y - 8)}v16"/>'


def by_epoch(methods: Sequence[Method]) -> str | None:
    """Draw training error and test ECE by epoch, a panel for each method of SHOWN; None without cross entropy."""
    of = {one["method"]: one for one in methods if set(LINES) <= one["epochs"].keys()}
    rows = [of[name] for name in SHOWN if name in of]
    if not rows or rows[0]["method"] != "ce":
        return None
    last = len(rows[0]["epochs"]["train_error"])
    top = nice_top(max(max(one["epochs"][column]) for one in rows for column in LINES), 0.01)
    panels = []
    for one in rows:
        across, scale = Across(1, last, 40.0, 200.0), Scale(top, 0, HEIGHT)
        parts = [across.grid(0, HEIGHT), scale.grid(40.0, across.end)]
        for column, (look, _) in LINES.items():
            points = [(across(epoch), scale(value)) for epoch, value in enumerate(one["epochs"][column], start=1)]
            parts.append(f'<path class="{look} line" d="{line(points)}"/>')
        parts.append(f'<text class="m label" x="140" y="{n(HEIGHT + 40)}">epoch</text>')
        panels.append(Panel(250.0, HEIGHT + 50, "\n".join(parts), [one["method"]]))
    legend = [LegendEntry(f'<path class="{look} line" d="M0 6h18"/>', words) for look, words in LINES.values()]
    title = "When over-confidence begins: training error and test ECE by epoch"
    return picture(title, panels, legend, "One panel for each method.")


def nll_by_epoch(methods: Sequence[Method]) -> str | None:
    """Draw the log loss of the validation rows by epoch, a line for each method of SHOWN; None without all of them."""
    of = {one["method"]: one["epochs"][VAL_NLL] for one in methods if VAL_NLL in one["epochs"]}
    if not set(SHOWN) <= of.keys():
        return None
    top = nice_top(max(max(of[name]) for name in SHOWN), 0.01)
    across, scale = Across(1, len(of[SHOWN[0]]), 40.0, WIDTH), Scale(top, 0, HEIGHT)
    parts = [across.grid(0, HEIGHT), scale.grid(40.0, across.end)]
    for name, look in zip(SHOWN, LOOKS, strict=True):
        points = [(across(epoch), scale(value)) for epoch, value in enumerate(of[name], start=1)]
        parts.append(f'<path class="{look} line" d="{line(points)}"/>')
    parts.append(f'<text class="m label" x="{n(40 + WIDTH / 2)}" y="{n(HEIGHT + 40)}">epoch</text>')
    legend = [
        LegendEntry(f'<path class="{look} line" d="M0 6h18"/>', name) for name, look in zip(SHOWN, LOOKS, strict=True)
    ]
    title = "Log loss of the validation rows by epoch, in nats"
    return picture(title, [Panel(WIDTH + 60, HEIGHT + 50, "\n".join(parts))], legend, "One line for each method.")


def drawings() -> dict[Path, str]:
    """Return every picture that the result's finished runs allow, by its file."""
    methods = read(RESULT)["methods"]
    drawn = {FOLDER / f"papers-{paper}.svg": by_method(paper, methods) for paper in PAPERS}
    drawn[FOLDER / "papers-epochs.svg"] = by_epoch(methods)
    drawn[FOLDER / "papers-nll.svg"] = nll_by_epoch(methods)
    return {path: svg for path, svg in drawn.items() if svg is not None}


if __name__ == "__main__":
    for path, svg in drawings().items():
        path.write_text(svg, encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")
