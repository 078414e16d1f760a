"""Slow, obvious twins of the primary losses: one sample, one class, plain Python.

A twin takes `at`: the logits at which what is constant for the gradient (gamma by sample, the weight under `gra`) is
evaluated. At the sample's own logits it is the loss; with `at` held while the logits move, its slope is the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.reference import Rows, top

Row = Sequence[float]
Gamma = float | str


def softmax(z: Row) -> list[float]:
    powers = [math.exp(value - max(z)) for value in z]
    return [power / math.fsum(powers) for power in powers]


def rest(p: Row, k: int) -> float:
    """1 - p_k as the sum of the others."""
    return math.fsum(value for i, value in enumerate(p) if i != k)


def g(p: float, gamma: float) -> float:
    """log of the focal gradient's factor: (1 - p)^gamma - gamma p (1 - p)^(gamma - 1) log p."""
    return gamma * math.log1p(-p) + math.log1p(-gamma * p / (1 - p) * math.log(p))


def gamma_star(p: float) -> float:
    """The largest gamma with g = 1: from there on g falls below 1."""
    if p >= 0.5:
        return 0.0
    low, high = 0.0, 1.0
    while g(p, high) > 0:
        low, high = high, 2 * high
    if low == 0.0:
        low = 1e-9
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if g(p, middle) > 0 else (low, middle)
    return (low + high) / 2


def gamma_of(gamma: Gamma, p: float, progress: float, first: float = 2 / 7, second: float = 5 / 7) -> float:
    if gamma in ("fls531", "fls532"):
        last = 1.0 if gamma == "fls531" else 2.0
        return 5.0 if progress < first else 3.0 if progress < second else last
    if gamma == "fla53":
        return 5.0 if p <= 0.19 else 3.0
    if gamma == "flsd53":
        return 5.0 if p < 0.2 else 3.0
    if gamma == "flsd52":
        return 5.0 if p < 0.2 else 3.0 if p < 0.5 else 2.0
    if gamma == "fla532":
        return 5.0 if p <= 0.19 else 3.0 if p <= 0.5 else 2.0
    if gamma == "lambert":
        return min(gamma_star(p), 20.0)
    return float(gamma)


def ce(z: Row, k: int, at: Row, progress: float) -> float:
    # log1p where p_k is near 1: log(p_k) would be as coarse as p_k itself
    p = softmax(z)
    return -math.log1p(-rest(p, k)) if p[k] > 0.5 else -math.log(p[k])


def mse(z: Row, k: int, at: Row, progress: float) -> float:
    return math.fsum((value - (i == k)) ** 2 for i, value in enumerate(softmax(z)))


def focal(
    z: Row,
    k: int,
    at: Row,
    progress: float,
    gamma: Gamma,
    alpha: float | Sequence[float],
    gra: bool,
    first_change: float = 2 / 7,
    second_change: float = 5 / 7,
) -> float:
    weighed = rest(softmax(at if gra else z), k)
    exponent = gamma_of(gamma, softmax(at)[k], progress, first_change, second_change)
    factor = alpha[k] if isinstance(alpha, Sequence) else alpha
    return factor * math.pow(weighed, exponent) * ce(z, k, at, progress)


def inverse_focal(z: Row, k: int, at: Row, progress: float, gamma: Gamma, gra: bool) -> float:
    weighed = 1 + softmax(at if gra else z)[k]
    return math.pow(weighed, gamma_of(gamma, softmax(at)[k], progress)) * ce(z, k, at, progress)


def dual_focal(
    z: Row, k: int, at: Row, progress: float, gamma: Gamma, gamma2: float, alpha1: float, alpha2: float, variant: str,
    gra: bool,
) -> float:  # fmt: skip
    exponent = gamma_of(gamma, softmax(at)[k], progress)
    p = softmax(at if gra else z)
    if variant == "survey":
        s = max((i for i in range(len(z)) if i != k), key=lambda i: z[i])
        first = math.pow(rest(p, k), exponent) * ce(z, k, at, progress)
        return alpha1 * first - alpha2 * math.pow(rest(p, s), gamma2) * math.log(rest(softmax(z), s))
    below = max((value for value in p if value < p[k]), default=0.0)
    own = rest(softmax(z), k) if variant == "official" else rest(p, k)
    return math.pow(own + below, exponent) * ce(z, k, at, progress)


def bsce(z: Row, k: int, at: Row, progress: float, gamma: float, norm: float, gra: bool) -> float:
    p = softmax(at if gra else z)
    gaps = [rest(p, k) if i == k else value for i, value in enumerate(p)]
    return math.pow(math.fsum(math.pow(gap, norm) for gap in gaps), gamma / norm) * ce(z, k, at, progress)


def consistency(
    z: Row,
    k: int,
    at: Row,
    progress: float,
    count: int,
    noise: float,
    gamma: float,
    variant: str,
    search: str,
    start: float,
    gra: bool,
    draws: Sequence[Row] | None = None,
) -> float:
    if progress < start:
        return ce(z, k, at, progress)
    answer, agreed = k if variant == "official" else top(at), 0.0
    draws = [[0.0] * len(z)] * count if draws is None else draws
    for draw in draws:
        held = gra or variant == "official"
        moved = [value + noise * e for value, e in zip(at if held else z, draw, strict=True)]
        agreed += softmax(moved)[answer] if variant == "mean" else float(top(moved) == answer)
    return math.pow(1 - agreed / count, gamma) * ce(z, k, at, progress)


