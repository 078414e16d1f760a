"""Approximate inverse of the Hessian of multinomial logistic regression with a full matrix, for conjugate gradients."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trueodds.sums.inputs import Array

LEAST_CURVATURE = 1e-6
"""Least curvature, relative to the largest. Below it float32 cannot tell curvature from none."""


class KroneckerInverse:
    """Approximate inverse of the Hessian H of `Multinomial` with a full matrix W and biases b.

    With A_n = diag(p_n) - p_n p_n^T the Hessian in W is mean_n A_n (x) x_n x_n^T plus twice the penalty. The inverse
    leaves out the Hessian between two blocks of parameters:

    - The off-diagonal entries of W. Their block is taken for A (x) S + 2 penalty I, where A = mean_n A_n, and S is the
      mean of x_n x_n^T weighted by trace A_n. Two eigendecompositions of C x C matrices invert it. If p is the same in
      all rows, this is the Hessian in W.
    - The diagonal of W with b. Its 2C x 2C block is exact.

    A call costs 8 C^3 operations, and a product with H costs 4 N C^2.

    Args:
        blocks: Features x (N, C) and probabilities p (N, C) of some rows, block by block.
        penalty_P: Penalty of each parameter: W row by row, then b. The off-diagonal entries share one penalty.

    Raises:
        LinAlgError: The exact block is not positive definite in float64.

    References:
        Martens and Grosse 2015, Optimizing neural networks with Kronecker-factored approximate curvature, section 3.
    """

    def __init__(self, blocks: Iterable[tuple[Array, Array]], penalty_P: Array) -> None:
        outer_CC, inner_CC, slopes_CC, mixed_CC, diagonal_3C, rows, total = _moments(blocks)
        classes = len(outer_CC)
        share_C, square_C, mean_C = diagonal_3C / rows
        outer_CC = np.diag(share_C) - outer_CC / rows
        mixed_CC = np.diag(mean_C) - mixed_CC / rows
        exact = np.block([[np.diag(square_C) - slopes_CC / rows, mixed_CC], [mixed_CC.T, outer_CC]])
        ridge = 2 * np.append(penalty_P[: -classes : classes + 1], penalty_P[-classes:])
        entry = np.arange(2 * classes)
        exact[entry, entry] += ridge + LEAST_CURVATURE * np.maximum(exact.diagonal(), exact.diagonal().mean())
        self._exact_inverse = np.linalg.inv(np.linalg.cholesky(exact))  # without scipy.linalg, which loads slowly
        curvature_C, self._outer_CC = np.linalg.eigh(outer_CC)
        square_C, self._inner_CC = np.linalg.eigh(inner_CC / max(total, np.finfo(np.float64).tiny))
        off_diagonal = penalty_P[1] if classes > 1 else 0.0
        curvature_CC = np.maximum(curvature_C, 0)[:, None] * np.maximum(square_C, 0) + 2 * off_diagonal
        self._curvature_CC = np.maximum(curvature_CC, LEAST_CURVATURE * curvature_CC.max())

    def __call__(self, residual_P: Array) -> Array:
        """Apply the inverse."""
        classes = len(self._outer_CC)
        weight_CC, bias_C = residual_P[:-classes].reshape(classes, classes).copy(), residual_P[-classes:]
        exact_2C = self._exact_inverse.T @ (self._exact_inverse @ np.append(weight_CC.diagonal(), bias_C))
        np.fill_diagonal(weight_CC, 0)
        weight_CC = self._outer_CC.T @ weight_CC @ self._inner_CC
        weight_CC /= self._curvature_CC
        weight_CC = self._outer_CC @ weight_CC @ self._inner_CC.T
        np.fill_diagonal(weight_CC, exact_2C[:classes])
        return np.append(weight_CC, exact_2C[classes:])


def _moments(blocks: Iterable[tuple[Array, Array]]) -> tuple[Array, Array, Array, Array, Array, int, float]:
    """Return sums over the rows, in float64.

    They are p p^T, w x x^T with w = trace A, (p x)(p x)^T, (p x) p^T, the three rows p, p x^2 and p x, the number of
    rows, and the sum of w.
    """
    outer_CC = inner_CC = slopes_CC = mixed_CC = diagonal_3C = np.zeros(())
    rows, total = 0, 0.0
    for x_NC, p_NC in blocks:
        px_NC = p_NC * x_NC
        doubt_N = 1 - np.einsum("nc,nc->n", p_NC, p_NC)
        outer_CC = outer_CC + p_NC.T @ p_NC
        inner_CC = inner_CC + (x_NC * doubt_N[:, None]).T @ x_NC
        slopes_CC = slopes_CC + px_NC.T @ px_NC
        mixed_CC = mixed_CC + px_NC.T @ p_NC
        sums = p_NC.sum(axis=0), np.einsum("nc,nc->c", px_NC, x_NC), px_NC.sum(axis=0)
        diagonal_3C = diagonal_3C + np.array(sums, np.float64)
        rows, total = rows + len(x_NC), total + float(doubt_N.sum())
    return outer_CC, inner_CC, slopes_CC, mixed_CC, diagonal_3C, rows, total
