"""Alarms that may be looked at after every label, for ever: tests by betting on blocks of arrived labels.

A block is the `CalibrationSums` of some labels. Its labels' order is lost and does not matter; a block may have any
size and may end at any moment, because its stake was laid when it began. So an unfinished block is read by
`state.advance(unfinished)`, and committed by keeping the result: once, and before the labels of the next one.

Key blocks by the ARRIVAL of the label. What a block has said cannot be taken back: a label that is corrected later
belongs into sums and intervals, not here. Valid if arrival does not depend on whether the answer was right, given its
confidence and what has arrived before.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from trueodds.metrics.alarms.anytime import AnytimeTest
from trueodds.metrics.alarms.payoffs import Null, payoffs
from trueodds.metrics.alarms.stored import StoredState
from trueodds.sums.bins import cell_of
from trueodds.sums.inputs import Array, as_array, check_top, is_number, is_whole
from trueodds.sums.sums import CalibrationSums

Integers = npt.NDArray[np.int64]

BLOCK = 20
"""Labels per block: small enough to start a bet soon after a change, and cheap in starts."""


@dataclass(frozen=True)
class _Wealth(StoredState):
    """Wealth per bet after some blocks, all in logs: nothing overflows, and 10^7 labels cost no accuracy."""

    null: Null
    tolerance: float
    blocks: int
    labels: int
    log_wealth: tuple[float, ...] | None
    """One number per bet; None before the first block, when no bet has been placed."""
    peak: float
    """The largest value of the log statistic after any committed block: evidence once shown stays."""

    @classmethod
    def start(cls, null: Null = "point", tolerance: float = 0.02) -> Self:
        """Before any label. null: "point" (no confidence is ever off by more than `tolerance`) or "ece" (the ECE of the
        traffic that is being labelled never is; see `trueodds.metrics.alarms.payoffs`).

        Raises:
            ValueError: an unknown null, or a tolerance outside [0, .5).
        """
        payoffs(null, tolerance)
        return cls(null, float(tolerance), 0, 0, None, -math.inf)

    def advance(self, block: CalibrationSums) -> Self:
        """The state after one more block of labels; after an empty block, the same state.

        Raises:
            ValueError: a block that is not made of whole labels, each right or wrong.
        """
        count_C, _, correct_C = block.cells[:3]
        cell = np.flatnonzero(count_C)
        if not len(cell):
            return self
        right, wrong = correct_C[cell], count_C[cell] - correct_C[cell]
        if not ((right >= 0) & (wrong >= 0) & (np.floor(right) == right) & (np.floor(wrong) == wrong)).all():
            raise ValueError("block holds cells that are not counts of right and wrong labels; weights are not allowed")
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
        """The state after N / `size` whole blocks of labels in their order, and the log statistic after each of them.

        As `advance` block by block, to rounding, in a tenth of the time; and the same to the last bit however a stream
        is cut into calls. Memory: N x 20 numbers.

        Raises:
            ValueError: a size that does not divide N, or what `CalibrationSums.from_top` refuses.
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
        """Log wealth per bet (last axis) after block number `block` = 1, 2, ...; leading axes are streams."""

    @staticmethod
    @abstractmethod
    def value(log_wealth_K: Array, log_weight_K: Array, blocks: int | Integers) -> Array:
        """Log statistic after `blocks` blocks; leading axes are streams, or moments if `blocks` is an array."""

    def _log_value(self) -> float:
        if self.log_wealth is None:
            return float(self.value(np.array([-np.inf]), np.zeros(1), 0))
        return float(
            self.value(np.array(self.log_wealth), payoffs(self.null, self.tolerance).log_weight_K, self.blocks)
        )

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; `from_json` restores them exactly. Before the first block wealth and peak are null."""
        peak = self.peak if self.blocks else None
        wealth = None if self.log_wealth is None else list(self.log_wealth)
        return {"form": self.form, **asdict(self), "log_wealth": wealth, "peak": peak}

    @classmethod
    def _restored(cls, tree: dict[str, Any]) -> Self:
        for name in ("blocks", "labels"):
            if not is_whole(tree[name]):
                raise TypeError(f"{name} is {tree[name]!r}; allowed are whole numbers")
        state, wealth, counted = cls.start(tree["null"], tree["tolerance"]), tree["log_wealth"], tree["blocks"]
        if (wealth is None) != (counted == 0) or not 0 <= counted <= tree["labels"]:
            raise ValueError(
                f"{counted} blocks of {tree['labels']} labels; allowed: one or more each, null wealth for 0"
            )
        if wealth is None:
            return state
        expected = len(payoffs(state.null, state.tolerance).log_weight_K)
        if len(wealth) != expected or not np.isfinite([*wealth, tree["peak"]]).all():
            raise ValueError(f"log_wealth must hold {expected} finite numbers, one for each bet, and peak one")
        return replace(state, **{name: tree[name] for name in ("blocks", "labels", "peak")}, log_wealth=tuple(wealth))


class EProcess(_Wealth, AnytimeTest):
    """Mixture e-process over recalibration bets and starting times: P(ever E >= 1/alpha) <= alpha under the null.

    Before block j = 1, 2, ... the share gamma_j = 1/(1 + log2 j) - 1/(1 + log2(j+1)) of the capital is laid on it:

        M_k <- (M_k + gamma_j) E_k(block j),    E = 1/(1 + log2(j+1)) + sum_k w_k M_k,

    E_k(block) the product of bet k's payoffs (`trueodds.metrics.alarms.payoffs`), w_k its weight. Because fresh
    capital comes in at every block, a long good past does not hide a bad present.

    >>> alarm = metrics.EProcess.start(null="ece", tolerance=0.02)
    >>> for block in metrics.blocks([0.95] * 200, [True, False] * 100):
    ...     alarm = alarm.advance(block)
    >>> alarm.labels, alarm.alarmed()
    (200, True)
    """

    form = "e-process"

    @property
    def log_e(self) -> float:
        """log E in nats: 0 at the start, never below that of the capital not laid yet."""
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
        log_e: Array = np.logaddexp(not_laid, logsumexp(log_wealth_K + log_weight_K, axis=-1))
        return log_e


class ShiryaevRoberts(_Wealth):
    """For those who accept one false alarm in so many labels, and want to hear of a change sooner.

    Before every block one unit is laid on each bet: R_k <- (R_k + 1) E_k(block), R = sum_k w_k R_k. Under the null
    R - blocks falls on average, so the mean run until R >= a is at least a blocks, and P(R >= a within N blocks) <=
    N / a (Shiryaev 1963, Roberts 1966; e-detectors: Shin, Ramdas and Rinaldo 2024).

    >>> alarm = metrics.ShiryaevRoberts.start(null="ece", tolerance=0.02)
    >>> for block in metrics.blocks([0.95] * 200, [True, False] * 100):
    ...     alarm = alarm.advance(block)
    >>> alarm.labels, alarm.alarmed(100_000)
    (200, True)
    """

    form = "shiryaev-roberts"

    @property
    def log_r(self) -> float:
        """log R; -inf before the first block."""
        return self._log_value()

    def alarmed(self, run_length: float = 100_000, block: int = BLOCK) -> bool:
        """Whether R has reached run_length / block: under the null not before `run_length` labels, on average.

        `block` is the least number of labels in a committed block (the last one apart).

        Raises:
            ValueError: a run length shorter than a block, or a block below one label.
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
        log_r: Array = logsumexp(log_wealth_K + log_weight_K, axis=-1)
        return log_r


def blocks(confidence_N: npt.ArrayLike, correct_N: npt.ArrayLike, size: int = BLOCK) -> Iterator[CalibrationSums]:
    """Cut labels, in their order of arrival, into blocks of `size`; the last may be unfinished.

    Raises:
        ValueError: a size that is not a whole number from 1 on, or what `CalibrationSums.from_top` refuses.

    >>> [int(block.cells[0].sum()) for block in metrics.blocks([0.9] * 50, [True] * 50, 20)]
    [20, 20, 10]
    """
    if not (is_whole(size) and size >= 1):
        raise ValueError(f"size is {size!r}; allowed are whole numbers of labels from 1 on, such as {BLOCK}")
    confidence, correct = as_array(confidence_N, "confidence"), as_array(correct_N, "correct")
    if confidence.shape != correct.shape:
        raise ValueError(f"confidence {confidence.shape} and correct {correct.shape} must be vectors of one length")
    for first in range(0, len(confidence), size):
        yield CalibrationSums.from_top(confidence[first : first + size], correct[first : first + size])
