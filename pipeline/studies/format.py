"""The file of a study: its axes, the settings of all runs, the report, the figures, and the published numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline import config
from trueodds.calibrators import Identity
from trueodds.dialect import read_yaml
from trueodds.errors import ConfigError, unknown
from trueodds.evaluation.entries import check_entries
from trueodds.evaluation.measurement import measure

PAPERS = Path(__file__).parent / "papers"
"""Studies of the papers' tables and figures: <paper>/<table or figure>.yaml."""
CALIBRATOR = "calibrator"
TEMPERATURE = "temperature"
"""Column of calibrators that have a temperature."""
SECONDS = "seconds"
"""Column of runs: the seconds of the whole graph on the machine that ran it, beside whatever else ran there."""
VALIDATION = "val_"
"""Prefix of columns of the validation rows. A fitted calibrator was fitted on these rows."""
SPREADS = ("deviation", "error")
"""Suffixes of a published number's spread over seeds: <column>_deviation, <column>_error."""
Leaves = Mapping[str, Any]
"""Leaves of params.yaml, or names in them (`method_options.gamma`), with their values."""
DIGITS = 1e-9


class StudyError(ConfigError):
    """A study with a key or value that is not allowed; nothing has run."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class Source(_Part):
    """The place of a published table."""

    paper: str
    place: str


class Published(_Part):
    """The numbers of a table. Each row has leaves that name a run, its calibrator, and columns of the report."""

    unit: Literal["percent", "fraction"] = "percent"
    plain: list[str] = Field(default_factory=list)
    """Columns that are printed in their own unit, such as an NLL in nats."""
    of: Literal["value", "difference"] = "value"
    """difference: each number is one to the baseline's."""
    rows: list[dict[str, Any]]
    """Beside a column may stand its published spread over seeds: <column>_deviation, or <column>_error for a standard
    error."""
    sums: dict[str, float] = Field(default_factory=dict)
    """The sum of each column's numbers, taken from the paper apart from the rows."""

    @model_validator(mode="after")
    def _sums_hold(self) -> Self:
        for column, stated in self.sums.items():
            actual = math.fsum(row[column] for row in self.rows if row.get(column) is not None)
            if abs(actual - stated) > DIGITS * max(1.0, abs(stated)):
                raise ValueError(f"the published {column} add up to {actual:g}, and sums says {stated:g}; mend one")
        return self


class Choice(_Part):
    """The rule by which a setting is taken, by its validation rows alone; seeds are taken together."""

    least: str | None = None
    """A column of the validation rows, such as val_ece: the setting where its mean is least."""
    pareto: list[str] = Field(default_factory=list)
    """Two or three such columns: all settings that no other one beats or equals in each of them."""
    within: float | None = Field(None, gt=0, lt=1)
    """Largest distance of a setting's mean validation accuracy below the best one's, such as 0.01."""
    calibrator: str = "identity"
    """The calibrator of the columns; a fitted one is measured on the rows that it was fitted on."""
    each: list[str] = Field(default_factory=list)
    """Leaves, such as dataset: one choice among the settings that have the same."""

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.least is None) == (not self.pareto):
            raise ValueError("it needs either least or pareto")
        if self.pareto and not 2 <= len(self.pareto) <= 3:
            raise ValueError(f"pareto has {len(self.pareto)} columns; allowed are two or three")
        allowed = {f"{VALIDATION}{column}" for column in columns()} - {f"{VALIDATION}{TEMPERATURE}"}
        for column in filter(None, [self.least, *self.pareto]):
            if column in columns():
                raise ValueError(f"{column} is of the test rows, by which nothing is chosen; use {VALIDATION}{column}")
            if column not in allowed:
                raise ValueError(str(unknown("column", column, sorted(allowed))))
        return self


class Step(_Part):
    """One hyper-parameter, tuned with the earlier ones at their chosen values."""

    leaf: str
    values: list[Any] = Field(min_length=1)
    where: dict[str, list[Any]] = Field(default_factory=dict)
    """Values of leaves, such as {method: [s_avuc]}: the step is for runs that have one of each."""


class Tune(_Part):
    """Sequential tuning, before the runs of the study, each setting of theirs by itself."""

    seed: int = 0
    steps: list[Step] = Field(min_length=1)


class _Figure(_Part):
    title: str = ""
    calibrator: str = "identity"
    """The calibrator with which test rows are measured."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Leaves of the runs that are drawn, such as {dataset: cifar10}."""


