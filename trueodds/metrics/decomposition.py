"""Decomposition of the top label's Brier score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds.metrics.ranked import assign_bins, rank_predictions
from trueodds.metrics.scores import Predictions
from trueodds.processes.choices import Binning
from trueodds.sums.label_forms import as_rows


@dataclass(frozen=True)
class BrierDecomposition:
    """Parts of the top label's Brier score.

        brier = reliability - resolution + uncertainty + within_bin_variance - within_bin_covariance

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> parts = metrics.brier_decomposition(probabilities, labels)
        >>> round(parts.reliability, 4), round(parts.resolution, 4)
        (0.125, 0.1875)
    """

    brier: float
    """Mean (a - c)^2 of the top label, in [0, 1]. The metric `brier` is the sum over classes instead."""
    reliability: float
    resolution: float
    uncertainty: float
    within_bin_variance: float
    within_bin_covariance: float


def brier_decomposition(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> BrierDecomposition:
    """Decompose the top label's Brier score (Murphy's decomposition, with the terms that bins of finite width add).

        reliability = sum_b n_b/n (conf_b - acc_b)^2
        resolution = sum_b n_b/n (acc_b - acc)^2
        uncertainty = acc (1 - acc)
        within_bin_variance = 1/n sum_i (c_i - conf_b(i))^2
        within_bin_covariance = 2/n sum_i (a_i - acc_b(i)) (c_i - conf_b(i))

    Without the last two terms the identity holds only if all confidences of a bin are equal. From probabilities the
    parts are exact. From sums each row counts at the mean confidence of its cell. That changes the Brier score and the
    within-bin terms by less than 1/3000, and the identity stays exact.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The parts and the Brier score.

    Raises:
        ValueError: The input is invalid, equal-width `bins` do not divide 3,000, `bins` is below 1, or the binning is
            unknown.

    References:
        Murphy 1973, A new vector partition of the probability score. Stephenson, Coelho and Jolliffe 2008, Two extra
        components in the Brier score decomposition.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.brier_decomposition(probabilities, labels).brier, 4)
        0.125
    """
    predictions, labels_N = as_rows(predictions, labels_N, classes)
    rows = assign_bins(rank_predictions(predictions, labels_N), bins, binning)
    table, n, c_G = rows.bins, rows.n, rows.confidence_G
    occupied = table.count_B > 0
    share_B, accuracy_B, mean_B = (v[occupied] for v in (table.count_B / n, table.accuracy_B, table.mean_confidence_B))
    accuracy = float(table.correct_B.sum() / n)
    off_G = c_G - table.mean_confidence_B[rows.bin_G]
    surprise_G = rows.correct_G - rows.count_G * table.accuracy_B[rows.bin_G]
    return BrierDecomposition(
        brier=float((rows.correct_G @ (1 - c_G) ** 2 + (rows.count_G - rows.correct_G) @ c_G**2) / n),
        reliability=float(share_B @ (mean_B - accuracy_B) ** 2),
        resolution=float(share_B @ (accuracy_B - accuracy) ** 2),
        uncertainty=accuracy * (1 - accuracy),
        within_bin_variance=float(rows.count_G @ off_G**2 / n),
        within_bin_covariance=float(2 * np.dot(surprise_G, off_G) / n),
    )
