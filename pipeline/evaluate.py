"""What is said of a model on test rows: every number with its uncertainty, before and after the calibrator."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from pipeline.calibrators import Calibrator, Identity
from pipeline.config import Evaluation
from pipeline.metrics import CalibrationSums, summary


def sums_before_and_after(
    calibrator: Calibrator, logits_NC: npt.ArrayLike, labels_N: npt.ArrayLike
) -> dict[str, CalibrationSums]:
    """Calibration sums of the plain softmax and of the calibrator."""
    pairs = {"before": Identity(), "after": calibrator}
    return {when: CalibrationSums.from_probabilities(c(logits_NC), labels_N) for when, c in pairs.items()}


def evaluate(sums: dict[str, CalibrationSums], calibrator: Calibrator, settings: Evaluation) -> dict[str, Any]:
    """The content of metrics.json."""
    table = {when: summary(s, bins=settings.bins, level=settings.level) for when, s in sums.items()}
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
