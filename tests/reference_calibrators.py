"""Slow, obvious twins of the calibrators: plain loops over rows and classes, Fractions where numbers are counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from tests.reference import Rows, softmax
from trueodds.calibrators import Quadratic

Vector = Sequence[float]
QUADRATIC = ("low", "high", "low_slope", "high_slope", "offset")


def affine_nll(
    rows: Rows,
    labels: Sequence[int],
    weights: Sequence[Vector],
    bias: Vector,
    off_diagonal: float = 0.0,
    diagonal: float = 0.0,
    intercept: float = 0.0,
) -> float:
    """Mean -ln softmax(W z + b)_y, plus off_diagonal sum W_jk^2 + diagonal sum (W_kk - 1)^2 + intercept sum b_k^2."""
    total = []
    for row, label in zip(rows, labels, strict=True):
        eta = [
            math.fsum(w * z for w, z in zip(line, row, strict=True)) + b for line, b in zip(weights, bias, strict=True)
        ]
        total.append(max(eta) + math.log(math.fsum(math.exp(e - max(eta)) for e in eta)) - eta[label])
    penalty = intercept * math.fsum(b * b for b in bias)
    for j, line in enumerate(weights):
        penalty += math.fsum(diagonal * (w - 1) ** 2 if j == k else off_diagonal * w * w for k, w in enumerate(line))
    return math.fsum(total) / len(labels) + penalty


def shrunk_nll(
    rows: Rows, labels: Sequence[int], temperature: float, errors: float, bias: Vector | None = None
) -> float:
    """Mean -ln softmax(z / T + b)_y of the rows, and over their number of all pseudo-rows: as many of each row as make
    `errors` wrong ones by the larger of the expected and the seen share, with the labels of softmax(z)."""
    expected, wrong, own, pseudo = [], 0, [], []
    for row, label in zip(rows, labels, strict=True):
        q = softmax(row, 1.0)
        eta = [z / temperature + b for z, b in zip(row, bias or [0.0] * len(row), strict=True)]
        whole = max(eta) + math.log(math.fsum(math.exp(e - max(eta)) for e in eta))
        expected.append(1 - max(q))
        wrong += row.index(max(row)) != label
        own.append(whole - eta[label])
        pseudo.append(math.fsum(p * (whole - e) for p, e in zip(q, eta, strict=True)))
    share = max(math.fsum(expected), wrong, 1e-6) / len(rows)
    return (math.fsum(own) + errors / share * math.fsum(pseudo) / len(rows)) / len(rows)


def centred(row: Vector) -> list[float]:
    return [z - math.fsum(row) / len(row) for z in row]


def log_odds(row: Vector, k: int) -> float:
    """ln q_k - ln(1 - q_k) of the softmax: z_k minus the log-sum-exp of the others."""
    others = [z for j, z in enumerate(row) if j != k]
    return row[k] - max(others) - math.log(math.fsum(math.exp(z - max(others)) for z in others))


def logistic_loss(features: Sequence[Vector], targets: Vector, slopes: Vector, offset: float) -> float:
    """Mean of -[t ln s + (1 - t) ln(1 - s)], s = 1 / (1 + exp(-(slopes . x + offset)))."""
    total = []
    for x, t in zip(features, targets, strict=True):
        eta = math.fsum(a * f for a, f in zip(slopes, x, strict=True)) + offset
        total.append(max(eta, 0.0) + math.log1p(math.exp(-abs(eta))) - t * eta)
    return math.fsum(total) / len(targets)


def isotonic(scores: Vector, hits: Sequence[int]) -> dict[float, Fraction]:
    """Score -> fitted value: the max-min formula max_{a <= x} min_{b >= x} mean of hits in [a, b]."""
    distinct = sorted(set(scores))

    def mean(low: float, high: float) -> Fraction:
        inside = [h for s, h in zip(scores, hits, strict=True) if low <= s <= high]
        return Fraction(sum(inside), len(inside))

    return {x: max(min(mean(a, b) for b in distinct if b >= x) for a in distinct if a <= x) for x in distinct}


def histogram(scores: Vector, hits: Sequence[int], edges: Vector, score: float) -> Fraction:
    """Share of hits in the bin (lo, hi] of `score`; the middle of an empty one. `edges` are the inner ones."""
    where = sum(score > e for e in edges)
    inside = [h for s, h in zip(scores, hits, strict=True) if sum(s > e for e in edges) == where]
    ends = [Fraction(0), *map(Fraction, edges), Fraction(1)]
    return Fraction(sum(inside), len(inside)) if inside else (ends[where] + ends[where + 1]) / 2


def bbq(scores: Vector, hits: Sequence[int], score: float) -> float:
    """The average over B = 1 .. of equal-count histograms; scores must be distinct."""
    n = len(scores)
    order = sorted(range(n), key=lambda i: scores[i])
    models = []
    for size in range(max(1, int(round(n ** (1 / 3), 9) / 10)), min(math.ceil(10 * round(n ** (1 / 3), 9)), n) + 1):
        ends = [round(b * n / size) for b in range(size + 1)]  # half to even, as numpy rounds
        edges = [0.0, *(scores[order[e - 1]] for e in ends[1:-1]), 1.0]
        log_score, value = 0.0, 0.0
        for b in range(size):
            inside = order[ends[b] : ends[b + 1]]
            h, count = sum(hits[i] for i in inside), len(inside)
            alpha = 2 / size * (edges[b] + edges[b + 1]) / 2
            beta = 2 / size - alpha
            log_score += math.lgamma(2 / size) - math.lgamma(count + 2 / size)
            log_score += math.lgamma(h + alpha) - math.lgamma(alpha) + math.lgamma(count - h + beta) - math.lgamma(beta)
            if edges[b] < score <= edges[b + 1]:
                value = (h + alpha) / (count + 2 / size)
        models.append((log_score, value))
    best = max(s for s, _ in models)
    return math.fsum(math.exp(s - best) * v for s, v in models) / math.fsum(math.exp(s - best) for s, _ in models)


def sb_ece(confidence: Vector, correct: Sequence[int], bins: int, softness: float, order: float) -> float:
    """Karandikar et al. 2021, eq. 8 to 11, term by term."""
    centres = [(j + 0.5) / bins for j in range(bins)]
    shares = [softmax([-((c - xi) ** 2) for xi in centres], softness) for c in confidence]
    total = 0.0
    for j in range(bins):
        size = math.fsum(u[j] for u in shares)
        a = math.fsum(u[j] * x for u, x in zip(shares, correct, strict=True)) / size
        c = math.fsum(u[j] * x for u, x in zip(shares, confidence, strict=True)) / size
        total += size / len(confidence) * abs(a - c) ** order
    return float(total ** (1 / order))


def sb_ece_label(confidence: Vector, correct: Sequence[int], bins: int, softness: float, order: float) -> float:
    """Karandikar et al. 2021, eq. 12, term by term."""
    centres = [(j + 0.5) / bins for j in range(bins)]
    shares = [softmax([-((c - xi) ** 2) for xi in centres], softness) for c in confidence]
    total = 0.0
    for j in range(bins):
        a = math.fsum(u[j] * x for u, x in zip(shares, correct, strict=True)) / math.fsum(u[j] for u in shares)
        total += math.fsum(u[j] * abs(a - c) ** order for u, c in zip(shares, confidence, strict=True))
    return float((total / len(confidence)) ** (1 / order))


def ensemble_loss(rows: Rows, labels: Sequence[int], temperature: float, weights: Vector, objective: str) -> float:
    """NLL or Brier score of w_1 softmax(z / T) + w_2 softmax(z) + w_3 / C."""
    total = []
    for row, label in zip(rows, labels, strict=True):
        members = zip(softmax(row, temperature), softmax(row, 1.0), strict=True)
        p = [weights[0] * a + weights[1] * b + weights[2] / len(row) for a, b in members]
        brier = math.fsum((q - (k == label)) ** 2 for k, q in enumerate(p))
        total.append(-math.log(p[label]) if objective == "nll" else brier)
    return math.fsum(total) / len(labels)


def logits_of(rows: Sequence[Sequence[float]], precision: float) -> list[list[float]]:
    """ln p; a 0 counts as the precision, or as the smallest other probability of its row if that is smaller."""
    return [[math.log(p if p > 0 else min(precision, *(q for q in row if q > 0))) for p in row] for row in rows]


def quadratic_of(calibrator: Quadratic, k: int) -> tuple[float, float, float]:
    """(a, b, c) of class k's curve a s^2 + b s + c between the ends of its fit, from its slopes there."""
    tree = calibrator.to_json()
    low, high, at_low, at_high, offset = (float(tree[f"{name}_C"][k]) for name in QUADRATIC)
    a = (at_high - at_low) / (2 * (high - low))
    b = at_low - 2 * a * low
    return a, b, offset - a * low * low - b * low


