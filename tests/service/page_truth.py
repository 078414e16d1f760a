"""Whether what a sentence of the page says is so, by the numbers of the report: for page_claims."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from scipy.stats import binom, binomtest

from trueodds.reports.first_checks import clearness
from trueodds.reports.schemas import PositiveFigures, Report, Slice, TrendPoint
from trueodds.reports.words import period


def shows(text: str, value: float | None) -> bool:
    """Whether a number, as the page words it, is that value, rounded."""
    if value is None:
        return False
    if text.startswith(("over ", "under ")):
        limit = float(text.split()[1].rstrip("%")) / 100
        return limit < value < 1 if text.startswith("over") else 0 < value < limit
    scale = 100 if text.endswith("%") else 1
    word = text.rstrip("%").replace(",", "").replace("−", "-").rstrip(".")
    digits = len(word.partition(".")[2])
    return abs(float(word) - scale * value) <= 0.5 * 10.0**-digits + 1e-6


def all_show(texts: list[str], *values: float | None) -> bool:
    return len(texts) == len(values) and all(map(shows, texts, values))


def lead(report: Report) -> Report | PositiveFigures:
    """The figures that are spoken of: those of p(positive), where there is a positive class."""
    positive = report.positive
    return report if positive is None or positive.ece is None else positive


def in_range_of_positive(report: Report, texts: list[str]) -> bool:
    """As `in_range`, of p(positive)."""
    label, low, high, says, share_, also, count = texts
    positive = report.positive
    if positive is None or {label, also} != {positive.label}:
        return False
    inside = [b for b in positive.bins if b.count and b.lo >= share(low) - 0.006 and b.hi <= share(high) + 0.006]
    n = sum(b.count for b in inside)
    claimed, kept = (sum(b.count * (getattr(b, k) or 0.0) for b in inside) / n for k in ("mean_confidence", "accuracy"))
    wanted = {"too_high": kept < claimed, "too_low": kept > claimed}.get(report.verdict.removeprefix("leans_"), True)
    fits = n == int(count.replace(",", "")) and shows(low, inside[0].lo) and shows(high, inside[-1].hi)
    return fits and wanted and all_show([says, share_], claimed, kept) and says != share_


def of_positive(report: Report, label: str, texts: list[str], *names: str) -> bool:
    """Of the figures of p(positive), which must be spoken of."""
    positive = report.positive
    return (
        positive is not None
        and lead(report) is positive
        and label == positive.label
        and all_show(texts, *(getattr(report if name == "level" else positive, name) for name in names))
    )


def upper(report: Report) -> float:
    """The larger upper limit of both calibration errors."""
    positive = report.positive.ece_upper if report.positive else None
    return max(report.ece_upper or 1.0, positive or 0.0)


def in_range(report: Report, texts: list[str]) -> bool:
    """Of the answers between two confidences: what they say, what is right, how many; and that it bears the"
    " word out."""
    low, high, says, right, count = texts
    inside = [b for b in report.bins if b.count and b.lo >= share(low) - 0.006 and b.hi <= share(high) + 0.006]
    n = sum(b.count for b in inside)
    if n != int(count.replace(",", "")) or not shows(low, inside[0].lo) or not shows(high, inside[-1].hi):
        return False
    claimed, kept = (sum(b.count * (getattr(b, k) or 0.0) for b in inside) / n for k in ("mean_confidence", "accuracy"))
    signs = {"over_confident": (-1,), "under_confident": (1,)}.get(report.verdict.removeprefix("leans_"), (-1, 1))
    return all_show([says, right], claimed, kept) and np.sign(kept - claimed) in signs and says != right


def share(text: str) -> float:
    return float(text.split()[-1].rstrip("%")) / 100


def is_more(report: Report) -> bool:
    figures = lead(report)
    return (figures.ece or 0.0) > (figures.floor_p95 or 0.0)


def refuted(report: Report) -> bool:
    return report.alarm is not None and report.alarm.state != "quiet"


def helps(report: Report, answer: str) -> bool:
    return report.advice is not None and report.advice.helps == answer


