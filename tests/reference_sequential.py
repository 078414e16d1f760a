"""Slow, obvious twins of the sequential tests, the calibration test and the weighted figures: plain loops."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tests.reference import bin_of, bisect, cell

CELLS = 3000
HALF = 0.5 / CELLS
Row = tuple[float, int]  # confidence, right or wrong


def centre(confidence: float) -> float:
    return (cell(confidence) + 0.5) / CELLS


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def point_claims(r: float) -> list[tuple[float, float]]:
    """(weight, claimed probability) of every map at the cell's centre r."""
    clipped = min(max(r, 1e-6), 1 - 1e-6)
    log_odds = math.log(clipped / (1 - clipped))
    maps: list[tuple[float, float]] = [(1.25, 0), (1.5, 0), (2.2, 0), (3.5, 0), (0.8, 0), (0.6, 0)]
    maps += [(1.6, 0.4), (1.6, -0.4), (1, -0.4), (1, 0.4), (1, -1), (1, 1)]
    claims = [(0.7 / 12, sigmoid(log_odds / T + b)) for T, b in maps]
    for low in (0.2, 0.4, 0.6, 0.8):
        for shift in (-0.1, 0.1):
            q = min(max(r + shift, 1e-4), 1 - 1e-4) if low < r <= low + 0.2 else r
            claims.append((0.3 / 8, q))
    return claims


def payoffs(row: Row, null: str, eps: float) -> list[tuple[float, float]]:
    """(weight, payoff) of every bet on one label."""
    c, a = row
    r = centre(c)
    if null == "point":
        pairs = []
        for weight, q in point_claims(r):
            p = min(max(q, r - eps - HALF), r + eps + HALF)
            pairs.append((weight, q / p if a else (1 - q) / (1 - p)))
        return pairs
    side = 1 if r <= 0.6 else -1
    return [
        (1 / 12, 1 + stake * (sign * (a - r) - eps - HALF))
        for sign in (1, -1, side, -side)
        for stake in (0.04, 0.15, 0.5)
    ]


def block_payoffs(block: Sequence[Row], null: str, eps: float) -> list[tuple[float, float]]:
    """(weight, product of payoffs) of every bet on a block."""
    total = [(weight, 1.0) for weight, _ in payoffs((0.5, 1), null, eps)]
    for row in block:
        total = [(w, t * e) for (w, t), (_, e) in zip(total, payoffs(row, null, eps), strict=True)]
    return total


def gamma(j: int) -> float:
    return 1 / (1 + math.log2(j)) - 1 / (1 + math.log2(j + 1))


def e_value(blocks: Sequence[Sequence[Row]], null: str, eps: float) -> float:
    """The definition: every bet from every starting block on, each with its share of the capital."""
    paid = [block_payoffs(block, null, eps) for block in blocks]
    total = 1 - sum(gamma(s) for s in range(1, len(blocks) + 1))
    for k in range(len(payoffs((0.5, 1), null, eps))):
        for s in range(len(blocks)):
            weight = paid[s][k][0]
            total += weight * gamma(s + 1) * math.prod(block[k][1] for block in paid[s:])
    return total


def shiryaev_roberts(blocks: Sequence[Sequence[Row]], null: str, eps: float) -> float:
    paid = [block_payoffs(block, null, eps) for block in blocks]
    total = 0.0
    for k in range(len(payoffs((0.5, 1), null, eps))):
        for s in range(len(blocks)):
            total += paid[s][k][0] * math.prod(block[k][1] for block in paid[s:])
    return total


def weighted_e_values(rows: Sequence[tuple[float, int, float]], eps: float, floor: float) -> list[float]:
    """E after each label (confidence, right or wrong, propensity), for the ECE of all answers so far."""
    wealth = {(pattern, share): 1.0 for pattern in range(4) for share in (0.98, 0.4, 0.15, 0.05)}
    values = []
    for c, a, p in rows:
        for pattern, share in wealth:
            sign = (1, -1, 1 if c <= 0.6 else -1, -1 if c <= 0.6 else 1)[pattern]
            if p >= floor:
                wealth[pattern, share] *= 1 + share / (1 + eps) * floor / p * (sign * (a - c) - eps)
        values.append(sum(wealth.values()) / len(wealth))
    return values


STAKES = tuple(0.98 * x for x in (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.3, 0.5))


def log_gap_wealth(rows: Sequence[Row], m: float, sign: int) -> float:
    """log K+(m) or log K-(m), row by row with the true confidences."""
    logs = [math.fsum(math.log(1 + sign * L * (a - c - m)) for c, a in rows) for L in STAKES]
    highest = max(logs)
    return highest + math.log(sum(math.exp(x - highest) for x in logs) / len(STAKES))


def gap_limits(rows: Sequence[Row], level: float) -> tuple[float, float]:
    gap = sum(a - c for c, a in rows) / len(rows)
    threshold = math.log(2 / (1 - level))
    lower = upper = None
    if log_gap_wealth(rows, -1.0, 1) > threshold:
        lower = bisect(lambda m: threshold - log_gap_wealth(rows, m, 1), -1.0, gap)
    if log_gap_wealth(rows, 1.0, -1) > threshold:
        upper = bisect(lambda m: log_gap_wealth(rows, m, -1) - threshold, gap, 1.0)
    return -1.0 if lower is None else lower, 1.0 if upper is None else upper


def by_cell(rows: Iterable[Row]) -> dict[int, tuple[int, float, int]]:
    """Cell -> labels, sum of confidence, right ones."""
    cells: dict[int, tuple[int, float, int]] = {}
    for c, a in sorted(rows):
        n, total, right = cells.get(cell(c), (0, 0.0, 0))
        cells[cell(c)] = n + 1, total + c, right + a
    return cells


