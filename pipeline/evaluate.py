"""What is said of a model on test rows: every number with its uncertainty, before and after the calibrator."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from pipeline import metrics
from pipeline.calibrators import Calibrator, Identity
from pipeline.config import Evaluation
from pipeline.metrics import CalibrationSums


def sums_before_and_after(
    calibrator: Calibrator, logits_NC: npt.ArrayLike, labels_N: npt.ArrayLike
) -> dict[str, CalibrationSums]:
    """Calibration sums of the plain softmax and of the calibrator."""
    pairs = {"before": Identity(), "after": calibrator}
    return {when: CalibrationSums.from_probabilities(c(logits_NC), labels_N) for when, c in pairs.items()}


def describe(sums: CalibrationSums, settings: Evaluation) -> dict[str, float]:
    """Every metric of one set of sums, by name. `ece_*` are the interval of `metrics.ece_interval`."""
    interval = metrics.ece_interval(sums, bins=settings.bins, level=settings.level)
    floor = metrics.noise_floor(sums, bins=settings.bins)
    return {
        "error": metrics.error(sums),
        "accuracy": metrics.accuracy(sums),
        "mean_confidence": metrics.mean_confidence(sums),
        "signed_gap": metrics.signed_gap(sums),
        "nll": metrics.nll(sums),
        "brier": metrics.brier(sums),
        "ece": interval.ece,
        "ece_estimate": interval.estimate,
        "ece_lower": interval.lower,
        "ece_upper": interval.upper,
        "floor_mean": floor.mean,
        "floor_p95": floor.p95,
        "mce": metrics.mce(sums, bins=settings.bins),
    }


def evaluate(sums: dict[str, CalibrationSums], calibrator: Calibrator, settings: Evaluation) -> dict[str, Any]:
    """The content of metrics.json."""
    table = {when: describe(s, settings) for when, s in sums.items()}
    before, after = table["before"], table["after"]
    floor = max(before["floor_p95"], after["floor_p95"])
    notes = calibrator.notes()
    if abs(before["ece"] - after["ece"]) < floor:
        notes.append(
            f"ECE before ({before['ece']:.4f}) and after ({after['ece']:.4f}) differ by less than the noise floor"
            f" ({floor:.4f}, 95th percentile, {sums['after'].n:,} rows): they cannot be told apart."
        )
    return {
        "n": sums["after"].n,
        "bins": settings.bins,
        "level": settings.level,
        "calibrator": calibrator.to_json(),
        **table,
        "notes": notes,
    }
