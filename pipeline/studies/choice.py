"""Rules of choice over a study's table: by validation rows alone, seeds taken together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pipeline.studies import chance
from pipeline.studies.format import CALIBRATOR, VALIDATION, Choice, Study
from trueodds.texts import plural

SEED = "seed"
ACCURACY = f"{VALIDATION}accuracy"
Row = Mapping[str, Any]
"""Of `measuring.rows_of`."""


@dataclass(frozen=True)
class Setting:
    """Rows that differ in their seed alone."""

    name: str
    rows: tuple[Row, ...]

    def mean(self, column: str) -> float | None:
        """Over its seeds; None where one of them has no value."""
        values = [row[column] for row in self.rows if row.get(column) is not None]
        return fmean(values) if len(values) == len(self.rows) else None


@dataclass(frozen=True)
class Chosen:
    """Settings that a rule takes, of so many, and why."""

    settings: tuple[Setting, ...]
    words: str


def settings_of(study: Study, table: Sequence[Row]) -> list[Setting]:
    """In the order of the first row of each."""
    found: dict[str, list[Row]] = {}
    leaves = leaves_of(study)
    for row in table:
        key = json.dumps([[leaf, row.get(leaf)] for leaf in leaves] + [row[CALIBRATOR]], default=str)
        found.setdefault(key, []).append(row)
    return [Setting(name_of(rows[0], leaves), tuple(rows)) for rows in found.values()]


def leaves_of(study: Study) -> list[str]:
    """What the settings of a study differ in, without the seed."""
    leaves = [*(leaf for axis in study.axes for leaf in axis), *(leaf for run in study.runs for leaf in run)]
    return [leaf for leaf in dict.fromkeys(leaves) if leaf != SEED]


def name_of(row: Row, leaves: Sequence[str]) -> str:
    """`method=ce net=resnet8`"""
    return " ".join(f"{leaf}={row[leaf]}" for leaf in leaves if row.get(leaf) is not None) or "the one setting"


def choose(rule: Choice, settings: Sequence[Setting]) -> list[Chosen]:
    """What the rule takes of the settings with its calibrator, once for each value of `each`; a setting without a value
    in one of its columns is not taken, and none is where no setting has one. Of equals the first.
    """
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        if setting.rows[0][CALIBRATOR] == rule.calibrator:
            key = json.dumps([setting.rows[0].get(leaf) for leaf in rule.each], default=str)
            groups.setdefault(key, []).append(setting)
    return [chosen for group in groups.values() if (chosen := _of_group(rule, group)) is not None]


def _of_group(rule: Choice, settings: Sequence[Setting]) -> Chosen | None:
    wanted = [rule.least] if rule.least else rule.pareto
    measured = [one for one in settings if None not in [one.mean(column) for column in (*wanted, ACCURACY)]]
    if not measured:
        return None
    best = max(_value(one, ACCURACY) for one in measured)
    within = [one for one in measured if rule.within is None or _value(one, ACCURACY) >= best - rule.within]
    words = (
        "" if rule.within is None else f" within {100 * rule.within:g} points of the best accuracy ({100 * best:.2f}%)"
    )
    of = f"of {plural(len(settings), 'setting')}"
    if rule.within is not None:
        of += f", {len(within)} of them so near"
    if rule.least is not None:
        least = rule.least
        found = min(within, key=lambda one: _value(one, least))
        return Chosen((found,), f"least {least}{words}, {of}: {found.name}{_caveat(wanted)}")
    front = tuple(one for one in within if not any(_beats(other, one, rule.pareto) for other in within))
    names = "; ".join(one.name for one in front)
    return Chosen(front, f"not beaten in {' and '.join(rule.pareto)} at once{words}, {of}: {names}{_caveat(wanted)}")


def _caveat(columns: Sequence[str]) -> str:
    """What is added about a rule that looks at plug-in estimates."""
    estimates = " and ".join(column for column in columns if chance.is_plug_in(column))
    return f". By the plug-in estimate {estimates}: no evidence that others are calibrated worse" if estimates else ""


def _value(setting: Setting, column: str) -> float:
    value = setting.mean(column)
    assert value is not None
    return value


def _beats(other: Setting, one: Setting, columns: Sequence[str]) -> bool:
    """In no column worse, in one better; lower is better."""
    theirs, ours = ([_value(setting, column) for column in columns] for setting in (other, one))
    return all(a <= b for a, b in zip(theirs, ours, strict=True)) and theirs != ours
