"""Live coverage of conformal sets, in numbers and in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import scipy

from trueodds.calibrators.conformal import LiveSets, SetRule
from trueodds.calibrators.conformal.live_sets import WeightedCounts
from trueodds.calibrators.conformal.ranks import too_few_words
from trueodds.metrics import binomial_interval, risk_sequence
from trueodds.reports.schemas.sets import CoverageAlarm, LevelCoverage, SetGroup
from trueodds.reports.words import level as percent_of
from trueodds.reports.words import p_value as chance_of
from trueodds.texts import plural

LEVEL = 0.95
"""Confidence level of the limits in a live report."""
OTHER = "(other)"
UNTAGGED = "(no tag)"


def level_coverage(
    rule: SetRule,
    live: LiveSets,
    weighted: WeightedCounts,
    classes: Sequence[str],
    how: Literal["plain", "propensity", "refused"],
    *,
    is_chosen: bool,
    alarm: CoverageAlarm | None = None,
    has_corrections: bool = False,
    confidence: float = LEVEL,
) -> LevelCoverage:
    """Return the part of one level.

    With an alarm, the limits hold however often one looks (`risk_sequence`). Without one they hold for one look: they
    are the exact binomial ones, and `p_value` is P(X <= hits) for X ~ Binomial(labels, floor).

    Args:
        rule: Level and calibration rows of the sets.
        live: Counts of the labelled sets.
        weighted: The same, weighted by 1 / propensity.
        classes: Names of the classes.
        how: What the labels allow: plain figures, weighted ones, or none about all answers.
        is_chosen: Whether the labelled answers differ from all answers in their confidence.
        alarm: The alarm's evidence. None: the labels are looked at once.
        has_corrections: Whether labels were replaced after they had counted.
        confidence: Confidence level of the limits.
    """
    coverage = lower = upper = chance = None
    if live.labels and how == "propensity":
        coverage, lower, upper = weighted_interval(weighted, confidence)
    elif live.labels and how == "plain" and alarm is not None:
        sequence = risk_sequence(live.labels - live.hits, live.labels, level=confidence)
        coverage, lower, upper = 1 - sequence.risk, 1 - sequence.upper, 1 - sequence.lower
    elif live.labels and how == "plain":
        coverage = live.hits / live.labels
        lower, upper = (float(end) for end in binomial_interval(live.hits, live.labels, level=confidence))
        chance = float(scipy.special.bdtr(live.hits, live.labels, min(rule.floors)))
    tags = [(name or UNTAGGED, pair) for name, pair in live.tags.items()]
    tags += [(OTHER, live.other_tags)] if live.other_tags[0] else []
    sizes, of_classes = live.sizes, live.classes
    part = LevelCoverage(
        level=rule.level,
        method=rule.method,
        calibration_rows=rule.calibration_rows,
        floor=min(rule.floors),
        labels=live.labels,
        hits=live.hits,
        coverage=coverage,
        how=how,
        lower=lower,
        upper=upper,
        confidence=confidence,
        p_value=chance,
        mean_size=sum(size * n for size, (n, _) in sizes.items()) / live.labels if live.labels else None,
        sizes=_groups(((str(size), sizes[size]) for size in sorted(sizes)), confidence),
        classes=_groups(((classes[k], of_classes[k]) for k in sorted(of_classes)), confidence),
        tags=_groups(tags, confidence),
        alarm=alarm,
        reading="",
    )
    return part.model_copy(update={"reading": _reading(part, is_chosen, has_corrections)})


def _groups(rows: Iterable[tuple[str, tuple[int, int]]], confidence: float) -> list[SetGroup]:
    groups = []
    for name, (labels, covered) in rows:
        lower, upper = binomial_interval(covered, labels, level=confidence)
        limits = {"lower": float(lower), "upper": float(upper)}
        groups.append(SetGroup(name=name, labels=labels, hits=covered, coverage=covered / labels, **limits))
    return groups


def weighted_interval(counts: WeightedCounts, confidence: float = LEVEL) -> tuple[float, float, float]:
    """Return the weighted coverage, and its interval for one look.

    The coverage is c = sum w covered / sum w (Hajek). Its variance is v = sum w^2 (covered - c)^2 / (sum w)^2. The
    interval is the exact binomial one for the number n of labels with the same variance, n = c (1 - c) / v, or for
    (sum w)^2 / sum w^2 if that is smaller.
    """
    c = min(counts.hits / counts.weight, 1.0)
    missed = counts.squared_weight - counts.squared_hits
    variance = (counts.squared_hits * (1 - c) ** 2 + missed * c**2) / counts.weight**2
    n = counts.weight**2 / counts.squared_weight
    if variance > 0:
        n = min(n, c * (1 - c) / variance)
    lower, upper = binomial_interval(c * n, n, level=confidence)
    return c, float(lower), float(upper)


def _reading(part: LevelCoverage, is_chosen: bool, has_corrections: bool) -> str:
    words = [_coverage_words(part, is_chosen), _alarm_words(part, is_chosen), _size_words(part)]
    if part.labels:
        words.append(
            "The level is a promise for all answers together, not for each class, tag or set size. Those with fewer"
            " labels vary more by chance."
        )
    if has_corrections:
        words.append("Some labels were corrected later. This part uses labels as they first arrived.")
    return " ".join(filter(None, words))


def _coverage_words(part: LevelCoverage, is_chosen: bool) -> str:
    if not part.labels:
        return f"No labels yet, so it is not known how many sets of level {part.level:.6g} hold the true class."
    counts = f"{part.hits:,} of {plural(part.labels, 'labelled set')} of level {part.level:.6g} hold the true class"
    if part.coverage is None or part.lower is None or part.upper is None:
        why = "their labels were chosen by confidence" if is_chosen else "their labels had different, unknown chances"
        return (
            f"{counts}. This says nothing about all answers, because {why}. Send the propensity of every answer, or"
            " label a random sample."
        )
    how = "for one look" if part.alarm is None else "however often you look"
    if part.how == "propensity":
        how = "for one look, each label weighted by its propensity"
    return (
        f"{counts}. The coverage is {part.coverage:.2%}, with {percent_of(part.confidence)} confidence between"
        f" {part.lower:.2%} and {part.upper:.2%}, {how}. {_floor_words(part)}"
    )


def _floor_words(part: LevelCoverage) -> str:
    if not part.calibration_rows:
        what = (
            "the test is of the level itself"
            if part.alarm is None
            else "the alarm fires if the coverage is below the level"
        )
        return (
            f"The number of calibration rows is not known, so {what}. Sound sets of few calibration rows can be below"
            " it, too."
        )
    if few := too_few_words(part.calibration_rows, part.level):
        return few
    return (
        f"Sound sets from {part.calibration_rows:,} calibration rows cover at least {part.floor:.2%} in 95% of"
        " calibrations."
    )


def _alarm_words(part: LevelCoverage, is_chosen: bool) -> str:
    alarm = part.alarm
    if alarm is None:
        return _test_words(part)
    if alarm.state == "refused":
        return "The alarm about the coverage has stopped, because labels had different chances."
    if alarm.state == "quiet" or alarm.fired_at is None or alarm.fired_after is None:
        return ""
    shown = (
        f"ALARM: {alarm.statement} This was shown on {alarm.fired_at:%Y-%m-%d %H:%M} UTC, after"
        f" {plural(alarm.fired_after, 'label')}."
    )
    if is_chosen and part.how == "refused":
        return (
            f"{shown} It is about the labelled answers, which were chosen by confidence, so the choice alone can cause"
            " it. Label a random sample to find out."
        )
    return f"{shown} Do not rely on the sets. Fit them again to rows like today's, and publish a new version."


def _test_words(part: LevelCoverage) -> str:
    """Say what the test at one look has shown."""
    if part.p_value is None or part.p_value >= 1 - part.confidence:
        return ""
    return (
        f"The coverage is below {part.floor:.2%} ({chance_of(part.p_value)} at one look). Do not rely on the sets. Fit"
        " them again to rows like these."
    )


def _size_words(part: LevelCoverage) -> str:
    if part.mean_size is None:
        return ""
    empty = next((group.labels for group in part.sizes if group.name == "0"), 0)
    of_empty = f" {plural(empty, 'set')} had no class, which is a miss." if empty else ""
    return f"A set has {part.mean_size:.2f} classes on average.{of_empty}"
