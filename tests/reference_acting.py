"""Slow twins of `trueodds.threshold`: exact fractions and loops, and MAPIE's published algorithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

Row = tuple[float, bool]
"""Confidence, and whether the answer is right."""


def binomial_tail(wrong: int, n: int, risk: Fraction) -> Fraction:
    """P(Bin(n, risk) <= wrong)"""
    return sum((math.comb(n, k) * risk**k * (1 - risk) ** (n - k) for k in range(wrong + 1)), Fraction(0))


def hoeffding_bentkus(loss: Fraction, n: int, risk: Fraction) -> float:
    """The p-value of Learn then Test, section 3.2, of a sum of losses in [0, 1]."""
    mean = float(min(loss / n, risk))
    r = float(risk)
    terms = [a * math.log(a / b) if a else 0.0 for a, b in ((mean, r), (1 - mean, 1 - r))]
    bentkus = math.e * float(binomial_tail(math.ceil(loss), n, risk))
    return min(math.exp(-n * sum(terms)), bentkus)


def first_acted(rows: Sequence[Row], risk: Fraction, alpha: Fraction) -> int:
    """How many answers the first threshold lets act, by the rule in the docstring of `trueodds.threshold`."""
    c = sorted((row[0] for row in rows), reverse=True)
    n, slope = len(c), min(2 * float(risk), 4 * sum(1 - x for x in c) / len(c))
    guesses = [min(2 * (1 - x) + 0.2 * float(risk) + slope * (r + 1) / n, 1.0) for r, x in enumerate(c)]
    best, chosen = -1.0, 0
    for wrong in range(n):
        acted = next((k for k in range(wrong + 1, n + 1) if binomial_tail(wrong, k, risk) <= alpha), None)
        if acted is None:
            break
        mean = Fraction(sum(guesses[:acted]) / acted)
        passes = float(binomial_tail(wrong, acted, mean))
        if passes >= 0.99:
            return acted
        if passes > best:
            best, chosen = passes, acted
    return chosen


def threshold(rows: Sequence[Row], risk: Fraction, alpha: Fraction) -> float | None:
    """The lowest confidence that the fixed sequence certifies; None: it certifies none."""
    start = first_acted(rows, risk, alpha)
    found = None
    for at in sorted({c for c, _ in rows}, reverse=True):
        acted = [right for c, right in rows if c >= at]
        if not start or len(acted) < start:
            continue
        if binomial_tail(sum(not right for right in acted), len(acted), risk) > alpha:
            break
        found = at
    return found


def mapie(rows: Sequence[Row], risk: Fraction, alpha: Fraction, grid: Sequence[float]) -> float | None:
    """MAPIE's BinaryClassificationController on the precision of acting, fixed sequence, over a falling grid."""
    found = None
    for at in grid:
        acted = [right for c, right in rows if c >= at]
        if not acted or binomial_tail(sum(not right for right in acted), len(acted), risk) > alpha:
            break
        found = at
    return found
