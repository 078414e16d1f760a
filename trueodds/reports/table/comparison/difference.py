"""The difference of one measure between two models on the same rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ComparedDifference:
    """A model's measure minus that of the first model, on the same rows."""

    model: str
    baseline: str
    measure: str
    """One of error_rate, nll, brier, squared_calibration_error, set_coverage or set_size."""
    value: float
    lower: float
    upper: float
    p_value: float
    """p-value after Holm's correction for the number of models compared with the first."""
    detectable: float | None
    """Difference that would be significant in 80% of repetitions."""
    sentence: str
