"""The standard set of metrics by name, shared by metrics.json, cards and live reports."""

from __future__ import annotations

from trueodds.metrics.binned import mce
from trueodds.metrics.intervals.calibration_error import ece_interval, noise_floor
from trueodds.metrics.scores import accuracy, brier, error_rate, mean_confidence, nll, signed_gap
from trueodds.sums.sums import CalibrationSums


def summary(sums: CalibrationSums, *, bins: int = 15, level: float = 0.95) -> dict[str, float]:
    """Compute the standard metrics: error, proper scores, ECE with its estimate, interval and noise floor, and MCE.

    Args:
        sums: Calibration sums with NLL and Brier sums.
        bins: Number of bins; it must divide 3,000.
        level: Confidence level of the ECE's interval, inside (0, 1).

    Returns:
        The values by name, such as "ece", "ece_lower" and "floor_p95".

    Raises:
        ValueError: There are no rows or no NLL or Brier sums, `bins` does not divide 3,000, or `level` is outside (0,
            1).

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> sums = metrics.CalibrationSums.from_probabilities(probabilities, labels)
        >>> round(metrics.summary(sums)["ece"], 4)
        0.3
    """
    interval, floor = ece_interval(sums, bins=bins, level=level), noise_floor(sums, bins=bins)
    return {
        "error_rate": error_rate(sums),
        "accuracy": accuracy(sums),
        "mean_confidence": mean_confidence(sums),
        "signed_gap": signed_gap(sums),
        "nll": nll(sums),
        "brier": brier(sums),
        "ece": interval.ece,
        "ece_estimate": interval.estimate,
        "ece_lower": interval.lower,
        "ece_upper": interval.upper,
        "floor_mean": floor.mean,
        "floor_p95": floor.p95,
        "mce": mce(sums, bins=bins),
    }
