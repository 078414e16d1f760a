"""Objectives for a temperature, as functions of beta = 1/T. They read blocks of rows, without N x C temporaries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from trueodds.calibrators.base import Labels, Logits, row_blocks
from trueodds.sums.inputs import Array

SURE = 1e-6
"""Smallest number of wrong rows that a net is assumed to expect.

It keeps the prior's weight finite, and T = 1 to some 1e-6.
"""
WARM = 1 << 17
"""Values on which a first temperature is found before all rows are read. Then all rows need only three Newton steps."""
NAMES = ("nll", "brier", "ece", "adaptive_ece", "sb_ece", "sb_ece_label")


class Rows:
    """Logits with labels. Every method is one pass over them in float64."""

    def __init__(self, logits_NC: Logits, labels_N: Labels) -> None:
        self.logits_NC, self.labels_N = logits_NC, labels_N
        self._top_N = logits_NC.max(axis=1, keepdims=True).astype(np.float64)
        true_N = logits_NC[np.arange(len(labels_N)), labels_N].astype(np.float64)
        self._true_N = true_N - self._top_N[:, 0]
        self._mean_true = float(self._true_N.mean())
        self.prior = self._prior_mean = 0.0

    def _blocks(self, beta: float) -> Iterator[tuple[slice, Array, Array]]:
        """Yield (rows, z - max z, exp(beta (z - max z))) per block. The two arrays are reused for the next block."""
        rows, classes = self.logits_NC.shape
        blocks = list(row_blocks(rows, classes))
        shifted_NC, weight_NC = np.empty((2, blocks[0].stop, classes))
        for block in blocks:
            n = block.stop - block.start
            z_NC, e_NC = shifted_NC[:n], weight_NC[:n]
            np.subtract(self.logits_NC[block], self._top_N[block], out=z_NC)
            np.exp(np.multiply(z_NC, beta, out=e_NC), out=e_NC)
            yield block, z_NC, e_NC

    def nll_slope(self, beta: float) -> tuple[float, float]:
        """Compute the first and second derivative in beta of the mean NLL and its prior.

        They are mean (E_p z - z_y) and mean Var_p z. The prior adds w mean (E_p z - E_q z) and w mean Var_p z.
        """
        mean = variance = 0.0
        ones_C = np.ones(self.logits_NC.shape[1])  # sums as products: twice as fast as sum(axis=1) for 10 classes
        for _, z_NC, e_NC in self._blocks(beta):
            total_N = e_NC @ ones_C
            e_NC *= z_NC
            mean_N = e_NC @ ones_C / total_N
            mean += float(mean_N.sum())
            variance += float((np.einsum("nc,nc->n", e_NC, z_NC) / total_N - mean_N**2).sum())
        n = len(self.labels_N)
        mean, variance = mean / n, max(variance / n, 0.0)
        return mean - self._mean_true + self.prior * (mean - self._prior_mean), (1 + self.prior) * variance

    def shrink(self, errors: float) -> None:
        """Set `prior`, the weight w per row of pseudo-rows labelled by q = softmax(z).

        With this weight, `errors` of the pseudo-rows are wrong.

        w is `errors` divided by the number of rows that q expects to be wrong, or by the observed number if that is
        larger.
        """
        if errors == 0:
            self.prior = self._prior_mean = 0.0
            return
        doubt = mean = 0.0
        for _, z_NC, e_NC in self._blocks(1.0):
            total_N = e_NC.sum(axis=1)
            doubt += float((1 - 1 / total_N).sum())
            mean += float((np.einsum("nc,nc->n", e_NC, z_NC) / total_N).sum())
        n = len(self.labels_N)
        self.prior = errors / max(doubt, n - float(self.correct_N.sum()), SURE)
        self._prior_mean = mean / n

    @cached_property
    def sizes(self) -> tuple[float, float]:
        """Medians over rows of max z minus the next z, and of max z - mean z: the units of a temperature's range.

        A factor on all logits is a factor on both, and half of the rows may hold logits of any other size. Masked
        classes, with -1e6 or so, do not change the next z. They change the mean, which only widens the range. Rows in
        which a value is 0 are left out. If the margin is 0 everywhere, the spread is used; both are 1 if all logits of
        each row are equal. If there are more than `WARM` values, evenly spaced rows are read.
        """
        for step in sorted({max(self.logits_NC.size // WARM, 1), 1}, reverse=True):
            z_NC = self.logits_NC[::step]
            top_N, mean_N, next_N = self._top_N[::step, 0], np.empty(len(z_NC)), np.empty(len(z_NC))
            for block in row_blocks(*z_NC.shape):
                mean_N[block] = z_NC[block].mean(axis=1, dtype=np.float64)
                next_N[block] = np.partition(z_NC[block], -2, axis=1)[:, -2] if z_NC.shape[1] > 1 else z_NC[block, 0]
            spread_N = (top_N - mean_N)[z_NC.min(axis=1) < z_NC.max(axis=1)]
            margin_N = (top_N - next_N)[top_N > next_N]
            if len(spread_N):
                spread = float(np.median(spread_N))
                return float(np.median(margin_N)) if len(margin_N) else spread, spread
        return 1.0, 1.0

    def brier(self, beta: float) -> tuple[float, float]:
        """Compute the mean Brier score sum_k p_k^2 - 2 p_y + 1, and its derivative in beta.

        dp_k/dbeta = p_k (z_k - m) with m = E_p z, so the derivative is
        mean 2 [sum_k p_k^2 (z_k - m) - p_y (z_y - m)].
        """
        value = slope = 0.0
        for block, z_NC, e_NC in self._blocks(beta):
            e_NC /= e_NC.sum(axis=1, keepdims=True)
            mean_N = np.einsum("nc,nc->n", e_NC, z_NC)
            square_N = np.einsum("nc,nc->n", e_NC, e_NC)
            true_N = e_NC[np.arange(len(e_NC)), self.labels_N[block]]
            value += float((square_N - 2 * true_N + 1).sum())
            e_NC *= e_NC
            fall_N = true_N * (self._true_N[block] - mean_N)
            slope += 2 * float((np.einsum("nc,nc->n", e_NC, z_NC) - square_N * mean_N - fall_N).sum())
        return value / len(self.labels_N), slope / len(self.labels_N)

    def confidence(self, beta: float) -> Array:
        """Compute the top label's probability 1 / sum_k exp(beta (z_k - max z))."""
        confidence_N = np.empty(len(self.labels_N))
        for block, _, e_NC in self._blocks(beta):
            confidence_N[block] = 1 / e_NC.sum(axis=1)
        return confidence_N

    @cached_property
    def correct_N(self) -> Array:
        """1 if the top label is right (ties: the smallest index), the same for every temperature."""
        correct: Array = (self.logits_NC.argmax(axis=1) == self.labels_N).astype(np.float64)
        return correct


