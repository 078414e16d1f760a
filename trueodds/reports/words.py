"""Formats of numbers, shares and times in a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from trueodds.reports.schemas import Unit
from trueodds.texts import plural

MINUS, DASH = "−", "–"
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
SURE_TO_SAY = 1e-4
"""p-value below which only a bound is printed."""


def level(value: float) -> str:
    """Format a confidence level.

    >>> level(0.95), level(0.999)
    ('95%', '99.9%')
    """
    return f"{100 * value:.6g}%"


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share in percent, or a dash.

    >>> percent(0.834)
    '83.4%'
    """
    return DASH if value is None else f"{100 * value:.{digits}f}%"


def decimal(value: Any, digits: int = 3) -> str:
    """Format a number with three decimals; a dash if it is not a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:.{digits}f}".replace("-", MINUS) if is_number else DASH


def signed_points(value: float | None, unit: str = " points", digits: int = 1) -> str:
    """Format a share in points with its sign, a true minus sign. A value that rounds to 0 has no sign.

    >>> signed_points(-0.07)
    '−7.0 points'
    """
    if value is None:
        return DASH
    text = f"{abs(100 * value):.{digits}f}"
    sign = "" if float(text) == 0 else MINUS if value < 0 else "+"
    return f"{sign}{text}{unit}"


def span(lower: float | None, upper: float | None, how: str = "decimal", digits: int | None = None) -> str:
    """Format an interval. `how` is "decimal" (3 digits by default), "percent" or "signed" (1 digit).

    An upper limit of None is no limit.

    >>> span(0.02, 0.05)
    '0.020 – 0.050'
    >>> span(0.02, None)
    '0.020 or more'
    """
    if lower is None:
        return DASH
    digits = digits or (3 if how == "decimal" else 1)
    if upper is None:
        return f"{decimal(lower, digits)} or more" if how == "decimal" else DASH
    if how == "signed":
        return f"{signed_points(lower, '', digits)} to {signed_points(upper, '', digits)}"
    low, high = (percent(value, digits) if how == "percent" else decimal(value, digits) for value in (lower, upper))
    return f"{low} {DASH} {high}"


def unseen(nats: float | None) -> str:
    """Describe what the limits of the NLL leave out: the cost of one wrong answer at the highest confidence."""
    if nats is None:
        return ""
    return f"not included: a wrong answer at the highest confidence, not seen so far, would cost {nats:.1f} nats"


def digits_of(edges: Iterable[float]) -> int:
    """Return the number of digits at which the ends of ranges in percent differ: usually 1, at most 4."""
    different = sorted(set(edges))
    for digits in range(1, 4):
        if len({f"{100 * edge:.{digits}f}" for edge in different}) == len(different):
            return digits
    return 4


def digits_of_rare(*shares: float | None) -> int:
    """Return the digits that show two figures of the smallest share above 0 in percent: usually 1, at most 4.

    >>> digits_of_rare(0.0056, 0.3)
    2
    """
    smallest = min((share for share in shares if share), default=1.0)
    return min(max(-math.floor(math.log10(smallest)) - 1, 1), 4)


def whole_percent(share: float) -> str:
    """Format a share in whole percent, but never 100% or 0% for a share that is not exactly that."""
    digits = 1 if 0 < share < 0.01 or 0.99 < share < 1 else 0
    text = f"{100 * share:.{digits}f}%"
    return {"100.0%": "over 99.9%", "0.0%": "under 0.1%"}.get(text, text)


def told_apart(*shares: float) -> list[str]:
    """Format shares in percent with as few digits as keep them different, and never with a rounded 0% or 100%."""
    for digits in range(4):
        texts = [f"{100 * share:.{digits}f}%" for share in shares]
        ends = {f"{end:.{digits}f}%": end / 100 for end in (0, 100)}
        if len(set(texts)) == len(texts) and all(ends.get(t, s) == s for t, s in zip(texts, shares, strict=True)):
            break
    return texts


def labelled(count: int, answers: int) -> str:
    """Describe how many answers have a label.

    >>> labelled(3, 10), labelled(1, 10)
    ('3 of 10 answers have labels', '1 of 10 answers has a label')
    """
    return f"{count:,} of {plural(answers, 'answer')} {'has a label' if count == 1 else 'have labels'}"


def shares(*values: float) -> list[str]:
    """Format shares in percent with two figures, or more if they would look equal.

    >>> shares(0.02, 0.0056)
    ['2.0%', '0.56%']
    """
    texts = []
    for value in values:
        digits = 0 if value >= 0.1 or not value else min(max(-math.floor(math.log10(value)) - 1, 0), 4)
        texts.append(f"{100 * value:.{digits}f}%")
    rounded_to_1 = any(text == "100%" and value < 1 for text, value in zip(texts, values, strict=True))
    return told_apart(*values) if rounded_to_1 or len(set(texts)) < len(set(values)) else texts


def count(value: int) -> str:
    """Format a count.

    >>> count(12345)
    '12,345'
    """
    return f"{value:,}"


def p_value(value: float) -> str:
    """Format a p-value.

    >>> p_value(0.03), p_value(1e-9)
    ('p = 0.03', 'p < 0.0001')
    """
    return f"p = {value:.2g}" if value >= SURE_TO_SAY else f"p < {SURE_TO_SAY:g}"


def chance(log_e: float) -> str:
    """Return the largest probability of evidence of e^log_e or more within the tolerance, by Markov's inequality.

    >>> chance(3)
    '1 in 20'
    """
    if log_e <= 0:
        return "none"
    if log_e > math.log(1e9):
        return f"1 in 10{str(int(log_e / math.log(10))).translate(RAISED)}"
    value = math.exp(log_e)
    digits = max(0, int(math.log10(value)) - 1)
    return f"1 in {round(value, -digits):,.0f}" if value >= 10 else f"1 in {value:.2g}"


def moment(time: datetime) -> str:
    """Format a time.

    >>> moment(datetime(2026, 3, 3, 14, 5))
    '3 Mar 2026, 14:05'
    """
    return f"{time.day} {time:%b %Y, %H:%M}"


def period(start: datetime, unit: Unit) -> str:
    """Format the minute, hour, day or month that begins at `start`."""
    if unit == "month":
        return f"{start:%b %Y}"
    return f"{start.day} {start:%b %Y}" if unit == "day" else f"{start.day} {start:%b, %H:%M}"


FILTERS = {
    "digits_of": digits_of,
    "level": level,
    "unseen": unseen,
    "percent": percent,
    "decimal": decimal,
    "signed": signed_points,
    "count": count,
    "plural": plural,
    "p_value": p_value,
    "chance": chance,
    "moment": moment,
    "period": period,
}


def align(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Format rows of equal length as lines with columns. `sides` has < or > for each column.

    >>> align([("cat", "7"), ("hippo", "12")], "<>")
    ['cat     7', 'hippo  12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    forms = [f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True)]
    return ["  ".join(form.format(cell) for form, cell in zip(forms, row, strict=True)).rstrip() for row in rows]
