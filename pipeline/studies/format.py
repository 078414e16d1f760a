"""The format of a study's file: axes, settings of all runs, report, figures, and published numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline import config
from pipeline.studies import PAPERS, names
from trueodds.calibrators import Identity
from trueodds.dialect import read_yaml
from trueodds.errors import ConfigError, unknown
from trueodds.evaluation.entries import check_entries
from trueodds.evaluation.measurement import measure

CALIBRATOR = "calibrator"
TEMPERATURE = "temperature"
"""Column with the temperature, for calibrators that have one."""
SECONDS = "seconds"
"""Column with a run's seconds for the whole graph, on its machine, including delays by other work there."""
VALIDATION = "val_"
"""Prefix of columns that are measured on the validation rows, to which the calibrators were fitted."""
SPREADS = ("deviation", "error")
"""Suffixes for the spread of a published number over seeds: <column>_deviation, <column>_error."""
Leaves = Mapping[str, Any]
"""Parameters of params.yaml, or keys in one (`method_options.gamma`), with their values."""
DIGITS = 1e-9


class StudyError(ConfigError):
    """A study has a key or value that is not allowed. Nothing was run."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class PaperSource(_Part):
    """The paper and the table or figure that a study reproduces."""

    paper: str
    place: str


class Published(_Part):
    """Published numbers. Each row has the parameters of a run, its calibrator, and columns of the report."""

    unit: Literal["percent", "fraction"] = "percent"
    plain: list[str] = Field(default_factory=list)
    """Columns that are printed in their own unit, such as an NLL in nats."""
    of: Literal["value", "difference"] = "value"
    """Meaning of the numbers: value, or difference, the difference from the baseline."""
    rows: list[dict[str, Any]]
    """Rows of the table. The spread over seeds may stand beside a column as <column>_deviation, or <column>_error for a
    standard error."""
    sums: dict[str, float] = Field(default_factory=dict)
    """Sum of each column's numbers, copied from the paper separately, to detect copying errors in the rows."""

    @model_validator(mode="after")
    def _sums_hold(self) -> Self:
        """Refuse rows that do not add up to the stated sums."""
        for column, stated in self.sums.items():
            actual = math.fsum(row[column] for row in self.rows if row.get(column) is not None)
            if abs(actual - stated) > DIGITS * max(1.0, abs(stated)):
                raise ValueError(f"the published {column} add up to {actual:g}, but sums gives {stated:g}; correct one")
        return self


class ChoiceRule(_Part):
    """Rule that chooses settings by the validation rows alone, on the mean over seeds."""

    least: str | None = None
    """Column of the validation rows, such as val_ece. The setting with the lowest mean is chosen."""
    pareto: list[str] = Field(default_factory=list)
    """Two or three such columns. All settings on the Pareto front are chosen, none of which another one dominates."""
    within: float | None = Field(None, gt=0, lt=1)
    """Largest difference of a setting's mean validation accuracy from the best one's, such as 0.01."""
    calibrator: str = "identity"
    """Calibrator of the columns. A fitted calibrator is measured on the same rows that it was fitted to."""
    each: list[str] = Field(default_factory=list)
    """Parameters, such as dataset: one choice is made for each combination of their values."""

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        """Refuse a rule with neither or both of least and pareto, or with a column that is not allowed."""
        if (self.least is None) == (not self.pareto):
            raise ValueError("give either least or pareto")
        if self.pareto and not 2 <= len(self.pareto) <= 3:
            raise ValueError(f"pareto has {len(self.pareto)} columns; allowed are two or three")
        allowed = {f"{VALIDATION}{column}" for column in columns()} - {f"{VALIDATION}{TEMPERATURE}"}
        for column in filter(None, [self.least, *self.pareto]):
            if column in columns():
                raise ValueError(f"{column} is a column of the test rows; choose by {VALIDATION}{column} instead")
            if column not in allowed:
                raise ValueError(str(unknown("column", column, sorted(allowed))))
        return self


class TuningStep(_Part):
    """One step of sequential tuning: a parameter is tuned while earlier ones keep their chosen values."""

    leaf: str
    values: list[Any] = Field(min_length=1)
    where: dict[str, list[Any]] = Field(default_factory=dict)
    """Values of parameters, such as {method: [s_avuc]}. The step applies to runs that have one of each."""


