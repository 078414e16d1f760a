"""Calibration metrics in numpy: one definition each, for training curves, evaluation, the service and benchmarks."""

from pipeline.metrics.binomial import binomial_interval
from pipeline.metrics.honesty import EceInterval, NoiseFloor, ece_interval, noise_floor
from pipeline.metrics.inputs import softmax
from pipeline.metrics.scores import accuracy, brier, ece, error, mce, mean_confidence, nll, signed_gap
from pipeline.metrics.summary import summary
from pipeline.metrics.sums import CELLS, COLUMNS, Bins, CalibrationSums, cell_of

__all__ = [
    "CELLS",
    "COLUMNS",
    "Bins",
    "CalibrationSums",
    "EceInterval",
    "NoiseFloor",
    "accuracy",
    "binomial_interval",
    "brier",
    "cell_of",
    "ece",
    "ece_interval",
    "error",
    "mce",
    "mean_confidence",
    "nll",
    "noise_floor",
    "signed_gap",
    "softmax",
    "summary",
]
