"""Ranked probability score of ordered classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from trueodds.sums.label_forms import as_rows
from trueodds.sums.ordered import FEWEST_LEVELS, OrderedSums
from trueodds.sums.sums import CalibrationSums

OrderedPredictions = npt.ArrayLike | OrderedSums


def as_ordered_sums(
    predictions: OrderedPredictions,
    labels_N: npt.ArrayLike | None = None,
    classes: Sequence[object] | None = None,
) -> OrderedSums:
    """Return `OrderedSums` unchanged, or build them from probabilities and labels in the forms of `as_rows`.

    Raises:
        ConfigError: `classes` and the labels or the columns do not fit together.
        ValueError: The input is `CalibrationSums`, sums come with labels, probabilities come without, or there are no
            rows.
    """
    if isinstance(predictions, OrderedSums):
        if labels_N is not None or classes is not None:
            raise ValueError("OrderedSums already hold their labels; pass no labels and no classes with them")
        sums = predictions
    else:
        rows, labels = as_rows(predictions, labels_N, classes)
        if isinstance(rows, CalibrationSums):
            raise ValueError("CalibrationSums do not hold the order of the classes; pass probabilities or OrderedSums")
        if labels is None:
            raise ValueError("probabilities need labels; pass (probabilities_NC, labels_N) or OrderedSums")
        sums = OrderedSums.from_probabilities(rows, labels)
    if sums.n == 0:
        raise ValueError("there are no labelled rows; give at least one")
    return sums


def rps(
    predictions: OrderedPredictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    classes: Sequence[object] | None = None,
) -> float:
    """Compute the ranked probability score (RPS) of ordered classes.

    It is the mean over rows of

        sum_{k=1}^{K-1} (P(level >= k) - [true level >= k])^2

    It is not divided by K - 1. So it is in [0, K - 1] and in units of levels: a sure answer costs its distance from the
    true level. It is the CRPS of the level. With two levels it is the Brier score of p(positive). It is a proper score,
    and unlike NLL and Brier score it charges less for a near miss than for a far one.

    Args:
        predictions: Probabilities, shape (N, K), the lowest level first, or `OrderedSums`.
        labels_N: True levels, shape (N,): indices, or names with `classes`. Leave it out with `OrderedSums`.
        classes: Names of the levels in the order of the columns, if the labels are names.

    Returns:
        The score, in [0, K - 1].

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, or fewer than two levels.

    References:
        Epstein 1969, A scoring system for probability forecasts of ranked categories. Murphy 1971, A note on the ranked
        probability score.

    Examples:
        >>> metrics.rps([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]], [0, 0])
        1.15625
    """
    sums = as_ordered_sums(predictions, labels_N, classes)
    if sums.levels == FEWEST_LEVELS:
        return sums.at_least[0].total("brier") / sums.n
    return sums.total("rps") / sums.n