class Tune(_Part):
    """Sequential tuning of every setting by itself, before the study's runs."""

    seed: int = 0
    steps: list[TuningStep] = Field(min_length=1)


class _Figure(_Part):
    title: str = ""
    calibrator: str = "identity"
    """Calibrator of the test probabilities that are drawn."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Parameters that select the runs to draw, such as {dataset: cifar10}."""


class Reliability(_Figure):
    """Reliability diagram of each setting, for its first seed."""

    kind: Literal["reliability"]
    bins: Annotated[int, Field(ge=1, le=1000)] = 15


class TrainingReliability(_Figure):
    """Reliability diagram of the training rows at each epoch of `curves`, with the share of rows in each of 25 bins.

    It shows the first seed of one setting.
    """

    kind: Literal["training"]


class BinsFigure(_Figure):
    """ECE and MCE with 10 to 1,000 bins, averaged over seeds."""

    kind: Literal["bins"]


class Curves(_Figure):
    """Columns of epochs.csv by epoch."""

    kind: Literal["curves"]
    columns: list[str] = Field(default_factory=lambda: ["val_error", "val_nll", "val_ece"], min_length=1, max_length=9)
    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Exponential smoothing: the weight of the previous value."""


class Points(_Figure):
    """Settings in the plane of two measures of the test rows, with their intervals and Pareto front."""

    kind: Literal["points"]
    x: str = "error_rate"
    y: str = "ece"
    front: bool = True
    """Whether the Pareto front is drawn (lower is better). Never drawn for a calibration error, a plug-in estimate."""


class Bars(_Figure):
    """Measure of the test rows for each setting, with its interval."""

    kind: Literal["bars"]
    y: str = "ece"
    groups: str | None = None
    """Parameter, such as dataset, by whose value the bars are grouped."""


class Effects(_Figure):
    """Cohen's d of a measure of the test rows over seeds, between two values of a parameter.

    All other parameters are equal.
    """

    kind: Literal["effects"]
    y: str = "ece"
    leaf: str = "method"
    against: dict[str, str] = Field(min_length=1)
    """Baseline of each value, such as {mmce_kumar: ce, focal_mmce: fl2}."""
    calibrators: list[str] = Field(default_factory=list)
    """Calibrators, each compared with itself; empty: all of the study's."""


class Shift(_Figure):
    """Measure under corruption by severity: a line per setting and calibrator, for runs with `shift`."""

    kind: Literal["shift"]
    y: Literal["error_rate", "nll", "ece", "adaptive_ece", "adaptive_ece_l2"] = "adaptive_ece_l2"
    calibrators: list[str] = Field(default_factory=list)
    """Calibrators that are drawn; empty: all of the study's."""


class Densities(_Figure):
    """Density over the rows of a number of each row: a panel per epoch of `curves`, a line per setting.

    It shows the first seed of each setting.
    """

    kind: Literal["densities"]
    array: Literal[
        "train_gradient_norm", "train_confidence", "train_brier", "test_confidence", "test_brier", "test_p"
    ] = "test_confidence"


class Gradients(_Figure):
    """Gradient norm against Brier score of each training row at the last epoch of `curves`, a panel per setting.

    It shows the first seed of each setting.
    """

    kind: Literal["gradients"]


class Outcomes(_Figure):
    """Correct and wrong test rows by p_y at each epoch of `curves`, panels per setting, for its first seed."""

    kind: Literal["outcomes"]


Figure = Annotated[
    Reliability
    | TrainingReliability
    | BinsFigure
    | Curves
    | Points
    | Bars
    | Effects
    | Shift
    | Densities
    | Gradients
    | Outcomes,
    Field(discriminator="kind"),
]


