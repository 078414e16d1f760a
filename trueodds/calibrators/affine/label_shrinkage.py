"""Slopes and offsets of many labels that shrink to shared ones, with spreads that the rows determine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.calibrators.base import FitError
from trueodds.sums.inputs import Array

STEEPEST, FLATTEST = 20.0, 1e-3
"""Largest and smallest slope."""
PRIOR_SPREAD = 0.3
"""Standard deviation of the deviations that the prior counts as one more label."""
EDGE = 1e-6
"""Distance of ln a from a limit below which it counts as being there."""
ROUNDS, CLOSE = 100, 1e-2
"""Largest number of updates of the spreads, and their relative change at which they stop."""


class Shrunk(NamedTuple):
    """Result of `Shrinkage.solve`."""

    theta_L2: Array
    """ln a_l and b_l."""
    centre: Array
    """ln a and b."""
    spread: Array
    """s_a and s_b."""


class Shrinkage:
    """The penalised loss of `MultilabelPlatt`, and its minimum by Fisher scoring.

    The second derivatives have the form of an arrow: a 2 x 2 block for each label, and the shared parameters. So a step
    costs as much as the blocks. Fisher scoring leaves out the second derivative of ln a -> a, which is 0 at the minimum
    of a label without penalty.
    """

    def __init__(self, z_NL: Array, truth_NL: Array) -> None:
        """Prepare the loss of logits N x L and truths N x L, with NaN for those that are not known."""
        self.known_NL = ~np.isnan(truth_NL)
        self.hits_L = np.nansum(truth_NL, axis=0)
        self.rows_L = self.known_NL.sum(axis=0)
        hits, misses = float(self.hits_L.sum()), float((self.rows_L - self.hits_L).sum())
        if not hits or not misses:
            which = "true" if misses == 0 else "false"
            raise FitError(f"every known truth is {which}; a fit needs rows of both kinds: give more rows")
        high, low = (hits + 1) / (hits + 2), 1 / (misses + 2)
        self.weight_NL = self.known_NL.astype(np.float64)
        self.target_NL = np.where(truth_NL == 1, high, low) * self.weight_NL
        self.z_NL = np.where(self.known_NL, z_NL, 0.0)
        self.low, self.high = np.log(FLATTEST), np.log(STEEPEST)

    def loss(self, theta_L2: Array) -> Array:
        """Compute the loss of each label without the penalty."""
        eta_NL = np.exp(theta_L2[:, 0]) * self.z_NL + theta_L2[:, 1]
        # ln(1 + exp eta) = max(eta, 0) + ln(1 + exp -|eta|)
        value_NL = (np.maximum(eta_NL, 0.0) + np.log1p(np.exp(-np.abs(eta_NL)))) * self.weight_NL
        of_L: Array = value_NL.sum(axis=0) - (self.target_NL * eta_NL).sum(axis=0)
        return of_L

    def total_loss(self, theta_L2: Array, centre: Array, spread: Array) -> float:
        """Compute the loss that the fit minimises."""
        return float(self.loss(theta_L2).sum() + 0.5 * (((theta_L2 - centre) / spread) ** 2).sum())

    def derivatives(self, theta_L2: Array) -> tuple[Array, Array]:
        """Compute gradient L x 2 and Fisher information L x 2 x 2 of the loss of each label."""
        slope_L = np.exp(theta_L2[:, 0])
        p_NL = scipy.special.expit(slope_L * self.z_NL + theta_L2[:, 1])
        off_NL, variance_NL = p_NL * self.weight_NL - self.target_NL, p_NL * (1 - p_NL) * self.weight_NL
        of_z_NL = variance_NL * self.z_NL
        gradient_L2 = np.stack([slope_L * (off_NL * self.z_NL).sum(axis=0), off_NL.sum(axis=0)], axis=1)
        cross_L = slope_L * of_z_NL.sum(axis=0)
        first_L, last_L = slope_L**2 * (of_z_NL * self.z_NL).sum(axis=0), variance_NL.sum(axis=0)
        information_L22 = np.stack([first_L, cross_L, cross_L, last_L], axis=1).reshape(-1, 2, 2)
        return gradient_L2, information_L22

    def minimise(self, theta_L2: Array, centre: Array, spread: Array, close: float = 1e-13) -> tuple[Array, Array]:
        """Minimise the penalised loss over all parameters, until a step lowers it by less than the share `close`.

        Returns theta and the shared parameters.
        """
        value = self.total_loss(theta_L2, centre, spread)
        precision_22 = np.diag(spread**-2.0)
        for _ in range(100):
            step_L2, gradient_L2 = self._step(theta_L2, centre, precision_22)
            size = 1.0
            while True:
                tried_L2 = theta_L2 + size * step_L2
                tried_L2[:, 0] = np.clip(tried_L2[:, 0], self.low, self.high)
                tried_centre = tried_L2.mean(axis=0)  # the optimum of the shared parameters
                tried = self.total_loss(tried_L2, tried_centre, spread)
                # At the limits of the slopes the step is cut, so the expected decrease is that of the cut step
                expected = float(((tried_L2 - theta_L2) * gradient_L2).sum())
                if (expected < 0 and tried <= value + 1e-4 * expected) or size < 1e-12:
                    break
                size /= 4
            if not tried < value:
                break
            change = value - tried
            theta_L2, centre, value = tried_L2, tried_centre, tried
            if change <= close * (1 + abs(value)):
                break
        return theta_L2, centre

    def _step(self, theta_L2: Array, centre: Array, precision_22: Array) -> tuple[Array, Array]:
        """Compute the step of Fisher scoring by the arrow's Schur complement, and the gradient.

        Slopes at a limit stay there if the loss would fall beyond it. The other parameters move as if these were fixed.
        """
        gradient_L2, information_L22 = self.derivatives(theta_L2)
        from_centre_L2 = (theta_L2 - centre) @ precision_22
        gradient_L2, centre_gradient = gradient_L2 + from_centre_L2, -from_centre_L2.sum(axis=0)
        past_low_L = (theta_L2[:, 0] <= self.low + EDGE) & (gradient_L2[:, 0] > 0)
        fixed_L = past_low_L | ((theta_L2[:, 0] >= self.high - EDGE) & (gradient_L2[:, 0] < 0))
        if len(theta_L2) == 1:  # the one label is its own shared curve
            block_L22 = information_L22 + 1e-9 * np.eye(2) * (1 + np.trace(information_L22[0]))
            return -np.einsum("lij,lj->li", _inverses(block_L22, fixed_L), gradient_L2), gradient_L2
        inverse_L22 = _inverses(information_L22 + precision_22, fixed_L)
        pull_L22 = precision_22 @ inverse_L22
        schur_22 = len(theta_L2) * precision_22 - (pull_L22 @ precision_22).sum(axis=0)
        right = -centre_gradient - np.einsum("lij,lj->i", pull_L22, gradient_L2)
        centre_step = np.linalg.solve(schur_22 + 1e-12 * np.eye(2) * (1 + np.trace(schur_22)), right)
        return np.einsum("lij,lj->li", inverse_L22, centre_step @ precision_22 - gradient_L2), gradient_L2

    def start(self) -> Array:
        """Return the ln a and b that standardise the logits.

        Logits that are large or far from 0 would otherwise begin where all probabilities are 0 or 1, and stay there.
        """
        known_M = self.z_NL[self.known_NL]
        mean, scale = float(known_M.mean()), float(known_M.std())
        log_slope = -np.log(scale) if scale > 1e-12 * (1 + abs(mean)) else 0.0
        log_slope = np.clip(log_slope, self.low, self.high)
        return np.array([log_slope, -np.exp(log_slope) * mean])

    def solve(self) -> Shrunk:
        """Find spreads and parameters together: a minimum, then MacKay's update of the spreads, until both stay."""
        labels = self.z_NL.shape[1]
        centre, spread = self.start(), np.full(2, PRIOR_SPREAD)
        theta_L2 = np.tile(centre, (labels, 1))
        if labels == 1:
            theta_L2, centre = self.minimise(theta_L2, centre, spread)
            return Shrunk(theta_L2, theta_L2[0], spread)
        for _ in range(ROUNDS):
            theta_L2, centre = self.minimise(theta_L2, centre, spread, close=1e-8)
            following = self.update(theta_L2, centre, spread)
            still = bool((np.abs(following - spread) <= CLOSE * spread).all())
            spread = following
            if still:
                break
        theta_L2, centre = self.minimise(theta_L2, centre, spread)
        return Shrunk(theta_L2, centre, spread)

    def update(self, theta_L2: Array, centre: Array, spread: Array) -> Array:
        """Compute the next spreads."""
        _, information_L22 = self.derivatives(theta_L2)
        covariance_L22 = np.linalg.inv(information_L22 + np.diag(spread**-2.0))
        second = (theta_L2 - centre) ** 2 + covariance_L22[:, [0, 1], [0, 1]]
        following: Array = np.sqrt((PRIOR_SPREAD**2 + second.sum(axis=0)) / (1 + len(theta_L2)))
        return following


def _inverses(blocks_L22: Array, fixed_L: npt.NDArray[np.bool_]) -> Array:
    """Invert the blocks. Where the slope is fixed, only the offset has an inverse."""
    inverse_L22: Array = np.linalg.inv(blocks_L22).astype(np.float64)
    inverse_L22[fixed_L] = 0.0
    inverse_L22[fixed_L, 1, 1] = 1 / blocks_L22[fixed_L, 1, 1]
    return inverse_L22
