"""Loss of temperatures by group, its minimum for a spread of the groups, and the likelihood of the spread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trueodds.calibrators.base import Labels, Logits, row_blocks
from trueodds.sums.inputs import Array

SPREADS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Standard deviations of ln T_g that a fit compares, besides 0.

A factor of 2 between neighbours changes the shrinkage of a group by at most .17, where it is one half.
"""
FURTHEST = 20.0
"""Largest |ln(T_g / T)|, which keeps e^d finite."""
ROUGH, EXACT = 1e-4, 1e-10
"""Newton step of ln T_g below which a fit ends, while spreads are compared and at the end."""
ITERATIONS = 100


class GroupMinimum(NamedTuple):
    """Minimum of the penalised loss for one spread."""

    shift_G: Array
    """ln(T_g / T_1) of each group, where T_1 is the one temperature of all rows."""
    center: float
    """ln(T / T_1)."""
    loss: float
    """Sum of the rows' losses, without the penalty, in nats."""
    curvature_G: Array
    """Second derivative of each group's loss."""
    rest: float
    """Second derivative of the loss of the rows without a group."""


class GroupLoss:
    """Sums of the rows' losses as functions of x = ln(T_g / T_1), for each group and for the rows without a group.

    Each call is one pass over the rows. The loss of row n at u = z / T_g is -ln p_y - w sum_k q_k ln p_k with
    p = softmax(u), q = softmax(z) and the weight w of the prior of T.
    """

    def __init__(
        self, logits_NC: Logits, labels_N: Labels, index_N: Labels, groups: int, temperature: float, prior: float
    ) -> None:
        self._logits_NC, self._prior, self._beta, self.groups = logits_NC, prior, 1 / temperature, groups
        self._cell_N = np.where(index_N < 0, groups, index_N)
        self._true_N, self._mean_N = np.empty(len(labels_N)), np.zeros(len(labels_N))
        for block in self._blocks():
            z_NC = self._below_top(block)
            self._true_N[block] = z_NC[np.arange(len(z_NC)), labels_N[block]]
            if prior:
                q_NC = np.exp(z_NC)
                self._mean_N[block] = np.vecdot(q_NC, z_NC) / q_NC.sum(axis=1)

    def _blocks(self) -> list[slice]:
        return list(row_blocks(*self._logits_NC.shape))

    def _below_top(self, block: slice) -> Array:
        z_NC: Array = self._logits_NC[block].astype(np.float64)
        z_NC -= z_NC.max(axis=1, keepdims=True)
        return z_NC

    def __call__(self, x_S: Array) -> tuple[Array, Array, Array]:
        """Compute the loss of each group, its derivative in x, and the expected part of the second derivative.

        Args:
            x_S: ln(T_g / T_1) of the G groups, and last that of the rows without a group. S = G + 1.

        Returns:
            Sums over the rows: the loss in nats, -r, and (1 + w) Var_p u. The second derivative is the third minus the
            second.
        """
        sums_3S = np.zeros((3, self.groups + 1))
        beta_N = self._beta * np.exp(-x_S)[self._cell_N]
        weight = 1 + self._prior
        for block in self._blocks():
            u_NC, beta_B = self._below_top(block), beta_N[block]
            u_NC *= beta_B[:, None]
            e_NC = np.exp(u_NC)
            total_B = e_NC.sum(axis=1)
            e_NC *= u_NC
            mean_B = e_NC.sum(axis=1) / total_B
            variance_B = np.maximum(np.vecdot(e_NC, u_NC) / total_B - mean_B**2, 0.0)
            fixed_B = beta_B * (self._true_N[block] + self._prior * self._mean_N[block])
            values = weight * np.log(total_B) - fixed_B, fixed_B - weight * mean_B, weight * variance_B
            for k, value_B in enumerate(values):
                sums_3S[k] += np.bincount(self._cell_N[block], value_B, self.groups + 1)
        loss_S, slope_S, expected_S = sums_3S
        return loss_S, slope_S, expected_S

    def minimum(self, spread: float, close: float, start: GroupMinimum | None = None) -> GroupMinimum:
        """Find ln T and all ln T_g with the least loss + sum_g d_g^2 / (2 s^2), by Newton's method.

        The Hessian is diagonal but for ln T, which is eliminated. Where a group's second derivative is not safely
        positive, its expected part takes its place. A step that does not lower the loss is shortened.

        Args:
            spread: Standard deviation s, above 0.
            close: Newton step below which the search ends.
            start: Where the search starts. None: at T_1 for all groups.
        """
        tau = spread**2
        x_S = np.zeros(self.groups + 1) if start is None else np.append(start.shift_G, start.center)
        loss_S, slope_S, expected_S = self(x_S)
        value = loss_S.sum() + _penalty(x_S, tau)
        for _ in range(ITERATIONS):
            curved_S = expected_S - slope_S
            curved_S = np.where(curved_S > 0.1 * expected_S, curved_S, expected_S)
            step_S = _newton_step(x_S, slope_S, curved_S, tau)
            longest = float(np.abs(step_S).max())
            if longest <= close:
                break
            size = min(1.0, 1 / longest)
            while size >= 1e-9:
                tried_S = np.clip(x_S + size * step_S, -FURTHEST / 2, FURTHEST / 2)
                found = self(tried_S)
                tried = found[0].sum() + _penalty(tried_S, tau)
                if tried <= value + 1e-14 * abs(value):
                    break
                size /= 4
            else:  # rounding hides any further fall
                break
            x_S, value, (loss_S, slope_S, expected_S) = tried_S, tried, found
        curvature_S = expected_S - slope_S
        return GroupMinimum(x_S[:-1], float(x_S[-1]), float(loss_S.sum()), curvature_S[:-1], float(curvature_S[-1]))


