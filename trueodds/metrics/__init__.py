"""Calibration metrics, their confidence intervals, tests, alarms and decisions, in numpy.

Training, evaluation, the service and the benchmarks all use these definitions. Functions take numpy arrays or one
`CalibrationSums`. The examples assume `import numpy as np` and `from trueodds import calibrators, metrics`.

Notation: `c` is the confidence of a row (the probability of its top label), `a` is 1 if the answer is right and 0 if it
is wrong, and `n` is the number of rows. Array names end with their axes: `logits_NC` has N rows and C classes.

>>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
>>> round(metrics.ece(probabilities, labels), 4)
0.3
"""

from typing import TYPE_CHECKING

from trueodds.processes.lazy import at_first_use

if TYPE_CHECKING:
    from trueodds.metrics.alarms.gain_sequence import GainSequence, gain_evidence, gain_sequence
    from trueodds.metrics.alarms.group_alarm import GroupAlarm, e_benjamini_hochberg
    from trueodds.metrics.alarms.in_the_large import PositiveEProcess
    from trueodds.metrics.alarms.level_alarm import OrderedEProcess
    from trueodds.metrics.alarms.partitioned import PartitionEProcess
    from trueodds.metrics.alarms.prequential import Prequential
    from trueodds.metrics.alarms.promise import RiskEProcess
    from trueodds.metrics.alarms.sequential import EProcess, ShiryaevRoberts, blocks
    from trueodds.metrics.alarms.weighted_e_process import WeightedEProcess
    from trueodds.metrics.binned import (
        SweepEce,
        adaptive_ece,
        debiased_ece,
        ece,
        ks_error,
        label_binned_ece,
        mce,
        sweep_ece,
    )
    from trueodds.metrics.classwise import classwise_ece, ece_per_class
    from trueodds.metrics.decisions.costs import Costs, DecisionCost, decision_cost
    from trueodds.metrics.decisions.thresholds import Share, Threshold, thresholds
    from trueodds.metrics.decomposition import BrierDecomposition, brier_decomposition
    from trueodds.metrics.human_labels import (
        SamplewiseInterval,
        half_panels_error,
        samplewise_error,
        samplewise_interval,
        samplewise_noise_floor,
        second_panel_error,
    )
    from trueodds.metrics.intervals.binomial import binomial_interval
    from trueodds.metrics.intervals.calibration_error import EceInterval, NoiseFloor, ece_interval, noise_floor
    from trueodds.metrics.intervals.calibration_ratio import CalibrationRatio, calibration_ratio, needed_positives
    from trueodds.metrics.intervals.classwise_ece import (
        classwise_ece_interval,
        classwise_noise_floor,
        noise_floor_per_class,
    )
    from trueodds.metrics.intervals.confidence_sequence import GapSequence, gap_sequence
    from trueodds.metrics.intervals.level_intervals import LevelBias, level_bias, rps_interval
    from trueodds.metrics.intervals.mce import MceInterval, mce_interval, mce_noise_floor
    from trueodds.metrics.intervals.proper_scores import ScoreInterval, score_interval
    from trueodds.metrics.intervals.risk_sequence import RiskSequence, risk_sequence
    from trueodds.metrics.labelling.coverage import (
        ChoiceOfLabels,
        LabelDelay,
        Sensitivity,
        choice_of_labels,
        label_delay,
        sensitivity,
    )
    from trueodds.metrics.labelling.expected import ExpectedAccuracy, expected_accuracy
    from trueodds.metrics.labelling.expected_decisions import (
        CalibrationRows,
        ExpectedDecision,
        ExpectedShare,
        expected_class_decisions,
        expected_decisions,
    )
    from trueodds.metrics.labelling.judge_errors import JudgeErrors, JudgeRate, judge_errors
    from trueodds.metrics.labelling.powered import PoweredMean, powered_gap, powered_mean
    from trueodds.metrics.labelling.prior_shift import PriorShare, PriorShift, prior_shift, prior_shift_of_scores
    from trueodds.metrics.labelling.sampling import draw_labels, label_propensities
    from trueodds.metrics.labelling.weighted_ece import (
        CrowdedCellError,
        FullestCell,
        WeightedEce,
        fullest_cell,
        inverse_probability_ece,
        weighted_ece,
    )
    from trueodds.metrics.labelling.worst_chances import WorstChance, worst_chances
    from trueodds.metrics.ranked import whole_bins
    from trueodds.metrics.ranked_probability import rps
    from trueodds.metrics.scores import (
        FractionAbove,
        accuracy,
        brier,
        error_rate,
        fraction_above,
        mean_confidence,
        mean_entropy,
        nll,
        signed_gap,
    )
    from trueodds.metrics.significance.at_least import AtLeast, at_least
    from trueodds.metrics.significance.calibration import CalibrationTest, calibration_test
    from trueodds.metrics.significance.confidence_drift import ConfidenceDrift, confidence_drift
    from trueodds.metrics.significance.differences import Difference
    from trueodds.metrics.significance.expected_calibration_error import EceTest, ece_test
    from trueodds.metrics.significance.kolmogorov_smirnov import KsTest, ks_test
    from trueodds.metrics.significance.squared_error import (
        SquaredCalibrationError,
        squared_calibration_difference,
        squared_calibration_error,
    )
    from trueodds.metrics.smooth import kde_ece, sece, smooth_ece
    from trueodds.metrics.standard_set import summary
    from trueodds.processes.choices import MOST_RATIO
    from trueodds.sums.bins import CELLS, Bins, cell_of
    from trueodds.sums.cells import COLUMNS
    from trueodds.sums.inputs import softmax
    from trueodds.sums.ordered import OrderedSums
    from trueodds.sums.sums import CalibrationSums
