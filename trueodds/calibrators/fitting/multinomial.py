"""Multinomial logistic regression on logits: softmax(W x + b), where W is a scalar, a diagonal or a full matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from trueodds.calibrators.base import FitError, Labels, row_blocks, softmax_over
from trueodds.calibrators.fitting.kronecker import KroneckerInverse
from trueodds.calibrators.fitting.newton import PRODUCTS, minimise
from trueodds.sums.inputs import Array

Shape = Literal["scalar", "diagonal", "full"]
LARGEST_FLOAT32 = 1e12
"""Largest feature whose squares, times parameters and rows, stay within the range of float32."""
SEVERAL = 10_000
"""Parameters from which float32 guides the steps, and a fit of some rows is the start for all."""
MANY = 100_000
"""Parameters from which a fit stops at `FALL`."""
FALL = 1e-4
"""Fall of the loss in nats from which a fit of many parameters takes no further Newton step.

Newton's method converges quadratically: a step that lowers the loss by d leaves about d^2. Steps that some rows guide
leave about d / 10, and more if classes have a few rows.
"""
FIRST = 8
"""One in so many rows belongs to the rough fit that is the start for all."""
GUIDING = 0.25, 10
"""Share of the rows that guide the steps of a fit with a strong penalty, and the least number of rows per class."""
STRONG = 4
"""Ratio of the penalty's curvature to the rows' from which some rows are enough to guide the steps."""
ROUGH = 1e-2
"""Fall of the loss in nats from which the fit of some rows takes no further step."""
KRONECKER = 200_000
"""Rows times parameters from which `KroneckerInverse` is the preconditioner. Below it products with H are cheaper.

