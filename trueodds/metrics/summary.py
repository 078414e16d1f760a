"""Every number that is said of one set of sums, by name: the same in metrics.json, in cards and in live reports."""

from __future__ import annotations

from trueodds.metrics.binned import mce
from trueodds.metrics.intervals.calibration_error import ece_interval, noise_floor
from trueodds.metrics.scores import accuracy, brier, error_rate, mean_confidence, nll, signed_gap
from trueodds.sums.sums import CalibrationSums


def summary(sums: CalibrationSums, *, bins: int = 15, level: float = 0.95) -> dict[str, float]:
    """Error, proper scores, ECE with its estimate, interval and noise floor, and MCE.

    Raises:
        ValueError: no rows, no NLL or Brier sums, bins that do not divide 3,000, a level outside (0, 1).

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
