"""Chooses settings by the validation rows alone, on means over seeds: by a rule, or by sequential tuning with one.

Tuning chooses one hyper-parameter after another, as in Karandikar et al. 2021, appendix E.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.studies.format import CALIBRATOR, VALIDATION, ChoiceRule, Leaves, Study, StudyError, TuningStep
from pipeline.studies.measuring import SEED, Row, Setting, is_plug_in, name_of
from pipeline.studies.runs import Run
from trueodds.texts import plural

ACCURACY = f"{VALIDATION}accuracy"
Measure = Callable[[Sequence[Run]], list[Row | None]]
"""Function that carries out missing runs and returns each run's row with the rule's calibrator, None if it failed."""


@dataclass(frozen=True)
class ChosenSettings:
    """Settings that a rule chose, and the reason in words."""

    settings: tuple[Setting, ...]
    words: str


def choose(rule: ChoiceRule, settings: Sequence[Setting]) -> list[ChosenSettings]:
    """Choose among the settings with the rule's calibrator, once for each value of `each`.

    The first of equal settings is taken. A setting without a value in one of the rule's columns is not considered. If
    no setting has values, nothing is chosen.
    """
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        if setting.rows[0][CALIBRATOR] == rule.calibrator:
            key = json.dumps([setting.rows[0].get(leaf) for leaf in rule.each], default=str)
            groups.setdefault(key, []).append(setting)
    return [chosen for group in groups.values() if (chosen := _of_group(rule, group)) is not None]


def _of_group(rule: ChoiceRule, settings: Sequence[Setting]) -> ChosenSettings | None:
    """Apply the rule to one group of settings."""
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
        of += f", of which {len(within)} are that close"
    if rule.least is not None:
        least = rule.least
        found = min(within, key=lambda one: _value(one, least))
        return ChosenSettings((found,), f"lowest {least}{words}, {of}: {found.name}{_caveat(wanted)}")
    front = tuple(one for one in within if not any(_beats(other, one, rule.pareto) for other in within))
    names = "; ".join(one.name for one in front)
    return ChosenSettings(front, f"Pareto front of {' and '.join(rule.pareto)}{words}, {of}: {names}{_caveat(wanted)}")


def _caveat(columns: Sequence[str]) -> str:
    """Return a warning if a rule uses plug-in estimates."""
    estimates = " and ".join(column for column in columns if is_plug_in(column))
    if not estimates:
        return ""
    return f". {estimates} is a plug-in estimate: this is no evidence that other settings are calibrated worse"


def _value(setting: Setting, column: str) -> float:
    """Return the mean of a column that is known to have values."""
    value = setting.mean(column)
    assert value is not None
    return value


def _beats(other: Setting, one: Setting, columns: Sequence[str]) -> bool:
    """Return whether `other` is worse in no column and better in at least one. Lower is better."""
    theirs, ours = ([_value(setting, column) for column in columns] for setting in (other, one))
    return all(a <= b for a, b in zip(theirs, ours, strict=True)) and theirs != ours


def trials(study: Study, runs: Sequence[Run], params: Path) -> list[Run]:
    """List every value of each setting and step as a run: the largest number of runs that tuning can need.

    Raises:
        ConfigError: A value is not valid in params.yaml.
    """
    if study.tune is None:
        return []
    return [
        run.with_leaves({SEED: study.tune.seed, step.leaf: value}, {step.leaf: value}, params)
        for run, *_ in _by_setting(runs).values()
        for step in study.tune.steps
        if _concerns(step, run)
        for value in step.values
    ]


def tune(study: Study, runs: Sequence[Run], params: Path, measure: Measure, say: Callable[[str], None]) -> list[Run]:
    """Tune the settings of a study's runs.

    All settings take a step together, so that their runs can be carried out in parallel.

    Args:
        study: The study with its rule and steps.
        runs: The runs whose settings are tuned.
        params: The file params.yaml.
        measure: Carries out and measures runs.
        say: Receives one line per choice.

    Returns:
        The runs with the chosen values.

    Raises:
        StudyError: Every value of a step failed for a setting.
        ConfigError: A value is not valid in params.yaml.
    """
    if study.tune is None:
        return list(runs)
    assert study.choose is not None
    of_settings = _by_setting(runs)
    chosen: dict[str, Leaves] = {key: {} for key in of_settings}
    for step in study.tune.steps:
        tries = [(key, value) for key, of in of_settings.items() if _concerns(step, of[0]) for value in step.values]
        candidates = [
            of_settings[key][0].with_leaves(
                {SEED: study.tune.seed, **chosen[key], step.leaf: value}, {**chosen[key], step.leaf: value}, params
            )
            for key, value in tries
        ]
        rows = measure(candidates)
        for key in dict.fromkeys(key for key, _ in tries):
            values = [(value, row) for (of, value), row in zip(tries, rows, strict=True) if of == key]
            name = _name(of_settings[key][0])
            value, line = _best(study, step, values, name)
            chosen[key] = {**chosen[key], step.leaf: value}
            say(line)
    return [
        run.with_leaves(chosen[_setting(run)], chosen[_setting(run)], params) if chosen[_setting(run)] else run
        for run in runs
    ]


def _best(study: Study, step: TuningStep, trials: Sequence[tuple[Any, Row | None]], name: str) -> tuple[Any, str]:
    """Return the best value of a step for one setting, and a line that explains the choice."""
    assert study.choose is not None
    rule = study.choose.model_copy(update={"each": []})
    settings = [Setting(f"{step.leaf}={value}", (row,)) for value, row in trials if row is not None]
    taken = choose(rule, settings)
    if not taken:
        values = ", ".join(str(value) for value, _ in trials)
        raise StudyError(f"{name}: no run with {step.leaf} = {values} could be measured; read the runs' logs")
    (found,) = taken[0].settings
    value = next(value for value, _ in trials if found.name == f"{step.leaf}={value}")
    column = str(rule.least)
    estimate = ", a plug-in estimate," if is_plug_in(column) else ""
    said = ", ".join(
        f"{value}: {'failed' if row is None or row.get(column) is None else format(row[column], '.4f')}"
        for value, row in trials
    )
    return value, f"tuned {name}: {step.leaf} = {value} ({column}{estimate} {said})"


def _concerns(step: TuningStep, run: Run) -> bool:
    """Return whether a step applies to a run."""
    return all(run.overrides.get(leaf) in values for leaf, values in step.where.items())


def _by_setting(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs by setting."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_setting(run), []).append(run)
    return found


def _setting(run: Run) -> str:
    """Return the key of a run's setting: its axis values without the seed."""
    return json.dumps(
        {leaf: value for leaf, value in run.axis_leaves.items() if leaf != SEED}, sort_keys=True, default=str
    )


def _name(run: Run) -> str:
    """Return the name of a run's setting."""
    return name_of({**run.axis_leaves, CALIBRATOR: ""}, [leaf for leaf in run.axis_leaves if leaf != SEED])
