"""Slow, obvious twins of the calibration errors: plain loops, Fraction where there is no root or exponential."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from scipy import optimize, stats

from tests.reference import bin_of

Rows = Sequence[tuple[float, float]]
"""(confidence, 0 or 1) of every row."""
Member = tuple[Fraction, Fraction]
"""(confidence, share that is right): tied rows are right in equal shares."""


def width_bins(rows: Rows, bins: int) -> list[list[Member]]:
    members: list[list[Member]] = [[] for _ in range(bins)]
    for c, a in rows:
        members[bin_of(c, bins)].append((Fraction(c), Fraction(a)))
    return members


def mass_bins(rows: Rows, bins: int) -> list[list[Member]]:
    """Row r (counted from 0, in order of confidence) lies in the bin b with floor(b n / bins) <= r < the next."""
    ranked: list[Member] = []
    for c in sorted({c for c, _ in rows}):
        tied = [a for other, a in rows if other == c]
        ranked += [(Fraction(c), mean([Fraction(a) for a in tied]))] * len(tied)
    n = len(rows)
    return [ranked[b * n // bins : (b + 1) * n // bins] for b in range(bins)]


def binned(rows: Rows, bins: int, binning: str) -> list[list[Member]]:
    return [b for b in (mass_bins if binning == "mass" else width_bins)(rows, bins) if b]


def samplewise_noise(p: Sequence[float], votes: int, norm: str) -> float:
    """E ||V / votes - p|| over every way in which that many people can vote, each by p."""
    total = 0.0
    for outcome in itertools.product(range(len(p)), repeat=votes):
        off = [abs(outcome.count(k) / votes - p_k) for k, p_k in enumerate(p)]
        distance = {"l1": math.fsum(off), "l2": math.sqrt(math.fsum(x * x for x in off)), "max": max(off)}[norm]
        total += math.prod(p[k] for k in outcome) * distance
    return total


def half_panels(counts: Sequence[int], norm: str) -> float:
    """Mean distance of the two halves over every way to choose the people of the first."""
    people = [k for k, count in enumerate(counts) for _ in range(count)]
    half = len(people) // 2
    total, ways = 0.0, 0
    for chosen in itertools.combinations(range(len(people)), half):
        first = [sum(people[i] == k for i in chosen) for k in range(len(counts))]
        off = [abs(a / half - (v - a) / (len(people) - half)) for a, v in zip(first, counts, strict=True)]
        total += {"l1": math.fsum(off), "l2": math.sqrt(math.fsum(x * x for x in off)), "max": max(off)}[norm]
        ways += 1
    return total / ways


def unskewed_limits(values: Sequence[float], level: float) -> list[float]:
    """Hall's limits of a mean, from his cubic T + g T^2 / (3 sqrt n) + g^2 T^3 / (27 n) + g / (6 sqrt n) = +-t."""
    n, middle = len(values), math.fsum(values) / len(values)
    squares, cubes = (math.fsum((v - middle) ** power for v in values) for power in (2, 3))
    skewness = cubes / n / (squares / n) ** 1.5
    limits = []
    for side in (1, -1):
        t = side * float(stats.t.ppf((1 + level) / 2, n - 1))

        def above(x: float, t: float = t) -> float:
            bent = x + skewness * x**2 / (3 * math.sqrt(n)) + skewness**2 * x**3 / (27 * n)
            return float(bent + skewness / (6 * math.sqrt(n)) - t)

        x = float(optimize.brentq(above, -50, 50, xtol=1e-13))
        limits.append(middle - math.sqrt(squares / (n - 1) / n) * x)
    return limits


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def power_mean(values: Sequence[Fraction], norm: str) -> float:
    if norm == "max":
        return float(max(values))
    return float(mean(values)) if norm == "l1" else math.sqrt(mean([v * v for v in values]))


def gap(members: Sequence[Member]) -> Fraction:
    return abs(mean([a for _, a in members]) - mean([c for c, _ in members]))


def ece(rows: Rows, bins: int, norm: str, binning: str) -> float:
    return power_mean([gap(b) for b in binned(rows, bins, binning) for _ in b], norm)


def label_binned_ece(rows: Rows, bins: int, norm: str, binning: str) -> float:
    terms = [abs(mean([a for _, a in b]) - c) for b in binned(rows, bins, binning) for c, _ in b]
    return power_mean(terms, norm)


def debiased_ece(rows: Rows, bins: int, binning: str) -> float:
    total = Fraction(0)
    for b in binned(rows, bins, binning):
        if len(b) > 1:
            accuracy = mean([a for _, a in b])
            total += Fraction(len(b), len(rows)) * (gap(b) ** 2 - accuracy * (1 - accuracy) / (len(b) - 1))
    return math.sqrt(max(total, Fraction(0)))


def sweep_ece(rows: Rows, norm: str, binning: str) -> tuple[float, int]:
    best = 1
    for bins in range(2, len(rows) + 1):
        accuracies = [mean([a for _, a in b]) for b in binned(rows, bins, binning)]
        if accuracies != sorted(accuracies):
            break
        best = bins
    return ece(rows, best, norm, binning), best


