"""Calibration of each class as a picture, with the noise floor of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from trueodds.drawing.axis import LEFT, WIDTH, Across, Scale, line, n, nice_top, squares
from trueodds.drawing.picture import LegendEntry, Panel, picture
from trueodds.evaluation.measurement import Measurement

NAMED = 15
"""Number of classes that are shown by name."""
LONGEST = 24
"""Largest number of characters of a name."""
TOP, ROW = 24.0, 22.0
NAMES = 176.0
"""Width of the names."""
LEAST = 1e-4
"""Smallest end of an axis."""
BEFORE, AFTER = "M-4 -4h8v8h-8z", "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z"
"""A square and a circle around their place."""
LEGEND = (
    LegendEntry(f'<path class="before hollow" transform="translate(9 6)" d="{BEFORE}"/>', "ECE before"),
    LegendEntry(f'<path class="after" transform="translate(9 6)" d="{AFTER}"/>', "ECE after"),
    LegendEntry('<path class="chance" d="M0 0h18v12h-18z"/>', "noise floor (mean)"),
)


def per_class(before: Measurement, after: Measurement, names: Sequence[str], title: str) -> str:
    """Draw the ECE of every class's probability, before and after, with its noise floor, as a picture for a file.

    Classes are sorted by their ECE after calibration. All of them are on the left, and the 15 worst by name on the
    right (with up to 15 classes only these). The mean over classes is the classwise ECE.
    """
    order_C = np.argsort(-after.ece_C, kind="stable")
    both = (("before", before.values), ("after", after.values))
    mean = ", ".join(f"{when} {v['classwise_ece']:.5f} (floor {v['classwise_floor']:.5f})" for when, v in both)
    worst = order_C[:NAMED]
    height = TOP + ROW * max(len(worst), 8) + 44
    if len(order_C) <= NAMED:
        whole = _worst(before, after, worst, names, 780.0, height, [f"mean over classes: {mean}"])
        return picture(title, [whole], LEGEND)
    right = _worst(before, after, worst, names, 500.0, height, ("", f"the {NAMED} worst after calibration"))
    return picture(title, [_all(before, after, order_C, height, ["mean over classes:", mean]), right], LEGEND)


def _all(before: Measurement, after: Measurement, order_C: np.ndarray, height: float, caption: Sequence[str]) -> Panel:
    count = len(order_C)
    scale = Scale(nice_top(max(before.ece_C.max(), after.ece_C.max(), after.floor_C.max()), LEAST), TOP, height - 68)
    across = Across(0, count + 1, LEFT, WIDTH)
    at_C = [across(rank) for rank in range(1, count + 1)]
    floor = line((x, scale(after.floor_C[k])) for x, k in zip(at_C, order_C, strict=True))
    before_C = squares((x, scale(before.ece_C[k])) for x, k in zip(at_C, order_C, strict=True))
    content = f"""{scale.grid(LEFT, across.end)}
<path class="chance" d="{floor}V{n(scale.bottom)}H{n(at_C[0])}z"/>
<path class="before hollow thin" d="{before_C}"/>
<path class="after line" d="{line((x, scale(after.ece_C[k])) for x, k in zip(at_C, order_C, strict=True))}"/>
<path class="axis" d="M{LEFT:g} {n(scale.bottom)}H{n(across.end)}"/>
<text class="label" x="{LEFT:g}" y="{TOP - 11:g}">ECE of the class (fraction)</text>
<text class="m label" x="{n(LEFT + WIDTH / 2)}" y="{n(scale.bottom + 24)}">classes, worst first ({count:,})</text>"""
    return Panel(500, height, content, caption)


def _worst(
    before: Measurement, after: Measurement, worst: np.ndarray, names: Sequence[str],
    width: float, height: float, caption: Sequence[str],
) -> Panel:  # fmt: skip
    ends = [measured[worst].max() for measured in (before.ece_C, after.ece_C, after.floor_C)]
    across = Across(0, nice_top(max(ends), LEAST), NAMES, width - NAMES - 20)
    bottom = TOP + ROW * len(worst)
    parts = [across.grid(TOP, bottom)]
    for row, k in enumerate(worst):
        y = TOP + ROW * (row + 0.5)
        ends_x = across(before.ece_C[k]), across(after.ece_C[k])
        parts.append(
            f'<text class="e name" x="{NAMES - 8:g}" y="{n(y + 4)}">{escape(_short(str(names[k])))}</text>'
            f'<path class="chance" d="M{NAMES:g} {n(y - 7)}H{n(across(after.floor_C[k]))}v14H{NAMES:g}z"/>'
            f'<path class="whisker" d="M{n(ends_x[0])} {n(y)}H{n(ends_x[1])}"/>'
            f'<path class="before hollow" transform="translate({n(ends_x[0])} {n(y)})" d="{BEFORE}"/>'
            f'<path class="after" transform="translate({n(ends_x[1])} {n(y)})" d="{AFTER}"/>'
        )
    parts.append(f'<path class="axis" d="M{NAMES:g} {TOP:g}V{n(bottom)}H{n(across.end)}"/>')
    middle = n((NAMES + across.end) / 2)
    parts.append(f'<text class="m label" x="{middle}" y="{n(bottom + 38)}">ECE of the class (fraction)</text>')
    return Panel(width, height, "\n".join(parts), caption)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
