"""Wording of calibration in the large of p(positive): expected / observed positives, and how many more are needed."""

from __future__ import annotations

import math

from trueodds.reports.schemas import PositiveFigures
from trueodds.texts import plural


def ratio_holds(positive: PositiveFigures, most: float) -> bool:
    """Return whether the whole interval of expected / observed lies between 1 / `most` and `most`."""
    lower, upper = positive.ratio_lower, positive.ratio_upper
    return lower is not None and upper is not None and 1 / most <= lower and upper <= most


def ratio_words(positive: PositiveFigures) -> str:
    """Describe expected / observed with its interval.

    The result is like "expected / observed is 3.6 (interval 2.1 to 6.6)".
    """
    if positive.ratio_lower is None or positive.expected is None:
        return ""
    if not positive.expected and not positive.observed:
        return f"no {positive.label} was expected, and none was observed"
    if positive.ratio is None or positive.ratio_upper is None:
        return (
            f"none is {positive.label} where {figure(positive.expected)} were expected (expected / observed is"
            f" {figure(positive.ratio_lower)} or more)"
        )
    limits = f"{figure(positive.ratio_lower)} to {figure(positive.ratio_upper)}"
    return f"expected / observed is {figure(positive.ratio)} (interval {limits})"


def allowed_range(most: float) -> str:
    """Describe the allowed range.

    >>> allowed_range(1.2)
    'between 0.83 and 1.2'
    """
    return f"between {figure(1 / most)} and {most:g}"


def not_yet_known(positive: PositiveFigures, most: float) -> str:
    """Explain that the ratio is not known yet and how many positives are missing; "" if the ratio is not the reason."""
    if ratio_holds(positive, most):
        return ""
    known = f"it is not known yet whether expected / observed is {allowed_range(most)}"
    if positive.positives_to_come is None:
        return f"{known}; more labels will show it"
    labels = "" if positive.labels_to_come is None else f", about {plural(round_up(positive.labels_to_come), 'label')}"
    return f"{known}: this needs about {round_up(positive.positives_to_come):,} more {positive.label}{labels}"


def round_up(count: int) -> int:
    """Round up to two significant digits.

    >>> round_up(323)
    330
    """
    unit = int(10 ** max(math.floor(math.log10(max(count, 1))) - 1, 0))
    return -(-count // unit) * unit


def figure(value: float) -> str:
    """Format a number with two significant digits, three between 0.5 and 2, and at least its integer digits.

    >>> figure(0.833), figure(1.23), figure(2), figure(12345)
    ('0.83', '1.23', '2.0', '12,345')
    """
    if 0.5 <= value < 2:
        return f"{value:.2f}"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