class Reliability(_Figure):
    """A reliability diagram for each setting, of its first seed."""

    kind: Literal["reliability"]
    bins: Annotated[int, Field(ge=1, le=1000)] = 15


class Training(_Figure):
    """A reliability diagram of the training rows at each epoch of `curves`, and the share of rows in each of 25 bins,
    of one setting's first seed.
    """

    kind: Literal["training"]


class Bins(_Figure):
    """ECE and MCE in 10 to 1,000 bins, the mean over seeds."""

    kind: Literal["bins"]


class Curves(_Figure):
    """Columns of epochs.csv over the epochs."""

    kind: Literal["curves"]
    columns: list[str] = Field(default_factory=lambda: ["val_error", "val_nll", "val_ece"], min_length=1, max_length=9)
    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Exponential: the weight of the last level."""


class Points(_Figure):
    """Settings in the plane of two measures of the test rows, with their intervals and their Pareto front."""

    kind: Literal["points"]
    x: str = "error_rate"
    y: str = "ece"
    front: bool = True
    """Join those that no other one beats in both: lower is better. Not of a calibration error, a plug-in estimate."""


class Bars(_Figure):
    """A measure of the test rows for each setting, with its interval."""

    kind: Literal["bars"]
    y: str = "ece"
    groups: str | None = None
    """A leaf, such as dataset: bars of one value stand together."""


class Effects(_Figure):
    """Cohen's d of a measure of the test rows over seeds: each value of a leaf against another value of it, all other
    leaves as they are.
    """

    kind: Literal["effects"]
    y: str = "ece"
    leaf: str = "method"
    against: dict[str, str] = Field(min_length=1)
    """The baseline of each value, such as {mmce_kumar: ce, focal_mmce: fl2}."""
    calibrators: list[str] = Field(default_factory=list)
    """The calibrators that are compared, each with itself; empty: all of the study's."""


class Shift(_Figure):
    """A measure under corruption, by severity: a line for each setting and calibrator, of runs whose `shift` is set."""

    kind: Literal["shift"]
    y: Literal["error_rate", "nll", "ece", "adaptive_ece", "adaptive_ece_l2"] = "adaptive_ece_l2"
    calibrators: list[str] = Field(default_factory=list)
    """Lines; empty: all of the study's."""


class Densities(_Figure):
    """The density of a number of each row over the rows, a panel for each epoch of `curves`, a line for each setting,
    of its first seed.
    """

    kind: Literal["densities"]
    array: Literal[
        "train_gradient_norm", "train_confidence", "train_brier", "test_confidence", "test_brier", "test_p"
    ] = "test_confidence"


class Gradients(_Figure):
    """Gradient norm against Brier score of each training row at the last epoch of `curves`, a panel for each setting,
    of its first seed.
    """

    kind: Literal["gradients"]


class Outcomes(_Figure):
    """Right and wrong test rows by p_y at each epoch of `curves`, panels for each setting, of its first seed."""

    kind: Literal["outcomes"]


Figure = Annotated[
    Reliability | Training | Bins | Curves | Points | Bars | Effects | Shift | Densities | Gradients | Outcomes,
    Field(discriminator="kind"),
]


class Study(_Part):
    """A study, as its file has it."""

    title: str = Field(min_length=1)
    about: str = ""
    source: Source | None = None
    hold: dict[str, Any] = Field(default_factory=dict)
    """Leaves that all runs have, beside params.yaml."""
    vary: dict[str, list[Any]] = Field(default_factory=dict)
    """Axes: a leaf with its values, or several leaves with commas between, whose values are lists; the runs are their
    product."""
    runs: list[dict[str, Any]] = Field(default_factory=list)
    """Further runs, one by one."""
    leave_out: list[dict[str, Any]] = Field(default_factory=list, alias="except")
    """Leaves of the runs in the product that are left out."""
    calibrators: list[str] = Field(default_factory=lambda: ["identity"], min_length=1)
    """Each run is measured with each, as entries of `evaluation.compare`."""
    report: list[str] = Field(default_factory=lambda: ["error_rate", "nll", "ece"], min_length=1)
    """Columns of the printed table; study.csv has all."""
    baseline: dict[str, Any] = Field(default_factory=dict)
    """The run to which paired differences are taken, by its leaves; empty: none are."""
    tune: Tune | None = None
    """Sequential tuning by the rule of `choose`."""
    choose: Choice | None = None
    figures: list[Figure] = Field(default_factory=list)
    """Figures that are drawn over the runs."""
    published: Published | None = None
    differs: list[str] = Field(default_factory=list)
    """Differences from the paper, in words."""

    @property
    def axes(self) -> list[tuple[str, ...]]:
        """The leaves of each axis, in the order of the file."""
        return [tuple(leaf.strip() for leaf in axis.split(",")) for axis in self.vary]


