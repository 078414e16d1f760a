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
    """Join those that no other one beats in both: lower is better."""


class Bars(_Figure):
    """A measure of the test rows for each setting, with its interval."""

    kind: Literal["bars"]
    y: str = "ece"
    groups: str | None = None
    """A leaf, such as dataset: bars of one value stand together."""


Figure = Annotated[Reliability | Bins | Curves | Points | Bars, Field(discriminator="kind")]
