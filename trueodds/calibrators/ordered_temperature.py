"""Ordered temperature scaling, for classes that are levels: a temperature and shifts of the cumulative logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.calibrators.base import Calibrator, FitError, Labels, Logits, frozen_array, row_blocks, softmax_over
from trueodds.calibrators.checks import Number, OptionCheck
from trueodds.calibrators.fitting.newton import minimise
from trueodds.calibrators.fitting.objectives import Rows
from trueodds.calibrators.temperature import SHRINKAGE, Bound, bound_notes, check_temperature, range_of, solve_nll
from trueodds.sums.inputs import Array

LEAST_STEP = 1e-6
"""Least difference of neighbouring shifts. It leaves a probability to a level that the model rules out."""
LARGEST = 1e5
"""Largest cumulative logit of a fit, as for the affine calibrators."""


@dataclass(frozen=True, eq=False)
class OrderedTemperature(Calibrator):
    """Ordered temperature scaling, P(level >= k) = sigma(a s_k + b_k), with a > 0 and b_1 > b_2 > ... > b_{K-1}.

    s_k = ln F_k - ln(1 - F_k) are the cumulative logits of F_k = P(level >= k) under softmax(z / T), where T is the
    fit of `Temperature` under the same `shrinkage`. The classes are levels, the lowest first. s_k falls with k, and so
    do the shifts. So the probabilities of the levels are never negative: it is always a distribution. A level may grow
    at the cost of its neighbours, so `bias_corrected_temperature` corrects frequencies of levels that are too high.

    a and b minimise the NLL, the prior of `Temperature` and `intercept/(2N) |b|^2`. The problem is convex (Pratt 1981)
    and solved to a gradient of 1e-9. A level without rows is allowed. With two levels, it is
    `bias_corrected_temperature`, and Platt scaling with targets 0 and 1 without prior and penalty. Options of `fit`:

    - shrinkage: Number of wrong pseudo-rows in the prior (2).
    - intercept: Strength of the penalty on b (1).

    References:
        McCullagh 1980, Regression models for ordinal data. Pratt 1981, Concavity of the log likelihood.

    Examples:
        >>> logits, labels = [[2, 1, 0], [0, 1, 2]] * 100, [0, 1, 1, 2, 0, 2, 0, 1] * 25
        >>> calibrators.fit(logits, labels, "ordered_temperature")([[2, 1, 0]]).round(3)
        array([[0.747, 0.25 , 0.002]])
    """

    name: ClassVar[str] = "ordered_temperature"
    checks: ClassVar[Mapping[str, OptionCheck]] = {"shrinkage": Number(0.0, 1e6), "intercept": Number(1e-6, 1e6)}
    is_regularised: ClassVar[bool] = True
    keeps_argmax = False

    temperature: float
    slope: float
    """a, the factor of the cumulative logits."""
    shift_K: npt.ArrayLike
    """b_k for k = 1 .. K - 1. They fall with k."""
    bound: Bound = None
    """End of the range of T / a at which it stopped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature, self.bound)
        if not (isinstance(self.slope, int | float) and 0 < self.slope < np.inf):
            raise ValueError(f"slope is {self.slope!r}; allowed is a finite number above 0")
        object.__setattr__(self, "shift_K", frozen_array(self.shift_K, "shift_K", (None,)))
        if (np.diff(np.asarray(self.shift_K)) > 0).any():
            raise ValueError("shift_K rises somewhere; allowed are shifts that do not rise with the level")

    @property
    def classes(self) -> int:
        return len(np.asarray(self.shift_K)) + 1

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels, *, shrinkage: float = SHRINKAGE, intercept: float = 1.0) -> Self:
        cls.check_values(shrinkage=shrinkage, intercept=intercept)
        rows, classes = Rows(logits_NC, labels_N), logits_NC.shape[1]
        temperature = solve_nll(rows, shrinkage)[0]
        if classes == 1:
            return cls(temperature, 1.0, np.zeros(0))
        problem = CumulativeLogits(logits_NC, labels_N, temperature, rows.prior, intercept)
        lowest, highest = range_of(rows)
        low_P, high_P = np.full((2, classes), np.inf)
        low_P[0], high_P[0] = temperature / highest, temperature / lowest
        low_P[1], low_P[2:] = -np.inf, LEAST_STEP
        theta_P = minimise(problem, problem.start_P, low_P, high_P, cls.name)
        slope = float(theta_P[0])
        bound: Bound = "lower" if slope >= high_P[0] else "upper" if slope <= low_P[0] else None
        return cls(temperature, slope, problem.shifts(theta_P), bound)

    def _fit_warnings(self) -> list[str]:
        return bound_notes(self.temperature / self.slope, self.bound, "NLL")

    def _apply(self, logits_NC: Array) -> Array:
        shift_K = np.asarray(self.shift_K)
        if not len(shift_K):
            return np.ones_like(logits_NC)
        logit_NK, step_NK = cumulative_logits(logits_NC / self.temperature)
        log_NC = _log_probabilities(self.slope * logit_NK + shift_K, self.slope * step_NK - np.diff(shift_K))
        return softmax_over(log_NC)  # the rows sum to 1 up to rounding

    def affine(self, classes: int) -> tuple[Array, Array] | None:
        if self.classes != 2:
            return None
        half = float(np.asarray(self.shift_K)[0]) / 2
        return np.eye(2) * (self.slope / self.temperature), np.array([-half, half])