def venn_abers(scores: Vector, hits: Sequence[int], score: float, label: int) -> Fraction:
    """The isotonic regression of all rows and one more of this score and label, read at that score."""
    return isotonic([*scores, score], [*hits, label])[score]


def top_curve(score: float, knots: Vector, slopes: Vector, height: float) -> float:
    """g at a log-odds: from the first knot on, or back, piece by piece."""
    if score <= knots[0]:
        return height + slopes[0] * (score - knots[0])
    total = height
    for low, high, slope in zip(knots, [*knots[1:], math.inf], slopes[1:], strict=True):
        total += slope * max(min(score, high) - low, 0.0)
    return total


def top_curve_loss(scores: Vector, hits: Sequence[int], knots: Vector, slopes: Vector, height: float) -> float:
    """Mean logistic loss of the curve, and the pull of one row on each slope to 1 and on the height to the knot."""
    total = []
    for score, hit in zip(scores, hits, strict=True):
        odds = top_curve(score, knots, slopes, height)
        total.append(math.log1p(math.exp(-abs(odds))) + max(-odds if hit else odds, 0.0))
    pull = math.fsum((slope - 1) ** 2 for slope in slopes) + (height - knots[0]) ** 2
    return (math.fsum(total) + pull) / len(hits)


def grouped_nll(
    rows: Rows,
    labels: Sequence[int],
    groups: Sequence[str | None],
    log_temperature: float,
    deviations: dict[str, float],
    errors: float,
    spread: float,
) -> float:
    """Sum of `shrunk_nll` over the rows, each at its group's ln T + d_g, plus sum_g d_g^2 / (2 spread^2)."""
    pairs = list(zip(rows, labels, groups, strict=True))
    expected = math.fsum(1 - max(softmax(row, 1.0)) for row in rows)
    wrong = sum(list(row).index(max(row)) != label for row, label, _ in pairs)
    weight = errors / max(expected, wrong, 1e-6)
    total = []
    for row, label, group in pairs:
        temperature = math.exp(log_temperature + (deviations[group] if group is not None else 0.0))
        eta = [z / temperature for z in row]
        whole = max(eta) + math.log(math.fsum(math.exp(e - max(eta)) for e in eta))
        total.append(whole - eta[label])
        total.append(weight * math.fsum(q * (whole - e) for q, e in zip(softmax(row, 1.0), eta, strict=True)))
    return math.fsum(total) + math.fsum(d * d for d in deviations.values()) / (2 * spread**2)
