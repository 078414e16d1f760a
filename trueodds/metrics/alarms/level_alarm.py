"""Alarm on ordered classes: sequential evidence that some "at least level k" is not calibrated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.alarms.anytime import AnytimeTest
from trueodds.metrics.alarms.sequential import BLOCK, EProcess
from trueodds.metrics.alarms.stored import StoredState
from trueodds.sums.inputs import Array, as_numbers
from trueodds.sums.ordered import check_levels


@dataclass(frozen=True)
class OrderedEProcess(StoredState, AnytimeTest):
    """Sequential test that every "at least level k" of ordered classes is calibrated, up to a tolerance.

    The null is that at every label, given everything before it, and for every k, the ECE of P(level >= k) of the
    answers that are being labelled is at most the tolerance. Each k has its own `EProcess`, and the evidence is their
    mean,

        E = 1 / (K - 1) sum_k E_k.

    A mean of e-processes is an e-process, however they depend on each other. So P(ever E >= 1/alpha) <= alpha while the
    null holds (Ville 1939). If only one level is wrong, its log E_k must be log(K - 1) nats larger than in a test of
    this level alone. With two levels it is the `EProcess` of p(positive).

    Examples:
        >>> alarm = metrics.OrderedEProcess.start(levels=3)
        >>> p_NK, reached_NK = [[0.9, 0.5]] * 200, [[True, True], [True, False]] * 100
        >>> alarm, log_e_B = alarm.advance_each(p_NK, reached_NK)
        >>> alarm.labels, alarm.is_alarmed()
        (200, True)
    """

    thresholds: tuple[EProcess, ...]
    """Evidence about each "at least level k", for k = 1 .. K - 1."""
    peak: float
    """Largest log E after any committed block. Evidence never decreases."""

    form = "ordered e-process"

    @classmethod
    def start(cls, levels: int, tolerance: float = 0.02) -> Self:
        """Return the state before any label.

        Args:
            levels: Number of levels K, from 2 on.
            tolerance: Largest acceptable ECE of each threshold, in [0, .5).

        Raises:
            ValueError: There are fewer than two levels, or the tolerance is outside [0, .5).
        """
        return cls((EProcess.start("ece", tolerance),) * (check_levels(levels) - 1), -math.inf)

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.thresholds) + 1

    @property
    def tolerance(self) -> float:
        """Largest acceptable ECE."""
        return self.thresholds[0].tolerance

    @property
    def blocks(self) -> int:
        """Number of committed blocks."""
        return self.thresholds[0].blocks

    @property
    def labels(self) -> int:
        """Number of labels in these blocks."""
        return self.thresholds[0].labels

    @property
    def log_e(self) -> float:
        """log E in nats, 0 at the start."""
        return float(_mean(np.array([[one.log_e] for one in self.thresholds]))[0])

    def advance_each(
        self, at_least_NK: npt.ArrayLike, reached_NK: npt.ArrayLike, size: int = BLOCK
    ) -> tuple[Self, Array]:
        """Process N / `size` whole blocks of labels in their order.

        The result is bit-for-bit the same however a stream is divided into calls.

        Args:
            at_least_NK: Probabilities of "at least level k", shape (N, K - 1), for k = 1 .. K - 1.
            reached_NK: Whether each true level is at least k, shape (N, K - 1).
            size: Labels per block.

        Returns:
            The new state, and log E after each block.

        Raises:
            ValueError: Shapes differ or do not fit the levels, the size does not divide N, or a probability is outside
                [0, 1].
        """
        p_NK, reached_NK = as_numbers(at_least_NK, "at_least"), as_numbers(reached_NK, "reached")
        width = len(self.thresholds)
        if p_NK.ndim != 2 or p_NK.shape[1] != width or reached_NK.shape != p_NK.shape:
            raise ValueError(
                f"at_least has shape {p_NK.shape} and reached {reached_NK.shape}; allowed is (N, {width}) for both, one"
                " column per level but the lowest"
            )
        pairs = zip(self.thresholds, p_NK.T, reached_NK.T, strict=True)
        advanced = [one.advance_each(p_N, reached_N, size) for one, p_N, reached_N in pairs]
        log_e_B = _mean(np.stack([log_e_B for _, log_e_B in advanced]))
        peak = max(self.peak, float(log_e_B.max(initial=-math.inf)))
        return replace(self, thresholds=tuple(state for state, _ in advanced), peak=peak), log_e_B

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, which `from_json` restores exactly. The peak is null before the first block."""
        thresholds = [one.to_json() for one in self.thresholds]
        return {"form": self.form, "thresholds": thresholds, "peak": self.peak if self.blocks else None}

    @classmethod
    def _restore(cls, tree: dict[str, Any]) -> Self:
        thresholds = tuple(EProcess.from_json(one) for one in tree["thresholds"])
        if not thresholds or len({(one.null, one.tolerance, one.blocks, one.labels) for one in thresholds}) > 1:
            raise ValueError("thresholds must be one or more, of one tolerance and of the same labels")
        if thresholds[0].null != "ece":
            raise ValueError(f"thresholds are about {thresholds[0].null!r}; allowed is 'ece'")
        counted, peak = thresholds[0].blocks, tree["peak"]
        if (peak is None) != (counted == 0) or (peak is not None and not np.isfinite(peak)):
            raise ValueError(f"peak is {peak!r} after {counted} blocks; allowed is a number, and null for 0 only")
        return cls(thresholds, -math.inf if peak is None else float(peak))


def _mean(log_e_KB: Array) -> Array:
    """Return the log of the mean over the first axis."""
    log_e_B: Array = scipy.special.logsumexp(log_e_KB, axis=0) - math.log(len(log_e_KB))
    return log_e_B