else:
    __getattr__ = at_first_use(
        __name__,
        {
            "trueodds.metrics.alarms.gain_sequence": "GainSequence gain_evidence gain_sequence",
            "trueodds.metrics.alarms.group_alarm": "GroupAlarm e_benjamini_hochberg",
            "trueodds.metrics.alarms.in_the_large": "PositiveEProcess",
            "trueodds.metrics.alarms.level_alarm": "OrderedEProcess",
            "trueodds.metrics.alarms.prequential": "Prequential",
            "trueodds.metrics.alarms.partitioned": "PartitionEProcess",
            "trueodds.metrics.alarms.promise": "RiskEProcess",
            "trueodds.metrics.alarms.sequential": "EProcess ShiryaevRoberts blocks",
            "trueodds.metrics.alarms.weighted_e_process": "WeightedEProcess",
            "trueodds.metrics.binned": "SweepEce adaptive_ece debiased_ece ece ks_error label_binned_ece mce sweep_ece",
            "trueodds.metrics.classwise": "classwise_ece ece_per_class",
            "trueodds.metrics.decisions.costs": "Costs DecisionCost decision_cost",
            "trueodds.metrics.decisions.thresholds": "Share Threshold thresholds",
            "trueodds.metrics.decomposition": "BrierDecomposition brier_decomposition",
            "trueodds.metrics.human_labels": (
                "SamplewiseInterval half_panels_error samplewise_error samplewise_interval samplewise_noise_floor "
                "second_panel_error"
            ),
            "trueodds.metrics.intervals.binomial": "binomial_interval",
            "trueodds.metrics.intervals.calibration_error": "EceInterval NoiseFloor ece_interval noise_floor",
            "trueodds.metrics.intervals.calibration_ratio": "CalibrationRatio calibration_ratio needed_positives",
            "trueodds.metrics.intervals.classwise_ece": (
                "classwise_ece_interval classwise_noise_floor noise_floor_per_class"
            ),
            "trueodds.metrics.intervals.confidence_sequence": "GapSequence gap_sequence",
            "trueodds.metrics.intervals.level_intervals": "LevelBias level_bias rps_interval",
            "trueodds.metrics.intervals.mce": "MceInterval mce_interval mce_noise_floor",
            "trueodds.metrics.intervals.proper_scores": "ScoreInterval score_interval",
            "trueodds.metrics.intervals.risk_sequence": "RiskSequence risk_sequence",
            "trueodds.metrics.labelling.coverage": (
                "ChoiceOfLabels LabelDelay Sensitivity choice_of_labels label_delay sensitivity"
            ),
            "trueodds.metrics.labelling.expected": "ExpectedAccuracy expected_accuracy",
            "trueodds.metrics.labelling.expected_decisions": (
                "CalibrationRows ExpectedDecision ExpectedShare expected_class_decisions expected_decisions"
            ),
            "trueodds.metrics.labelling.judge_errors": "JudgeErrors JudgeRate judge_errors",
            "trueodds.metrics.labelling.powered": "PoweredMean powered_gap powered_mean",
            "trueodds.metrics.labelling.prior_shift": "PriorShare PriorShift prior_shift prior_shift_of_scores",
            "trueodds.metrics.labelling.sampling": "draw_labels label_propensities",
            "trueodds.metrics.labelling.worst_chances": "WorstChance worst_chances",
            "trueodds.metrics.labelling.weighted_ece": (
                "CrowdedCellError FullestCell WeightedEce fullest_cell inverse_probability_ece weighted_ece"
            ),
            "trueodds.metrics.ranked": "whole_bins",
            "trueodds.metrics.ranked_probability": "rps",
            "trueodds.metrics.scores": (
                "FractionAbove accuracy brier error_rate fraction_above mean_confidence mean_entropy nll signed_gap"
            ),
            "trueodds.metrics.significance.at_least": "AtLeast at_least",
            "trueodds.metrics.significance.calibration": "CalibrationTest calibration_test",
            "trueodds.metrics.significance.confidence_drift": "ConfidenceDrift confidence_drift",
            "trueodds.metrics.significance.differences": "Difference",
            "trueodds.metrics.significance.expected_calibration_error": "EceTest ece_test",
            "trueodds.metrics.significance.kolmogorov_smirnov": "KsTest ks_test",
            "trueodds.metrics.significance.squared_error": (
                "SquaredCalibrationError squared_calibration_difference squared_calibration_error"
            ),
            "trueodds.metrics.smooth": "kde_ece sece smooth_ece",
            "trueodds.metrics.standard_set": "summary",
            "trueodds.processes.choices": "MOST_RATIO",
            "trueodds.sums.bins": "CELLS Bins cell_of",
            "trueodds.sums.cells": "COLUMNS",
            "trueodds.sums.inputs": "softmax",
            "trueodds.sums.ordered": "OrderedSums",
            "trueodds.sums.sums": "CalibrationSums",
        },
    )

