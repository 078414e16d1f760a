"""Metrics of one calibrator's probabilities of test rows, with their uncertainties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trueodds import metrics
from trueodds.calibrators import Calibrator, Identity
from trueodds.evaluation.improvement import post_hoc_improvement, refinement_nll
from trueodds.metrics import CalibrationSums
from trueodds.metrics.intervals.classwise_ece import ClassCells, interval_of_cells
from trueodds.metrics.significance.nets import FEWEST
from trueodds.sums.group_names import GroupNames
from trueodds.sums.inputs import Array, check_counts
from trueodds.sums.losses import SMALLEST_PROBABILITY
from trueodds.sums.positive import PositiveClass

OF_THE_TOP_LABEL = ("accuracy", "error_rate", "mean_confidence")
"""Names in a summary of sums that do not apply to p(positive)."""


class EvaluationSettings(Protocol):
    """Settings of the evaluation."""

    @property
    def bins(self) -> int:
        """Number of equal-width confidence bins; it must divide 3,000."""

    @property
    def level(self) -> float:
        """Confidence level of the intervals."""

    @property
    def compare(self) -> Sequence[str]:
        """Further calibrators, fitted on the validation rows and evaluated on the test rows.

        Options of their fit may follow the name (`temperature objective=ece`). `all` means every calibrator.
        """


@dataclass(frozen=True)
class Measurement:
    """Metrics of one calibrator's probabilities of the test rows, with all data for tables and pictures."""

    name: str
    sums: CalibrationSums
    values: dict[str, float]
    """Values by the names of `trueodds.metrics`. Calibration errors are fractions: .0123 is 1.23%. NaN: undefined."""
    ece_C: Array
    """ECE of each class, with equal-width bins."""
    floor_C: Array
    """Mean of `ece_C` if the probabilities were calibrated."""
    positive: dict[str, Any] | None = None
    """Result of `positive_values`, if there is a positive class."""


@dataclass(frozen=True)
class FailedFit:
    """A calibrator that the validation rows do not determine, and the reason."""

    name: str
    reason: str


def measure(
    calibrator: Calibrator,
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    settings: EvaluationSettings,
    positive: PositiveClass | None = None,
    counts_NC: npt.ArrayLike | None = None,
    groups_N: GroupNames | None = None,
) -> Measurement:
    """Compute all metrics of one calibrator. It takes .4 s for 10,000 x 100 and 2 s for 10,000 x 1,000."""
    p_NC, before_NC = calibrator(logits_NC, groups=groups_N), Identity()(logits_NC)
    return measure_probabilities(calibrator.name, p_NC, labels_N, settings, positive, counts_NC, before_NC=before_NC)


def measure_probabilities(
    name: str,
    p_NC: Array,
    labels_N: npt.ArrayLike,
    settings: EvaluationSettings,
    positive: PositiveClass | None = None,
    counts_NC: npt.ArrayLike | None = None,
    *,
    before_NC: Array,
) -> Measurement:
    """Compute all metrics of given probabilities. `before_NC` are those of the same rows without a calibrator."""
    bins = settings.bins
    sums = CalibrationSums.from_probabilities(p_NC, labels_N)
    ece_C = metrics.ece_per_class(p_NC, labels_N, bins=bins)
    cells = ClassCells.of(p_NC, bins)
    sweep, above = metrics.sweep_ece(p_NC, labels_N), metrics.fraction_above(sums)
    brier = metrics.brier_decomposition(p_NC, labels_N, bins=bins)
    of_people = {} if counts_NC is None else samplewise_values(p_NC, counts_NC, settings.level)
    of_positive = None if positive is None else positive_values(positive, p_NC, labels_N, settings)
    values = {
        **metrics.summary(sums, bins=bins, level=settings.level),
        "calibration_p_value": metrics.calibration_test(sums, bins=bins).p_value,
        "ece_l2": metrics.ece(sums, bins=bins, norm="l2"),
        "refinement_nll": refinement_nll(np.log(np.maximum(p_NC, SMALLEST_PROBABILITY)), labels_N),
        **_improvement(before_NC, p_NC, labels_N, settings.level),
        "label_binned_ece": metrics.label_binned_ece(p_NC, labels_N, bins=bins),
        "adaptive_ece": metrics.adaptive_ece(p_NC, labels_N, bins=bins),
        "adaptive_ece_l2": metrics.adaptive_ece(p_NC, labels_N, bins=bins, norm="l2"),
        "debiased_ece": metrics.debiased_ece(p_NC, labels_N, bins=bins),
        **_squared_error(p_NC, labels_N, settings),
        "sweep_ece": sweep.ece,
        "sweep_bins": sweep.bins,
        "ks_error": metrics.ks_error(p_NC, labels_N),
        "smooth_ece": metrics.smooth_ece(sums),
        "kde_ece": metrics.kde_ece(sums),
        "sece": metrics.sece(sums),
        "classwise_ece": float(ece_C.mean()),
        "classwise_floor": float(cells.floor_C.mean()),
        "classwise_adaptive_ece": metrics.classwise_ece(p_NC, labels_N, bins=bins, binning="mass"),
        "top_brier": brier.brier,
        "top_brier_reliability": brier.reliability,
        "top_brier_resolution": brier.resolution,
        "top_brier_uncertainty": brier.uncertainty,
        "top_brier_within_bin_variance": brier.within_bin_variance,
        "top_brier_within_bin_covariance": brier.within_bin_covariance,
        "fraction_above_99": above.fraction,
        "accuracy_above_99": above.accuracy,
        "mean_entropy": metrics.mean_entropy(p_NC),
        **_uncertainty(sums, cells, p_NC, labels_N, settings),
        **of_people,
    }
    return Measurement(name, sums, values, ece_C, cells.floor_C, of_positive)


