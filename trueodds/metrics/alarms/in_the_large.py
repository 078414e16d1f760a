"""Alarm on p(positive) in the large: sequential evidence that more, or fewer, positives come than it predicts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from trueodds.metrics.alarms.anytime import AnytimeTest
from trueodds.metrics.alarms.payoffs import payoffs
from trueodds.metrics.alarms.sequential import BLOCK, EProcess
from trueodds.metrics.alarms.stored import BlockState
from trueodds.processes.choices import MOST_RATIO
from trueodds.sums.inputs import Array, as_numbers, is_number, is_whole, without_noise

TOO_HIGH = (0.1, 0.2, 0.4, 0.7)
"""Stakes against "p / y is at most r on average". They are best for p too high by 1.33, 1.5, 2 and 4, with r = 1.2."""
TOO_LOW = (0.12, 0.3, 0.6, 0.98)
"""Stakes, times r, against "y / p is at most r on average". They are below 1, so that p = 1 cannot take all capital."""
BY_POINTS = (0.04, 0.15, 0.5)
"""Stakes against "the mean gap is at most eps", for each sign."""
BETS = len(TOO_HIGH) + len(TOO_LOW) + 2 * len(BY_POINTS)


def check_ratio(most: float) -> None:
    """Raise an error if the largest acceptable ratio is invalid.

    Raises:
        ValueError: The ratio is not a number above 1 and up to 100.
    """
    if not (is_number(most) and 1 < most <= 100):
        raise ValueError(f"ratio is {most!r}; allowed is more than 1 and at most 100, such as {MOST_RATIO}")


@lru_cache(maxsize=1)
def _log_weight_K() -> Array:
    weight_K: Array = np.full(BETS, -math.log(BETS))
    weight_K.flags.writeable = False  # cached, so shared
    return weight_K


def log_payoffs(p_N: Array, positive_N: npt.NDArray[np.bool_], tolerance: float, ratio: float) -> Array:
    """Compute the log payoff of each of the 14 bets on each label, shape (N, 14).

    With y = 1 for a positive, the tolerance eps and the ratio r, the payoffs are

        1 + L (p / r - y),   1 + L / r (y - r p),   1 + L (p - y - eps),   1 + L (y - p - eps)

    for the stakes L of TOO_HIGH, TOO_LOW and BY_POINTS. L never depends on the label's own p. So each bet pays at most
    1 on average while the answers that are being labelled satisfy E[p] <= r E[y], E[y] <= r E[p] and
    `|E[y - p]| <= eps`.
    """
    y_N = positive_N.astype(np.float64)
    relative = [L * (p_N / ratio - y_N) for L in TOO_HIGH] + [L / ratio * (y_N - ratio * p_N) for L in TOO_LOW]
    points = [L * (sign * (p_N - y_N) - tolerance) for sign in (1.0, -1.0) for L in BY_POINTS]
    return np.log1p(np.stack([*relative, *points], axis=1))


def _check(p_N: npt.ArrayLike, positive_N: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.bool_]]:
    known_N, y_N = as_numbers(p_N, "p"), as_numbers(positive_N, "positive")
    if known_N.ndim != 1 or y_N.shape != known_N.shape:
        raise ValueError(f"p {known_N.shape} and positive {y_N.shape} must be vectors of one length")
    known_N = without_noise(known_N.astype(np.float64, copy=False))
    for name, values_N, sound_N, allowed in (
        ("p", known_N, (known_N >= 0) & (known_N <= 1), "[0, 1]"),
        ("positive", y_N, (y_N == 0) | (y_N == 1), "only 0 and 1 (or False and True)"),
    ):
        if not sound_N.all():
            raise ValueError(f"{name} holds {values_N[~sound_N][0]}; allowed is {allowed}")
    return known_N, y_N.astype(bool)


@dataclass(frozen=True)
class PositiveEProcess(BlockState, AnytimeTest):
    """Sequential test that p(positive) is right on average (in the large), up to a ratio and a tolerance.

    The null is that at every label, given everything before it, the answers that are being labelled satisfy

        1 / r <= E[p] / E[y] <= r   and   |E[y - p]| <= tolerance.

    Fixed bets (`log_payoffs`) are mixed over starting times as in `EProcess`. So P(ever E >= 1/alpha) <= alpha while
    the null holds (Ville 1939), and a long calibrated time does not hide a later error. One label changes the capital
    of a bet by a share that does not shrink with p. So about ten expected positives show a p that is four times too
    high, at a prevalence of .001 as well as at .1. The payoffs use p itself. The 3,000 cells, of width .00033, are too
    wide for rare positives.

    Examples:
        >>> alarm = metrics.PositiveEProcess.start()
        >>> alarm, log_e_B = alarm.advance_each([0.02] * 2000, [True, *[False] * 199] * 10)
        >>> alarm.labels, alarm.is_alarmed()
        (2000, True)
    """

    tolerance: float
    ratio: float
    blocks: int
    labels: int
    log_wealth: tuple[float, ...] | None
    """Log wealth of each bet; None before the first block, when no bet has been placed."""
    peak: float
    """Largest log E after any committed block. Evidence never decreases."""

    form = "positive e-process"

    @classmethod
    def start(cls, tolerance: float = 0.02, ratio: float = MOST_RATIO) -> Self:
        """Return the state before any label.

        Args:
            tolerance: Largest acceptable mean gap, in [0, .5).
            ratio: Largest acceptable ratio, above 1.

        Raises:
            ValueError: The tolerance is outside [0, .5), or `check_ratio` does not accept the ratio.
        """
        payoffs("ece", tolerance)  # checks the tolerance
        check_ratio(ratio)
        return cls(float(tolerance), float(ratio), 0, 0, None, -math.inf)

    @property
    def log_e(self) -> float:
        """log E in nats. It is 0 at the start, and never below the log of the capital that is not staked yet."""
        wealth_K = np.full(BETS, -np.inf) if self.log_wealth is None else np.array(self.log_wealth)
        return float(EProcess.value(wealth_K, _log_weight_K(), self.blocks))

    def advance_each(self, p_N: npt.ArrayLike, positive_N: npt.ArrayLike, size: int = BLOCK) -> tuple[Self, Array]:
        """Process N / `size` whole blocks of labels in their order.

        The result is bit-for-bit the same however a stream is divided into calls. The memory is N x 14 numbers.

        Args:
            p_N: p(positive) of each answer.
            positive_N: Whether each label is positive.
            size: Labels per block.

        Returns:
            The new state, and log E after each block.

        Raises:
            ValueError: The size does not divide N, shapes differ, p is outside [0, 1], or a label is neither positive
                nor negative.
        """
        p_N, y_N = _check(p_N, positive_N)
        if not (is_whole(size) and size >= 1) or len(p_N) % size:
            raise ValueError(f"{len(p_N)} labels in blocks of {size!r}; allowed are whole blocks only")
        if not len(p_N):
            return self, np.zeros(0)
        paid_BK = log_payoffs(p_N, y_N, self.tolerance, self.ratio).reshape(-1, size, BETS).sum(axis=1)
        wealth_K = np.full(BETS, -np.inf) if self.log_wealth is None else np.array(self.log_wealth)
        number_B = self.blocks + 1 + np.arange(len(paid_BK))
        wealth_BK = np.empty_like(paid_BK)
        for b, number in enumerate(number_B.tolist()):
            wealth_BK[b] = wealth_K = EProcess.step(wealth_K, paid_BK[b], number)
        log_e_B = EProcess.value(wealth_BK, _log_weight_K(), number_B)
        end = replace(
            self,
            blocks=self.blocks + len(paid_BK),
            labels=self.labels + len(p_N),
            log_wealth=tuple(wealth_K.tolist()),
            peak=max(self.peak, float(log_e_B.max())),
        )
        return end, log_e_B

    @classmethod
    def _restore(cls, tree: dict[str, Any]) -> Self:
        return cls.start(tree["tolerance"], tree["ratio"])._after(tree, BETS)