def goes(f: Report | PositiveFigures) -> int:
    """The sign of the gap; 0 where less than half of the ECE is of one sign."""
    gap = f.signed_gap or 0.0
    return 0 if abs(gap) < (f.ece or 0.0) / 2 else int(np.sign(gap))


def says_less(r: Report) -> bool:
    """Of the more probable class, as all words of confidence are."""
    return goes(r) == -1


def says_more(r: Report) -> bool:
    return goes(r) == 1


def is_uneven(r: Report) -> bool:
    return goes(r) == 0


def is_of_positive(r: Report, texts: list[str], sign: int) -> bool:
    """Whether the report has p of that class as the one it is about, and its gap that sign."""
    return r.positive is not None and set(texts) == {r.positive.label} and goes(r.positive) == sign


def settled(r: Report) -> bool:
    """Whether evidence that may be looked at again and again speaks against p(positive)."""
    p = r.positive
    gap = p is not None and ((p.signed_gap_lower or 0.0) > 0 or (p.signed_gap_upper or 0.0) < 0)
    return refuted(r) or (gap and r.window.is_everything)


def of_top_label(r: Report, name: str) -> bool:
    """Whether that is the verdict of the more probable class, beside p(positive)."""
    return r.positive is not None and r.top_label_verdict == name


def doubled(r: Report, texts: list[str]) -> bool:
    (s,) = (s for s in r.labelling.sensitivity if s.ratio == 2)
    return all_show(texts, s.accuracy, s.ece)


def crowded(r: Report, texts: list[str]) -> bool:
    cell = r.labelling.crowded
    return cell is not None and cell.refused and all_show(texts, cell.share, cell.lower, cell.upper)


def weighted(r: Report, texts: list[str]) -> bool:
    w = r.labelling.weighted[-1]
    return all_show(texts, w.ece_estimate, w.ece_lower, w.ece_upper, w.accuracy)


def groups(r: Report, texts: list[str]) -> bool:
    """Of so many classes or tags so many are off."""
    known = [row for row in (r.classes if texts[1] == "classes" else r.tags) or [] if row.labelled]
    return (int(texts[0]), int(texts[2])) == (len(known), sum(row.more_than_chance for row in known))


def rows_of(r: Report, name: str) -> list[Slice]:
    """Those with labels, where the report has their table."""
    return [row for row in (r.tags if name == "tags" else r.classes) or [] if row.labelled]


def marked(r: Report, texts: list[str]) -> bool:
    """Of the clearest slice; the numbers can be checked where the report has the table, too."""
    *_, name, first, one, other, labels = texts
    rows = rows_of(r, name)
    if not rows:
        return bool(r.checks)
    off = [row for row in rows if row.more_than_chance]
    (row,) = (row for row in off if row.name == first)
    numbers = (row.accuracy, row.mean_confidence) if one.endswith("%") else (row.ece, row.floor_p95)
    count = {"Both": 2}.get(texts[0]) or int(re.findall(r"\d+", texts[0])[0])
    return (
        len(off) == count and row == max(off, key=clearness) and all_show([one, other, labels], *numbers, row.labelled)
    )


def unmarked(r: Report, texts: list[str]) -> bool:
    return bool(r.checks) and not any(row.more_than_chance for row in rows_of(r, texts[1]))


def surprise(r: Report, texts: list[str]) -> bool:
    a = r.advice
    return a is not None and all_show(texts, a.labels, a.served_log_loss, a.recalibrated_log_loss)


def shown_gain(r: Report, texts: list[str]) -> bool:
    """The lower limit is above 0 where the evidence is enough, and below the gain."""
    a = r.advice
    if a is None or a.served_log_loss is None or a.recalibrated_log_loss is None:
        return False
    lower = float(texts[0])
    return (lower >= 0) == (a.log_e >= np.log(20)) and lower < a.served_log_loss - a.recalibrated_log_loss


