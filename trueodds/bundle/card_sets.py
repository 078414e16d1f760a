"""Conformal sets on a card: the rules of the watched levels, and their coverage on the test rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from trueodds.calibrators import Calibrator
from trueodds.calibrators.conformal import ConformalSets, MeasuredSets, SetRule, SetSettings, measure


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
