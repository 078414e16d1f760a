"""Parts of a card that held-out rows measure: risk and coverage of selective prediction, and conformal sets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from trueodds.calibrators import Calibrator
from trueodds.calibrators.conformal import ConformalSets, MeasuredSets, SetRule, SetSettings, measure
from trueodds.metrics import CELLS, CalibrationSums, binomial_interval
from trueodds.sums.inputs import Array

LEVEL = 0.95
"""Confidence level of the interval of the risk."""


@dataclass(frozen=True)
class RiskCoveragePoint:
    """Point of the curve: coverage and risk on held-out rows if the model answers only above `threshold`."""

    split: str
    rows: int
    threshold: float
    """Confidence: the largest multiple of 1/3000 that is at most the requested threshold."""
    answered: int
    wrong: int
    coverage: float
    """Share of rows that are answered: answered / rows."""
    risk: float | None
    """Selective risk: wrong / answered. None if no row is answered."""
    risk_lower: float
    """Lower end of the exact binomial (Clopper-Pearson) 95% interval of the risk; 0 if no row is answered."""
    risk_upper: float
    """Upper end of the interval; 1 if no row is answered."""


class RiskCoverage(BaseModel):
    """Number of rows and of right rows in each occupied confidence cell (k/3000, (k+1)/3000].

    The three columns are texts of integers ("2987 2999"). People read cards, and one number a line would be thousands
    of lines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    split: str
    cells: str = Field(pattern=r"^[0-9]+( [0-9]+)*$")
    count: str = Field(pattern=r"^[0-9]+( [0-9]+)*$")
    correct: str = Field(pattern=r"^[0-9]+( [0-9]+)*$")

    @classmethod
    def of(cls, sums: CalibrationSums, split: str) -> Self:
        """Build the table from the sums of at least one row."""
        count, _, correct = sums.cells[:3]
        occupied = np.flatnonzero(count)
        columns = (occupied, count[occupied], correct[occupied])
        cells, counts, corrects = (" ".join(str(int(v)) for v in column) for column in columns)
        return cls(split=split, cells=cells, count=counts, correct=corrects)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        cells, count, correct = (self._column(name) for name in ("cells", "count", "correct"))
        if not len(cells) == len(count) == len(correct):
            raise ValueError("cells, count and correct must have the same number of values")
        if (np.diff(cells) <= 0).any() or cells[-1] >= CELLS or (count < 1).any() or (correct > count).any():
            raise ValueError(f"cells must increase and be in 0..{CELLS - 1}, and 1 <= count, correct <= count")
        return self

    def at(self, threshold: float) -> RiskCoveragePoint:
        """Return the point for answers only above `threshold` in [0, 1]. It is exact at multiples of 1/3000."""
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


class CardSets(BaseModel):
    """Rules of a version's sets, one for each watched level, and their coverage on rows that chose nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: tuple[SetRule, ...] = Field(min_length=1)
    test: tuple[MeasuredSets, ...] = ()
    """Coverage of each rule on the test rows. Empty without test rows."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.test and len(self.test) != len(self.rules):
            raise ValueError(f"{len(self.test)} measurements belong to {len(self.rules)} rules")
        if len({rule.level for rule in self.rules}) < len(self.rules):
            raise ValueError("two rules have the same level")
        return self

    @classmethod
    def of(
        cls,
        sets: ConformalSets,
        settings: SetSettings,
        calibrator: Calibrator,
        test: tuple[npt.ArrayLike, npt.ArrayLike] | None,
        groups: Iterable[Any] | None = None,
    ) -> Self:
        """Make the entry of a card.

        Args:
            sets: The fitted sets.
            settings: The watched levels.
            calibrator: Calibrator of the sets.
            test: Logits and labels of test rows; None: there are none.
            groups: Group of each test row, if the calibrator has groups.
        """
        rules = tuple(sets.at(level, settings.confidence) for level in settings.levels)
        if test is None:
            return cls(rules=rules)
        logits_NC, labels_N = test
        probabilities_NC = calibrator(logits_NC, groups=groups)
        return cls(rules=rules, test=tuple(measure(rule, probabilities_NC, labels_N) for rule in rules))

    def problem_with(self, sets: ConformalSets) -> str:
        """Return why these rules are not those of the fitted sets; "" if they are."""
        for rule in self.rules:
            if sets.at(rule.level, rule.confidence) != rule:
                return f"the rule of level {rule.level:g} does not follow from the calibration scores"
        return ""