def since(r: Report, texts: list[str]) -> bool:
    """The points of the trend before, within and after the moments; the report has its trend."""
    moments, *numbers, unit = texts
    if r.trend is None or r.trend.unit != unit:
        return False
    points = sorted(r.trend.points, key=lambda p: p.start)
    names = [period(p.start, r.trend.unit) for p in points]
    first, *later = (names.index(moment) for moment in moments.split(" to "))
    sides = [points[first : later[0] if later else None], points[:first], *(points[k:] for k in later)]
    claims = [numbers[k : k + 3] for k in range(0, len(numbers), 3)]
    return len(claims) == len(sides) and all(
        all_show([gap, labels], 100 * abs(totals(side)[1]), totals(side)[0])
        and (word == "less") == (totals(side)[1] < 0)
        for (gap, word, labels), side in zip(claims, sides, strict=True)
    )


def totals(points: Sequence[TrendPoint]) -> tuple[int, float]:
    n = sum(p.labelled for p in points)
    return n, sum(p.labelled * ((p.accuracy or 0.0) - (p.mean_confidence or 0.0)) for p in points) / n


def at(r: Report, texts: list[str]) -> bool:
    null = r.alarm.refuted_null if r.alarm else None
    return null is not None and null.fired_at is not None and shows(texts[0], null.fired_after)


def promised(r: Report, texts: list[str]) -> bool:
    """Of so many periods in so many the labelled answers are right as often as calibrated ones would be."""
    known = [p for p in r.trend.points if p.labelled] if r.trend else []
    away = [(p.accuracy or 0.0, p.calibrated_lower or 0.0, p.calibrated_upper or 0.0) for p in known]
    outside = sum(value < low - 1e-9 or value > high + 1e-9 for value, low, high in away)
    return all_show(texts, len(known) - outside, len(known), r.level, *([outside] if outside else []))


def together(r: Report, texts: list[str]) -> bool:
    """What the labelled answers of all periods say, and how many are right."""
    if r.trend is None or r.trend.confirmation is None:
        return False
    points, c = r.trend.points, r.trend.confirmation
    n = sum(p.labelled for p in points)
    says, right = (
        sum(p.labelled * (getattr(p, name) or 0.0) for p in points) / n for name in ("mean_confidence", "accuracy")
    )
    return all_show(texts, says, n, (1 + r.level) / 2, c.lower, c.upper, right)


def contradicts(r: Report) -> bool:
    """All labels together, or too many periods, say otherwise."""
    c = r.trend.confirmation if r.trend else None
    return c is not None and not (c.lower <= c.accuracy <= c.upper and c.p_value >= (1 - r.level) / 2)


def confirms(r: Report, texts: list[str]) -> bool:
    """The exact interval of the gap lies within the tolerance, and nothing contradicts."""
    if (c := r.trend.confirmation if r.trend else None) is None or contradicts(r):
        return False
    low, high = (
        float(end) - c.expected_accuracy
        for end in binomtest(round(c.accuracy * c.labels), c.labels).proportion_ci(r.level, "exact")
    )
    tolerance = float(texts[0]) / 100
    return all_show(texts[1:], 100 * low, 100 * high, r.level) and -tolerance <= low and high <= tolerance


def undecided(r: Report) -> bool:
    """Neither the one nor the other."""
    c = r.trend.confirmation if r.trend else None
    return c is not None and not contradicts(r) and not c.confirmed


def would_show(r: Report, texts: list[str]) -> bool:
    """By the binomial law: gaps as large contradict in 80 of 100 samples, and those below do not."""
    if (c := r.trend.confirmation if r.trend else None) is None:
        return False
    texts = [text for text in texts if text]
    said = dict(zip(texts[1::2], (float(text) / 100 for text in texts[::2] if text), strict=True)) if texts else {}
    shown = c.lower * c.labels > 1e-9, c.upper * c.labels < c.labels - 1e-9
    if set(said) != {way for way, seen in zip(("less", "more"), shown, strict=True) if seen}:
        return False
    k = np.arange(c.labels + 1)
    outside = {"less": k < c.lower * c.labels - 1e-9, "more": k > c.upper * c.labels + 1e-9}
    for way, gap in said.items():
        p = c.expected_accuracy + (gap if way == "more" else -gap)
        power = [float(binom.pmf(k, c.labels, p + step)[outside[way]].sum()) for step in (-0.001, 0.001)]
        if not min(power) <= 0.8 <= max(power):
            return False
    return True
