"""Slow, obvious twins of the penalties: plain loops over samples, classes and bins, as the papers write the formulas.

`frozen` rows are the logits from which AvUC-GS's c is taken, a constant for its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.reference import Rows, bin_of, softmax, top

Labels = Sequence[int]


def confidences(rows: Rows, labels: Labels) -> tuple[list[float], list[int]]:
    answers = [top(row) for row in rows]
    c = [softmax(row, 1.0)[answer] for row, answer in zip(rows, answers, strict=True)]
    return c, [int(answer == label) for answer, label in zip(answers, labels, strict=True)]


def laplace(x: float, y: float, bandwidth: float) -> float:
    return math.exp(-abs(x - y) / bandwidth)


def mmce(rows: Rows, labels: Labels, bandwidth: float = 0.4, weighted: bool = False, variant: str = "paper") -> float:
    if weighted:
        return weighted_mmce(rows, labels, bandwidth, variant)
    c, a = confidences(rows, labels)
    n = len(c)
    square = math.fsum(
        (a[i] - c[i]) * (a[j] - c[j]) * laplace(c[i], c[j], bandwidth) / n**2 for i in range(n) for j in range(n)
    )
    return square if variant == "official" else math.sqrt(max(square, 0.0))


def weighted_mmce(rows: Rows, labels: Labels, bandwidth: float, variant: str) -> float:
    """Three sums over pairs: right with right, wrong with wrong, right with wrong."""
    c, a = confidences(rows, labels)
    right = [c[i] for i in range(len(c)) if a[i]]
    wrong = [c[i] for i in range(len(c)) if not a[i]]
    m, n = len(right), len(wrong)
    if variant == "official" and not (m and n):
        return 0.0
    both = math.fsum((1 - x) * (1 - y) * laplace(x, y, bandwidth) for x in right for y in right)
    none = math.fsum(x * y * laplace(x, y, bandwidth) for x in wrong for y in wrong)
    cross = math.fsum((1 - x) * y * laplace(x, y, bandwidth) for x in right for y in wrong)
    power = 2 if variant == "official" else 1
    square = 0.0
    if m:
        square += both / m ** (2 * power)
    if n:
        square += none / n ** (2 * power)
    if m and n:
        square -= 2 * cross / (m * n) ** power
    return math.sqrt(max(square, 0.0))


def soft_correct(p: Sequence[float], label: int, temperature: float) -> float:
    rank = 0.5
    for k in range(len(p)):
        x = (p[k] - p[label]) / temperature
        rank += 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
    return max(0.0, 2 - rank)


def sece(rows: Rows, labels: Labels, bandwidth: float = 0.01, variant: str = "soft") -> float:
    c, hard = confidences(rows, labels)
    a: list[float] = list(hard)
    if variant == "soft":
        a = [soft_correct(softmax(row, 1.0), label, 0.01) for row, label in zip(rows, labels, strict=True)]
    total = 0.0
    for here in c:
        near = [math.exp(-((here - there) ** 2) / (2 * bandwidth**2)) for there in c]
        total += abs(math.fsum(k * x for k, x in zip(near, a, strict=True)) / math.fsum(near) - here)
    return total / len(c)


def mdca(rows: Rows, labels: Labels) -> float:
    classes, n = len(rows[0]), len(rows)
    total = 0.0
    for k in range(classes):
        mean = math.fsum(softmax(row, 1.0)[k] for row in rows) / n
        total += abs(mean - sum(label == k for label in labels) / n)
    return total / classes


def dca(rows: Rows, labels: Labels) -> float:
    c, a = confidences(rows, labels)
    return abs(sum(a) / len(a) - math.fsum(c) / len(c))


def entropy_of(row: Sequence[float]) -> float:
    return -math.fsum(p * math.log(p) for p in softmax(row, 1.0) if p > 0)


def entropy(rows: Rows, labels: Labels) -> float:
    return -math.fsum(entropy_of(row) for row in rows) / len(rows)


def avuc(rows: Rows, labels: Labels, kappa: float = 0.5, frozen: Rows | None = None) -> float:
    count = {"AC": 0.0, "AU": 0.0, "IC": 0.0, "IU": 0.0}
    c, a = confidences(rows if frozen is None else frozen, labels)
    for i, row in enumerate(rows):
        h = entropy_of(row)
        which = ("A" if a[i] else "I") + ("C" if h <= kappa else "U")
        sure = c[i] if a[i] else 1 - c[i]
        count[which] += sure * (1 - math.tanh(h) if h <= kappa else math.tanh(h))
    return math.log(1 + (count["AU"] + count["IC"]) / max(count["AC"] + count["IU"], 1e-10))


def s_avuc(rows: Rows, labels: Labels, kappa: float = 0.5, temperature: float = 1.0) -> float:
    _, a = confidences(rows, labels)
    good = bad = 0.0
    for row, right in zip(rows, a, strict=True):
        h = entropy_of(row)
        share = min(max(h / math.log(len(row)), 2.0**-1022), 1 - 2.0**-52)
        odds = share * (1 - kappa) / ((1 - share) * kappa)
        t = odds ** (1 / temperature) / (1 + odds ** (1 / temperature))
        uncertain, certain = t * math.tanh(h), (1 - t) * (1 - math.tanh(h))
        good += certain if right else uncertain
        bad += uncertain if right else certain
    return math.log(1 + bad / max(good, 1e-10))


def between_edges(c: Sequence[float], low: float, bins: int, temperature: float) -> list[list[float]]:
    edges = [low + (1 - low) * j / bins for j in range(1, bins)]
    passed = [[1.0, *(1 / (1 + math.exp((edge - x) / temperature)) for edge in edges), 0.0] for x in c]
    return [[row[j] - row[j + 1] for j in range(bins)] for row in passed]


def sb_ece(
    rows: Rows,
    labels: Labels,
    bins: int = 15,
    temperature: float = 0.01,
    order: float = 2.0,
    kind: str = "label",
    membership: str = "gaussian",
    variant: str = "paper",
) -> float:
    c, a = confidences(rows, labels)
    n, low = len(c), 1 / len(rows[0]) if variant == "official" else 0.0
    centres = [low + (1 - low) * (j + 0.5) / bins for j in range(bins)]
    member = [softmax([-((x - centre) ** 2) for centre in centres], temperature) for x in c]
    if membership == "sigmoid":
        member = between_edges(c, low, bins, temperature)
    total = 0.0
    for j in range(bins):
        size = math.fsum(u[j] for u in member)
        if size == 0:
            continue
        accuracy = math.fsum(u[j] * right for u, right in zip(member, a, strict=True)) / size
        confidence = math.fsum(u[j] * x for u, x in zip(member, c, strict=True)) / size
        if kind == "bin":
            total += size / n * abs(accuracy - confidence) ** order
        else:
            total += math.fsum(u[j] * abs(accuracy - x) ** order for u, x in zip(member, c, strict=True)) / n
    return total if variant == "official" else total ** (1 / order)


def dece(rows: Rows, labels: Labels, bins: int = 15, temperature: float = 0.01, membership: str = "softmax") -> float:
    c, _ = confidences(rows, labels)
    right = [soft_correct(softmax(row, 1.0), label, temperature) for row, label in zip(rows, labels, strict=True)]
    member = []
    for x in c:
        scores = [(j + 1) * x - sum(cut / bins for cut in range(j + 1)) for j in range(bins)]
        member.append(softmax(scores, temperature))
    if membership == "sigmoid":
        member = between_edges(c, 0.0, bins, temperature)
    total = 0.0
    for j in range(bins):
        total += abs(math.fsum(u[j] * (s - x) for u, s, x in zip(member, right, c, strict=True))) / len(c)
    return total


def soft_histogram(rows: Rows, labels: Labels, bins: int = 15) -> float:
    c, a = confidences(rows, labels)
    gap = [0.0] * bins
    for x, right in zip(c, a, strict=True):
        for j in range(bins):
            centre = (j + 0.5) / bins
            outside = (j == 0 and x < centre) or (j == bins - 1 and x > centre)
            gap[j] += (1.0 if outside else max(0.0, 1 - bins * abs(x - centre))) * (right - x)
    return math.fsum(abs(g) for g in gap) / len(c)


def brier_reliability(rows: Rows, labels: Labels, bins: int = 15) -> float:
    n, total = len(rows), 0.0
    p = [softmax(row, 1.0) for row in rows]
    for k in range(len(rows[0])):
        place = [bin_of(min(row[k], 1.0), bins) for row in p]
        for b in range(bins):
            inside = [p[i][k] - (labels[i] == k) for i in range(n) if place[i] == b]
            if inside:
                total += len(inside) / n * (math.fsum(inside) / len(inside)) ** 2
    return total


def ks(rows: Rows, labels: Labels) -> float:
    """The gap at every confidence that occurs, each tie taken as a whole."""
    c, a = confidences(rows, labels)
    gaps = [math.fsum(right - x for x, right in zip(c, a, strict=True) if x <= edge) for edge in c]
    return max(abs(gap) for gap in gaps) / len(c)


def margin(rows: Rows, labels: Labels, margin: float = 10.0, variant: str = "paper") -> float:
    total = 0.0
    for row in rows:
        for z in row:
            total += max(0.0, max(row) - z - margin)
    return total / len(rows) / (len(rows[0]) if variant == "official" else 1)


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def cpc(rows: Rows, labels: Labels, bdc: float = 0.1, bec: float = 1.0) -> float:
    classes, total = len(rows[0]), 0.0
    for row, label in zip(rows, labels, strict=True):
        rest = [z for k, z in enumerate(row) if k != label]
        total += bdc * math.fsum(softplus(z - row[label]) for z in rest) / (classes - 1)
        pairs = [(x, y) for i, x in enumerate(rest) for j, y in enumerate(rest) if i != j]
        if pairs:
            total += bec * math.fsum(softplus(x - y) / 2 for x, y in pairs) / len(pairs)
    return total / len(rows)


def beta_objective(rows: Rows, labels: Labels, a: float, b: float, m: float) -> float:
    """Mean NLL of the beta map plus the ridge, which is that of half a squared distance per sample in all."""
    total = ((a - 1) ** 2 + (b - 1) ** 2 + m**2) / 2
    for row, label in zip(rows, labels, strict=True):
        p, answer = softmax(row, 1.0), top(row)
        rest = math.fsum(p_k for k, p_k in enumerate(p) if k != answer)
        logit = a * math.log(p[answer]) - b * math.log(rest) + m
        total += softplus(-logit if answer == label else logit)
    return total / len(rows)


def beta_joint(rows: Rows, labels: Labels) -> float:
    """By pattern search: try a step along each axis and diagonal, halve it when none helps."""
    best, step = (1.0, 1.0, 0.0), 1.0
    start = least = beta_objective(rows, labels, *best)
    moves = [(x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if x or y or z]
    while step > 1e-6:
        tried = [(best[0] + step * x, best[1] + step * y, best[2] + step * z) for x, y, z in moves]
        values = [beta_objective(rows, labels, *point) for point in tried]
        if min(values) < least:
            least, best = min(zip(values, tried, strict=True))
        else:
            step /= 2
    return start - least
