"""Sequential tests by betting on blocks of labels in order of arrival. They may be checked after every label, for ever.

A block is the `CalibrationSums` of some labels; the order within it is lost and does not matter. A block may have any
size and may end at any moment, because its stake was fixed when it began. So `state.advance(unfinished)` reads an
unfinished block. To commit a block, keep the state that `advance` returns. Do this once for each block, before you
process labels of the next one.

Order blocks by the ARRIVAL of the label. The evidence of a block cannot be taken back. A label that is corrected later
belongs into sums and intervals, not here. The tests are valid if arrival does not depend on whether the answer was
right, given its confidence and everything that arrived before.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.alarms.anytime import AnytimeTest
from trueodds.metrics.alarms.payoffs import Null, payoffs
from trueodds.metrics.alarms.stored import BlockState
from trueodds.sums.bins import cell_of
from trueodds.sums.frames import check_index
from trueodds.sums.inputs import Array, as_array, check_top, is_number, is_whole
from trueodds.sums.sums import CalibrationSums

Integers = npt.NDArray[np.int64]

BLOCK = 20
"""Labels per block: small enough to start a bet soon after a change, and large enough to keep starts cheap."""


@dataclass(frozen=True)
class _Wealth(BlockState):
    """Wealth of each bet after some blocks, all in logs. Nothing overflows, and 10^7 labels cost no accuracy."""

    null: Null
    tolerance: float
    blocks: int
    labels: int
    log_wealth: tuple[float, ...] | None
    """Log wealth of each bet; None before the first block, when no bet has been placed."""
    peak: float
    """Largest value of the log statistic after any committed block. Evidence never decreases."""

    @classmethod
    def start(cls, null: Null = "point", tolerance: float = 0.02) -> Self:
        """Return the state before any label.

        Args:
            null: "point" (no confidence is ever wrong by more than `tolerance`) or "ece" (the ECE of the traffic that
                is being labelled never exceeds it; see `trueodds.metrics.alarms.payoffs`).
            tolerance: Largest acceptable error, in [0, .5).

        Raises:
            ValueError: The null is unknown, or the tolerance is outside [0, .5).
        """
        payoffs(null, tolerance)
        return cls(null, float(tolerance), 0, 0, None, -math.inf)

    def advance(self, block: CalibrationSums) -> Self:
        """Process one more block of labels. An empty block returns the same state.

        Args:
            block: Calibration sums of the labels.

        Returns:
            The new state.

        Raises:
            ValueError: The block does not consist of whole labels, each right or wrong.
        """
        count_C, _, correct_C = block.cells[:3]
        cell = np.flatnonzero(count_C)
        if not len(cell):
            return self
        right, wrong = correct_C[cell], count_C[cell] - correct_C[cell]
        if not ((right >= 0) & (wrong >= 0) & (np.floor(right) == right) & (np.floor(wrong) == wrong)).all():
            raise ValueError("block holds cells that are not counts of right and wrong labels; give no weights")
        table = payoffs(self.null, self.tolerance)
        payoff_K = right @ table.log_right_CK[cell] + wrong @ table.log_wrong_CK[cell]
        before_K = np.full(len(payoff_K), -np.inf) if self.log_wealth is None else np.array(self.log_wealth)
        wealth_K = self.step(before_K, payoff_K, self.blocks + 1)
        peak = max(self.peak, float(self.value(wealth_K, table.log_weight_K, self.blocks + 1)))
        labels = self.labels + int(right.sum() + wrong.sum())
        return replace(self, blocks=self.blocks + 1, labels=labels, log_wealth=tuple(wealth_K.tolist()), peak=peak)

    def advance_each(
        self, confidence_N: npt.ArrayLike, correct_N: npt.ArrayLike, size: int = BLOCK
    ) -> tuple[Self, Array]:
        """Process N / `size` whole blocks of labels in their order.

        The result is that of `advance` block by block, up to rounding, in a tenth of the time. It is bit-for-bit the
        same however a stream is divided into calls. The memory is N x 20 numbers.

        Args:
            confidence_N: Confidence of each answer.
            correct_N: Whether each answer is right.
            size: Labels per block.

        Returns:
            The new state, and the log statistic after each block.

        Raises:
            ValueError: The size does not divide N, or `CalibrationSums.from_top` does not accept the rows.
        """
        confidence, correct = check_top(confidence_N, correct_N)
        if not (is_whole(size) and size >= 1) or len(confidence) % size:
            raise ValueError(f"{len(confidence)} labels in blocks of {size!r}; allowed are whole blocks only")
        if not len(confidence):
            return self, np.zeros(0)
        table, cell_N = payoffs(self.null, self.tolerance), cell_of(confidence)
        paid_NK = np.where(correct[:, None], table.log_right_CK[cell_N], table.log_wrong_CK[cell_N])
        paid_BK = paid_NK.reshape(-1, size, paid_NK.shape[1]).sum(axis=1)
        wealth_K = np.full(paid_BK.shape[1], -np.inf) if self.log_wealth is None else np.array(self.log_wealth)
        number_B = self.blocks + 1 + np.arange(len(paid_BK))
        wealth_BK = np.empty_like(paid_BK)
        for b, number in enumerate(number_B.tolist()):
            wealth_BK[b] = wealth_K = self.step(wealth_K, paid_BK[b], number)
        value_B = self.value(wealth_BK, table.log_weight_K, number_B)
        end = replace(
            self,
            blocks=self.blocks + len(paid_BK),
            labels=self.labels + len(confidence),
            log_wealth=tuple(wealth_K.tolist()),
            peak=max(self.peak, float(value_B.max())),
        )
        return end, value_B

    @staticmethod
    @abstractmethod
    def step(log_wealth_K: Array, log_payoff_K: Array, block: int) -> Array:
        """Return the log wealth of each bet (last axis) after block number `block` = 1, 2, ...

        Leading axes are streams.
        """

    @staticmethod
    @abstractmethod
    def value(log_wealth_K: Array, log_weight_K: Array, blocks: int | Integers) -> Array:
        """Return the log statistic after `blocks` blocks.

        Leading axes are streams, or moments if `blocks` is an array.
        """

    def _log_value(self) -> float:
        if self.log_wealth is None:
            return float(self.value(np.array([-np.inf]), np.zeros(1), 0))
        return float(
            self.value(np.array(self.log_wealth), payoffs(self.null, self.tolerance).log_weight_K, self.blocks)
        )

    @classmethod
    def _restore(cls, tree: dict[str, Any]) -> Self:
        state = cls.start(tree["null"], tree["tolerance"])
        return state._after(tree, len(payoffs(state.null, state.tolerance).log_weight_K))


class EProcess(_Wealth, AnytimeTest):
    """Anytime-valid test (e-process) of calibration: P(ever E >= 1/alpha) <= alpha under the null.

    It is a mixture over recalibration bets and starting times. Before block j = 1, 2, ... the share
    gamma_j = 1/(1 + log2 j) - 1/(1 + log2(j+1)) of the capital is staked on it:

        M_k <- (M_k + gamma_j) E_k(block j),    E = 1/(1 + log2(j+1)) + sum_k w_k M_k

    E_k(block) is the product of bet k's payoffs (`trueodds.metrics.alarms.payoffs`), and w_k is its weight. Fresh
    capital comes in at every block, so a long calibrated time does not hide a later error.

    References:
        Ville 1939. Shin, Ramdas and Rinaldo 2024, E-detectors.

    Examples:
        >>> alarm = metrics.EProcess.start(null="ece", tolerance=0.02)
        >>> for block in metrics.blocks([0.95] * 200, [True, False] * 100):
        ...     alarm = alarm.advance(block)
        >>> alarm.labels, alarm.is_alarmed()
        (200, True)
    """

    form = "e-process"

    @property
    def log_e(self) -> float:
        """log E in nats. It is 0 at the start, and never below the log of the capital that is not staked yet."""
        return self._log_value()

    @staticmethod
    def step(log_wealth_K: Array, log_payoff_K: Array, block: int) -> Array:
        before, after = 1 + math.log2(block), 1 + math.log2(block + 1)
        log_gamma = math.log(math.log1p(1 / block) / math.log(2) / (before * after))  # the difference, uncancelled
        wealth_K: Array = np.logaddexp(log_wealth_K, log_gamma) + log_payoff_K
        return wealth_K

    @staticmethod
    def value(log_wealth_K: Array, log_weight_K: Array, blocks: int | Integers) -> Array:
        not_laid = -np.log1p(np.log2(np.add(blocks, 1.0)))
        log_e: Array = np.logaddexp(not_laid, scipy.special.logsumexp(log_wealth_K + log_weight_K, axis=-1))
        return log_e


class ShiryaevRoberts(_Wealth):
    """Change detector: at most one false alarm in a chosen number of labels on average. It is quicker than `EProcess`.

    Before every block one unit is staked on each bet: R_k <- (R_k + 1) E_k(block), R = sum_k w_k R_k. Under the null
    R - blocks falls on average. So the mean run until R >= a is at least a blocks, and
    P(R >= a within N blocks) <= N / a.

    References:
        Shiryaev 1963. Roberts 1966. Shin, Ramdas and Rinaldo 2024, E-detectors.

    Examples:
        >>> alarm = metrics.ShiryaevRoberts.start(null="ece", tolerance=0.02)
        >>> for block in metrics.blocks([0.95] * 200, [True, False] * 100):
        ...     alarm = alarm.advance(block)
        >>> alarm.labels, alarm.is_alarmed(100_000)
        (200, True)
    """

    form = "shiryaev-roberts"

    @property
    def log_r(self) -> float:
        """log R; -inf before the first block."""
        return self._log_value()

    def is_alarmed(self, run_length: float = 100_000, block: int = BLOCK) -> bool:
        """Return whether R has reached run_length / block.

        Under the null this takes at least `run_length` labels on average.

        Args:
            run_length: Mean number of labels between false alarms.
            block: Smallest number of labels in a committed block, except the last one.

        Raises:
            ValueError: The run length is shorter than a block, or a block is below one label.
        """
        if not (is_number(run_length) and is_number(block) and 1 <= block <= run_length < math.inf):
            raise ValueError(
                f"run_length is {run_length!r} with blocks of {block!r}; allowed is 1 <= block <= run_length"
            )
        return self.peak >= math.log(run_length / block)

    @staticmethod
    def step(log_wealth_K: Array, log_payoff_K: Array, block: int) -> Array:
        wealth_K: Array = np.logaddexp(log_wealth_K, 0.0) + log_payoff_K
        return wealth_K

    @staticmethod
    def value(log_wealth_K: Array, log_weight_K: Array, blocks: int | Integers) -> Array:
        log_r: Array = scipy.special.logsumexp(log_wealth_K + log_weight_K, axis=-1)
        return log_r


def blocks(confidence_N: npt.ArrayLike, correct_N: npt.ArrayLike, size: int = BLOCK) -> Iterator[CalibrationSums]:
    """Divide labels, in order of arrival, into blocks of `size`. The last block may be unfinished.

    Args:
        confidence_N: Confidence of each answer.
        correct_N: Whether each answer is right.
        size: Labels per block.

    Yields:
        The calibration sums of each block.

    Raises:
        ValueError: The size is not a whole number from 1 on, or `CalibrationSums.from_top` does not accept the rows.

    Examples:
        >>> [int(block.cells[0].sum()) for block in metrics.blocks([0.9] * 50, [True] * 50, 20)]
        [20, 20, 10]
    """
    if not (is_whole(size) and size >= 1):
        raise ValueError(f"size is {size!r}; allowed are whole numbers of labels from 1 on, such as {BLOCK}")
    check_index(confidence=confidence_N, correct=correct_N)
    confidence, correct = as_array(confidence_N, "confidence"), as_array(correct_N, "correct")
    if confidence.shape != correct.shape:
        raise ValueError(f"confidence {confidence.shape} and correct {correct.shape} must be vectors of one length")
    for first in range(0, len(confidence), size):
        yield CalibrationSums.from_top(confidence[first : first + size], correct[first : first + size])
