"""Multinomial logistic regression on logits: softmax(W x + b), where W is a scalar, a diagonal or a full matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from trueodds.calibrators.base import FitError, Labels, row_blocks, softmax_over
from trueodds.calibrators.fitting.newton import minimise
from trueodds.sums.inputs import Array

Shape = Literal["scalar", "diagonal", "full"]
LARGEST_FLOAT32 = 1e12
"""Largest feature whose squares, times parameters and rows, stay within the range of float32."""
MANY = 100_000
"""Parameters from which a fit stops at `FALL`, and float32 guides its steps."""
FALL = 1e-4
"""Fall of the loss in nats from which a fit of many parameters takes no further Newton step.

Newton's method converges quadratically: a step that lowers the loss by d leaves about d^2. On 50,000 rows of 1,000
classes, 1.6e-9 nats were left after two steps.
"""


class Multinomial:
    """The loss of multinomial logistic regression with a ridge penalty towards W = I, b = 0.

        mean_n [logsumexp(W x_n + b) - (W x_n + b)_y] + sum_i penalty_i (theta_i - start_i)^2

    `shrink` adds prior mean_n [logsumexp(W x_n + b) - sum_k q_nk (W x_n + b)_k]: pseudo-rows with the labels q. theta
    consists of W's free entries (1, C or C^2, row by row), then b. The probabilities of the last point are stored in
    float32. From `MANY` parameters on, products with the Hessian are computed in float32 too, unless no step helps.
    This only guides the steps; the gradient is float64 throughout.
    """

    def __init__(self, features_NC: Array, labels_N: Labels, shape: Shape, penalty_P: Array | None = None) -> None:
        self.x_NC, self.labels_N, self.shape = features_NC, labels_N, shape
        rows, classes = features_NC.shape
        weights = {"scalar": np.ones(1), "diagonal": np.ones(classes), "full": np.eye(classes).ravel()}[shape]
        self.start_P = np.concatenate([weights, np.zeros(classes)])
        self.penalty_P = np.zeros(len(self.start_P)) if penalty_P is None else penalty_P
        self._p_NC = np.empty((rows, classes), np.float32)
        largest = max(features_NC.max(initial=0.0), -features_NC.min(initial=0.0))
        is_short = len(self.start_P) >= MANY and largest <= LARGEST_FLOAT32
        self._guide: type[np.floating] = np.float32 if is_short else np.float64
        self._prior, self._pull_P = 0.0, np.zeros(len(self.start_P))

    def shrink(self, prior: float, scale: float) -> None:
        """Add pseudo-rows with this weight per row, labelled by q = softmax(scale x)."""
        self._prior, self._pull_P = prior, np.zeros(len(self.start_P))
        for block in self._blocks():
            q_NC = softmax_over(scale * self.x_NC[block])
            self._pull_P += prior * self._adjoint(q_NC, self.x_NC[block]) / len(self.labels_N)

    def solve(self, low: float, high: float, what: str) -> tuple[Array, Array]:
        """Return W's free entries and b with mean 0, subject to low <= W <= high.

        Raises:
            FitError: The minimum is not reached (see `newton.minimise`).
        """
        classes = self.x_NC.shape[1]
        low_P, high_P = np.full((2, len(self.start_P)), np.inf)
        low_P *= -1
        low_P[:-classes], high_P[:-classes] = low, high
        fall = FALL if len(self.start_P) >= MANY else 0.0
        try:
            theta_P = minimise(self, self.start_P, low_P, high_P, what, fall)
        except FitError:
            if self._guide is np.float64:
                raise
            self._guide = np.float64  # float32 cannot tell nearly flat directions from flat ones
            theta_P = minimise(self, self.start_P, low_P, high_P, what, fall)
        bias_C = theta_P[-classes:]
        return theta_P[:-classes], bias_C - bias_C.mean()  # softmax does not see the mean

    def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
        loss, rows = 0.0, len(self.labels_N)
        gradient_P = np.zeros_like(theta_P)
        for block in self._blocks():
            x_NC, y_N = self.x_NC[block], self.labels_N[block]
            index_N = np.arange(len(y_N))
            eta_NC = self._forward(theta_P, x_NC)
            top_N = eta_NC.max(axis=1, keepdims=True)
            eta_NC -= top_N
            true_N = eta_NC[index_N, y_N]
            p_NC = np.exp(eta_NC, out=eta_NC)
            total_N = p_NC.sum(axis=1, keepdims=True)
            loss += float((1 + self._prior) * np.log(total_N).sum() - true_N.sum() + self._prior * top_N.sum())
            p_NC /= total_N
            self._p_NC[block] = p_NC
            p_NC *= 1 + self._prior
            p_NC[index_N, y_N] -= 1
            gradient_P += self._adjoint(p_NC, x_NC)
        away_P = theta_P - self.start_P
        penalised_P = self.penalty_P * away_P
        loss = loss / rows + float(penalised_P @ away_P - self._pull_P @ theta_P)
        return loss, gradient_P / rows + 2 * penalised_P - self._pull_P

    def hessian_times(self, direction_P: Array) -> Array:
        product_P, guide_P = np.zeros_like(direction_P), direction_P.astype(self._guide, copy=False)
        for block in self._blocks():
            x_NC, p_NC = self._guides(block)
            eta_NC = self._forward(guide_P, x_NC)
            eta_NC -= np.einsum("nc,nc->n", p_NC, eta_NC)[:, None]
            eta_NC *= p_NC
            product_P += self._adjoint(eta_NC, x_NC)
        return (1 + self._prior) * product_P / len(self.labels_N) + 2 * self.penalty_P * direction_P

    def hessian_diagonal(self) -> Array:
        diagonal_P = np.zeros_like(self.start_P)
        for block in self._blocks():
            x_NC, p_NC = self._guides(block)
            diagonal_P += self._adjoint(p_NC - p_NC * p_NC, x_NC * x_NC)
        return (1 + self._prior) * diagonal_P / len(self.labels_N) + 2 * self.penalty_P

    def _guides(self, block: slice) -> tuple[Array, Array]:
        """Return the features and the last probabilities of a block in the precision that guides the steps."""
        return self.x_NC[block].astype(self._guide, copy=False), self._p_NC[block].astype(self._guide, copy=False)

    def _blocks(self) -> Iterator[slice]:
        # Matrix products are fastest on tall blocks; elementwise work is fastest on blocks in the cache.
        rows, classes = self.x_NC.shape
        return row_blocks(rows, max(classes // 32, 1) if self.shape == "full" else classes)

    def _forward(self, theta_P: Array, x_NC: Array) -> Array:
        """Compute W x + b of a block."""
        classes = x_NC.shape[1]
        weights, bias_C = theta_P[:-classes], theta_P[-classes:]
        eta_NC: Array = x_NC @ weights.reshape(classes, classes).T if self.shape == "full" else x_NC * weights
        eta_NC += bias_C
        return eta_NC

    def _adjoint(self, r_NC: Array, x_NC: Array) -> Array:
        """Apply the transpose of `_forward`: sums of r x in the shape of W's entries, then sums of r."""
        if self.shape == "full":
            weights = (r_NC.T @ x_NC).ravel()
        else:
            weights = np.einsum("nc,nc->c", r_NC, x_NC)
            weights = weights.sum(keepdims=True) if self.shape == "scalar" else weights
        return np.concatenate([weights, r_NC.sum(axis=0)])
