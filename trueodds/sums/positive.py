"""The positive class of a binary model: its probability, and the calibration sums by it."""

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
from trueodds.sums.inputs import Array, as_array, as_numbers, check_labels, check_probabilities
from trueodds.sums.losses import nll_of
from trueodds.sums.sums import CalibrationSums

CLASSES = 2
ROUNDING = 2.0**-52
"""How far 1 - c may be from the probability whose complement was rounded to c."""


@dataclass(frozen=True)
class PositiveClass:
    """The class of two that the model is asked about, such as `malignant`.

    >>> from trueodds.sums.positive import PositiveClass
    >>> positive = PositiveClass.of("malignant", ["benign", "malignant"])
    >>> positive.probability([[0.1, 0.9], [0.75, 0.25]])
    array([0.9 , 0.25])
    """

    name: str
    index: int
    """Its place among the classes."""

    @classmethod
    def of(cls, name: str, classes: Sequence[str]) -> Self:
        """The class of that name.

        Raises:
            ConfigError: not two classes, or none of that name.
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
        """p(positive) of each row of class probabilities (N, 2).

        Raises:
            ValueError: no probabilities, or not of two classes.
        """
        p_NC = check_probabilities(probabilities)
        if p_NC.shape[1] != CLASSES:
            raise ValueError(f"probabilities has shape {p_NC.shape}; a positive class is one of two: expected (N, 2)")
        return p_NC[:, self.index]

    def probability_of_top(self, confidence_N: npt.ArrayLike, predicted_N: npt.ArrayLike) -> Array:
        """p(positive) of answers known by their predicted class, as its index, and its confidence c: c, or 1 - c.

        Where 1 - c is an edge of the 3,000 cells but for rounding, it is that edge: so 0.3 that came as 0.7 of the
        other class lies in the cell of 0.3, not in the one above.

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
        """p(positive), whether the label is positive, NLL and Brier score of answers that `probability_of_top` knows.

        `nll_N`: of two classes it is the same for both; NaN, where it is not known, becomes what p(positive) says.
        """
        p_N, positive_N = self.probability_of_top(confidence_N, predicted_N), as_array(labels_N, "labels") == self.index
        of_p_N = nll_of(np.where(positive_N, p_N, 1 - p_N))
        return p_N, positive_N, np.where(np.isnan(nll_N), of_p_N, nll_N), (p_N - positive_N) ** 2

    def sums(self, probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> CalibrationSums:
        """Calibration sums of p(positive) over all of [0, 1] in place of the confidence of the more probable class.

        "confidence" is p(positive), "correct" whether the label is positive; NLL is -log p_y, and the Brier score
        (p(positive) - [label is positive])^2 in [0, 1], half of that over both classes. So every metric of sums
        is one of p(positive), but for the accuracy: it is the share of positive labels. Near 0 they have finer cells
        (`trueodds.sums.fine`).

        Raises:
            ValueError: as `probability`; labels that are no class indices.

        >>> from trueodds.sums.positive import PositiveClass
        >>> p, labels = [[0.1, 0.9], [0.7, 0.3], [0.8, 0.2]], [1, 1, 0]
        >>> sums = PositiveClass("malignant", 1).sums(p, labels)
        >>> round(metrics.signed_gap(sums), 3), round(metrics.brier(sums), 3)
        (0.2, 0.18)
        """
        p_N: Array = self.probability(probabilities).astype(np.float64)
        return self.sums_of(p_N, check_labels(labels, len(p_N), CLASSES) == self.index)

    @staticmethod
    def sums_of(p_N: npt.NDArray[Any], positive_N: npt.NDArray[np.bool_]) -> CalibrationSums:
        """As `sums`, of p(positive) and whether each row is positive."""
        p_N = np.clip(p_N.astype(np.float64), 0.0, 1.0)  # 1e-3 more is a probability of 1
        nll_N = nll_of(np.where(positive_N, p_N, 1 - p_N))
        return FineSums.of(p_N, positive_N, nll_N=nll_N, brier_N=(p_N - positive_N) ** 2)


def folded(sums: CalibrationSums) -> CalibrationSums:
    """The sums of the more probable of two classes, from those of p(positive).

    A row of p(positive) <= 1/2 becomes one of confidence 1 - p(positive), right where its label is negative. The NLL is
    the same, and the Brier score is over both classes: twice that of p(positive).

    >>> from trueodds.sums.positive import PositiveClass, folded
    >>> sums = PositiveClass.sums_of(np.array([0.9, 0.3]), np.array([True, False]))
    >>> metrics.accuracy(folded(sums)), round(metrics.mean_confidence(folded(sums)), 3)
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
    """The positive class by its name, and the sums of all answers by p(positive): `PositiveClass.sums` says which."""

    name: str
    sums: AnswerSums
