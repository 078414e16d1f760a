"""ECE and MCE by the number of bins as a picture, with the noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from trueodds.drawing.axis import LEFT, WIDTH, Across, Point, Scale, band, line, n, nice_top, squares
from trueodds.drawing.class_chart import LEAST
from trueodds.drawing.picture import LegendEntry, Panel, picture
from trueodds.evaluation.measurement import Measurement
from trueodds.metrics import CELLS, ece, mce, noise_floor

BINS = [bins for bins in range(10, 1001) if CELLS % bins == 0]
"""Numbers of bins. All are made of whole cells."""
TOP, HEIGHT = 24.0, 260.0
FLOOR = 'class="before line" style="stroke-width:1;stroke-dasharray:3 3"'


def by_number_of_bins(before: Measurement, after: Measurement, title: str) -> str:
    """Draw ECE and MCE before and after calibration for 10 to 1,000 equal-width bins, as a picture for a file.

    The plug-in ECE grows with the number of bins, and so does its noise floor, the ECE of a calibrated model. Only the
    distance from the floor is informative. For many bins the MCE is that of a bin with a single row (gamma-net paper,
    figures 5 and 8).
    """
    floors = [noise_floor(after.sums, bins=bins) for bins in BINS]
    of_before = [noise_floor(before.sums, bins=bins).mean for bins in BINS]
    chance = [floor.mean for floor in floors], [floor.p95 for floor in floors]
    eces, mces = ([[metric(one.sums, bins=k) for k in BINS] for one in (before, after)] for metric in (ece, mce))
    top = nice_top(max(max(of) for of in (*eces, chance[1], of_before)), LEAST)
    legend = (
        LegendEntry('<path class="before hollow thin" d="M7 4h4v4h-4z"/>', f"before ({before.name})"),
        LegendEntry('<path class="after line" d="M0 6H18"/>', f"after ({after.name})"),
        LegendEntry('<path class="chance" d="M0 0h18v12h-18z"/>', "noise floor after, mean to 95th percentile"),
        LegendEntry(f'<path {FLOOR} d="M0 6H18"/>', "mean noise floor before"),
    )
    panels = [
        _panel("ECE (fraction)", top, eces[0], eces[1], chance, of_before),
        _panel("MCE (fraction)", 1.0, mces[0], mces[1]),
    ]
    return picture(title, panels, legend)


def _panel(
    name: str,
    top: float,
    before_B: Sequence[float],
    after_B: Sequence[float],
    chance: tuple[Sequence[float], Sequence[float]] = ((), ()),
    floor_B: Sequence[float] = (),
) -> Panel:
    scale, across = Scale(top, TOP, HEIGHT), Across(BINS[0], BINS[-1], LEFT, WIDTH, logarithmic=True)

    def points(values_B: Sequence[float]) -> list[Point]:
        return [(across(bins), scale(value)) for bins, value in zip(BINS, values_B, strict=True)] if values_B else []

    middle, below = n(LEFT + WIDTH / 2), n(scale.bottom + 38)
    parts = [
        scale.grid(LEFT, across.end),
        across.grid(TOP, scale.bottom),
        f'<path class="chance" d="{band(points(chance[1]), points(chance[0]))}"/>' if chance[0] else "",
        f'<path {FLOOR} d="{line(points(floor_B))}"/>' if floor_B else "",
        f'<path class="before hollow thin" d="{squares(points(before_B))}"/>',
        f'<path class="after line" d="{line(points(after_B))}"/>',
        f'<path class="axis" d="M{LEFT:g} {TOP:g}V{n(scale.bottom)}H{n(across.end)}"/>',
        f'<text class="label" x="{LEFT:g}" y="{TOP - 11:g}">{escape(name)}</text>',
        f'<text class="m label" x="{middle}" y="{below}">equal-width bins (log scale)</text>',
    ]
    return Panel(across.end + 10, scale.bottom + 44, "\n".join(part for part in parts if part))
