"""An alarm on p(positive) itself: sequential evidence that more, or fewer, positives come than it says."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from trueodds.metrics.alarms.anytime import AnytimeTest
from trueodds.metrics.alarms.payoffs import payoffs
from trueodds.metrics.alarms.sequential import BLOCK, EProcess
from trueodds.metrics.alarms.stored import StoredState
from trueodds.sums.inputs import Array, as_numbers, is_number, is_whole, without_noise

MOST_RATIO = 1.2
"""Expected / observed, or observed / expected, that is put up with, if nobody says otherwise."""
TOO_HIGH = (0.1, 0.2, 0.4, 0.7)
"""Stakes against "p / y is at most r on average": the best for p too high by 1.33, 1.5, 2 and 4, with r = 1.2."""
TOO_LOW = (0.12, 0.3, 0.6, 0.98)
"""Stakes, times r, against "y / p is at most r on average"; below 1, for a p of 1 may not take more than there is."""
BY_POINTS = (0.04, 0.15, 0.5)
"""Stakes against "the mean gap is at most eps", of each sign."""
BETS = len(TOO_HIGH) + len(TOO_LOW) + 2 * len(BY_POINTS)


def check_ratio(most: float) -> None:
    """Refuse a largest ratio that is none.

    Raises:
        ValueError: not a number above 1 and up to 100.
    """
    if not (is_number(most) and 1 < most <= 100):
        raise ValueError(f"ratio is {most!r}; allowed is more than 1 and at most 100, such as {MOST_RATIO}")


@lru_cache(maxsize=1)
def _log_weight_K() -> Array:
    weight_K: Array = np.full(BETS, -math.log(BETS))
    weight_K.flags.writeable = False  # cached, so shared
    return weight_K


def log_payoffs(p_N: Array, positive_N: npt.NDArray[np.bool_], tolerance: float, ratio: float) -> Array:
    """N x 14: what each bet pays for each label, in logs.

    With y = 1 of a positive, eps the tolerance and r the ratio:

        1 + L (p / r - y),   1 + L / r (y - r p),   1 + L (p - y - eps),   1 + L (y - p - eps)

    for the stakes L of TOO_HIGH, TOO_LOW and BY_POINTS. L never depends on the label's own p: then each pays at most 1
    on average while E[p] <= r E[y], E[y] <= r E[p] and |E[y - p]| <= eps hold of the answers that are being labelled.
    """
    y_N = positive_N.astype(np.float64)
    relative = [L * (p_N / ratio - y_N) for L in TOO_HIGH] + [L / ratio * (y_N - ratio * p_N) for L in TOO_LOW]
    points = [L * (sign * (p_N - y_N) - tolerance) for sign in (1.0, -1.0) for L in BY_POINTS]
    return np.log1p(np.stack([*relative, *points], axis=1))


def _checked(p_N: npt.ArrayLike, positive_N: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.bool_]]:
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
class PositiveEProcess(StoredState, AnytimeTest):
    """Test of "p(positive) is right in the large", at every label, up to a ratio and up to a tolerance.

    The null: at every label, given what came before, the answers that are being labelled have

        1 / r <= E[p] / E[y] <= r   and   |E[y - p]| <= tolerance.

    Fixed bets (`log_payoffs`) are mixed over starting times as in `EProcess`, so P(ever E >= 1/alpha) <= alpha while
    the null holds (Ville 1939), and a long good past does not hide a bad present. A positive of probability p costs, or
    wins, a share of the capital that does not shrink with p, so some ten expected positives show a p four times too
    high, at a prevalence of .001 as at .1. Payoffs take p itself: the 3,000 cells are too wide for it.

    >>> alarm = metrics.PositiveEProcess.start()
    >>> alarm, log_e_B = alarm.advance_each([0.02] * 2000, [True, *[False] * 199] * 10)
    >>> alarm.labels, alarm.alarmed()
    (2000, True)
    """

    tolerance: float
    ratio: float
    blocks: int
    labels: int
    log_wealth: tuple[float, ...] | None
    """One number per bet; None before the first block, when no bet has been placed."""
    peak: float
    """The largest log E after any committed block: evidence once shown stays."""

    form = "positive e-process"

    @classmethod
    def start(cls, tolerance: float = 0.02, ratio: float = MOST_RATIO) -> Self:
        """Before any label.

        Raises:
            ValueError: a tolerance outside [0, .5), or a ratio that `check_ratio` refuses.
        """
        payoffs("ece", tolerance)  # refuses a bad tolerance
        check_ratio(ratio)
        return cls(float(tolerance), float(ratio), 0, 0, None, -math.inf)

    @property
    def log_e(self) -> float:
        """log E in nats: 0 at the start, never below that of the capital not laid yet."""
        wealth_K = np.full(BETS, -np.inf) if self.log_wealth is None else np.array(self.log_wealth)
        return float(EProcess.value(wealth_K, _log_weight_K(), self.blocks))

    def advance_each(self, p_N: npt.ArrayLike, positive_N: npt.ArrayLike, size: int = BLOCK) -> tuple[Self, Array]:
        """The state after N / `size` whole blocks of labels in their order, and log E after each of them.

        The same to the last bit however a stream is cut into calls. Memory: N x 14 numbers.

        Raises:
            ValueError: a size that does not divide N, shapes that disagree, a p outside [0, 1], or what is neither
                positive nor not.
        """
        p_N, y_N = _checked(p_N, positive_N)
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

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; `from_json` restores them exactly. Before the first block wealth and peak are null."""
        wealth = None if self.log_wealth is None else list(self.log_wealth)
        return {"form": self.form, **asdict(self), "log_wealth": wealth, "peak": self.peak if self.blocks else None}

    @classmethod
    def _restored(cls, tree: dict[str, Any]) -> Self:
        state, counts, wealth = cls.start(tree["tolerance"], tree["ratio"]), (tree["blocks"], tree["labels"]), None
        if not all(is_whole(count) for count in counts) or not 0 <= counts[0] <= counts[1]:
            raise ValueError(
                f"{counts[0]!r} blocks of {counts[1]!r} labels; allowed are whole numbers, one or more each"
            )
        if (tree["log_wealth"] is None) != (counts[0] == 0):
            raise ValueError(f"{counts[0]} blocks with wealth {tree['log_wealth']!r:.50}; allowed is null for 0 only")
        if tree["log_wealth"] is None:
            return state
        wealth = tuple(tree["log_wealth"])
        if len(wealth) != BETS or not np.isfinite([*wealth, tree["peak"]]).all():
            raise ValueError(f"log_wealth must hold {BETS} finite numbers, one for each bet, and peak one")
        return replace(state, blocks=counts[0], labels=counts[1], log_wealth=wealth, peak=tree["peak"])
