"""Slow, obvious twins: what the fast code must agree with. Plain loops, float or Fraction; no numpy tricks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

CELLS = 3000
Rows = Sequence[Sequence[float]]


def cell(confidence: float) -> int:
    """The smallest k (counted from 0) with c <= (k+1)/3000, by comparison in float64."""
    for k in range(CELLS):
        if confidence <= (k + 1) / CELLS:
            return k
    raise ValueError(f"{confidence} is above 1")


def bin_of(confidence: float, bins: int) -> int:
    """The bin (lo, hi] of a confidence, edges as float64; 0 lies in the first."""
    for b in range(bins):
        if confidence <= (b + 1) / bins:
            return b
    raise ValueError(f"{confidence} is above 1")


def top(row: Sequence[float]) -> int:
    """The first index of the largest value."""
    best = 0
    for k, value in enumerate(row):
        if value > row[best]:
            best = k
    return best


def error_rate(rows: Rows, labels: Sequence[int]) -> float:
    return sum(top(row) != label for row, label in zip(rows, labels, strict=True)) / len(labels)


def signed_gap(rows: Rows, labels: Sequence[int]) -> float:
    gaps = [Fraction(int(top(row) == label)) - Fraction(row[top(row)]) for row, label in zip(rows, labels, strict=True)]
    return float(sum(gaps) / len(gaps))


def nll(rows: Rows, labels: Sequence[int]) -> float:
    smallest = 2.2250738585072014e-308
    return -math.fsum(math.log(max(row[label], smallest)) for row, label in zip(rows, labels, strict=True)) / len(
        labels
    )


def brier(rows: Rows, labels: Sequence[int]) -> float:
    total = Fraction(0)
    for row, label in zip(rows, labels, strict=True):
        total += sum((Fraction(p) - int(k == label)) ** 2 for k, p in enumerate(row))
    return float(total / len(labels))


def bin_gaps(confidence: Sequence[float], correct: Sequence[int], bins: int) -> dict[int, tuple[int, Fraction]]:
    """Occupied bins: rows and the exact sum of (a - c)."""
    gaps: dict[int, tuple[int, Fraction]] = {}
    for c, a in zip(confidence, correct, strict=True):
        b = bin_of(c, bins)
        count, gap = gaps.get(b, (0, Fraction(0)))
        gaps[b] = count + 1, gap + int(a) - Fraction(c)
    return gaps


def ece(confidence: Sequence[float], correct: Sequence[int], bins: int, norm: str = "l1") -> float:
    gaps = bin_gaps(confidence, correct, bins).values()
    n = len(confidence)
    if norm == "l1":
        return float(sum(Fraction(count, n) * abs(gap / count) for count, gap in gaps))
    if norm == "l2":
        return math.sqrt(sum(Fraction(count, n) * (gap / count) ** 2 for count, gap in gaps))
    return float(max(abs(gap / count) for count, gap in gaps))


def ece_distribution(confidence: Sequence[float], bins: int, norm: str = "l1") -> list[tuple[float, float]]:
    """(ECE, probability) of every way in which rows that are right as often as they say can turn out; 2^n of them."""
    distribution = []
    for correct in itertools.product((0, 1), repeat=len(confidence)):
        chance = math.prod(c if a else 1 - c for c, a in zip(confidence, correct, strict=True))
        distribution.append((ece(confidence, correct, bins, norm), chance))
    return distribution


def ece_limits(
    confidence: Sequence[float], correct: Sequence[int], bins: int, q: float, normals: Sequence[Sequence[float]]
) -> tuple[float, float, float]:
    """Lower, estimate and upper of the inverted test, before the exact limits; normals[b][r] are the draws."""
    n = len(confidence)
    where = [[i for i in range(n) if bin_of(confidence[i], bins) == b] for b in range(bins)]
    occupied = [b for b in range(bins) if where[b]]
    gap = {b: sum(correct[i] - confidence[i] for i in where[b]) / n for b in occupied}
    variance = {b: sum(confidence[i] * (1 - confidence[i]) for i in where[b]) / n**2 for b in occupied}
    skew = {b: sum(1 - 2 * confidence[i] for i in where[b]) / n**2 for b in occupied}
    observed = sum(abs(gap[b]) for b in occupied)

    def spread(b: int, s: float) -> float:
        g = s / (len(where[b]) / n)
        return math.sqrt(max(variance[b] + g * skew[b], g**2 * len(where[b]) / n**2))

    def theta(direction: dict[int, float], p: float) -> float:
        size = sum(abs(u) for u in direction.values())

        def below(t: float) -> float:
            shift = {b: t * direction[b] / size for b in occupied}
            sd = {b: spread(b, shift[b]) for b in occupied}
            draws = range(len(normals[0]))
            return sum(sum(abs(shift[b] + sd[b] * normals[b][r]) for b in occupied) <= observed for r in draws) / len(
                draws
            )

        if below(0.0) <= p:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(14):
            middle = (low + high) / 2
            low, high = (middle, high) if below(middle) > p else (low, middle)
        return (low + high) / 2

    sd = {b: max(spread(b, gap[b]), math.sqrt(variance[b])) for b in occupied}
    significant = [b for b in occupied if abs(gap[b]) > 2 * sd[b]] or [max(occupied, key=lambda b: abs(gap[b]) / sd[b])]
    kept = {b: gap[b] if b in significant else 0.0 for b in occupied}
    raised = {b: math.copysign(max(abs(gap[b]), sd[b]), gap[b]) for b in occupied}
    return min(theta(gap, 1 - q), theta(kept, 1 - q)), theta(gap, 0.5), theta(raised, q)


def mce_limits(confidence: Sequence[float], correct: Sequence[int], bins: int, q: float) -> tuple[float, float]:
    """Each bin's exact limits by bisection: the lower end at q over all occupied bins, the upper at q in each."""
    gaps = bin_gaps(confidence, correct, bins)
    each = (1 - (1 - q) ** (1 / len(gaps))) / 2
    least, most = 0.0, 0.0
    for b, (n, _) in gaps.items():
        rows = [(c, a) for c, a in zip(confidence, correct, strict=True) if bin_of(c, bins) == b]
        right, mean = sum(a for _, a in rows), math.fsum(c for c, _ in rows) / n

        def low(level: float, right: int = right, n: int = n) -> float:
            return bisect(lambda p: binomial_tail(right, n, p) - level, 0, 1) if right else 0.0

        def high(level: float, right: int = right, n: int = n) -> float:
            return bisect(lambda p: level - 1 + binomial_tail(right + 1, n, p), 0, 1) if right < n else 1.0

        least = max(least, low(each) - mean, mean - high(each))
        most = max(most, high(q) - mean, mean - low(q))
    return least, most


