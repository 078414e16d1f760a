"""What may be drawn over the runs of a study: the entries of `figures`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Figure(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    title: str = ""
    calibrator: str = "identity"
    """With which what is drawn of the test rows is measured."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Only runs with these leaves, such as {dataset: cifar10}."""


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
    """Of each value its baseline, such as {mmce_kumar: ce, focal_mmce: fl2}."""
    calibrators: list[str] = Field(default_factory=list)
    """Those that are compared, each with itself; empty: all of the study's."""


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
