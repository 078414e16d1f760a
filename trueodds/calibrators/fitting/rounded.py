"""A calibrator of rounded probabilities: it knows which logits stand for zeros, and how small these are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.calibrators.base import Calibrator, Labels, Logits, row_blocks
from trueodds.calibrators.checks import check_number
from trueodds.sums.group_names import GroupNames
from trueodds.sums.inputs import Array
from trueodds.sums.rounding import WIDEST
from trueodds.sums.steps import COARSEST_WITH_NLL

POWERS = 0.25, 8.0
"""Smallest and largest power of the zeros."""
_SCALES = 1 / 50, 50.0
SHIFTS = -8.0, 8.0
"""Smallest and largest shift of the zeros of certain rows."""
_PRIOR = 0.5
"""Standard deviation of the logarithm of the power before any row was seen."""
_SHIFT_PRIOR = 1.0
"""Standard deviation of the shift before any row was seen."""
_UP_TO_HALF = 0.505
"""Steps below which a reading belongs to a zero; that of a value above 0 is at least .51."""


@dataclass(frozen=True, eq=False)
class Rounded(Calibrator):
    """A calibrator for logits of rounded probabilities (`trueodds.logits_of` with their `resolution`).

    `logits_of` reads all zeros of a row alike: an equal share v of what is missing to 1, below half a step h. That
    hides how unequal they are, and a temperature above 1 turns many equal zeros into far too much probability. It also
    reads all certain rows alike, those with a single value above 0 (1.00): they share one confidence, on which a
    temperature has no say of its own. So the fit learns two more numbers, the power a and the shift c. A zero's logit
    ln v becomes ln h + a (ln v - ln h), plus c in a certain row, there at most ln r - ln 2 with the row's largest r. At
    a = 1 and c = 0 it is unchanged. Then the other calibrator is applied. Values above 0 are not changed, and zeros
    stay below them.

    Power and shift have the least NLL together with a temperature. The priors are normal: ln a has median 0 and a
    standard deviation of 0.5, c has median 0 and a standard deviation of 1.

    Attributes:
        step: Step of the probabilities.
        power: Power a of the zeros.
        shift: Shift c of the zeros of certain rows. 0 if no row was certain.
        calibrator: The calibrator for the logits with changed zeros.

    Examples:
        >>> import trueodds
        >>> rows, labels = [[1.0, 0.0, 0.0], [0.5, 0.33, 0.16]] * 50, ([0] * 3 + [1]) * 25
        >>> logits = trueodds.logits_of(rows, resolution=0.01)
        >>> calibrator = trueodds.fit(logits, labels, "temperature", resolution=0.01)
        >>> calibrator.name, calibrator.calibrator.name
        ('rounded', 'temperature')
    """

    name: ClassVar[str] = "rounded"

    step: float
    power: float
    shift: float
    calibrator: Calibrator

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("step", self.step, 0, WIDEST)
        check_number("power", self.power, *POWERS)
        check_number("shift", self.shift, *SHIFTS)
        if not isinstance(self.calibrator, Calibrator):
            raise ValueError(f"calibrator is {self.calibrator!r:.80}; allowed is a calibrator")

    @property
    def keeps_argmax(self) -> bool:
        return self.calibrator.keeps_argmax

    @property
    def parameters(self) -> int:
        return self.calibrator.parameters + 2

    @property
    def free_parameters(self) -> int:
        return self.calibrator.free_parameters

    @property
    def at_bound(self) -> bool:
        return self.calibrator.at_bound

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        raise TypeError("Rounded is fitted by trueodds.fit(logits, labels, method, resolution=step)")

    def _apply(self, logits_NC: Array) -> Array:
        return self.calibrator._apply(with_zeros(logits_NC, self.step, self.power, self.shift))

    def _apply_groups(self, logits_NC: Array, groups_N: GroupNames) -> Array:
        return self.calibrator._apply_groups(with_zeros(logits_NC, self.step, self.power, self.shift), groups_N)

    @property
    def known_groups(self) -> tuple[str, ...]:
        return self.calibrator.known_groups

    def to_json(self) -> dict[str, Any]:
        tree = super().to_json()
        return tree | {"calibrator": self.name, "inner": self.calibrator.to_json()}


def fit_on_steps(
    logits_NC: Logits, labels_N: Labels, step: float, fit_inner: Callable[[Array, Labels], Calibrator]
) -> Rounded:
    """Fit power and shift of the zeros, and then a calibrator on the logits with changed zeros.

    Args:
        logits_NC: Logits of `trueodds.logits_of` with this step, shape (N, C).
        labels_N: True classes, shape (N,).
        step: Step of the probabilities.
        fit_inner: Fits the calibrator.
    """
    power, shift = fit_zeros(logits_NC, labels_N, step)
    inner = fit_inner(with_zeros(logits_NC, step, power, shift), labels_N)
    notes = list(inner.warnings)
    if step > COARSEST_WITH_NLL:
        notes.append(
            f"The probabilities are in steps of {step:g}, which is too coarse for a dependable fit: take values with"
            " two decimals or more."
        )
    return Rounded(step, power, shift, inner, warnings=tuple(notes), fitted_classes=logits_NC.shape[1])


def with_zeros(logits_NC: Logits, step: float, power: float, shift: float) -> Array:
    """Return ln p of each row, where that of a zero is ln h + a (ln p - ln h) + c, at most ln r - ln 2.

    h is half a step. c and the limit count in certain rows only, those with a single value above 0, which is r.

    Args:
        logits_NC: Logits of rounded probabilities, shape (N, C).
        step: Step of the probabilities.
        power: Power a.
        shift: Shift c.
    """
    out_NC = np.empty(logits_NC.shape)
    for block in row_blocks(*logits_NC.shape):
        rows = _ZeroRows.of(logits_NC[block], step)
        out_NC[block] = rows.log_NC - rows.below_NC + rows.move(power, shift)
    return out_NC


def fit_zeros(logits_NC: Logits, labels_N: Labels, step: float) -> tuple[float, float]:
    """Return the power and the shift that have, with the best temperature, the least NLL under their priors."""
    blocks = [_ZeroRows.of(logits_NC[block], step) for block in row_blocks(*logits_NC.shape)]
    if not any(block.below_NC.any() for block in blocks):
        return 1.0, 0.0
    certain = any(block.certain_N1.any() for block in blocks)
    bounds = [tuple(map(math.log, _SCALES)), tuple(map(math.log, POWERS)), SHIFTS if certain else (0.0, 0.0)]
    found = scipy.optimize.minimize(
        lambda theta: zeros_loss(theta, logits_NC, labels_N, step),
        np.zeros(3),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
    )
    return float(np.clip(np.exp(found.x[1]), *POWERS)), float(found.x[2])


def zeros_loss(theta_3: Array, logits_NC: Logits, labels_N: Labels, step: float) -> tuple[float, Array]:
    """Return the mean NLL of softmax(b z) plus the priors of ln a and c, with its gradient.

    z are the logits of `with_zeros`.

    Args:
        theta_3: ln b, ln a and c.
        logits_NC: Logits of rounded probabilities, shape (N, C).
        labels_N: True classes, shape (N,).
        step: Step of the probabilities.
    """
    (scale, power), shift = np.exp(theta_3[:2]), theta_3[2]
    loss, slope_3 = 0.0, np.zeros(3)
    for block in row_blocks(*logits_NC.shape):
        rows = _ZeroRows.of(logits_NC[block], step)
        changed_NC = rows.move(power, shift)
        z_NC = scale * (rows.log_NC - rows.below_NC + changed_NC)
        labels, numbers = labels_N[block], np.arange(len(z_NC))
        result_NC = scipy.special.log_softmax(z_NC, axis=1)
        loss -= result_NC[numbers, labels].sum()
        residual_NC = np.exp(result_NC)
        residual_NC[numbers, labels] -= 1
        moving_NC = scale * residual_NC * (rows.zero_NC & (changed_NC < rows.most_N1))
        slope_3 += (
            (residual_NC * z_NC).sum(),
            (moving_NC * power * rows.below_NC).sum(),
            (moving_NC * rows.certain_N1).sum(),
        )
    loss += theta_3[1] ** 2 / (2 * _PRIOR**2) + shift**2 / (2 * _SHIFT_PRIOR**2)
    slope_3[1:] += theta_3[1] / _PRIOR**2, shift / _SHIFT_PRIOR**2
    return loss / len(labels_N), slope_3 / len(labels_N)


@dataclass(frozen=True, eq=False)
class _ZeroRows:
    """Rounded rows, with what is known of their zeros."""

    log_NC: Array
    """ln p."""
    zero_NC: npt.NDArray[np.bool_]
    """Whether the value is a zero."""
    below_NC: Array
    """ln p - ln h of the zeros, which is at most 0; 0 for other values."""
    certain_N1: npt.NDArray[np.bool_]
    """Whether all values but one are zeros."""
    most_N1: Array
    """ln r - ln 2 - ln h of a certain row with the value r, infinite in others."""

    @classmethod
    def of(cls, logits_NC: Logits, step: float) -> Self:
        log_NC = scipy.special.log_softmax(logits_NC.astype(np.float64, copy=False), axis=1)
        zero_NC = log_NC < math.log(_UP_TO_HALF * step)
        below_NC = np.where(zero_NC, np.minimum(log_NC - math.log(step / 2), 0.0), 0.0)
        certain_N1 = zero_NC.sum(axis=1, keepdims=True) == log_NC.shape[1] - 1
        most_N1 = np.where(certain_N1, log_NC.max(axis=1, keepdims=True) - math.log(step), np.inf)
        return cls(log_NC, zero_NC, below_NC, certain_N1, most_N1)

    def move(self, power: float, shift: float) -> Array:
        """Return ln p - ln h of the zeros after power and shift; 0 for other values."""
        moved_NC = np.minimum(power * self.below_NC + shift * self.certain_N1, self.most_N1)
        changed_NC: Array = np.where(self.zero_NC, moved_NC, 0.0)
        return changed_NC
