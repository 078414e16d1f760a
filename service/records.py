"""The rows that flow between the service and its store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.calibrators import Calibrator
from pipeline.metrics import CalibrationSums


@dataclass(frozen=True)
class Version:
    """A model version the service has served: enough to score stored logits again and to show its offline values."""

    model: str
    version: str
    classes: tuple[str, ...]
    calibrator: Calibrator
    metrics: dict[str, Any]


@dataclass(frozen=True)
class PredictionBatch:
    """N answers of one model version. The logits are those the calibrator was applied to, bit for bit."""

    model: str
    version: str
    created_ms: int
    """Unix time in milliseconds."""
    ids: list[str]
    logits_NC: npt.NDArray[np.float32]
    """Each row minus its maximum."""
    probabilities_NC: npt.NDArray[np.float64]
    """Not stored: the calibrator gives them again."""
    index_N: npt.NDArray[np.intp]
    confidence_N: npt.NDArray[np.float64]


@dataclass(frozen=True)
class GivenLabel:
    """One row of feedback: a class by name (str) or by index (int)."""

    id: str
    label: str | int
    correct: bool = False
    """Whether it may replace a different label."""


@dataclass(frozen=True)
class LabelCounts:
    """What became of the rows of an accepted batch; the three add up to its length."""

    stored: int
    already_known: int
    corrected: int


@dataclass(frozen=True)
class StoredAnswer:
    """What the store holds about a prediction: its version's key, little-endian float32 logits, its label if any."""

    version: int
    logits: bytes
    label: int | None


@dataclass(frozen=True)
class StoredSums:
    """All answers and, for the labelled ones, their calibration sums."""

    answers: int
    labelled: CalibrationSums