__all__ = [
    "CELLS",
    "COLUMNS",
    "MOST_RATIO",
    "AtLeast",
    "Bins",
    "BrierDecomposition",
    "CalibrationRatio",
    "CalibrationRows",
    "CalibrationSums",
    "CalibrationTest",
    "ChoiceOfLabels",
    "ConfidenceDrift",
    "Costs",
    "CrowdedCellError",
    "DecisionCost",
    "Difference",
    "EProcess",
    "EceInterval",
    "EceTest",
    "ExpectedAccuracy",
    "ExpectedDecision",
    "ExpectedShare",
    "FractionAbove",
    "FullestCell",
    "GainSequence",
    "GapSequence",
    "GroupAlarm",
    "JudgeErrors",
    "JudgeRate",
    "KsTest",
    "LabelDelay",
    "LevelBias",
    "MceInterval",
    "NoiseFloor",
    "OrderedEProcess",
    "OrderedSums",
    "PartitionEProcess",
    "PositiveEProcess",
    "PoweredMean",
    "Prequential",
    "PriorShare",
    "PriorShift",
    "RiskEProcess",
    "RiskSequence",
    "SamplewiseInterval",
    "ScoreInterval",
    "Sensitivity",
    "Share",
    "ShiryaevRoberts",
    "SquaredCalibrationError",
    "SweepEce",
    "Threshold",
    "WeightedEProcess",
    "WeightedEce",
    "WorstChance",
    "accuracy",
    "adaptive_ece",
    "at_least",
    "binomial_interval",
    "blocks",
    "brier",
    "brier_decomposition",
    "calibration_ratio",
    "calibration_test",
    "cell_of",
    "choice_of_labels",
    "classwise_ece",
    "classwise_ece_interval",
    "classwise_noise_floor",
    "confidence_drift",
    "debiased_ece",
    "decision_cost",
    "e_benjamini_hochberg",
    "draw_labels",
    "ece",
    "ece_interval",
    "ece_per_class",
    "ece_test",
    "error_rate",
    "expected_accuracy",
    "expected_class_decisions",
    "expected_decisions",
    "fraction_above",
    "fullest_cell",
    "gain_evidence",
    "gain_sequence",
    "gap_sequence",
    "half_panels_error",
    "inverse_probability_ece",
    "judge_errors",
    "kde_ece",
    "ks_error",
    "ks_test",
    "label_binned_ece",
    "label_delay",
    "label_propensities",
    "level_bias",
    "mce",
    "mce_interval",
    "mce_noise_floor",
    "mean_confidence",
    "mean_entropy",
    "nll",
    "noise_floor",
    "noise_floor_per_class",
    "needed_positives",
    "powered_gap",
    "powered_mean",
    "prior_shift",
    "prior_shift_of_scores",
    "risk_sequence",
    "rps",
    "rps_interval",
    "samplewise_error",
    "samplewise_interval",
    "samplewise_noise_floor",
    "score_interval",
    "sece",
    "second_panel_error",
    "sensitivity",
    "signed_gap",
    "smooth_ece",
    "softmax",
    "squared_calibration_difference",
    "squared_calibration_error",
    "summary",
    "sweep_ece",
    "thresholds",
    "weighted_ece",
    "whole_bins",
    "worst_chances",
]