def ks_error(rows: Rows) -> float:
    sums = [sum((Fraction(a) - Fraction(c) for c, a in rows if c <= s), Fraction(0)) for s, _ in rows]
    return float(max(abs(s) for s in sums) / len(rows))


def brier_terms(rows: Rows, bins: int, binning: str) -> list[float]:
    """Brier of the top label, reliability, resolution, uncertainty, within-bin variance and covariance."""
    n, accuracy = len(rows), mean([Fraction(a) for _, a in rows])
    brier = mean([(Fraction(a) - Fraction(c)) ** 2 for c, a in rows])
    reliability = resolution = variance = covariance = Fraction(0)
    for b in binned(rows, bins, binning):
        conf, acc = mean([c for c, _ in b]), mean([a for _, a in b])
        reliability += len(b) * (conf - acc) ** 2 / n
        resolution += len(b) * (acc - accuracy) ** 2 / n
        variance += len(b) * mean([(c - conf) ** 2 for c, _ in b]) / n
        covariance += 2 * len(b) * mean([(a - acc) * (c - conf) for c, a in b]) / n
    assert brier == reliability - resolution + accuracy * (1 - accuracy) + variance - covariance
    return [float(v) for v in (brier, reliability, resolution, accuracy * (1 - accuracy), variance, covariance)]


def ece_per_class(
    table: Sequence[Sequence[float]], labels: Sequence[int], bins: int, binning: str, threshold: float
) -> list[float]:
    errors = []
    for k in range(len(table[0])):
        rows = [(row[k], int(y == k)) for row, y in zip(table, labels, strict=True) if row[k] >= threshold]
        errors.append(ece(rows, bins, "l1", binning) if rows else 0.0)
    return errors


def classwise_ece(p: Sequence[Sequence[float]], labels: Sequence[int], bins: int) -> float:
    return math.fsum(ece_per_class(p, labels, bins, "width", 0.0)) / len(p[0])


def classwise_distribution(p: Sequence[Sequence[float]], bins: int) -> list[tuple[float, float]]:
    """(class-wise ECE, probability) of every way in which labels can fall if the probabilities are right: C^n."""
    distribution = []
    for labels in itertools.product(range(len(p[0])), repeat=len(p)):
        chance = math.prod(row[label] for row, label in zip(p, labels, strict=True))
        distribution.append((classwise_ece(p, labels, bins), chance))
    return distribution


def classwise_limits(
    p: Sequence[Sequence[float]], labels: Sequence[int], bins: int, q: float, noise: Mapping[int, Sequence[float]]
) -> tuple[float, float, float]:
    """Lower, estimate and upper of the inverted test; noise[k * bins + b][r]: hits less probabilities of the draws."""
    draws = range(len(next(iter(noise.values()))))
    members: dict[int, list[tuple[float, int]]] = {}
    for row, label in zip(p, labels, strict=True):
        for k, value in enumerate(row):
            members.setdefault(k * bins + bin_of(value, bins), []).append((value, int(label == k)))
    gap = {key: math.fsum(hit - value for value, hit in rows) for key, rows in members.items()}
    variance = {key: math.fsum(value * (1 - value) for value, _ in rows) for key, rows in members.items()}
    skew = {key: math.fsum(1 - 2 * value for value, _ in rows) for key, rows in members.items()}
    observed = math.fsum(abs(s) for s in gap.values())

    def spread(key: int, s: float) -> float:
        g = s / len(members[key])
        return math.sqrt(max(variance[key] + g * skew[key], g**2 * len(members[key])))

    def below(direction: dict[int, float], theta: float) -> float:
        size = math.fsum(abs(u) for u in direction.values())
        shift = {key: theta * u / size for key, u in direction.items()}
        grown = {key: spread(key, s) / math.sqrt(variance[key]) for key, s in shift.items()}
        return sum(
            math.fsum(abs(shift[key] + grown[key] * noise[key][r]) for key in gap) <= observed for r in draws
        ) / len(draws)

    def end(direction: dict[int, float], target: float, from_above: bool = False) -> float:
        farthest = 2 * observed + max(math.fsum(abs(noise[key][r]) for key in gap) for r in draws)
        steps = [farthest * i / 24 for i in range(25)]
        low, high = 0.0, farthest
        if from_above:
            low = max((theta for theta in steps if below(direction, theta) > target), default=-1.0)
            high = low + steps[1]
        if low < 0 or below(direction, low) <= target:
            return 0.0
        for _ in range(16):
            middle = (low + high) / 2
            low, high = (middle, high) if below(direction, middle) > target else (low, middle)
        return low

    sd = {key: max(spread(key, s), math.sqrt(variance[key])) for key, s in gap.items()}
    limit = max(2.0, math.sqrt(2 * math.log(len(gap))))
    clear = [key for key in gap if abs(gap[key]) > limit * sd[key]] or [
        max(gap, key=lambda key: abs(gap[key]) / sd[key])
    ]
    kept = {key: s if key in clear else 0.0 for key, s in gap.items()}
    raised = {key: math.copysign(max(abs(s), sd[key]), s) for key, s in gap.items()}
    quiet = {}
    for key, rows in members.items():
        hits = math.fsum(value for value, _ in rows)
        least = min(math.sqrt(variance[key]), hits, len(rows) - hits)
        away = least if skew[key] < 0 else -least
        quiet[key] = gap[key] if abs(gap[key]) > 2 * sd[key] else away
    lower = min(end(gap, 1 - q), end(kept, 1 - q))
    upper = max(end(raised, q, from_above=True), end(quiet, q, from_above=True))
    terms = len(p) * len(p[0])
    return lower / terms, end(gap, 0.5) / terms, upper / terms


