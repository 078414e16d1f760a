"""Comparison of models by their conformal sets on the same labelled rows: coverage and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.calibrators.conformal import MOST_ROWS, SetRule
from trueodds.calibrators.conformal.ranks import too_few_words
from trueodds.errors import ConfigError, nearest
from trueodds.evaluation.paired_differences import SET_COVERAGE, SET_SIZE, adjust_p_values
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.metrics.significance.differences import of_rows
from trueodds.reports.table.comparison.difference import ComparedDifference
from trueodds.reports.table.set_rows import SetRows
from trueodds.reports.table.table_content import Answers
from trueodds.reports.words import align, decimal, percent
from trueodds.reports.words import p_value as chance
from trueodds.texts import plural, quotes, short

Rows = npt.NDArray[np.intp]
Sets = npt.ArrayLike | Sequence[Sequence[object]]
"""Sets of N rows: a bool array N x C, or a list with the classes of each row."""
MEANING = (
    "Sets of both models should cover the level. Of sets that do, smaller ones tell more. The differences are those of"
    " these thresholds: other calibration rows give others."
)
NO_ROWS = "To test each model's coverage, give the number of rows that chose its thresholds (--set-rows, set_rows)."
FLOOR = (
    "Floor: coverage that sound sets of one threshold reach in 95% of calibrations with so many rows. Test: probability"
    " of this coverage or less if the true one is the floor."
)


@dataclass(frozen=True, kw_only=True)
class ComparedSets:
    """Conformal sets of one model on the compared rows."""

    name: str
    hits: int
    """Number of sets that hold the true class."""
    coverage: float
    lower: float
    """With `upper`: exact binomial interval of the coverage (Clopper-Pearson)."""
    upper: float
    mean_size: float
    """Mean number of classes in a set."""
    empty: int
    """Number of sets without a class."""
    calibration_rows: int | None
    """Number of rows that chose the thresholds; None: not known."""
    floor: float
    """Coverage that sound sets reach in 95% of calibrations; the level itself if their rows are not known."""
    p_value: float
    """Probability of so many hits or fewer if the coverage is the floor."""


@dataclass(frozen=True, kw_only=True)
class SetComparison:
    """Coverage and size of the sets of each model, and the paired differences from the first model."""

    level: float
    """Level that the sets should cover."""
    models: list[ComparedSets]
    differences: list[ComparedDifference]

    def __str__(self) -> str:
        rows = [
            ["", *[one.name for one in self.models]],
            ["covered", *[percent(one.coverage) for one in self.models]],
            ["  interval", *[f"{percent(one.lower)} to {percent(one.upper)}" for one in self.models]],
            ["mean size", *[decimal(one.mean_size, 2) for one in self.models]],
            ["empty sets", *[f"{one.empty:,}" for one in self.models]],
        ]
        known = [one for one in self.models if one.calibration_rows is not None]
        if known:
            rows += [
                ["calibration rows", *[_count(one.calibration_rows) for one in self.models]],
                ["floor", *[percent(one.floor) if one in known else "" for one in self.models]],
                ["  test", *[chance(one.p_value) if one in known else "" for one in self.models]],
            ]
        sentences = [f"- {one.sentence}" for one in self.differences]
        title = f"Conformal sets of level {self.level:g}"
        few = [too_few_words(one.calibration_rows or 0, self.level) for one in known]
        without = [NO_ROWS] if len(known) < len(self.models) else []
        meaning = [MEANING, *([FLOOR] if known else []), *dict.fromkeys(filter(None, few)), *without]
        table = align(rows, "<" + ">" * len(self.models))
        return "\n".join([title, *table, "", *sentences, "", " ".join(meaning)])


def compare_sets(sets: Mapping[str, SetRows], *, level: float = 0.95) -> SetComparison:
    """Compare the sets of each model with those of the first on the same labelled rows.

    The differences of the coverage and of the size are means over rows, ours minus theirs (`of_rows`). Their p-values
    are corrected for the number of models (Holm).

    Args:
        sets: Sets of the same rows, in one order, by the name of their model. All have the same level.
        level: Confidence level of the intervals.

    References:
        Clopper and Pearson (1934), The use of confidence or fiducial limits illustrated in the case of the binomial.
    """
    first, *others = sets
    keys = [(name, measure) for name in others for measure in (SET_COVERAGE, SET_SIZE)]
    bounds = {SET_COVERAGE: 1.0, SET_SIZE: float(max(len(one.classes) for one in sets.values()))}
    values = {
        SET_COVERAGE: {name: one.covered_L.astype(float) for name, one in sets.items()},
        SET_SIZE: {name: one.size_L.astype(float) for name, one in sets.items()},
    }
    tested = [
        (measure, of_rows((values[measure][name] - values[measure][first])[None], level, bound=bounds[measure]))
        for name, measure in keys
    ]
    differences = [
        ComparedDifference.of(one, model=name, baseline=first, models=len(sets))
        for (name, _), one in zip(keys, adjust_p_values(tested), strict=True)
    ]
    return SetComparison(
        level=sets[first].rule.level,
        models=[_figures(name, one, level) for name, one in sets.items()],
        differences=differences,
    )


def sets_of_tables(tables: Mapping[str, Answers], rows: Mapping[str, Rows]) -> dict[str, SetRows]:
    """Return the sets of the common labelled rows of tables.

    Args:
        tables: Answers with their sets, by the name of their model.
        rows: Positions of the common labelled rows in each table, in one order.
    """
    found = {}
    for name, answers in tables.items():
        assert answers.sets is not None  # a table without them is refused when it is read
        place_L = (answers.labelled_N.cumsum() - 1)[rows[name]]
        one = answers.sets
        found[name] = replace(
            one, label_L=one.label_L[place_L], covered_L=one.covered_L[place_L], size_L=one.size_L[place_L]
        )
    return found


def sets_of_models(
    sets: Mapping[str, Sets],
    models: Sequence[str],
    labels_N: Rows,
    classes: Sequence[object],
    *,
    level: float | None,
    rows: int | Mapping[str, int] | None,
) -> dict[str, SetRows]:
    """Read the sets of each model.

    Args:
        sets: Sets of each model by name.
        models: Names of the models.
        labels_N: True class of each row, as an index.
        classes: Names of the classes.
        level: Level that the sets should cover.
        rows: Number of rows that chose the thresholds, of all models or by name; None: not known.

    Raises:
        ConfigError: A level, a number of rows or the names do not fit, or a set is none of the classes of a row.
    """
    if level is None:
        raise ConfigError("sets without set_level: give the level that the sets should cover, such as set_level=0.9")
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ConfigError(f"set_level is {level!r}; allowed is (0, 1), such as 0.9")
    if not isinstance(sets, Mapping):
        raise ConfigError(f"sets is {type(sets).__name__}; give those of each model by its name: {{'a': sets_NC, ...}}")
    check_names("sets", sets, models)
    if isinstance(rows, Mapping):
        check_names("set_rows", rows, models)
    of = {name: rows[name] if isinstance(rows, Mapping) else rows for name in models}
    return {
        name: _of_model(
            name, sets[name], labels_N, classes, SetRule.of_level(float(level), _calibration_rows(name, of[name]))
        )
        for name in models
    }


def check_names(what: str, by_name: Mapping[str, object], models: Sequence[str]) -> None:
    """Check that values by name are those of the models.

    Raises:
        ConfigError: A model has none, or a name is none of theirs.
    """
    for name in by_name:
        if name not in models:
            raise ConfigError(f"{what} has {name!r}; the models are {quotes(models)}.{nearest(str(name), models)}")
    if missing := [name for name in models if name not in by_name]:
        raise ConfigError(f"{what} has none of {missing[0]!r}; give those of every model: {quotes(models)}")


def _calibration_rows(name: str, rows: object) -> int:
    """Return the number of calibration rows; 0 if it is not known."""
    if rows is None:
        return 0
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or not 1 <= rows <= MOST_ROWS:
        raise ConfigError(f"set_rows of {name!r} is {short(rows)}; allowed are whole numbers from 1 to 2^53 - 1")
    return int(rows)


def _of_model(name: str, sets: Sets, labels_N: Rows, classes: Sequence[object], rule: SetRule) -> SetRows:
    inside_NC = _inside(name, sets, len(labels_N), classes)
    return SetRows(
        rule=rule,
        classes=tuple(map(str, classes)),
        label_L=labels_N,
        covered_L=inside_NC[np.arange(len(labels_N)), labels_N],
        size_L=inside_NC.sum(axis=1),
    )


def _inside(name: str, sets: Sets, count: int, classes: Sequence[object]) -> npt.NDArray[np.bool_]:
    """Return whether each class is in the set of each row."""
    shape = (count, len(classes))
    form = f"give a bool array of shape {shape}, or a list with the classes of each row, such as [[0], [0, 1], []]"
    if hasattr(sets, "dtype") or hasattr(sets, "__array__"):
        array = np.asarray(sets)
        if array.dtype != np.bool_ or array.shape != shape:
            raise ConfigError(f"sets of {name!r} has shape {array.shape} and type {array.dtype}; {form}")
        return array
    if not isinstance(sets, list | tuple):
        raise ConfigError(f"sets of {name!r} is {type(sets).__name__}; {form}")
    if len(sets) != count:
        raise ConfigError(f"sets of {name!r} has {plural(len(sets), 'row')}, and the models {count:,}; {form}")
    place: dict[Any, int] = {one: k for k, one in enumerate(classes)}
    inside_NC = np.zeros(shape, bool)
    for n, members in enumerate(sets):
        where = f"sets of {name!r}, row {n + 1:,}"
        if isinstance(members, str | bytes) or not isinstance(members, Sequence | set | frozenset | np.ndarray):
            raise ConfigError(f"{where}: {short(members)} is no list of classes; {form}")
        for member in members:
            # True and False equal the indices 1 and 0
            is_name = isinstance(member, str | int | float | np.generic) and not isinstance(member, bool | np.bool_)
            if not is_name or member not in place:
                raise ConfigError(f"{where}: the set holds {short(member)}; {_class_words(member, classes, form)}")
            if inside_NC[n, place[member]]:
                raise ConfigError(f"{where}: the set holds {short(member)} twice; give each class once")
            inside_NC[n, place[member]] = True
    return inside_NC


def _class_words(member: object, classes: Sequence[object], form: str) -> str:
    """Return the classes that a set may hold, in words."""
    if isinstance(classes, range):
        return f"without names, the classes are 0 to {len(classes) - 1}; {form}"
    names = [str(one) for one in classes]
    return f"the classes are {quotes(names, 5)}.{nearest(str(member)[:100], names)}"


def _figures(name: str, sets: SetRows, level: float) -> ComparedSets:
    hits, count, floor = int(np.count_nonzero(sets.covered_L)), len(sets.covered_L), min(sets.rule.floors)
    lower, upper = binomial_interval(hits, count, level=level)
    return ComparedSets(
        name=name,
        hits=hits,
        coverage=hits / count,
        lower=float(lower),
        upper=float(upper),
        mean_size=float(np.mean(sets.size_L)),
        empty=int(np.count_nonzero(sets.size_L == 0)),
        calibration_rows=sets.rule.calibration_rows or None,
        floor=floor,
        p_value=float(scipy.special.bdtr(hits, count, floor)),
    )


def _count(rows: int | None) -> str:
    return "not known" if rows is None else f"{rows:,}"
