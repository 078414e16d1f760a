"""Test that the score distributions of labelled classes, in some shares, give that of other answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array

ROWS_OF_A_CELL = 15
"""Answers, and reference rows, from which a predicted class gets one more cell."""
MOST_CELLS = 10
"""Largest number of cells of a predicted class."""
PSEUDO_ROWS = 1.0
"""Rows of each class that lie as all answers and rows do. They keep the variance of an empty cell above 0."""


POOLING_STEPS = 100


@dataclass(frozen=True)
class MixtureTest:
    """Result of `mixture_test`."""

    p_value: float
    statistic: float
    degrees: int
    """Degrees of freedom: cells - classes."""
    cells: int


def score_cells(p_SC: Array, answers_S: Array, rows_SC: Array) -> npt.NDArray[np.intp]:
    """Return the cell of each score: its predicted class, cut at quantiles of the confidence.

    A predicted class has at most one cell for 15 answers and 15 reference rows. The quantiles give the answers and the
    reference rows the same weight.
    """
    top_S, confidence_S, rows_S = p_SC.argmax(axis=1), p_SC.max(axis=1), rows_SC.sum(axis=1)
    weight_S = answers_S / answers_S.sum() + rows_S / rows_S.sum()
    cell_S, cells = np.full(len(p_SC), -1, np.intp), 0
    for label in range(p_SC.shape[1]):
        own = np.flatnonzero((top_S == label) & (weight_S > 0))
        if not len(own):
            continue
        own = own[confidence_S[own].argsort(kind="stable")]
        fewest = min(answers_S[own].sum(), rows_S[own].sum())
        number = int(np.clip(fewest // ROWS_OF_A_CELL, 1, MOST_CELLS))
        _, value_S = np.unique(confidence_S[own], return_inverse=True)
        # Equal confidences share a cell: that of the middle of their weight.
        of_value = np.bincount(value_S, weight_S[own])
        middle = (of_value.cumsum() - of_value / 2) / of_value.sum()
        _, own_cell = np.unique(np.minimum((middle * number).astype(np.intp), number - 1), return_inverse=True)
        cell_S[own] = cells + own_cell[value_S]
        cells += int(own_cell.max()) + 1
    return cell_S


def mixture_test(p_SC: Array, answers_S: Array, rows_SC: Array, w_C: Array) -> MixtureTest | None:
    """Test the hypothesis q = P w for some shares w. Return None if there are no more cells than classes.

    q(s) is the share of the answers in cell s, and P(s, y) that of the reference rows of class y. With the variance of
    d = q - P w under the hypothesis,

        V(w) = (diag(P w) - P w (P w)') / m + sum_y w_y^2 (diag(P_y) - P_y P_y') / n_y,

    the smallest d' V^-1 d over all w with sum 1 has about a chi-square law with cells - classes degrees of freedom.

    Args:
        p_SC: Probabilities of each score.
        answers_S: Number of answers with each score.
        rows_SC: Number of reference rows with each score and class.
        w_C: Consistent estimate of the shares, for V.

    References:
        Hansen (1982), Large sample properties of generalized method of moments estimators, section 4: the test of
        overidentifying restrictions.
    """
    cell_S = score_cells(p_SC, answers_S, rows_SC)
    used_S = cell_S >= 0
    cells, classes = int(cell_S.max()) + 1, p_SC.shape[1]
    if cells <= classes:
        return None
    m, n_C = answers_S.sum(), rows_SC.sum(axis=0)
    answers_M = np.bincount(cell_S[used_S], answers_S[used_S], cells).astype(np.float64)
    rows_MC: Array = np.zeros((cells, classes))
    np.add.at(rows_MC, cell_S[used_S], rows_SC[used_S])
    smooth_MC, w_C = _pool(answers_M, rows_MC, w_C)
    mixed_M = smooth_MC @ w_C
    variance_MM = (np.diag(mixed_M) - np.outer(mixed_M, mixed_M)) / m
    scale_C = w_C**2 / n_C
    variance_MM += np.diag(smooth_MC @ scale_C) - (smooth_MC * scale_C) @ smooth_MC.T
    # One cell is determined by the others. Differences to the last class let the shares sum to 1.
    root = np.linalg.cholesky(variance_MM[:-1, :-1])
    share_MC = rows_MC / n_C
    gap = np.linalg.solve(root, (answers_M / m - share_MC[:, -1])[:-1])
    columns = np.linalg.solve(root, (share_MC[:, :-1] - share_MC[:, -1:])[:-1])
    rest = gap - columns @ np.linalg.lstsq(columns, gap, rcond=None)[0]
    statistic, degrees = float(rest @ rest), cells - classes
    return MixtureTest(float(scipy.special.chdtrc(degrees, statistic)), statistic, degrees, cells)


def _pool(answers_M: Array, rows_MC: Array, w_C: Array) -> tuple[Array, Array]:
    """Return P and w as the answers and the reference rows together estimate them under the hypothesis.

    Each answer counts for the classes by its posterior probability (EM of the joint likelihood). The variance of a
    cell in which few reference rows lie would otherwise depend on these few.
    """
    m, n_C = answers_M.sum(), rows_MC.sum(axis=0)
    both_M = (answers_M + rows_MC.sum(axis=1)) / (m + n_C.sum())
    prior_MC = rows_MC + PSEUDO_ROWS * both_M[:, None]
    share_MC = prior_MC / prior_MC.sum(axis=0)
    for _ in range(POOLING_STEPS):
        joint_MC = share_MC * w_C
        joint_MC *= (answers_M / joint_MC.sum(axis=1))[:, None]
        w_C = joint_MC.sum(axis=0) / m
        share_MC = (prior_MC + joint_MC) / (prior_MC + joint_MC).sum(axis=0)
    return share_MC, w_C