def ece(confidence_N: Array, correct_N: Array, bins: int) -> float:
    """Compute `metrics.ece` of the top label."""
    from trueodds.metrics.binned import ece as binned_ece  # here: its modules take a tenth of a second to load
    from trueodds.sums.sums import CalibrationSums

    return binned_ece(CalibrationSums.from_top(confidence_N, correct_N > 0), bins=bins)


def adaptive_ece(confidence_N: Array, correct_N: Array, bins: int) -> float:
    """Compute `metrics.adaptive_ece` of the top label, from the confidences themselves."""
    from trueodds.metrics.ranked import mass_bins, rank

    return float(np.abs(mass_bins(rank(confidence_N, correct_N > 0), bins).gap_B).sum() / len(confidence_N))


def sb_ece_label(confidence_N: Array, correct_N: Array, bins: int, softness: float, order: float) -> float:
    """Compute the label-binned soft-binned ECE (Karandikar et al. 2021, eq. 12).

        (1/n sum_ij u_ij |A_j - c_i|^p)^(1/p)

    Memberships u and accuracies A are those of `sb_ece`; each row keeps its own confidence.
    """
    size_B, right_B = np.zeros((2, bins))
    for block, share_NB in _memberships(confidence_N, bins, softness):
        size_B += share_NB.sum(axis=0)
        right_B += correct_N[block] @ share_NB
    accuracy_B = np.divide(right_B, size_B, out=np.zeros(bins), where=size_B > 0)
    total = sum(
        float((share_NB * np.abs(accuracy_B - confidence_N[block, None]) ** order).sum())
        for block, share_NB in _memberships(confidence_N, bins, softness)
    )
    return float((total / len(confidence_N)) ** (1 / order))


def _memberships(confidence_N: Array, bins: int, softness: float) -> Iterator[tuple[slice, Array]]:
    """Yield (rows, u (N, B)) block by block: softmax_j(-(c - xi_j)^2 / softness), where xi are the bins' centres."""
    centre_B = (np.arange(bins) + 0.5) / bins
    for block in row_blocks(len(confidence_N), bins):
        distance_NB = (confidence_N[block, None] - centre_B) ** 2
        share_NB = np.exp((distance_NB.min(axis=1, keepdims=True) - distance_NB) / softness)
        yield block, share_NB / share_NB.sum(axis=1, keepdims=True)


def sb_ece(confidence_N: Array, correct_N: Array, bins: int, softness: float, order: float) -> float:
    """Compute the soft-binned ECE (Karandikar et al. 2021, eq. 11).

        (sum_j S_j / n |A_j - C_j|^p)^(1/p)

    The membership of confidence c in bin j with centre xi_j is softmax_j(-(c - xi_j)^2 / softness). S, A and C are a
    bin's sum of memberships and the means of correctness and confidence under them (eqs. 8 to 10).
    """
    size_B, gap_B = np.zeros((2, bins))
    for block, share_NB in _memberships(confidence_N, bins, softness):
        c_N = confidence_N[block]
        size_B += share_NB.sum(axis=0)
        gap_B += (correct_N[block] - c_N) @ share_NB
    filled = size_B > 0
    mean_B = np.abs(gap_B[filled]) / size_B[filled]
    return float(((size_B[filled] * mean_B**order).sum() / len(confidence_N)) ** (1 / order))