def rare_error_limits(
    losses: Sequence[float], correct: Sequence[int], if_wrong: Sequence[float], q: float, t: float
) -> tuple[float, float]:
    """Limits of a mean score by Fay and Feuer's for the wrong rows and Student's (quantile t) for the right ones."""
    n = len(losses)
    of_right = [loss * a for loss, a in zip(losses, correct, strict=True)]
    of_wrong = [loss * (1 - a) for loss, a in zip(losses, correct, strict=True)]
    mean = math.fsum(of_right) / n
    half = t * math.sqrt(n * math.fsum((x - mean) ** 2 for x in of_right) / (n - 1))
    y, v = math.fsum(of_wrong), math.fsum(x**2 for x in of_wrong) - math.fsum(of_wrong) ** 2 / n
    w = max([math.fsum(if_wrong) / n, *of_wrong])
    least = v / y * gamma_quantile(y**2 / v, q) if y else 0.0
    most = (v + w**2) / (y + w) * gamma_quantile((y + w) ** 2 / (v + w**2), 1 - q)
    total = math.fsum(losses)
    return max(total - math.hypot(half, y - least), 0.0) / n, (total + math.hypot(half, most - y)) / n


def gamma_quantile(shape: float, p: float) -> float:
    """Of the gamma distribution of scale 1, by its series and bisection."""

    def share(x: float) -> float:
        terms = (math.exp((shape + k) * math.log(x) - x - math.lgamma(shape + k + 1)) for k in range(400))
        return math.fsum(terms)

    return bisect(lambda x: share(x) - p, 1e-12, shape + 20 * math.sqrt(shape) + 20)


def softmax(row: Sequence[float], temperature: float) -> list[float]:
    highest = max(row)
    exponents = [math.exp((z - highest) / temperature) for z in row]
    return [e / math.fsum(exponents) for e in exponents]


def temperature_nll(rows: Rows, labels: Sequence[int], temperature: float) -> float:
    """Mean of log sum_k exp(z_k / T) - z_y / T."""
    total = []
    for row, label in zip(rows, labels, strict=True):
        highest = max(row)
        total.append(math.log(math.fsum(math.exp((z - highest) / temperature) for z in row)))
        total.append((highest - row[label]) / temperature)
    return math.fsum(total) / len(labels)


def temperature(rows: Rows, labels: Sequence[int], low: float = 0.05, high: float = 20.0) -> float:
    """The root of the NLL's derivative in beta = 1/T, by plain bisection."""

    def slope(beta: float) -> float:
        total = []
        for row, label in zip(rows, labels, strict=True):
            p = softmax(row, 1 / beta)
            total.append(math.fsum(p_k * (z_k - row[label]) for p_k, z_k in zip(p, row, strict=True)))
        return math.fsum(total)

    return 1 / bisect(slope, 1 / high, 1 / low)


def bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """The root of a rising function, to the last bits."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def binomial_tail(successes: int, n: int, chance: float) -> float:
    """P(X >= successes) for X binomial."""
    terms = (math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(successes, n + 1))
    return math.fsum(terms)


def post_hoc_improvement(
    before: Rows, after: Rows, labels: Sequence[int], level: float
) -> dict[str, tuple[float, float, float]]:
    """Row by row: score before less score after, mean and Student's limits, t by bisection of its tail's integral."""
    n = len(labels)

    def brier(row: Sequence[float], label: int) -> float:
        return math.fsum((p - (k == label)) ** 2 for k, p in enumerate(row))

    def log(row: Sequence[float], label: int) -> float:
        return -math.log(row[label])

    found = {}
    for name, score in (("nll", log), ("brier", brier)):
        d = [score(b, y) - score(a, y) for b, a, y in zip(before, after, labels, strict=True)]
        mean = math.fsum(d) / n
        error = math.sqrt(math.fsum((x - mean) ** 2 for x in d) / (n - 1) / n)
        half = _student(n - 1, level) * error
        found[name] = (mean, mean - half, mean + half)
    return found


def _student(freedom: int, level: float, steps: int = 20_000) -> float:
    """t with the share `level` of Student's distribution within +- t, by Simpson's rule."""
    scale: float = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def inside(t: float) -> float:
        h = t / steps
        heights = [(1 + (k * h) ** 2 / freedom) ** (-(freedom + 1) / 2) for k in range(steps + 1)]
        simpson = heights[0] + heights[-1] + 4 * math.fsum(heights[1:-1:2]) + 2 * math.fsum(heights[2:-1:2])
        share: float = 2 * scale * simpson * h / 3
        return share

    low, high = 0.0, 50.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if inside(middle) > level else (middle, high)
    return (low + high) / 2
