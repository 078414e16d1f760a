"""Intervals of the slope of each label by itself, which may be 0 or below."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array

FEWEST = 10
"""Smallest number of known truths of each kind. With fewer, the normal law of the slope is too rough."""
STEPS = 50
RIDGE = 1e-6
"""Penalty of the slope of standardised logits, per row. It keeps the fit finite if the rows are separable."""


def slope_intervals(z_NL: Array, truth_NL: Array, level: float = 0.95) -> tuple[Array, Array]:
    """Compute Wald's interval of each label's slope a in sigma(a z + b), by maximum likelihood without shrinkage.

    The interval is a +- z_level s with s^2 the first element of the inverse Fisher information. The slopes may be
    negative, unlike those of `MultilabelPlatt`.

    Args:
        z_NL: Logits.
        truth_NL: Truths: 0, 1, and NaN if not known.
        level: Confidence level of each interval.

    Returns:
        Lower and upper ends (L,). NaN for labels with fewer than 10 known truths of either kind, or equal logits.

    References:
        Agresti 2013, Categorical Data Analysis, section 5.2.

    Examples:
        >>> from trueodds.calibrators.affine.label_slopes import slope_intervals
        >>> rng = np.random.default_rng(0)
        >>> z_NL = rng.normal(0, 1, (500, 2))
        >>> truth_NL = np.stack([rng.random(500) < 1 / (1 + np.exp(-z_NL[:, 0])), rng.random(500) < 0.5], axis=1)
        >>> lower_L, upper_L = slope_intervals(z_NL, truth_NL.astype(float))
        >>> (lower_L > 0).tolist(), (upper_L > 0).tolist()
        ([True, False], [True, True])
    """
    quantile = float(scipy.special.ndtri((1 + level) / 2))
    ends = np.full((2, z_NL.shape[1]), np.nan)
    for label in range(z_NL.shape[1]):
        known_N: npt.NDArray[np.bool_] = ~np.isnan(truth_NL[:, label])
        z_M, truth_M = z_NL[known_N, label].astype(np.float64), truth_NL[known_N, label]
        if min(truth_M.sum(), (1 - truth_M).sum()) < FEWEST or not (scale := float(z_M.std())) > 0:
            continue
        slope, error = _slope((z_M - z_M.mean()) / scale, truth_M)
        ends[:, label] = (slope - quantile * error) / scale, (slope + quantile * error) / scale
    return ends[0], ends[1]


def _slope(x_M: Array, truth_M: Array) -> tuple[float, float]:
    """Return slope and standard error of a logistic regression on one standardised number."""
    design_M2 = np.stack([x_M, np.ones(len(x_M))], axis=1)
    penalty_2 = np.array([RIDGE * len(x_M), 0.0])
    theta_2 = np.array([0.0, scipy.special.logit(truth_M.mean())])
    information_22 = np.eye(2)
    for _ in range(STEPS):
        p_M = scipy.special.expit(design_M2 @ theta_2)
        gradient_2 = design_M2.T @ (truth_M - p_M) - penalty_2 * theta_2
        information_22 = (design_M2 * (p_M * (1 - p_M))[:, None]).T @ design_M2 + np.diag(penalty_2 + 1e-12)
        step_2 = np.linalg.solve(information_22, gradient_2)
        theta_2 = theta_2 + step_2 * min(1.0, 2.0 / max(float(np.abs(step_2).max()), 1e-12))
        if float(np.abs(step_2).max()) < 1e-9:
            break
    return float(theta_2[0]), float(np.sqrt(np.linalg.inv(information_22)[0, 0]))
