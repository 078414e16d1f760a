"""The positive class of a binary model: its probability, and calibration sums by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from trueodds.errors import ConfigError, unknown
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import CELLS
from trueodds.sums.fine import FineSums
from trueodds.sums.frames import check_columns, check_index
from trueodds.sums.inputs import Array, as_array, as_numbers, check_labels, check_probabilities
from trueodds.sums.losses import nll_of, rounded_losses
from trueodds.sums.rounding import EXACT, Given, Resolution, with_resolution
from trueodds.sums.sums import CalibrationSums

CLASSES = 2
ROUNDING = 2.0**-52
"""Largest difference of 1 - c from the probability whose complement was rounded to c."""


@dataclass(frozen=True)
class PositiveClass:
    """The class of two whose probability the model predicts, such as `malignant`.

    Examples:
        >>> from trueodds.sums.positive import PositiveClass
        >>> positive = PositiveClass.of("malignant", ["benign", "malignant"])
        >>> positive.probability([[0.1, 0.9], [0.75, 0.25]])
        array([0.9 , 0.25])
    """

    name: str
    index: int
    """Its index among the classes."""

    @classmethod
    def of(cls, name: str, classes: Sequence[str]) -> Self:
        """Find the class with a name.

        Args:
            name: Name of the positive class.
            classes: Names of all classes.

        Raises:
            ConfigError: There are not two classes, or none has this name.
        """
        if name not in classes:
            raise unknown("positive class", name, classes)
        if len(classes) != CLASSES:
            raise ConfigError(
                f"positive is {name!r}, but there are {len(classes)} classes; a positive class is one of two: leave it"
                " out, or join the others to one class in the labels and the model"
            )
        return cls(name, list(classes).index(name))

    def probability(self, probabilities: npt.ArrayLike) -> npt.NDArray[np.floating]:
        """Return p(positive) of each row of class probabilities (N, 2).

        Raises:
            ValueError: The input holds no probabilities, or not those of two classes.
        """
        p_NC = check_probabilities(probabilities)
        if p_NC.shape[1] != CLASSES:
            raise ValueError(f"probabilities has shape {p_NC.shape}; a positive class is one of two: expected (N, 2)")
        return p_NC[:, self.index]

    def probability_of_top(self, confidence_N: npt.ArrayLike, predicted_N: npt.ArrayLike) -> Array:
        """Compute p(positive) of answers from their predicted class and its confidence c: c, or 1 - c.

        If 1 - c is an edge of the 3,000 cells except for rounding, it becomes that edge. So 0.3 that arrives as 0.7 of
        the other class lies in the cell of 0.3, not in the next one.

        Args:
            confidence_N: Confidence of each predicted class.
            predicted_N: Index of each predicted class.

        Examples:
            >>> from trueodds.sums.positive import PositiveClass
            >>> PositiveClass("malignant", 1).probability_of_top([0.9, 0.7], [1, 0])
            array([0.9, 0.3])
        """
        c_N = as_numbers(confidence_N, "confidence").astype(np.float64, copy=False)
        other_N = 1 - c_N
        edge_N = np.round(other_N * CELLS) / CELLS
        other_N = np.where(np.abs(other_N - edge_N) <= ROUNDING, edge_N, other_N)
        p_N: Array = np.where(as_array(predicted_N, "predicted") == self.index, c_N, other_N)
        return p_N

    def rows_of_top(
        self, confidence_N: Array, predicted_N: npt.ArrayLike, labels_N: npt.ArrayLike, nll_N: Array
    ) -> tuple[Array, npt.NDArray[np.bool_], Array, Array]:
        """Compute p(positive), whether the label is positive, NLL and Brier score of such answers.

        p(positive) comes from `probability_of_top`.

        `nll_N` is the same for both classes. Where it is NaN (unknown), p(positive) determines it.
        """
        p_N, positive_N = self.probability_of_top(confidence_N, predicted_N), as_array(labels_N, "labels") == self.index
        of_p_N = nll_of(np.where(positive_N, p_N, 1 - p_N))
        return p_N, positive_N, np.where(np.isnan(nll_N), of_p_N, nll_N), (p_N - positive_N) ** 2

    def sums(self, probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, resolution: Given = None) -> CalibrationSums:
        """Build calibration sums by p(positive) in [0, 1], instead of by the confidence of the more probable class.

        "confidence" is p(positive), and "correct" is whether the label is positive. NLL is -log p_y. The Brier score is
        (p(positive) - [label is positive])^2 in [0, 1], half of that over both classes. So every metric of sums becomes
        one of p(positive), except that the accuracy is the share of positive labels. Near 0 the sums have finer cells
        (`trueodds.sums.fine`).

        Args:
            probabilities: Probabilities, shape (N, 2).
            labels: True classes, shape (N,).
            resolution: Step of rounded probabilities, as `CalibrationSums.from_probabilities` has it.

        Raises:
            ValueError: `probability` does not accept the probabilities, or labels are not class indices.

        Examples:
            >>> from trueodds.sums.positive import PositiveClass
            >>> p, labels = [[0.1, 0.9], [0.7, 0.3], [0.8, 0.2]], [1, 1, 0]
            >>> sums = PositiveClass("malignant", 1).sums(p, labels)
            >>> round(metrics.signed_gap(sums), 3), round(metrics.brier(sums), 3)
            (0.2, 0.18)
        """
        check_index(probabilities=probabilities, labels=labels)
        check_columns(probabilities, labels)
        p_NC, read_as = with_resolution(probabilities, resolution)
        p_N: Array = self.probability(p_NC).astype(np.float64)
        return self.sums_of(p_N, check_labels(labels, len(p_NC), CLASSES) == self.index, read_as)

    @staticmethod
    def sums_of(
        p_N: npt.NDArray[Any], positive_N: npt.NDArray[np.bool_], resolution: Resolution = EXACT
    ) -> CalibrationSums:
        """Build `sums` from p(positive) and whether each row is positive."""
        p_N = np.clip(p_N.astype(np.float64), 0.0, 1.0)  # up to 1e-3 above 1 counts as 1
        nll_N, _, brier_N = losses_of_positive(p_N, positive_N, resolution)
        known_N = nll_N if resolution.has_nll else None
        return FineSums.of(resolution.confidence(p_N), positive_N, nll_N=known_N, brier_N=brier_N)


def losses_of_positive(
    p_N: Array, positive_N: npt.NDArray[np.bool_], resolution: Resolution = EXACT
) -> tuple[Array, Array, Array]:
    """Return NLL, its lower bound, and (p - [positive])^2 of p(positive), rounded ones as `rounded_losses` reads them.

    Args:
        p_N: p(positive), in [0, 1].
        positive_N: Whether each label is positive.
        resolution: Resolution of p(positive).
    """
    if resolution.step is None:
        nll_N = nll_of(np.where(positive_N, p_N, 1 - p_N))
        return nll_N, nll_N, (p_N - positive_N) ** 2
    losses = rounded_losses(np.stack([1 - p_N, p_N], axis=1), positive_N.astype(np.intp), resolution.step)
    return losses.nll_N, losses.least_N, losses.brier_N / 2


def sums_of_top(sums: CalibrationSums) -> CalibrationSums:
    """Convert sums by p(positive) to sums by the more probable of two classes.

    A row with p(positive) <= 1/2 becomes one of confidence 1 - p(positive) that is right if its label is negative. The
    NLL is the same. The Brier score is over both classes: twice that of p(positive).

    Examples:
        >>> from trueodds.sums.positive import PositiveClass, sums_of_top
        >>> sums = PositiveClass.sums_of(np.array([0.9, 0.3]), np.array([True, False]))
        >>> metrics.accuracy(sums_of_top(sums)), round(metrics.mean_confidence(sums_of_top(sums)), 3)
        (1.0, 0.8)
    """
    half = CELLS // 2
    count, p, positive, nll, nll_squared, brier, brier_squared = sums.cells
    lower = [count, count - p, count - positive, nll, nll_squared, brier, brier_squared]
    upper_HC = sums.cells[:, half:] + np.stack(lower)[:, half - 1 :: -1]
    upper_HC[5] *= 2
    upper_HC[6] *= 4
    return CalibrationSums(np.concatenate([np.zeros_like(upper_HC), upper_HC], axis=1))


@dataclass(frozen=True, eq=False)
class PositiveSums:
    """Name of the positive class, and the sums of all answers by p(positive) (see `PositiveClass.sums`)."""

    name: str
    sums: AnswerSums