def smooth_scores(rows: Sequence[Row], bins: int, waves: int = 16) -> list[float]:
    """S_1 .. S_16 and S_bins of the calibration test."""
    cells = by_cell(rows)
    means = {k: total / n for k, (n, total, _) in cells.items()}
    variance = {k: n * means[k] * (1 - means[k]) for k, (n, _, _) in cells.items()}
    everything = sum(variance.values())
    components = [0.0] * waves
    t = 0.0
    for k, (_, total, right) in cells.items():
        end = t + variance[k] / everything
        for j in range(waves):
            wave = 1.0
            if j:
                wave = (
                    math.sqrt(2) * (math.sin(math.pi * j * end) - math.sin(math.pi * j * t)) / (math.pi * j * (end - t))
                )
            components[j] += (right - total) * wave / math.sqrt(everything)
        t = end
    scores = [sum(z * z - 1 for z in components[:m]) / math.sqrt(2 * m) for m in range(1, waves + 1)]
    numerator = denominator = 0.0
    for b in range(bins):
        inside = [k for k in cells if bin_of((k + 0.5) / CELLS, bins) == b]
        if inside:
            v = sum(variance[k] for k in inside)
            numerator += (sum(cells[k][2] - cells[k][1] for k in inside) ** 2 - v) / (v + 0.5)
            denominator += 2 * (v / (v + 0.5)) ** 2
    return [*scores, numerator / math.sqrt(denominator)]


def weighted_terms(rows: Sequence[Row], weights: Sequence[float], bins: int) -> list[tuple[float, ...]]:
    """Per bin S, w, V, K, Q of the interval, weights scaled to sum 1."""
    total = math.fsum(weights)
    terms: list[tuple[float, ...]] = []
    for b in range(bins):
        inside = [(c, a, w / total) for (c, a), w in zip(rows, weights, strict=True) if bin_of(c, bins) == b]
        terms.append(
            (
                math.fsum(w * (a - c) for c, a, w in inside),
                math.fsum(w for _, _, w in inside),
                math.fsum(w * w * c * (1 - c) for c, _, w in inside),
                math.fsum(w * w * (1 - 2 * c) for c, _, w in inside),
                math.fsum(w * w for _, _, w in inside),
            )
        )
    return terms


def strata(answers: Sequence[float], labels: int) -> dict[int, int]:
    """Stratum of each cell that holds answers (confidences): a share of them, or a cell that holds a share alone."""
    counts: dict[int, int] = {}
    for c in answers:
        counts[cell(c)] = counts.get(cell(c), 0) + 1
    total, many = len(answers), max(labels // 20, 15)
    runs: list[list[int]] = [[]]
    for k in sorted(counts):
        if counts[k] * many >= total:
            runs += [[k], []]
        else:
            runs[-1].append(k)
    number: dict[int, int] = {}
    for run in filter(None, runs):
        mass, before, last, stratum = sum(counts[k] for k in run), 0, -1, max(number.values(), default=-1)
        pieces = max(round(mass * many / total), 1)
        for k in run:
            piece = (2 * before + counts[k]) * pieces // (2 * mass)
            stratum, last = (stratum + 1, piece) if piece != last else (stratum, last)
            number[k], before = stratum, before + counts[k]
    return number


def spoken_for(answers: Sequence[float], labels: Sequence[float]) -> list[tuple[list[int], int]]:
    """Per stratum with labels: which labels, and how many answers they stand for."""
    stratum = strata(answers, len(labels))
    inside = {k: [c for c in answers if stratum[cell(c)] == k] for k in set(stratum.values())}
    middle = {k: sum(cell(c) for c in rows) / len(rows) for k, rows in inside.items()}
    groups: dict[int, list[int]] = {}
    for place, c in enumerate(labels):
        groups.setdefault(stratum[cell(c)], []).append(place)
    many = dict.fromkeys(groups, 0)
    for k, rows in inside.items():
        many[min(groups, key=lambda j: (abs(middle[j] - middle[k]), j))] += len(rows)
    return [(places, many[k]) for k, places in groups.items()]


def sensitivity(rows: Sequence[Row], answers: Sequence[float], ratio: float) -> list[float]:
    """The weight of each label if wrong ones were `ratio` times as likely, as far as a stratum's answers allow."""
    weights = [0.0] * len(rows)
    for places, many in spoken_for(answers, [c for c, _ in rows]):
        right, wrong = ([i for i in places if rows[i][1] == a] for a in (1, 0))
        share = len(right) / (len(right) + len(wrong) / ratio)
        share = min(max(share, len(right) / many), 1 - len(wrong) / many)
        for some, part in ((right, share), (wrong, 1 - share)):
            for i in some:
                weights[i] = part * many / len(some) / len(answers)
    return weights


def chi_square_tail(labels: Sequence[int], answers: Sequence[int]) -> float:
    """P(chi-square >= the one observed) by enumerating every choice of labels among all answers."""
    n, total = sum(labels), sum(answers)
    expected = [n * N / total for N in answers]

    def statistic(counts: Sequence[int]) -> float:
        return sum((x - e) ** 2 / e for x, e in zip(counts, expected, strict=True))

    def choices(left: int, room: Sequence[int]) -> Iterable[tuple[int, ...]]:
        if len(room) == 1:
            if left <= room[0]:
                yield (left,)
            return
        for x in range(min(left, room[0]) + 1):
            for rest in choices(left - x, room[1:]):
                yield x, *rest

    tail = 0.0
    for choice in choices(n, answers):
        if statistic(choice) >= statistic(labels) - 1e-12:
            tail += math.prod(math.comb(N, x) for N, x in zip(answers, choice, strict=True)) / math.comb(total, n)
    return tail
