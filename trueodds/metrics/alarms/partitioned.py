"""Sequential evidence from sums of partitions, such as days: one bet on each partition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueodds.metrics.alarms.payoffs import payoffs
from trueodds.metrics.alarms.sequential import EProcess
from trueodds.sums.inputs import Array


@dataclass(frozen=True)
class PartitionEProcess(EProcess):
    """Anytime-valid test of calibration that reads whole partitions of labels, from their sums alone.

    The null is that of `EProcess`, at every label and given all labels before it. `ece`: the ECE of the traffic that is
    being labelled is at most the tolerance. `point`: no confidence is wrong by more than the tolerance.

    **The bet on a partition.** Bet k pays e_k(c, a) for a label of confidence c and outcome a, 1 if right and 0 if
    wrong. Its payoffs are fixed for each cell before all data (`trueodds.metrics.alarms.payoffs`). Let i = 1..n number
    the labels of a partition as they arrived, and let F_i hold all labels up to label i. Under the null
    E[e_k(c_i, a_i) | F_(i-1)] <= 1 for each of them. Condition the product from its last label to its first:

        E[prod_(i<=n) e_k(c_i, a_i) | F_0] = E[prod_(i<n) e_k(c_i, a_i) E[e_k(c_n, a_n) | F_(n-1)] | F_0] <= ... <= 1

    So the product pays at most 1 on average, given all earlier partitions. It does not depend on the order of the
    labels, because the stake of bet k is the same share of its capital for each of them. Its logarithm is linear in
    the partition's sums per cell C:

        log E_k = sum_C [correct_C log e_k(C, 1) + (count_C - correct_C) log e_k(C, 0)]

    A stake that moves within a partition would need the order. Two other bets need no order, and pay less. With
    x = s (a - c) - eps, the bet 1 + L mean(x) grows by at most log(1 + L) a partition, however many labels it has.
    The bet exp(L sum x + (log(1 - L) + L) sum x^2), for 0 <= L < 1 and x >= -1, never pays more than the product of
    1 + L x (Fan, Grama and Liu 2015, lemma 4.1).

    **The stake.** Before partition j = 1, 2, ... the share gamma_j = 1/(1 + log2 j) - 1/(1 + log2(j+1)) of the initial
    capital is divided among the bets by their weights w_k. Bet k stakes this and what it has won before:

        M_k <- (M_k + gamma_j) E_k(partition j),    E = 1/(1 + log2(j+1)) + sum_k w_k M_k

    The stake w_k (M_k + gamma_j) is known before the partition is read (`stakes`). So E is a supermartingale that
    begins at 1, and P(ever E >= 1/alpha) <= alpha (Ville 1939). A partition without labels changes nothing.

    **Conditions.** Whether a label arrives must not depend on whether its answer is right, given its confidence and the
    past. The null also speaks of a label given the earlier ones of the same partition. Answers that are right or wrong
    together, such as copies of one photograph, break it.

    **What it loses.** It sees a change at the end of a partition, and loses capital on those labels of it that came
    before the change.

    References:
        Ville 1939. Fan, Grama and Liu 2015. Waudby-Smith and Ramdas 2024. Shin, Ramdas and Rinaldo 2024, E-detectors.

    Examples:
        >>> evidence = metrics.PartitionEProcess.start(null="ece", tolerance=0.02)
        >>> for day in metrics.blocks([0.95] * 600, [True, False] * 300, 200):
        ...     evidence = evidence.advance(day)
        >>> evidence.blocks, evidence.labels, evidence.is_alarmed()
        (3, 600, True)
    """

    form = "partition e-process"

    def stakes(self) -> Array:
        """Return the stake of each of the K bets on the next partition, as shares of the initial capital.

        With what is not staked yet they sum to E.

        Examples:
            >>> round(float(metrics.PartitionEProcess.start().stakes().sum()), 3)
            0.5
        """
        log_weight_K = payoffs(self.null, self.tolerance).log_weight_K
        before_K = np.full(len(log_weight_K), -np.inf) if self.log_wealth is None else np.array(self.log_wealth)
        staked_K: Array = np.exp(self.step(before_K, np.zeros(len(log_weight_K)), self.blocks + 1) + log_weight_K)
        return staked_K