def consistency_error(
    rows: Rows, labels: Sequence[int], draws: Sequence[Sequence[Row]], strength: float, bins: int = 15
) -> float:
    """ECE of the share of draws that keep a row's answer; draws[t][n]."""
    totals = [0.0] * bins
    for n, (row, label) in enumerate(zip(rows, labels, strict=True)):
        kept = [top([z + strength * e for z, e in zip(row, draw[n], strict=True)]) == top(row) for draw in draws]
        share = sum(kept) / len(kept)
        totals[width_bin(share, bins)] += share - (top(row) == label)
    return math.fsum(abs(total) for total in totals) / len(rows)


def adafocal(
    z: Row,
    k: int,
    at: Row,
    progress: float,
    gamma: float,
    bins: int,
    rate: float,
    every: int,
    gra: bool,
    learned: tuple[Sequence[float], Sequence[float]] | None = None,
) -> float:
    """learned: edges between the bins, and the gamma of each."""
    if learned is not None:
        edges, gammas = learned
        gamma = gammas[sum(edge <= softmax(at)[k] for edge in edges)]
    p = softmax(at if gra else z)
    base = rest(p, k) if gamma > 0 else 1 + p[k]
    return math.pow(base, abs(gamma)) * ce(z, k, at, progress)


def adafocal_update(
    rows: Rows, labels: Sequence[int], gammas: Sequence[float], rate: float
) -> tuple[list[float], list[float]]:
    """Edges and gammas after a validation pass (Ghosh et al. 2022, algorithm 1)."""
    bins = len(gammas)
    confidence = [max(softmax(row)) for row in rows]
    edges = [sorted(confidence)[b * len(rows) // bins] for b in range(1, bins)]
    moved = []
    for b in range(bins):
        gaps = [
            c - (top(row) == label)
            for c, row, label in zip(confidence, rows, labels, strict=True)
            if sum(edge <= c for edge in edges) == b
        ]
        gap = math.fsum(gaps) / len(gaps) if gaps else 0.0
        gamma = gammas[b] * math.exp(rate * gap if gammas[b] > 0 else -rate * gap)
        if abs(gamma) < 0.2:
            gamma = -0.2 if gamma > 0 else 0.2
        moved.append(min(max(gamma, -2.0), 20.0))
    return edges, moved


Statistics = tuple[list[float], list[float], list[float], list[float]]


def width_bin(confidence: float, bins: int) -> int:
    """b with b / bins < confidence <= (b + 1) / bins."""
    return sum(confidence > edge / bins for edge in range(1, bins))


def ece_ce(
    z: Row,
    k: int,
    at: Row,
    progress: float,
    bins: int,
    classwise: float,
    split: str,
    learned: Statistics | None = None,
) -> float:
    """learned: what `ece_ce_statistics` returns."""
    if learned is None:
        return ce(z, k, at, progress)
    width, mass, edges, errors = learned
    p = softmax(at)[k]
    gap = abs(width[width_bin(p, bins)]) + abs(mass[sum(edge <= p for edge in edges)]) + classwise * errors[k]
    left = 1 - progress
    return (left + (1 - left) * gap / 3) * ce(z, k, at, progress)


def ece_ce_statistics(rows: Rows, labels: Sequence[int], bins: int) -> Statistics:
    """Gaps in bins of equal width and of equal mass, the edges of the latter, and the ECE of each class."""
    p = [softmax(row) for row in rows]
    confidence = [max(row) for row in p]
    gaps = [c - (top(row) == label) for c, row, label in zip(confidence, rows, labels, strict=True)]
    edges = [sorted(confidence)[b * len(rows) // bins] for b in range(1, bins)]

    def gap(bin_of: Callable[[float], int], b: int) -> float:
        own = [g for g, c in zip(gaps, confidence, strict=True) if bin_of(c) == b]
        return math.fsum(own) / len(own) if own else 0.0

    errors = []
    for k in range(len(rows[0])):
        total = 0.0
        for b in range(bins):
            own = [n for n, row in enumerate(p) if width_bin(row[k], bins) == b]
            total += abs(math.fsum(p[n][k] - (labels[n] == k) for n in own))
        errors.append(total / len(rows))
    width = [gap(lambda c: width_bin(c, bins), b) for b in range(bins)]
    mass = [gap(lambda c: sum(edge <= c for edge in edges), b) for b in range(bins)]
    return width, mass, edges, errors


TWINS: dict[str, Callable[..., float]] = {
    "ce": ce,
    "mse": mse,
    "focal": focal,
    "inverse_focal": inverse_focal,
    "dual_focal": dual_focal,
    "bsce": bsce,
    "consistency": consistency,
    "adafocal": adafocal,
    "ece_ce": ece_ce,
}


def mean(
    name: str,
    rows: Rows,
    targets: Sequence[int] | Sequence[Sequence[float]],
    at: Rows | None = None,
    progress: float = 0.0,
    **options: Any,
) -> float:
    """Mean over the rows; a target that is a distribution weighs the classes' losses."""
    total = 0.0
    for n, (row, target) in enumerate(zip(rows, targets, strict=True)):
        shares = list(enumerate(target)) if isinstance(target, Sequence) else [(target, 1.0)]
        for k, share in shares:
            total += share * TWINS[name](row, k, (at or rows)[n], progress, **options)
    return total / len(rows)


def slope(value: Callable[[list[list[float]]], float], rows: Rows, step: float = 1e-6) -> list[list[float]]:
    """Central differences of a function of all logits."""
    slopes = []
    for n, row in enumerate(rows):
        slopes.append([0.0] * len(row))
        for i in range(len(row)):
            ends = []
            for sign in (1, -1):
                moved = [list(other) for other in rows]
                moved[n][i] += sign * step
                ends.append(value(moved))
            slopes[n][i] = (ends[0] - ends[1]) / (2 * step)
    return slopes
