"""Coverage and sizes of sets on labelled rows, for the card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from trueodds.calibrators.conformal.rule import SetRule
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.sums.inputs import check_labels


class MeasuredSets(BaseModel):
    """Coverage of a rule on rows that chose neither the calibrator nor the thresholds.

    Examples:
        >>> rule = conformal.SetRule(method="lac", level=0.9, thresholds=(0.8,), ranks=(90,), rows=(99,))
        >>> measured = conformal.measure(rule, [[0.7, 0.2, 0.1]] * 10, [0] * 9 + [2])
        >>> measured.coverage, measured.mean_size
        (0.9, 2.0)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int = Field(ge=1)
    hits: int = Field(ge=0)
    """Number of sets that hold the true class."""
    sizes: tuple[int, ...]
    """Number of sets by size, from 0 on, up to the largest size."""
    class_rows: tuple[int, ...]
    """Number of rows by true class."""
    class_hits: tuple[int, ...]
    """Number of sets that hold the true class, by true class."""

    @model_validator(mode="after")
    def _add_up(self) -> Self:
        if sum(self.sizes) != self.rows or sum(self.class_rows) != self.rows:
            raise ValueError(f"sizes and classes must add up to {self.rows} rows")
        if sum(self.class_hits) != self.hits or len(self.class_rows) != len(self.class_hits):
            raise ValueError(f"the covered rows of the classes must add up to {self.hits}")
        return self

    @property
    def coverage(self) -> float:
        """Share of the sets that hold the true class."""
        return self.hits / self.rows

    @property
    def mean_size(self) -> float:
        """Mean number of classes in a set."""
        return sum(size * count for size, count in enumerate(self.sizes)) / self.rows

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the exact binomial (Clopper-Pearson) interval of the coverage."""
        lower, upper = binomial_interval(self.hits, self.rows, level=level)
        return float(lower), float(upper)


def measure(
    rule: SetRule, probabilities_NC: npt.ArrayLike, labels_N: npt.ArrayLike, ids: Sequence[str] | None = None
) -> MeasuredSets:
    """Measure the coverage and the sizes of a rule's sets on labelled rows.

    Args:
        rule: The rule.
        probabilities_NC: Calibrated probabilities, shape (N, C).
        labels_N: True classes, shape (N,).
        ids: Ids of the rows, as in `SetRule.sets`.

    Raises:
        ValueError: The rows are invalid.

    Examples:
        >>> rule = conformal.SetRule(method="lac", level=0.9, thresholds=(0.8,), ranks=(90,), rows=(99,))
        >>> conformal.measure(rule, [[0.7, 0.2, 0.1]] * 4, [0, 0, 1, 2]).sizes
        (0, 0, 4)
    """
    inside_NC = rule.sets(probabilities_NC, ids)
    labels = check_labels(labels_N, *inside_NC.shape)
    covered_N, classes = inside_NC[np.arange(len(labels)), labels], inside_NC.shape[1]
    return MeasuredSets(
        rows=len(labels),
        hits=int(covered_N.sum()),
        sizes=tuple(np.bincount(inside_NC.sum(axis=1)).tolist()),
        class_rows=tuple(np.bincount(labels, minlength=classes).tolist()),
        class_hits=tuple(np.bincount(labels[covered_N], minlength=classes).tolist()),
    )
