"""The difference of one measure between two models on the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from trueodds.evaluation.paired_differences import TestedDifference


@dataclass(frozen=True, kw_only=True)
class ComparedDifference:
    """A model's measure minus that of the first model, on the same rows."""

    model: str
    baseline: str
    measure: str
    """One of error_rate, nll, brier, squared_calibration_error, set_coverage or set_size."""
    value: float
    lower: float | None
    """Lower limit. With `upper`: None if no row differs and the measure has no largest value, such as the NLL."""
    upper: float | None
    p_value: float
    """p-value after Holm's correction for the number of models compared with the first."""
    detectable: float | None
    """Difference that would be significant in 80% of repetitions. None if too few rows differ to tell."""
    differing: int | None = None
    """Number of rows that differ in this measure, if they are few."""
    most_differing: float | None = None
    """Upper limit of the share of all rows that differ, if none of these do."""
    sentence: str

    @classmethod
    def of(cls, test: TestedDifference, *, model: str, baseline: str, models: int, seeds: int = 1) -> Self:
        """Return a tested difference with its sentence.

        Args:
            test: The difference.
            model: Name of the model.
            baseline: Name of the first model.
            models: Number of models, the first one too.
            seeds: Number of seeds of each.
        """
        d = test.difference
        return cls(
            model=model,
            baseline=baseline,
            measure=test.measure,
            value=d.mean,
            lower=d.lower,
            upper=d.upper,
            p_value=test.adjusted_p,
            detectable=test.detectable,
            differing=d.differing,
            most_differing=d.most_differing,
            sentence=test.sentence(model, f"{baseline}'s", correction=models > 2, seeds=seeds > 1),
        )
