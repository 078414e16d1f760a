"""Calibration metrics in numpy: one definition each, for training curves, evaluation, the service and benchmarks."""

from pipeline.metrics.binned import (
    SweepEce,
    adaptive_ece,
    debiased_ece,
    ece,
    ks_error,
    label_binned_ece,
    mce,
    sweep_ece,
)
from pipeline.metrics.binomial import binomial_interval
from pipeline.metrics.bins import CELLS, Bins, cell_of
from pipeline.metrics.classwise import (
    classwise_ece,
    ece_per_class,
    noise_floor_per_class,
    samplewise_error,
    samplewise_noise_floor,
)
from pipeline.metrics.confidence_sequence import GapSequence, gap_sequence
from pipeline.metrics.cumulative import KsTest, ks_test
from pipeline.metrics.decomposition import BrierDecomposition, brier_decomposition
from pipeline.metrics.drift import ConfidenceDrift, confidence_drift
from pipeline.metrics.entropy import mean_entropy
from pipeline.metrics.honesty import EceInterval, NoiseFloor, ece_interval, noise_floor
from pipeline.metrics.inputs import softmax
from pipeline.metrics.labelling import (
    ChoiceOfLabels,
    LabelDelay,
    Sensitivity,
    choice_of_labels,
    label_delay,
    sensitivity,
)
from pipeline.metrics.prequential import Prequential
from pipeline.metrics.ranked import whole_bins
from pipeline.metrics.score_interval import ScoreInterval, score_interval
from pipeline.metrics.scores import (
    FractionAbove,
    accuracy,
    brier,
    error_rate,
    fraction_above,
    mean_confidence,
    nll,
    signed_gap,
)
from pipeline.metrics.sequential import EProcess, ShiryaevRoberts, blocks
from pipeline.metrics.significance import CalibrationTest, calibration_test
from pipeline.metrics.smooth import kde_ece, sece, smooth_ece
from pipeline.metrics.summary import summary
from pipeline.metrics.sums import COLUMNS, CalibrationSums
from pipeline.metrics.weighted import (
    CrowdedCellError,
    FullestCell,
    WeightedEce,
    fullest_cell,
    inverse_probability_ece,
    weighted_ece,
)
from pipeline.metrics.weighted_evidence import WeightedEProcess

__all__ = [
    "CELLS",
    "COLUMNS",
    "Bins",
    "BrierDecomposition",
    "CalibrationSums",
    "CalibrationTest",
    "ChoiceOfLabels",
    "ConfidenceDrift",
    "CrowdedCellError",
    "EProcess",
    "EceInterval",
    "FractionAbove",
    "FullestCell",
    "GapSequence",
    "KsTest",
    "LabelDelay",
    "NoiseFloor",
    "Prequential",
    "ScoreInterval",
    "Sensitivity",
    "ShiryaevRoberts",
    "SweepEce",
    "WeightedEProcess",
    "WeightedEce",
    "accuracy",
    "adaptive_ece",
    "binomial_interval",
    "blocks",
    "brier",
    "brier_decomposition",
    "calibration_test",
    "cell_of",
    "choice_of_labels",
    "classwise_ece",
    "confidence_drift",
    "debiased_ece",
    "ece",
    "ece_interval",
    "ece_per_class",
    "error_rate",
    "fraction_above",
    "fullest_cell",
    "gap_sequence",
    "inverse_probability_ece",
    "kde_ece",
    "ks_error",
    "ks_test",
    "label_binned_ece",
    "label_delay",
    "mce",
    "mean_confidence",
    "mean_entropy",
    "nll",
    "noise_floor",
    "noise_floor_per_class",
    "samplewise_error",
    "samplewise_noise_floor",
    "score_interval",
    "sece",
    "sensitivity",
    "signed_gap",
    "smooth_ece",
    "softmax",
    "summary",
    "sweep_ece",
    "weighted_ece",
    "whole_bins",
]