They are cheaper too if the penalty is most of H, as with fewer rows than classes: the diagonal of H then needs hardly
more products, and a fit of 600 rows with 1,000 classes takes a seventh of the time.
"""
MOST_CLASSES = 20_000
"""Largest number of classes of a full matrix. One of this size takes 3 GiB, and a fit holds several."""
FEWEST = 100
"""Parameters from which it is. The diagonal of H needs fewer products for less than ten classes."""


def check_matrix_size(classes: int, name: str) -> None:
    """Check that a fit of a full matrix has a size that memory may hold.

    Raises:
        FitError: It has not.
    """
    if classes > MOST_CLASSES:
        raise FitError(
            f"{classes:,} classes make a matrix of {8 * classes**2 / 2**30:,.0f} GiB; {name} allows up to"
            f" {MOST_CLASSES:,} classes: take structured_vector or temperature"
        )


class Multinomial:
    """The loss of multinomial logistic regression with a ridge penalty towards W = I, b = 0.

        mean_n [logsumexp(W x_n + b) - (W x_n + b)_y] + sum_i penalty_i (theta_i - start_i)^2

    `shrink` adds prior mean_n [logsumexp(W x_n + b) - sum_k q_nk (W x_n + b)_k]: pseudo-rows with the labels q. theta
    consists of W's free entries (1, C or C^2, row by row), then b. The probabilities of the last point are stored in
    float32.

    Loss and gradient are float64 sums over all rows. Products with the Hessian only guide the steps. From `SEVERAL`
    parameters on they are computed in float32. From `MANY` on, a quarter of the rows is enough for them if each
    parameter has a penalty, and its curvature is `STRONG` times that of the rows. All rows guide if a step lowers the
    loss by much less than predicted. They guide in float64 if no step helps.
    """

    def __init__(self, features_NC: Array, labels_N: Labels, shape: Shape, penalty_P: Array | None = None) -> None:
        self.x_NC, self.labels_N, self.shape = features_NC, labels_N, shape
        rows, classes = features_NC.shape
        weights = np.eye(classes).ravel() if shape == "full" else np.ones(1 if shape == "scalar" else classes)
        self.start_P = np.concatenate([weights, np.zeros(classes)])
        self.penalty_P = np.zeros(len(self.start_P)) if penalty_P is None else penalty_P
        self._p_NC = np.empty((rows, classes), np.float32)
        largest = max(features_NC.max(initial=0.0), -features_NC.min(initial=0.0))
        is_short = len(self.start_P) >= SEVERAL and largest <= LARGEST_FLOAT32
        self._guide: type[np.floating] = np.float32 if is_short else np.float64
        self._prior, self._pull_P = 0.0, np.zeros(len(self.start_P))
        self._guiding_N = self._guiding_rows()
        parameters = len(self.start_P)
        is_large = shape == "full" and parameters >= FEWEST and rows * parameters >= KRONECKER
        self._is_kronecker = is_large and not self._is_mostly_penalty()
        self._products = 0

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
            theta_P = minimise(
                self, self._first_fit(what), low_P, high_P, what, fall, self._inverse, self._guide_by_all
            )
        except FitError:
            if self._guide is np.float64 and self._guiding_N is None:
                raise
            # Neither float32 nor some rows can tell nearly flat directions from flat ones
            self._guide, self._guiding_N = np.float64, None
            theta_P = minimise(self, self.start_P, low_P, high_P, what, fall, self._inverse)
        bias_C = theta_P[-classes:]
        return theta_P[:-classes], bias_C - bias_C.mean()  # softmax does not see the mean

    def _first_fit(self, what: str) -> Array:
        """Return the rough fit of some rows, a point from which few steps over all rows are left."""
        rows, classes = self.x_NC.shape
        if self.shape != "full" or len(self.start_P) < SEVERAL or rows < 2 * FIRST * classes:
            return self.start_P
        some_N = _some_rows(rows, rows // FIRST)
        few = Multinomial(self.x_NC[some_N], self.labels_N[some_N], self.shape, self.penalty_P)
        few.start_P = self.start_P
        try:
            return minimise(few, self.start_P, -np.inf, np.inf, what, ROUGH, few._inverse)
        except FitError:
            return self.start_P

    def _guiding_rows(self) -> Labels | None:
        """Return the rows that guide the steps; None: all."""
        rows, classes = self.x_NC.shape
        enough = max(int(GUIDING[0] * rows), GUIDING[1] * classes)
        # A few rows of a class say little about the curvature of a diagonal entry, which `matrix` does not penalise
        if self.shape != "full" or len(self.start_P) < MANY or enough >= rows or not self.penalty_P.min() > 0:
            return None
        some_N = _some_rows(rows, enough)
        # The rows' curvature of an entry of W is below the mean square of x times the share of the entry's class
        square = float(np.square(self.x_NC[some_N[:1000]]).mean())
        return some_N if STRONG * square / classes <= 2 * self.penalty_P[1] else None

    def _is_mostly_penalty(self) -> bool:
        """Return whether the penalty is most of the Hessian, so that its diagonal is close to all of it.

        The rows' curvature of an off-diagonal entry is below the mean square of x, in any direction of W as well: the
        squares of C features add up, and the mean share of a class is 1 / C.
        """
        square = float(np.square(self.x_NC[:1000]).mean())
        return bool(self.penalty_P.min() > 0 and 2 * self.penalty_P[1] >= square)

    def _guide_by_all(self) -> None:
        """Let all rows guide the steps from now on."""
        self._guiding_N = None

    def _inverse(self) -> KroneckerInverse | None:
        """Return the preconditioner at the last point. None: the diagonal of the Hessian.

        If one of them needed more products for the last step than a step may take, the other one is next. The diagonal
        suits a column of another scale that few rows determine.
        """
        products, self._products = self._products, 0
        if self.shape != "full" or len(self.start_P) < FEWEST:
            return None
        self._is_kronecker ^= products >= PRODUCTS
        if not self._is_kronecker:
            return None
        try:
            return KroneckerInverse(self._guides(), self.penalty_P)
        except np.linalg.LinAlgError:
            return None

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
        self._products += 1
        product_P, guide_P = np.zeros_like(direction_P), direction_P.astype(self._guide, copy=False)
        for x_NC, p_NC in self._guides():
            eta_NC = self._forward(guide_P, x_NC)
            eta_NC -= np.einsum("nc,nc->n", p_NC, eta_NC)[:, None]
            eta_NC *= p_NC
            product_P += self._adjoint(eta_NC, x_NC)
        return (1 + self._prior) * product_P / self._guiding + 2 * self.penalty_P * direction_P

    def hessian_diagonal(self) -> Array:
        diagonal_P = np.zeros_like(self.start_P)
        for x_NC, p_NC in self._guides():
            diagonal_P += self._adjoint(p_NC - p_NC * p_NC, x_NC * x_NC)
        return (1 + self._prior) * diagonal_P / self._guiding + 2 * self.penalty_P

    @property
    def _guiding(self) -> int:
        """Number of rows that guide the steps."""
        return len(self.labels_N if self._guiding_N is None else self._guiding_N)

    def _guides(self) -> Iterator[tuple[Array, Array]]:
        """Yield features and last probabilities, block by block, in the precision that guides the steps."""
        for block in self._blocks(self._guiding):
            rows_N = block if self._guiding_N is None else self._guiding_N[block]
            yield self.x_NC[rows_N].astype(self._guide, copy=False), self._p_NC[rows_N].astype(self._guide, copy=False)

    def _blocks(self, rows: int | None = None) -> Iterator[slice]:
        # Matrix products are fastest on tall blocks; elementwise work is fastest on blocks in the cache.
        classes = self.x_NC.shape[1]
        rows = len(self.x_NC) if rows is None else rows
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


def _some_rows(rows: int, some: int) -> Labels:
    """Draw the same rows each time, in ascending order. Rows in regular distances may all have one class."""
    return np.sort(np.random.default_rng(0).choice(rows, some, replace=False))
