"""The pictures of the page on the papers' methods: ECE of each paper's methods beside its floor; curves by epoch.

`python -m tools.studies_pictures` writes them from the results of benchmarks/training/studies.py and gradient_norms.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.training.paper_claims import EPOCHS, PAPERS, SHOWN, VAL_NLL, methods_of_paper
from tools import ROOT
from tools.tables.results import read
from trueodds.drawing.axis import Across, Scale, band, line, n, nice_top
from trueodds.drawing.picture import LegendEntry, Panel, picture

FOLDER = ROOT / "docs"
RESULT, NORMS = "studies", "gradient_norms"
EXPONENTS = "gamma-net"
"""Study whose learned exponents are drawn."""
LEFT, WIDTH, ROW = 120.0, 480.0, 26.0
TOP, HEIGHT = 12.0, 190.0
"""Upper edge, below the name of the panel, and height of a plot by epochs."""
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
        across, scale = Across(1, last, 40.0, 200.0), Scale(top, TOP, HEIGHT)
        parts = [across.grid(TOP, TOP + HEIGHT), scale.grid(40.0, across.end)]
        for column, (look, _) in LINES.items():
            parts.append(_curve(look, across, scale, range(1, last + 1), one["epochs"][column]))
        parts.append(f'<text class="m label" x="140" y="{n(TOP + HEIGHT + 40)}">epoch</text>')
        panels.append(Panel(250.0, TOP + HEIGHT + 50, "\n".join(parts), [one["method"]]))
    legend = [LegendEntry(f'<path class="{look} line" d="M0 6h18"/>', words) for look, words in LINES.values()]
    title = "When over-confidence begins: training error and test ECE by epoch"
    return picture(title, panels, legend, "One panel for each method.")


def nll_by_epoch(methods: Sequence[Method]) -> str | None:
    """Draw the log loss of the validation rows by epoch, a line for each method of SHOWN; None without all of them."""
    of = {one["method"]: one["epochs"][VAL_NLL] for one in methods if VAL_NLL in one["epochs"]}
    if not set(SHOWN) <= of.keys():
        return None
    top = nice_top(max(max(of[name]) for name in SHOWN), 0.01)
    across, scale = Across(1, len(of[SHOWN[0]]), 40.0, WIDTH), Scale(top, TOP, HEIGHT)
    parts = [across.grid(TOP, TOP + HEIGHT), scale.grid(40.0, across.end)]
    for name, look in zip(SHOWN, LOOKS, strict=True):
        parts.append(_curve(look, across, scale, range(1, len(of[name]) + 1), of[name]))
    parts.append(f'<text class="m label" x="{n(40 + WIDTH / 2)}" y="{n(TOP + HEIGHT + 40)}">epoch</text>')
    legend = [
        LegendEntry(f'<path class="{look} line" d="M0 6h18"/>', name) for name, look in zip(SHOWN, LOOKS, strict=True)
    ]
    title = "Log loss of the validation rows by epoch, in nats"
    return picture(title, [Panel(WIDTH + 60, TOP + HEIGHT + 50, "\n".join(parts))], legend, "One line for each method.")


def exponents_by_epoch(runs: Sequence[Mapping[str, Any]]) -> str | None:
    """Draw the mean learned exponent of the test rows by epoch: a panel for each method, a line for each seed."""
    of: dict[str, list[Sequence[float]]] = {}
    for run in runs:
        of.setdefault(run["method"], []).append(run["by_epoch"])
    if not of:
        return None
    top = nice_top(max(max(line) for seeds in of.values() for line in seeds), 0.01)
    panels = []
    for method, seeds in of.items():
        across, scale = Across(1, len(seeds[0]), 40.0, 300.0), Scale(top, TOP, HEIGHT)
        parts = [across.grid(TOP, TOP + HEIGHT), scale.grid(40.0, across.end)]
        parts += [_curve("before", across, scale, range(1, len(values) + 1), values) for values in seeds]
        parts.append(f'<text class="m label" x="190" y="{n(TOP + HEIGHT + 40)}">epoch</text>')
        panels.append(Panel(350.0, TOP + HEIGHT + 50, "\n".join(parts), [method]))
    legend = [LegendEntry('<path class="before line" d="M0 6h18"/>', "mean of the test rows, a line for each seed")]
    title = "The learned exponents by epoch"
    return picture(title, panels, legend, "One panel for each method, one line for each seed.")


def norms_by_epoch(methods: Sequence[Mapping[str, Any]]) -> str | None:
    """Draw quantiles of the rows' gradient norms at the measured epochs: a panel for each method of SHOWN."""
    of = {one["method"]: one for one in methods}
    if not set(SHOWN) <= of.keys():
        return None
    top = nice_top(max(of[name]["quantiles"][k][2] for name in SHOWN for k in range(1, len(of[name]["epochs"]))), 0.01)
    panels = []
    for name in SHOWN:
        epochs = of[name]["epochs"][1:]  # the norms of the first epoch would leave no height for the others
        low, middle, high = zip(*of[name]["quantiles"][1:], strict=True)
        across, scale = Across(epochs[0], epochs[-1], 40.0, 200.0), Scale(top, TOP, HEIGHT)
        upper, lower = ([(across(epoch), scale(value)) for epoch, value in zip(epochs, of_rows, strict=True)]
                        for of_rows in (high, low))  # fmt: skip
        parts = [
            f'<path class="band" d="{band(upper, lower)}"/>',
            across.grid(TOP, TOP + HEIGHT),
            scale.grid(40.0, across.end),
        ]
        parts.append(_curve("before", across, scale, epochs, middle))
        parts.append(f'<text class="m label" x="140" y="{n(TOP + HEIGHT + 40)}">epoch</text>')
        panels.append(Panel(250.0, TOP + HEIGHT + 50, "\n".join(parts), [name]))
    legend = [
        LegendEntry('<path class="before line" d="M0 6h18"/>', "median of the training rows"),
        LegendEntry('<rect class="band" y="1" width="18" height="10"/>', "90% of the rows"),
    ]
    title = f"Gradient norms of the training rows from epoch {of[SHOWN[0]]['epochs'][1]} on, seed 0"
    return picture(title, panels, legend, "One panel for each method.")


def _curve(look: str, across: Across, scale: Scale, epochs: Iterable[int], values: Sequence[float]) -> str:
    points = [(across(epoch), scale(value)) for epoch, value in zip(epochs, values, strict=True)]
    return f'<path class="{look} line" d="{line(points)}"/>'


def drawings() -> dict[Path, str]:
    """Return every picture that the result's finished runs allow, by its file."""
    result = read(RESULT)
    methods = result["methods"]
    drawn = {FOLDER / f"papers-{paper}.svg": by_method(paper, methods) for paper in PAPERS}
    drawn[FOLDER / "papers-epochs.svg"] = by_epoch(methods)
    drawn[FOLDER / "papers-nll.svg"] = nll_by_epoch(methods)
    drawn[FOLDER / "papers-exponents.svg"] = exponents_by_epoch(result["studies"][EXPONENTS]["exponents"])
    drawn[FOLDER / "papers-gradient-norms.svg"] = norms_by_epoch(read(NORMS)["methods"])
    return {path: svg for path, svg in drawn.items() if svg is not None}


if __name__ == "__main__":
    for path, svg in drawings().items():
        path.write_text(svg, encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")
