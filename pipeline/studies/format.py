"""The file of a study: what varies, what is held, what is reported, and the published numbers beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline import config
from trueodds.errors import ConfigError, unknown
from trueodds.evaluation.entries import check_compared
from trueodds.evaluation.measurement import measure_probabilities

PAPERS = Path(__file__).parent / "papers"
"""Studies of the papers' tables and figures: <paper>/<table or figure>.yaml."""
CALIBRATOR = "calibrator"
TEMPERATURE = "temperature"
"""A column of those calibrators that have one."""
Leaves = Mapping[str, Any]
"""Leaves of params.yaml, or names in them (`method_options.gamma`), with their values."""
DIGITS = 1e-9


class StudyError(ConfigError):
    """A study that cannot be meant; nothing has run."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class Source(_Part):
    """Where a published table stands."""

    paper: str
    place: str


class Published(_Part):
    """The numbers of a table. Each row has leaves that name a run, its calibrator, and columns of the report."""

    unit: Literal["percent", "fraction"] = "percent"
    rows: list[dict[str, Any]]
    sums: dict[str, float] = Field(default_factory=dict)
    """Of each column, all its numbers added up, taken from the paper apart from the rows."""

    @model_validator(mode="after")
    def _sums_hold(self) -> Self:
        for column, stated in self.sums.items():
            actual = math.fsum(row[column] for row in self.rows if row.get(column) is not None)
            if abs(actual - stated) > DIGITS * max(1.0, abs(stated)):
                raise ValueError(f"the published {column} add up to {actual:g}, and sums says {stated:g}; mend one")
        return self


class Study(_Part):
    """A study as its file says it."""

    title: str = Field(min_length=1)
    about: str = ""
    source: Source | None = None
    hold: dict[str, Any] = Field(default_factory=dict)
    """What all runs have, beside params.yaml."""
    vary: dict[str, list[Any]] = Field(default_factory=dict)
    """Axes: a leaf with its values, or several leaves with commas between, whose values are lists; the runs are their
    product."""
    runs: list[dict[str, Any]] = Field(default_factory=list)
    """Further runs, one by one."""
    leave_out: list[dict[str, Any]] = Field(default_factory=list, alias="except")
    """Those of the product that are not run: all that have these leaves."""
    calibrators: list[str] = Field(default_factory=lambda: ["identity"], min_length=1)
    """Each run is measured with each, as entries of `evaluation.compare`."""
    report: list[str] = Field(default_factory=lambda: ["error_rate", "nll", "ece"], min_length=1)
    """Columns of the printed table; study.csv has all."""
    baseline: dict[str, Any] = Field(default_factory=dict)
    """The run to which paired differences are taken, by its leaves; empty: none are."""
    published: Published | None = None
    differs: list[str] = Field(default_factory=list)
    """What is not as in the paper, in words."""

    @property
    def axes(self) -> list[tuple[str, ...]]:
        """The leaves of each axis."""
        return [tuple(leaf.strip() for leaf in axis.split(",")) for axis in self.vary]


def read(name: str) -> Study:
    """The study of a file, or of a paper by its place (`focal/table1`).

    Raises:
        StudyError: no such study, and what it says that cannot be meant, by its key.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = PAPERS / f"{name}.yaml"
        if not path.is_file():
            raise StudyError(str(unknown("study", name, names())) + " Or give a file: trueodds study mine.yaml")
    try:
        tree = config.read_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StudyError(f"{path} does not exist; give the .yaml file of a study") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StudyError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise StudyError(f"{path} must hold title, vary and so on, not {type(tree).__name__}")
    return parse(tree, str(path))


def names() -> list[str]:
    """The papers' studies."""
    return sorted(path.relative_to(PAPERS).with_suffix("").as_posix() for path in PAPERS.glob("*/*.yaml"))


def parse(tree: Mapping[str, Any], source: str = "the study") -> Study:
    """A study of its mapping, checked as far as it can be without running anything; errors as `read`."""
    try:
        study = Study.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the study"
        if first["type"] == "extra_forbidden":
            allowed = [field.alias or name for name, field in Study.model_fields.items()]
            raise StudyError(f"{source}: {unknown('key', key, allowed)}") from None
        message = first["ctx"]["error"] if first["type"] == "value_error" else first["msg"]
        raise StudyError(f"{source}: {key}: {message}") from None
    try:
        _check(study)
    except ConfigError as error:
        raise StudyError(f"{source}: {error}") from None
    return study


def _check(study: Study) -> None:
    leaves = [leaf for axis in study.axes for leaf in axis]
    if twice := {leaf for leaf in leaves if leaves.count(leaf) > 1}:
        raise ConfigError(f"vary has {min(twice)!r} in two axes; give it once")
    of_lists = [*study.runs, *study.leave_out, study.baseline]
    for leaf in [*study.hold, *leaves, *(leaf for run in of_lists for leaf in run)]:
        if leaf.partition(".")[0] not in config.SECTION_OF:
            raise unknown("parameter", leaf, config.SECTION_OF)
    for (name, values), axis in zip(study.vary.items(), study.axes, strict=True):
        if not values:
            raise ConfigError(f"vary: {name} has no value, so there is no run; give one, or take it out")
        if wrong := [v for v in values if len(axis) > 1 and not (isinstance(v, list) and len(v) == len(axis))]:
            raise ConfigError(f"vary: {name} has {wrong[0]!r}; allowed are lists of {len(axis)}, a value for each")
    if not study.vary and not study.runs:
        raise ConfigError("it has neither vary nor runs, so there is no run; give one of them")
    check_compared(study.calibrators)
    if missing := [column for column in study.report if column not in columns()]:
        raise unknown("column in report", missing[0], sorted(columns()))
    rows: Sequence[Mapping[str, Any]] = study.published.rows if study.published else ()
    for number, row in enumerate(rows):
        for key in row:
            if key not in (CALIBRATOR, *study.report) and key.partition(".")[0] not in config.SECTION_OF:
                allowed = [CALIBRATOR, *study.report, *config.SECTION_OF]
                raise ConfigError(f"published row {number}: {unknown('key', key, allowed)}")
        if row.get(CALIBRATOR, study.calibrators[0]) not in study.calibrators:
            raise ConfigError(f"published row {number}: {unknown(CALIBRATOR, row[CALIBRATOR], study.calibrators)}")


class _Judging:
    bins, level, compare = 15, 0.95, ()


@cache
def columns() -> frozenset[str]:
    """What a run is measured by: names of `trueodds.metrics`, fractions but for scores and counts."""
    p_NC = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.1, 0.9]])
    return frozenset([*measure_probabilities("", p_NC, np.array([0, 1, 1, 1]), _Judging()).values, TEMPERATURE])