def read(name: str) -> Study:
    """Reads the study of a file, or of a paper by its place (`focal/table1`).

    Raises:
        StudyError: no such study, or a key or value that is not allowed.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = PAPERS / f"{name}.yaml"
        if not path.is_file():
            raise StudyError(str(unknown("study", name, names())) + " Or give a file: trueodds study mine.yaml")
    try:
        tree = read_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StudyError(f"{path} does not exist; give the .yaml file of a study") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StudyError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise StudyError(f"{path} must hold title, vary and so on, not {type(tree).__name__}")
    return parse(tree, str(path))


def names() -> list[str]:
    """Lists the papers' studies."""
    return sorted(path.relative_to(PAPERS).with_suffix("").as_posix() for path in PAPERS.glob("*/*.yaml"))


def parse(tree: Mapping[str, Any], source: str = "the study") -> Study:
    """Parses and checks a study without running anything; raises as `read`."""
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
    of_lists = [*study.runs, *study.leave_out, study.baseline, *_of_choice(study)]
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
    check_entries(study.calibrators)
    _check_figures(study)
    if missing := [column for column in study.report if column not in {*columns(), SECONDS}]:
        raise unknown("column in report", missing[0], sorted({*columns(), SECONDS}))
    rows: Sequence[Mapping[str, Any]] = study.published.rows if study.published else ()
    known = published_keys(study)
    for number, row in enumerate(rows):
        for key in row:
            if key not in known and key.partition(".")[0] not in config.SECTION_OF:
                raise ConfigError(f"published row {number}: {unknown('key', key, [*known, *config.SECTION_OF])}")
        if row.get(CALIBRATOR, study.calibrators[0]) not in study.calibrators:
            raise ConfigError(f"published row {number}: {unknown(CALIBRATOR, row[CALIBRATOR], study.calibrators)}")


def _check_figures(study: Study) -> None:
    known = {leaf for axis in study.axes for leaf in axis} | {leaf for run in [study.hold, *study.runs] for leaf in run}
    for number, figure in enumerate(study.figures):
        for calibrator in [figure.calibrator, *getattr(figure, "calibrators", ())]:
            if calibrator not in study.calibrators:
                raise ConfigError(f"figures.{number}: {unknown(CALIBRATOR, calibrator, study.calibrators)}")
        leaves = [getattr(figure, name, None) for name in ("groups", "leaf")]
        for leaf in [*figure.where, *filter(None, leaves)]:
            if leaf not in known:
                raise ConfigError(f"figures.{number}: {unknown('leaf', leaf, sorted(known))}")
        for column in filter(None, (getattr(figure, axis, None) for axis in "xy")):
            if column not in columns():
                raise ConfigError(f"figures.{number}: {unknown('column', column, sorted(columns()))}")


def _of_choice(study: Study) -> list[Mapping[str, Any]]:
    """Mappings whose keys must be leaves; raises ConfigError for rules that need another."""
    found: list[Mapping[str, Any]] = []
    if study.published and study.published.of == "difference" and not study.baseline:
        raise ConfigError("published differences need a baseline; name its leaves")
    if study.choose:
        found.append(dict.fromkeys(study.choose.each))
        if study.choose.calibrator not in study.calibrators:
            raise ConfigError(f"choose: {unknown(CALIBRATOR, study.choose.calibrator, study.calibrators)}")
    if study.tune:
        if not study.choose or not study.choose.least:
            raise ConfigError("tune needs a rule; give choose: {least: val_ece} or another column")
        found += [{step.leaf: None, **step.where} for step in study.tune.steps]
    return found


@dataclass(frozen=True)
class Judging:
    """How test rows are judged: the number of bins and the level of intervals."""

    bins: int = 15
    level: float = 0.95
    compare: Sequence[str] = ()


def published_keys(study: Study) -> list[str]:
    """Lists the keys of a published row that name no run."""
    return [CALIBRATOR, *study.report, *(f"{column}_{spread}" for column in study.report for spread in SPREADS)]


@cache
def columns() -> frozenset[str]:
    """Lists the columns that a run is measured by; they are fractions, but for scores and counts."""
    p_NC = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.1, 0.9]])
    return frozenset([*measure(Identity(), np.log(p_NC), np.array([0, 1, 1, 1]), Judging()).values, TEMPERATURE])