def smooth_ece_at(rows: Rows, sigma: float, points: int = 3000) -> float:
    """The integral of |smoothed residual| by midpoints; the kernel's images lie at 2j + c and 2j - c."""
    total = 0.0
    for i in range(points):
        t = (i + 0.5) / points
        terms = []
        for c, a in rows:
            images = [2 * j + side * c for j in (-2, -1, 0, 1, 2) for side in (1, -1)]
            terms += [(a - c) * math.exp(-0.5 * ((t - image) / sigma) ** 2) for image in images]
        total += abs(math.fsum(terms)) / (sigma * math.sqrt(2 * math.pi))
    return total / points / len(rows)


def kde_ece(rows: Rows, bandwidth: float, points: int = 3000) -> float:
    """Triweight kernel of standard deviation `bandwidth`, reflected at 0 and 1, midpoints."""
    half, total = 3 * bandwidth, 0.0
    for i in range(points):
        z = (i + 0.5) / points
        residual = 0.0
        for c, a in rows:
            for image in (c - 2, -c, c, 2 - c, 2 + c):
                u = (z - image) / half
                residual += (a - z) * 35 / 32 * (1 - u * u) ** 3 / half if abs(u) < 1 else 0.0
        total += abs(residual)
    return total / points / len(rows)


def sece(rows: Rows, bandwidth: float) -> float:
    total = 0.0
    for c, _ in rows:
        weights = [math.exp(-((c - other) ** 2) / (2 * bandwidth**2)) for other, _ in rows]
        total += abs(math.fsum(w * a for w, (_, a) in zip(weights, rows, strict=True)) / math.fsum(weights) - c)
    return total / len(rows)


def ece_p_value(rows: Rows, bins: int) -> float:
    """P(sum_b |X_b - C_b| >= the observed one), X_b ~ Binomial(n_b, C_b / n_b), by all combinations of counts."""
    members = [bin_members for bin_members in width_bins(rows, bins) if bin_members]
    observed = sum((abs(sum((a - c for c, a in part), Fraction(0))) for part in members), Fraction(0))
    total = 0.0
    for counts in itertools.product(*(range(len(part) + 1) for part in members)):
        distance, chance = Fraction(0), 1.0
        for k, part in zip(counts, members, strict=True):
            mean = sum((c for c, _ in part), Fraction(0))
            p = float(mean / len(part))
            distance += abs(k - mean)
            chance *= math.comb(len(part), k) * p**k * (1 - p) ** (len(part) - k)
        total += chance * (distance >= observed - Fraction(1, 10**9))
    return total


def calibrated_limits(confidences: Sequence[float], level: float) -> tuple[float, float]:
    """Quantiles of the share of right answers, a ~ Bernoulli(c): the law of their number answer by answer."""
    law = [1.0]  # of the number of right answers
    for c in confidences:
        law = [(law[k] * (1 - c) if k < len(law) else 0) + (law[k - 1] * c if k else 0) for k in range(len(law) + 1)]
    q, n = (1 - level) / 2, len(confidences)
    low = next(k for k in range(n + 1) if sum(law[: k + 1]) >= q)
    high = next(k for k in range(n, -1, -1) if sum(law[k:]) >= q)
    return low / n, high / n


def decision_costs(rows: Rows, miss: float, alarm: float) -> list[float]:
    """The cost a row of alerts above each edge k / 3,000."""
    costs, cells = [], [(bin_of(p, 3000), a) for p, a in rows]
    for k in range(3001):
        missed = sum(a for cell, a in cells if cell < k)
        false_alarms = sum(1 - a for cell, a in cells if cell >= k)
        costs.append((miss * missed + alarm * false_alarms) / len(rows))
    return costs


def standard_error_within_types(table: list[list[float]]) -> float:
    """By normalised scores: y_ts - y_t. + y_.., their variance over types at each level, the mean of these over levels,
    times levels / (levels - 1), and divided by the types (Cousineau 2005 with Morey's 2008 correction, pooled)."""
    types, levels = len(table), len(table[0])
    whole = sum(map(sum, table)) / (types * levels)
    normalised = [[value - sum(row) / levels + whole for value in row] for row in table]
    total = 0.0
    for level in range(levels):
        column = [row[level] for row in normalised]
        mean = sum(column) / types
        total += sum((value - mean) ** 2 for value in column) / (types - 1)
    return float((total / levels * levels / (levels - 1) / types) ** 0.5)
