"""A calibrator for class shares that have changed since its calibrator was fitted (prior shift)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from trueodds.calibrators.base import Calibrator, Labels, LogAffine, Logits, frozen_array, softmax_over
from trueodds.calibrators.checks import check_number
from trueodds.sums.group_names import GroupNames
from trueodds.sums.inputs import Array

LARGEST_SLOPE = 20.0


@dataclass(frozen=True, eq=False)
class PriorCorrected(Calibrator):
    """A calibrator whose log-probabilities are corrected for other class shares.

        p'(y | x) = softmax(s ln p(y | x) + b_y + ln(w_y / pi_y))

    p are the probabilities of the other calibrator. Slope s and biases b calibrate them on the reference rows
    (`trueodds.metrics.prior_shift`). pi are the class shares of these rows, and w the new ones. The result holds if
    only the class shares have changed: p(x | y) is that of the reference rows.

    Attributes:
        slope: Slope s, in (0, 20].
        bias_C: Bias b of each class.
        log_ratio_C: ln(w_y / pi_y) of each class.
        calibrator: The calibrator whose probabilities are corrected.

    References:
        Saerens, Latinne, Decaestecker (2002), equation 2.4. Alexandari, Kundaje, Shrikumar (2020), section 3.

    Examples:
        >>> served = calibrators.Temperature(1.0)
        >>> rarer = calibrators.PriorCorrected(1.0, [0, 0], np.log([0.9 / 0.5, 0.1 / 0.5]), served)
        >>> served([[0.0, 0.0]]), rarer([[0.0, 0.0]]).round(3)
        (array([[0.5, 0.5]]), array([[0.9, 0.1]]))
    """

    name: ClassVar[str] = "prior_corrected"

    slope: float
    bias_C: Array
    log_ratio_C: Array
    calibrator: Calibrator

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("slope", self.slope, 0, LARGEST_SLOPE)
        if self.slope == 0:
            raise ValueError("slope is 0, so the probabilities would say nothing; allowed is (0, 20]")
        object.__setattr__(self, "bias_C", frozen_array(self.bias_C, "bias_C", (None,)))
        classes = len(self.bias_C)
        object.__setattr__(self, "log_ratio_C", frozen_array(self.log_ratio_C, "log_ratio_C", (classes,)))
        with np.errstate(over="ignore"):
            if not np.isfinite(self.shift_C).all():
                raise ValueError("bias_C + log_ratio_C is too large for a number; give logarithms of ratios of shares")
        if not isinstance(self.calibrator, Calibrator):
            raise ValueError(f"calibrator is {self.calibrator!r:.80}; allowed is a calibrator")
        if self.calibrator.classes not in (None, classes):
            raise ValueError(f"bias_C has {classes} classes and the calibrator {self.calibrator.classes}; give as many")

    @property
    def keeps_argmax(self) -> bool:
        return False

    @property
    def classes(self) -> int:
        return len(self.bias_C)

    @property
    def parameters(self) -> int:
        return self.calibrator.parameters + 1 + 2 * self.classes

    @property
    def free_parameters(self) -> int:
        return self.calibrator.free_parameters

    @property
    def at_bound(self) -> bool:
        return self.calibrator.at_bound

    @property
    def shift_C(self) -> Array:
        """Sum of bias and log ratio of each class."""
        shift_C: Array = self.bias_C + self.log_ratio_C
        return shift_C

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        raise TypeError("PriorCorrected is not fitted to labels; trueodds recalibrate --prior-shift makes one")

    def _apply(self, logits_NC: Array) -> Array:
        return self._correct(self.calibrator._apply(logits_NC))

    def _apply_groups(self, logits_NC: Array, groups_N: GroupNames) -> Array:
        return self._correct(self.calibrator._apply_groups(logits_NC, groups_N))

    def _correct(self, p_NC: Array) -> Array:
        return softmax_over(self.slope * np.log(np.maximum(p_NC, np.finfo(float).tiny)) + self.shift_C)

    @property
    def known_groups(self) -> tuple[str, ...]:
        return self.calibrator.known_groups

    def affine(self, classes: int) -> tuple[Array, Array] | None:
        if (inner := self.calibrator.affine(classes)) is None or classes != self.classes:
            return None
        return self.slope * inner[0], self.slope * inner[1] + self.shift_C

    def log_affine(self) -> LogAffine | None:
        if (inner := self.calibrator.log_affine()) is None:
            return None
        return inner._replace(weight_CC=self.slope * inner.weight_CC, bias_C=self.slope * inner.bias_C + self.shift_C)

    def within(self, calibrator: Calibrator) -> PriorCorrected:
        """Return the same correction of another calibrator, such as the one of a single group."""
        return replace(self, calibrator=calibrator)

    def to_json(self) -> dict[str, Any]:
        tree = super().to_json()
        return tree | {"calibrator": self.name, "inner": self.calibrator.to_json()}
