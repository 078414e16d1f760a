"""Sequential tuning: one hyper-parameter after another by validation rows, as in Karandikar et al. 2021, E."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline.studies import chance, choice
from pipeline.studies.choice import SEED, Row, Setting
from pipeline.studies.expansion import Run
from pipeline.studies.format import CALIBRATOR, Leaves, Step, Study, StudyError

Measure = Callable[[Sequence[Run]], list[Row | None]]
"""Runs what is not done yet; of each run its row with the rule's calibrator, None where it failed."""


def tried(study: Study, runs: Sequence[Run], params: Path) -> list[Run]:
    """Of each setting and step every value by itself: as many runs as tuning makes at most, before those of the study.

    Raises:
        ConfigError: a value that params.yaml refuses.
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


def tuned(study: Study, runs: Sequence[Run], params: Path, measure: Measure, say: Callable[[str], None]) -> list[Run]:
    """The runs of a study with what tuning chose for their settings; each choice is said as a line.

    All settings take a step together, so that their runs may be made side by side.

    Raises:
        StudyError: every value of a step failed for a setting.
        ConfigError: a value that params.yaml refuses.
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


def _best(study: Study, step: Step, tried: Sequence[tuple[Any, Row | None]], name: str) -> tuple[Any, str]:
    assert study.choose is not None
    rule = study.choose.model_copy(update={"each": []})
    settings = [Setting(f"{step.leaf}={value}", (row,)) for value, row in tried if row is not None]
    taken = choice.choose(rule, settings)
    if not taken:
        values = ", ".join(str(value) for value, _ in tried)
        raise StudyError(f"{name}: no run with {step.leaf} = {values} was measured, so none can be chosen; see its log")
    (found,) = taken[0].settings
    value = next(value for value, _ in tried if found.name == f"{step.leaf}={value}")
    column = str(rule.least)
    estimate = ", a plug-in estimate," if chance.is_plug_in(column) else ""
    said = ", ".join(
        f"{value}: {'failed' if row is None or row.get(column) is None else format(row[column], '.4f')}"
        for value, row in tried
    )
    return value, f"tuned {name}: {step.leaf} = {value} ({column}{estimate} {said})"


def _concerns(step: Step, run: Run) -> bool:
    return all(run.overrides.get(leaf) in values for leaf, values in step.where.items())


def _by_setting(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_setting(run), []).append(run)
    return found


def _setting(run: Run) -> str:
    return json.dumps({leaf: value for leaf, value in run.varied.items() if leaf != SEED}, sort_keys=True, default=str)


def _name(run: Run) -> str:
    return choice.name_of({**run.varied, CALIBRATOR: ""}, [leaf for leaf in run.varied if leaf != SEED])
