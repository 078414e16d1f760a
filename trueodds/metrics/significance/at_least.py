"""Calibration of each "at least level k" of ordered classes, with marks corrected for their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trueodds.metrics.binned import ece
from trueodds.metrics.ranked_probability import OrderedPredictions, as_ordered_sums
from trueodds.metrics.scores import accuracy, mean_confidence
from trueodds.metrics.significance.calibration import calibration_test
from trueodds.processes.choices import Binning

FAMILY_RATE = 0.05
"""Largest probability of any mark among the thresholds of a calibrated model."""


@dataclass(frozen=True)
class AtLeast:
    """Calibration of "at least level k", the binary question whether a row reaches a level.

    Examples:
        >>> probabilities = [[0.5, 0.25, 0.25], [0.1, 0.4, 0.5]] * 50
        >>> metrics.at_least(probabilities, [0, 2] * 50)[0].share
        0.5
    """

    level: int
    """Level k, from 1 on."""
    mean_probability: float
    share: float
    """Share of the rows whose true level is at least k."""
    ece: float
    p_value: float
    """p-value of `calibration_test`."""
    more_than_chance: bool = False
    """Whether it is off by more than chance, by the p-values of all thresholds together (Holm)."""

    @property
    def gap(self) -> float:
        """Share - mean probability. Negative means that the probabilities are too high."""
        return self.share - self.mean_probability


def at_least(
    predictions: OrderedPredictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "width",
    classes: Sequence[object] | None = None,
) -> tuple[AtLeast, ...]:
    """Compute the calibration of each "at least level k", for k = 1 .. K - 1.

    Each is a binary question with the probability P(level >= k). Its figures are those of a positive class with these
    probabilities. `more_than_chance` marks levels by Holm's procedure on their p-values: if all are calibrated, any
    level is marked with a probability of at most 5%, however the questions depend on each other. The p-values come from
    draws, so none is below 1/20,000.

    Args:
        predictions: Probabilities, shape (N, K), the lowest level first, or `OrderedSums`.
        labels_N: True levels, shape (N,): indices, or names with `classes`. Leave it out with `OrderedSums`.
        bins: Number of bins. With equal widths it must divide 3,000.
        binning: "width" (equal widths) or "mass" (equal numbers of rows).
        classes: Names of the levels in the order of the columns, if the labels are names.

    Returns:
        One entry per level but the lowest.

    Raises:
        ValueError: The probabilities or labels are invalid, there are no rows, fewer than two levels, or `ece` does not
            accept the bins.

    References:
        Holm 1979, A simple sequentially rejective multiple test procedure.

    Examples:
        >>> probabilities = [[0.5, 0.25, 0.25], [0.1, 0.4, 0.5]] * 50
        >>> [(one.level, one.more_than_chance) for one in metrics.at_least(probabilities, [0, 2] * 50)]
        [(1, True), (2, True)]
    """
    sums = as_ordered_sums(predictions, labels_N, classes)
    found = [
        AtLeast(
            level=k,
            mean_probability=mean_confidence(part),
            share=accuracy(part),
            ece=ece(part, bins=bins, binning=binning),
            p_value=calibration_test(part, bins=bins, binning=binning).p_value,
        )
        for k, part in enumerate(sums.at_least, 1)
    ]
    marks = holm([one.p_value for one in found], FAMILY_RATE)
    return tuple(replace(one, more_than_chance=mark) for one, mark in zip(found, marks, strict=True))


def holm(p_values: Sequence[float], rate: float) -> list[bool]:
    """Return whether each of m hypotheses is rejected, by the procedure of Holm (1979).

    It goes through the p-values in ascending order and stops at the first p_(k) > rate / (m - k + 1). The probability
    that it rejects any true hypothesis is at most `rate`, however the p-values depend on each other.
    """
    order = np.argsort(p_values, kind="stable")
    passes = np.asarray(p_values)[order] <= rate / np.arange(len(order), 0, -1)
    rejected = np.zeros(len(order), bool)
    rejected[order[: int(np.cumprod(passes).sum())]] = True
    return [bool(one) for one in rejected]
