"""Comparison of calibrators as a picture: ECE with its uncertainty, error, NLL and entropy."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import scipy

from trueodds.drawing.axis import Across, Point, Scale, line, n, nice_top
from trueodds.drawing.class_chart import AFTER as CIRCLE
from trueodds.drawing.class_chart import LEAST
from trueodds.drawing.picture import LETTER, LegendEntry, Panel, picture
from trueodds.evaluation.measurement import EvaluationSettings, FailedFit, Measurement

WIDE = 3
"""Multiple of the least entropy beyond which the scale is logarithmic."""
TOP, ROW, LEAST_HEIGHT = 44.0, 30.0, 220.0
BAND = 20.0
"""Height above the right plot, in which lines lead to their numbers."""
APART = 0.05
"""Least distance of two numbers, as a share of the plot's width."""
FOREST, PLANE = 340.0, 350.0
"""Widths of the plots."""
LEFT = 78.0
"""Left edge of the right plot, beside its vertical label."""
NUMBERS = 118.0
"""Width of the columns of error and NLL."""
DIAMOND = "M0 -4.5l4.5 4.5-4.5 4.5-4.5-4.5z"

Row = Measurement | FailedFit


def comparison(
    before: Measurement, after: Measurement, others: Sequence[Row], settings: EvaluationSettings, title: str
) -> str:
    """Draw a forest plot of the ECE (left) and the ECE against average uncertainty (right), as a picture for a file.

    The forest plot shows the plug-in ECE (hollow), the estimate (full; too high if the error is in few bins) with its
    interval, and the range of 95% of calibrated models (grey). It lists error and NLL, because a low ECE can come at
    the cost of either.

    The right plot follows Karandikar et al. 2021, figure 10, with the mean entropy of the answers. A calibrator that
    lowers the ECE by moving to the right is less informative. The numbers are those of the rows on the left.
    """
    rows = [before, after, *others]
    height = max(ROW * len(rows), LEAST_HEIGHT)
    interval = f'<path class="other" d="M0 6H18"/><path class="other" transform="translate(9 6)" d="{CIRCLE}"/>'
    plain = f'<path class="other hollow" transform="translate(9 6)" d="{DIAMOND}"/>'
    legend = (
        LegendEntry(interval, f"estimate with {settings.level:.0%} interval"),
        LegendEntry(plain, f"ECE, {settings.bins} bins"),
        LegendEntry('<path class="chance" d="M0 0h18v12h-18z"/>', "where 95% of calibrated models lie"),
    )
    return picture(title, [_forest(rows, height), uncertainty(rows, height)], legend)


def _class(row: int) -> str:
    return {0: "before", 1: "after"}.get(row, "other")


def _top(rows: Sequence[Row], *names: str) -> float:
    return nice_top(max(one.values[name] for one in rows if isinstance(one, Measurement) for name in names), LEAST)


def _forest(rows: Sequence[Row], height: float) -> Panel:
    roles = {0: " (before)", 1: " (after)"}
    labels = [f"{one.name}{roles.get(row, '')}\u2003{row + 1}" for row, one in enumerate(rows)]
    left = LETTER * max(map(len, labels)) + 14
    across = Across(0, _top(rows, "ece", "ece_upper", "floor_p95"), left, FOREST)
    bottom = TOP + height
    parts = [across.grid(TOP, bottom)]
    numbers = n(across.end + 14)
    parts.append(f'<text class="number" x="{numbers}" y="{TOP - 8:g}" xml:space="preserve">error   NLL</text>')
    for row, (one, label) in enumerate(zip(rows, labels, strict=True)):
        y = TOP + height * (row + 0.5) / len(rows)
        parts.append(f'<text class="e name" x="{n(left - 8)}" y="{n(y + 4)}">{escape(label)}</text>')
        if isinstance(one, FailedFit):
            parts.append(f'<text x="{n(left + 6)}" y="{n(y + 4)}">could not be fitted</text>')
            continue
        values, kind = one.values, _class(row)
        low, high, at, plain = (across(values[name]) for name in ("ece_lower", "ece_upper", "ece_estimate", "ece"))
        words = f"{values['error_rate']:.4f}  {values['nll']:.4f}"
        parts.append(
            f'<path class="chance" d="M{n(left)} {n(y - 9)}H{n(across(values["floor_p95"]))}v18H{n(left)}z"/>'
            f'<path class="{kind}" d="M{n(low)} {n(y)}H{n(high)}"/>'
            f'<path class="{kind}" transform="translate({n(at)} {n(y)})" d="{CIRCLE}"/>'
            f'<path class="{kind} hollow" transform="translate({n(plain)} {n(y)})" d="{DIAMOND}"/>'
            f'<text class="number" x="{numbers}" y="{n(y + 4)}" xml:space="preserve">{words}</text>'
        )
    parts.append(f'<path class="axis" d="M{n(left)} {TOP:g}V{n(bottom)}H{n(across.end)}"/>')
    parts.append(f'<text class="m label" x="{n(left + FOREST / 2)}" y="{n(bottom + 38)}">ECE (fraction)</text>')
    return Panel(across.end + NUMBERS, bottom + 44, "\n".join(parts))