def _penalty(x_S: Array, tau: float) -> float:
    return float(((x_S[:-1] - x_S[-1]) ** 2).sum() / (2 * tau))


def _newton_step(x_S: Array, slope_S: Array, curved_S: Array, tau: float) -> Array:
    """Return the step to the minimum of the quadratic approximation, with ln T eliminated.

    Given ln T = m, group g goes to x_g + (lambda (m - x_g) - L_g') / (L_g'' + lambda). The best m is the mean of
    the groups' own minima x_g - L_g' / L_g'' with the weights L_g'' / (1 + s^2 L_g''), where s = 0 for the rows
    without a group.
    """
    shrunk_S = 1 + np.append(np.full(len(x_S) - 1, tau), 0.0) * curved_S
    weight = float((curved_S / shrunk_S).sum())
    center = float(((curved_S * x_S - slope_S) / shrunk_S).sum()) / weight if weight > 0 else float(x_S[-1])
    step_G = (center - x_S[:-1] - tau * slope_S[:-1]) / shrunk_S[:-1]
    return np.append(step_G, center - x_S[-1])


def best_spread(loss: GroupLoss) -> float:
    """Return the spread of `SPREADS`, or 0, with the largest marginal likelihood of the rows."""
    best, most, found = 0.0, 0.0, None
    loss_S, slope_S, expected_S = loss(np.zeros(loss.groups + 1))
    plain, information = float(loss_S.sum()), float((expected_S - slope_S).sum())
    for spread in SPREADS:
        found = loss.minimum(spread, ROUGH, found)
        evidence = log_evidence(spread, found, plain, information)
        if evidence > most:
            best, most = spread, evidence
    return best


def log_evidence(spread: float, minimum: GroupMinimum, plain: float, information: float) -> float:
    """Return ln of the rows' marginal likelihood over that with spread 0, by Laplace's approximation.

    With the minimum x of the penalised loss and H_g = L_g''(x_g), it is
    L(0) - L(x) - sum_g d_g^2 / (2 s^2) - sum_g ln(1 + s^2 H_g) / 2 - ln(W / I) / 2. W is the sum of
    H_g / (1 + s^2 H_g) and of the curvature of the rows without a group. It comes from the integral over ln T.

    Args:
        spread: Standard deviation s, above 0.
        minimum: The minimum.
        plain: Loss L(0) with the one temperature of all rows.
        information: Its second derivative I in ln T.
    """
    d_G = minimum.shift_G - minimum.center
    width_G = np.maximum(1 + spread**2 * minimum.curvature_G, 1e-12)
    weight = float((minimum.curvature_G / width_G).sum()) + minimum.rest
    center = np.log(max(weight, 1e-300) / max(information, 1e-300))
    return float(plain - minimum.loss - (d_G**2).sum() / (2 * spread**2) - np.log(width_G).sum() / 2 - center / 2)
