"""Live coverage of conformal sets, in numbers and in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from service.alarm.coverage import CoverageState, RuleEvidence, WeightedCounts
from service.http.parameters import moment_of
from trueodds.calibrators.conformal import SetRule
from trueodds.metrics import binomial_interval, risk_sequence
from trueodds.reports.schemas.sets import CoverageAlarm, LevelCoverage, SetCoverage, SetGroup
from trueodds.texts import plural

LEVEL = 0.95
OTHER = "(other)"
UNTAGGED = "(no tag)"


def set_coverage(
    state: CoverageState, classes: Sequence[str], *, is_chosen: bool = False, has_corrections: bool = False
) -> SetCoverage:
    """Return the report's part about conformal sets.

    Args:
        state: Evidence about the sets.
        classes: Names of the classes.
        is_chosen: Whether the labelled answers differ from all answers in their confidence.
        has_corrections: Whether labels of the version were replaced after they had counted.
    """
    rows = zip(state.rules, state.evidence, strict=True)
    levels = [_level(state, rule, one, classes, is_chosen, has_corrections) for rule, one in rows]
    return SetCoverage(levels=levels, left_out=state.left_out)


def _level(
    state: CoverageState,
    rule: SetRule,
    one: RuleEvidence,
    classes: Sequence[str],
    is_chosen: bool,
    has_corrections: bool,
) -> LevelCoverage:
    """Return the part of one level."""
    live, weighted = one.live, state.taken > 0 and state.with_propensity == state.taken
    refused = (state.is_mixed and not weighted) or (is_chosen and not weighted)
    coverage = lower = upper = None
    if live.labels and weighted:
        coverage, lower, upper = weighted_interval(one.weighted)
    elif live.labels and not refused:
        sequence = risk_sequence(live.labels - live.hits, live.labels, level=LEVEL)
        coverage, lower, upper = 1 - sequence.risk, 1 - sequence.upper, 1 - sequence.lower
    tags = [(name or UNTAGGED, pair) for name, pair in live.tags.items()]
    tags += [(OTHER, live.other_tags)] if live.other_tags[0] else []
    part = LevelCoverage(
        level=rule.level,
        method=rule.method,
        calibration_rows=rule.calibration_rows,
        floor=min(rule.floors),
        labels=live.labels,
        hits=live.hits,
        coverage=coverage,
        how="refused" if refused else "propensity" if weighted else "plain",
        lower=lower,
        upper=upper,
        confidence=LEVEL,
        mean_size=sum(size * n for size, (n, _) in live.sizes.items()) / live.labels if live.labels else None,
        sizes=_groups((str(size), live.sizes[size]) for size in sorted(live.sizes)),
        classes=_groups((classes[k], live.classes[k]) for k in sorted(live.classes)),
        tags=_groups(tags),
        alarm=_alarm(state, rule, one),
        reading="",
    )
    return part.model_copy(update={"reading": _reading(part, is_chosen, has_corrections)})


def _groups(rows: Iterable[tuple[str, tuple[int, int]]]) -> list[SetGroup]:
    groups = []
    for name, (labels, covered) in rows:
        lower, upper = binomial_interval(covered, labels, level=LEVEL)
        limits = {"lower": float(lower), "upper": float(upper)}
        groups.append(SetGroup(name=name, labels=labels, hits=covered, coverage=covered / labels, **limits))
    return groups


def weighted_interval(counts: WeightedCounts) -> tuple[float, float, float]:
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
    lower, upper = binomial_interval(c * n, n, level=LEVEL)
    return c, float(lower), float(upper)


def _alarm(state: CoverageState, rule: SetRule, one: RuleEvidence) -> CoverageAlarm:
    fired = one.fired
    name = "fired" if fired else "refused" if state.is_mixed else "quiet"
    below = f"below {min(rule.floors):.4f}" if len(rule.floors) == 1 else "below the floor of its class"
    return CoverageAlarm.model_validate(
        {
            "state": name,
            "statement": f"At some time, the coverage of the sets of level {rule.level:.6g} was {below}.",
            "floor": min(rule.floors),
            "threshold": 1 / state.alpha_of_each,
            "labels": one.process.labels,
            "log_e": one.process.log_e,
            "p_value": one.process.p_value,
            "fired_at": None if fired is None else moment_of(fired.at_ms),
            "fired_after": None if fired is None else fired.after,
        }
    )


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
    how = "however often you look"
    if part.how == "propensity":
        how = "for one look, each label weighted by its propensity"
    return (
        f"{counts}. The coverage is {part.coverage:.2%}, with {part.confidence:.0%} confidence between"
        f" {part.lower:.2%} and {part.upper:.2%}, {how}. {_floor_words(part)}"
    )


def _floor_words(part: LevelCoverage) -> str:
    if not part.calibration_rows:
        return (
            "The number of calibration rows is not known, so the alarm fires if the coverage is below the level. Sound"
            " sets of few calibration rows can be below it, too."
        )
    return (
        f"Sound sets from {part.calibration_rows:,} calibration rows cover at least {part.floor:.2%} in 95% of"
        " calibrations."
    )


def _alarm_words(part: LevelCoverage, is_chosen: bool) -> str:
    alarm = part.alarm
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


def _size_words(part: LevelCoverage) -> str:
    if part.mean_size is None:
        return ""
    empty = next((group.labels for group in part.sizes if group.name == "0"), 0)
    of_empty = f" {plural(empty, 'set')} had no class, which is a miss." if empty else ""
    return f"A set has {part.mean_size:.2f} classes on average.{of_empty}"
