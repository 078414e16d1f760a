"""Live coverage of the conformal sets of a version, from its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from service.alarm.coverage import CoverageState, RuleEvidence
from service.http.parameters import moment_of
from trueodds.calibrators.conformal import SetRule
from trueodds.reports.schemas.sets import CoverageAlarm, LevelCoverage, SetCoverage
from trueodds.reports.verdict.set_coverage import level_coverage


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
    how: Literal["plain", "propensity", "refused"] = "refused" if state.is_mixed or is_chosen else "plain"
    if state.taken > 0 and state.with_propensity == state.taken:
        how = "propensity"
    return level_coverage(
        rule,
        one.live,
        one.weighted,
        classes,
        how,
        is_chosen=is_chosen,
        alarm=_alarm(state, rule, one),
        has_corrections=has_corrections,
    )


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