def _uncertainty(
    sums: CalibrationSums, cells: ClassCells, p_NC: Array, labels_N: npt.ArrayLike, settings: EvaluationSettings
) -> dict[str, float]:
    """Compute confidence limits of the other values at `settings.level`, and the values of calibrated probabilities."""
    bins, level = settings.bins, settings.level
    (low,), (high,) = metrics.binomial_interval([sums.n - sums.total("correct")], [sums.n], level=level)
    limits = {
        "nll": metrics.score_interval(sums, level=level),
        "adaptive_ece": metrics.ece_interval(sums, bins=bins, level=level, binning="mass"),
        "classwise_ece": interval_of_cells(cells, p_NC, labels_N, level),
        "mce": metrics.mce_interval(sums, bins=bins, level=level),
    }
    adaptive, largest = metrics.noise_floor(sums, bins=bins, binning="mass"), metrics.mce_noise_floor(sums, bins=bins)
    return {
        "error_rate_lower": float(low),
        "error_rate_upper": float(high),
        **{f"{name}_{end}": getattr(one, end) for name, one in limits.items() for end in ("lower", "upper")},
        "adaptive_floor_mean": adaptive.mean,
        "adaptive_floor_p95": adaptive.p95,
        "classwise_floor_p95": cells.noise_floor.p95,
        "mce_floor_mean": largest.mean,
        "mce_floor_p95": largest.p95,
    }


def _squared_error(p_NC: Array, labels_N: npt.ArrayLike, settings: EvaluationSettings) -> dict[str, float]:
    """Compute the squared calibration error with its limits; NaN if there are too few rows."""
    name, ends = "squared_calibration_error", ("lower", "upper")
    if len(p_NC) < FEWEST:
        return {name: np.nan, **{f"{name}_{end}": np.nan for end in ends}}
    found = metrics.squared_calibration_error(p_NC, labels_N, bins=settings.bins, level=settings.level)
    return {name: found.value, **{f"{name}_{end}": getattr(found, end) for end in ends}}


def _improvement(before_NC: Array, p_NC: Array, labels_N: npt.ArrayLike, level: float) -> dict[str, float]:
    """Compute PHI of NLL and Brier score with its limits: phi_nll, phi_nll_lower and so on."""
    table: dict[str, float] = {}
    for score, phi in post_hoc_improvement(before_NC, p_NC, labels_N, level=level).items():
        table |= {f"phi_{score}": phi.value, f"phi_{score}_lower": phi.lower, f"phi_{score}_upper": phi.upper}
    return table


def positive_values(
    positive: PositiveClass, p_NC: Array, labels_N: npt.ArrayLike, settings: EvaluationSettings
) -> dict[str, Any]:
    """Return the name of the positive class and the metrics of its probability in [0, 1].

    `prevalence` is the share of positive rows, which `mean_probability` should equal. `brier` is in [0, 1].
    """
    sums = positive.sums(p_NC, labels_N)
    values = metrics.summary(sums, bins=settings.bins, level=settings.level)
    ks = metrics.ks_test(sums)
    return {
        "class": positive.name,
        "prevalence": values["accuracy"],
        "mean_probability": values["mean_confidence"],
        **{name: value for name, value in values.items() if name not in OF_THE_TOP_LABEL},
        "calibration_p_value": metrics.calibration_test(sums, bins=settings.bins).p_value,
        "ks": ks.ks,
        "ks_p_value": ks.p_value,
        "smooth_ece": metrics.smooth_ece(sums),
    }


def samplewise_values(p_NC: npt.ArrayLike, counts_NC: npt.ArrayLike, level: float) -> dict[str, float]:
    """Compute the l1 distance of probabilities from votes, its limits, and the distance of calibrated probabilities.

    Raises:
        ValueError: The counts are invalid, or have another shape than the probabilities.
    """
    counts = check_counts(counts_NC)
    interval = metrics.samplewise_interval(p_NC, counts, level=level)
    return {
        "samplewise_error": interval.error,
        "samplewise_error_lower": interval.lower,
        "samplewise_error_upper": interval.upper,
        "samplewise_floor": metrics.samplewise_noise_floor(p_NC, counts.sum(axis=1)),
    }


def panel_values(counts_NC: npt.ArrayLike) -> dict[str, float]:
    """Count the votes, and compute the distance between panels of people that scatter alone explains, for any model.

    Raises:
        ValueError: The counts are invalid.
    """
    counts = check_counts(counts_NC)
    votes_N = counts.sum(axis=1)
    halves = {} if votes_N.max() < 2 else {"half_panels_error": metrics.half_panels_error(counts)}
    return {
        "mean_votes": float(votes_N.mean()),
        "unanimous_share": float(np.mean(counts.max(axis=1) == votes_N)),
        "second_panel_error": metrics.second_panel_error(counts),
        **halves,
    }
