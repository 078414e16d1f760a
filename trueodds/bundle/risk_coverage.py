"""Selective prediction: how often a model is right when it only answers above a confidence, from held-out rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from trueodds.metrics import CELLS, CalibrationSums, binomial_interval
from trueodds.sums.inputs import Array

LEVEL = 0.95


@dataclass(frozen=True)
class RiskCoveragePoint:
    """A point of the curve: answers only above the confidence `threshold`, and how right they were on held-out rows."""

    split: str
    rows: int
    threshold: float
    """A multiple of 1/3000: the largest one that is not above the threshold of the call."""
    answered: int
    wrong: int
    coverage: float
    """answered / rows"""
    risk: float | None
    """Selective risk, wrong / answered; None where nothing was answered."""
    risk_lower: float
    """Exact binomial (Clopper-Pearson) interval of the risk, 95%; 0 to 1 where nothing was answered."""
    risk_upper: float


class RiskCoverage(BaseModel):
    """Rows and right rows in each occupied confidence cell (k/3000, (k+1)/3000], as three columns of whole numbers.

    Columns are text ("2987 2999"): a card is read by people, and a number a line would be thousands of lines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    split: str
    cells: str = Field(pattern=r"^[0-9]+( [0-9]+)*$")
    count: str = Field(pattern=r"^[0-9]+( [0-9]+)*$")
    correct: str = Field(pattern=r"^[0-9]+( [0-9]+)*$")

    @classmethod
    def of(cls, sums: CalibrationSums, split: str) -> Self:
        """The table of at least one row's sums."""
        count, _, correct = sums.cells[:3]
        occupied = np.flatnonzero(count)
        columns = (occupied, count[occupied], correct[occupied])
        cells, counts, corrects = (" ".join(str(int(v)) for v in column) for column in columns)
        return cls(split=split, cells=cells, count=counts, correct=corrects)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        cells, count, correct = (self._column(name) for name in ("cells", "count", "correct"))
        if not len(cells) == len(count) == len(correct):
            raise ValueError("cells, count and correct must have as many numbers each")
        if (np.diff(cells) <= 0).any() or cells[-1] >= CELLS or (count < 1).any() or (correct > count).any():
            raise ValueError(f"cells must rise and lie in 0..{CELLS - 1}, and 1 <= count, correct <= count")
        return self

    def at(self, threshold: float) -> RiskCoveragePoint:
        """The point of answering only above `threshold` in [0, 1]; exact at multiples of 1/3000."""
        cells, count, correct = (self._column(name) for name in ("cells", "count", "correct"))
        edge = min(math.floor(threshold * CELLS + 1e-9), CELLS)
        above, rows = cells >= edge, int(count.sum())
        answered, right = int(count[above].sum()), int(correct[above].sum())
        lower, upper = binomial_interval(np.array([answered - right]), np.array([answered]), level=LEVEL)
        return RiskCoveragePoint(
            split=self.split,
            rows=rows,
            threshold=edge / CELLS,
            answered=answered,
            wrong=answered - right,
            coverage=answered / rows,
            risk=(answered - right) / answered if answered else None,
            risk_lower=float(lower[0]) if answered else 0.0,
            risk_upper=float(upper[0]) if answered else 1.0,
        )

    def _column(self, name: str) -> Array:
        return np.array(getattr(self, name).split(), dtype=np.int64)