def cumulative_logits(logits_NC: Array) -> tuple[Array, Array]:
    """Compute the cumulative logits of the softmax, and their differences.

    Returns:
        s_k = ln P(level >= k) - ln P(level < k) for k = 1 .. K - 1, shape (N, K - 1), and s_k - s_{k+1}, shape
        (N, K - 2). The differences are exact where the values agree in all digits: they are ln(1 + p_k / P(level > k))
        + ln(1 + p_k / P(level < k)).
    """
    z_NC = logits_NC - logits_NC.max(axis=1, keepdims=True)
    below_NK = np.logaddexp.accumulate(z_NC, axis=1)[:, :-1]
    above_NK = np.logaddexp.accumulate(z_NC[:, ::-1], axis=1)[:, -2::-1]
    inner_NK = z_NC[:, 1:-1]
    step_NK = np.logaddexp(0.0, inner_NK - above_NK[:, 1:]) + np.logaddexp(0.0, inner_NK - below_NK[:, :-1])
    return above_NK - below_NK, step_NK


def _log_probabilities(logit_NK: Array, step_NK: Array) -> Array:
    """Compute the log probability of each level from P(level >= k) = sigma(logit_k).

    sigma(x) - sigma(y) = sigma(x) sigma(-y) (1 - exp(y - x)), which loses no digits.
    """
    log_NC = np.zeros((len(logit_NK), logit_NK.shape[1] + 1))
    log_NC[:, 1:] += scipy.special.log_expit(logit_NK)
    log_NC[:, :-1] += scipy.special.log_expit(-logit_NK)
    log_NC[:, 1:-1] += _log_rise(step_NK)
    return log_NC


def _log_rise(step_NK: Array) -> Array:
    """Compute ln(1 - exp(-g)) of g >= 0; a step of 0 counts as the smallest float."""
    rise_NK: Array = np.log(-np.expm1(-np.maximum(step_NK, np.finfo(np.float64).tiny)))
    return rise_NK