class Study(_Part):
    """A study: the content of its file."""

    title: str = Field(min_length=1)
    about: str = ""
    source: PaperSource | None = None
    hold: dict[str, Any] = Field(default_factory=dict)
    """Parameters that all runs share, which override params.yaml."""
    vary: dict[str, list[Any]] = Field(default_factory=dict)
    """Axes, whose product gives the runs. A key is one parameter with its values, or several parameters separated by
    commas, whose values are lists."""
    runs: list[dict[str, Any]] = Field(default_factory=list)
    """Additional single runs."""
    leave_out: list[dict[str, Any]] = Field(default_factory=list, alias="except")
    """Parameters of the runs in the product that are left out."""
    calibrators: list[str] = Field(default_factory=lambda: ["identity"], min_length=1)
    """Calibrators with which each run is measured, written like entries of `evaluation.compare`."""
    report: list[str] = Field(default_factory=lambda: ["error_rate", "nll", "ece"], min_length=1)
    """Columns of the printed table. study.csv has all columns."""
    baseline: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the run that all others are compared with, in paired differences; empty: no comparison."""
    tune: Tune | None = None
    """Sequential tuning by the rule in `choose`."""
    choose: ChoiceRule | None = None
    figures: list[Figure] = Field(default_factory=list)
    """Figures to draw from the runs."""
    published: Published | None = None
    differs: list[str] = Field(default_factory=list)
    """Differences from the paper, in words."""

    @property
    def axes(self) -> list[tuple[str, ...]]:
        """Return the parameters of each axis, in the order of the file."""
        return [tuple(leaf.strip() for leaf in axis.split(",")) for axis in self.vary]


def read(name: str) -> Study:
    """Read a study from a file, or one of a paper by its name (`focal/table1`).

    Raises:
        StudyError: There is no such study, or a key or value is not allowed.
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
        raise StudyError(f"{path} must contain keys such as title and vary, not {type(tree).__name__}")
    return parse(tree, str(path))


def parse(tree: Mapping[str, Any], source: str = "the study") -> Study:
    """Parse and check a study without running anything. Raises like `read`."""
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
    """Raise ConfigError for names and values that do not fit each other."""
    leaves = [leaf for axis in study.axes for leaf in axis]
    if twice := {leaf for leaf in leaves if leaves.count(leaf) > 1}:
        raise ConfigError(f"vary has {min(twice)!r} in two axes; list it once")
    of_lists = [*study.runs, *study.leave_out, study.baseline, *_of_choice(study)]
    for leaf in [*study.hold, *leaves, *(leaf for run in of_lists for leaf in run)]:
        if leaf.partition(".")[0] not in config.SECTION_OF:
            raise unknown("parameter", leaf, config.SECTION_OF)
    for (name, values), axis in zip(study.vary.items(), study.axes, strict=True):
        if not values:
            raise ConfigError(f"vary: {name} has no value, so there is no run; add a value or remove it")
        if wrong := [v for v in values if len(axis) > 1 and not (isinstance(v, list) and len(v) == len(axis))]:
            raise ConfigError(f"vary: {name} has {wrong[0]!r}; allowed are lists of {len(axis)}, one value for each")
    if not study.vary and not study.runs:
        raise ConfigError("the study has neither vary nor runs, so there is no run; add one of them")
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
    """Raise ConfigError for a figure with a calibrator, parameter or column that the study does not have."""
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
    """Return mappings whose keys must be parameters. Raises ConfigError for a rule without another that it needs."""
    found: list[Mapping[str, Any]] = []
    if study.published and study.published.of == "difference" and not study.baseline:
        raise ConfigError("published differences need a baseline; give its parameters")
    if study.choose:
        found.append(dict.fromkeys(study.choose.each))
        if study.choose.calibrator not in study.calibrators:
            raise ConfigError(f"choose: {unknown(CALIBRATOR, study.choose.calibrator, study.calibrators)}")
    if study.tune:
        if not study.choose or not study.choose.least:
            raise ConfigError("tune needs a rule; add choose: {least: val_ece} or another column")
        found += [{step.leaf: None, **step.where} for step in study.tune.steps]
    return found


def published_keys(study: Study) -> list[str]:
    """List the keys of a published row that do not select a run."""
    return [CALIBRATOR, *study.report, *(f"{column}_{spread}" for column in study.report for spread in SPREADS)]


@cache
def columns() -> frozenset[str]:
    """Return the columns that are measured for a run. All are fractions except scores and counts."""
    p_NC = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.1, 0.9]])
    return frozenset(
        [*measure(Identity(), np.log(p_NC), np.array([0, 1, 1, 1]), config.Evaluation()).values, TEMPERATURE]
    )