def uncertainty(rows: Sequence[Row], height: float) -> Panel:
    """Draw estimate and interval of the ECE against the mean entropy.

    The numbers stand in a row above, apart from each other, because many calibrators are at nearly the same point.
    Lines go straight up and bend in the free band between, so that none crosses another line or another point.
    """
    points = [(one.values, row) for row, one in enumerate(rows) if isinstance(one, Measurement)]
    points.sort(key=lambda one: one[0]["mean_entropy"])
    scale, across = Scale(_top(rows, "ece_estimate", "ece_upper"), TOP, height), _across(points)
    parts = [scale.grid(LEFT, across.end), across.grid(TOP, scale.bottom)]
    for leader, (_, row) in zip(leaders(points, across, scale), points, strict=True):
        parts.append(f'<path class="edge" d="{line(leader)}"/>')
        parts.append(f'<text class="m" x="{n(leader[-1][0])}" y="{n(leader[-1][1] - 4)}">{row + 1}</text>')
    for values, row in points:
        x, kind = across(values["mean_entropy"]), _class(row)
        parts.append(
            f'<path class="{kind}" d="M{n(x)} {n(scale(values["ece_lower"]))}V{n(scale(values["ece_upper"]))}"/>'
            f'<path class="{kind}" transform="translate({n(x)} {n(scale(values["ece_estimate"]))})" d="{CIRCLE}"/>'
        )
    log = ", log scale" if across.logarithmic else ""
    words = f"average uncertainty (mean entropy, nats{log})"
    parts.append(f'<path class="axis" d="M{LEFT:g} {TOP:g}V{n(scale.bottom)}H{n(across.end)}"/>')
    parts.append(f'<text class="m label" x="{n(LEFT + PLANE / 2)}" y="{n(scale.bottom + 38)}">{words}</text>')
    side = f"translate(12 {n(TOP + height / 2)}) rotate(-90)"
    parts.append(f'<text class="m label" transform="{side}">ECE (fraction), estimate and interval</text>')
    return Panel(across.end + 10, scale.bottom + 44, "\n".join(parts))


def _across(points: Sequence[tuple[dict[str, float], int]]) -> Across:
    """Return the scale of the entropies with 8% of space at either end, logarithmic if they are far apart."""
    least, most = points[0][0]["mean_entropy"], points[-1][0]["mean_entropy"]
    if 0 < WIDE * least < most:
        room = (most / least) ** 0.08
        return Across(least / room, most * room, LEFT, PLANE, logarithmic=True)
    room = 0.08 * (most - least) or 0.05 * most or 0.05
    return Across(max(least - room, 0.0), most + room, LEFT, PLANE)


def leaders(points: Sequence[tuple[dict[str, float], int]], across: Across, scale: Scale) -> list[list[Point]]:
    """Return a line from each interval's upper end to its number above the plot."""
    x_K = [across(values["mean_entropy"]) for values, _ in points]
    places = apart([(x - across.x) / across.width for x in x_K])
    return [
        [(x, scale(values["ece_upper"])), (x, scale.y), (across.x + across.width * place, scale.y - BAND)]
        for x, place, (values, _) in zip(x_K, places, points, strict=True)
    ]


def apart(places: list[float], least: float = APART) -> list[float]:
    """Move ascending places in [0, 1] as little as possible so that they are `least` apart, if there is space."""
    least = min(least, 1 / max(len(places), 1))
    steps = least * np.arange(len(places))
    moved = scipy.optimize.isotonic_regression(places - steps).x if places else steps
    return list(np.clip(moved, 0, 1 - least * max(len(places) - 1, 0)) + steps)