class CumulativeLogits:
    """The loss of cumulative logits with a prior and a ridge penalty on the shifts, in theta = (a, b_1, g_1, g_2, ..).

    b_{k+1} = b_k - g_k. With the target t_j = [y = j] + prior q_j of level j, q = softmax(z), and s, d from
    `cumulative_logits` of z / T, the loss is the mean over rows of

        - sum_k [t_k ln sigma(a s_k + b_k) + t_{k-1} ln sigma(-a s_k - b_k)] - sum_k t_k ln(1 - exp(-a d_k - g_k))

    plus intercept / (2N) sum_k b_k^2. It is convex in theta.
    """

    def __init__(self, logits_NC: Logits, labels_N: Labels, temperature: float, prior: float, intercept: float) -> None:
        self._logits_NC, self._labels_N, self._prior = logits_NC, labels_N, prior
        self._temperature = temperature
        rows, classes = logits_NC.shape
        self._penalty = intercept / (2 * rows)
        self.start_P = np.full(classes, LEAST_STEP)
        self.start_P[:2] = 1.0, 0.0
        # Rows a, b_1 .. b_{K-1}, g_1 .. g_{K-2} in terms of theta
        self._map_FP = np.zeros((2 * classes - 2, classes))
        self._map_FP[0, 0] = 1.0
        self._map_FP[1:classes, 1] = 1.0
        self._map_FP[1:classes, 2:] = -np.tri(classes - 1, classes - 2, -1)
        self._map_FP[classes:, 2:] = np.eye(classes - 2)
        self._hessian_PP = np.eye(classes)
        furthest = max(float(np.abs(logit_NK).max()) for _, logit_NK, _ in self._blocks())
        if not furthest <= LARGEST:
            raise FitError(
                f"cumulative logits reach {furthest:.3g}, above {LARGEST:g}, after division by T = {temperature:g};"
                " this calibrator cannot be fitted on them; use 'temperature', or scale the logits down"
            )

    def shifts(self, theta_P: Array) -> Array:
        """Return b_1 .. b_{K-1}."""
        return self._map_FP[1 : len(theta_P)] @ theta_P

    def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
        rows, classes = self._logits_NC.shape
        slope, shift_K, step_K = theta_P[0], self.shifts(theta_P), theta_P[2:]
        loss, gradient_F = 0.0, np.zeros(len(self._map_FP))
        hessian_FF = np.zeros((len(self._map_FP),) * 2)
        of_b, of_g = slice(1, classes), slice(classes, None)
        for target_NC, logit_NK, gap_NK in self._blocks():
            at_NK, step_NK = slope * logit_NK + shift_K, slope * gap_NK + step_K
            upper_NK, lower_NK, inner_NK = target_NC[:, 1:], target_NC[:, :-1], target_NC[:, 1:-1]
            loss -= float(
                (upper_NK * scipy.special.log_expit(at_NK)).sum() + (lower_NK * scipy.special.log_expit(-at_NK)).sum()
            )
            loss -= float((inner_NK * _log_rise(step_NK)).sum())
            p_NK = scipy.special.expit(at_NK)
            with np.errstate(over="ignore"):
                odds_NK = 1 / np.expm1(step_NK)
            residual_NK = lower_NK * p_NK - upper_NK * scipy.special.expit(-at_NK)
            pull_NK = inner_NK * odds_NK
            gradient_F[0] += float((residual_NK * logit_NK).sum() - (pull_NK * gap_NK).sum())
            gradient_F[of_b] += residual_NK.sum(axis=0)
            gradient_F[of_g] -= pull_NK.sum(axis=0)
            weight_NK, curve_NK = (lower_NK + upper_NK) * p_NK * scipy.special.expit(-at_NK), pull_NK * (1 + odds_NK)
            hessian_FF[0, 0] += float((weight_NK * logit_NK**2).sum() + (curve_NK * gap_NK**2).sum())
            hessian_FF[0, of_b] += (weight_NK * logit_NK).sum(axis=0)
            hessian_FF[0, of_g] += (curve_NK * gap_NK).sum(axis=0)
            diagonal_F = np.concatenate([weight_NK.sum(axis=0), curve_NK.sum(axis=0)])
            hessian_FF[1:, 1:][np.diag_indices(len(diagonal_F))] += diagonal_F
        hessian_FF[1:, 0] = hessian_FF[0, 1:]
        gradient_F, hessian_FF = gradient_F / rows, hessian_FF / rows
        gradient_F[of_b] += 2 * self._penalty * shift_K
        hessian_FF[of_b, of_b] += 2 * self._penalty * np.eye(classes - 1)
        self._hessian_PP = self._map_FP.T @ hessian_FF @ self._map_FP
        return loss / rows + self._penalty * float(shift_K @ shift_K), gradient_F @ self._map_FP

    def hessian_times(self, direction_P: Array) -> Array:
        return self._hessian_PP @ direction_P

    def hessian_diagonal(self) -> Array:
        return self._hessian_PP.diagonal()

    def _blocks(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield targets, cumulative logits and their differences, block by block."""
        for block in row_blocks(*self._logits_NC.shape):
            z_NC, y_N = self._logits_NC[block].astype(np.float64), self._labels_N[block]
            target_NC = self._prior * softmax_over(z_NC.copy())
            target_NC[np.arange(len(y_N)), y_N] += 1.0
            yield target_NC, *cumulative_logits(z_NC / self._temperature)
