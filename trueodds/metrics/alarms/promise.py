"""Sequential evidence that a promised error rate is broken, from right and wrong answers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.alarms.anytime import AnytimeTest
from trueodds.metrics.alarms.stored import StoredState
from trueodds.sums.inputs import Array, as_numbers, check_alpha, is_number, is_whole

ODDS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Odds ratios of the bets: how many times the promised odds an error has."""


class RiskPayoffs(NamedTuple):
    """Log payoff of each bet on one label."""

    log_wrong_K: Array
    log_right_K: Array


@lru_cache(maxsize=64)
def payoffs_of(risk: float) -> RiskPayoffs:
    odds_K = np.array(ODDS) * risk / (1 - risk)
    return RiskPayoffs(np.log(odds_K / (1 + odds_K) / risk), -np.log1p(odds_K) - math.log1p(-risk))


@dataclass(frozen=True)
class RiskEProcess(StoredState, AnytimeTest):
    """Sequential test that an answer is wrong with a probability of at most `risk`, at every label, given the past.

    Bet k claims that the odds of an error are ODDS[k] times those of the promise: q_k = o / (1 + o) with o = ODDS[k]
    risk / (1 - risk). It pays q_k / risk on a wrong answer and (1 - q_k) / (1 - risk) on a right one. Under the null
    each payoff has mean 1 or less, because q_k > risk. Before label j, the share gamma_j = 1 / (1 + log2 j) - 1 / (1 +
    log2(j + 1)) of the capital is staked on all bets equally:

        M_k <- (M_k + gamma_j) payoff_k(label j),    E = 1 / (1 + log2(j + 1)) + mean_k M_k

    E is a nonnegative supermartingale that begins at 1, so P(ever E >= 1/alpha) <= alpha (Ville 1939). Fresh capital at
    every label means that a long time without error does not hide a later one (e-detectors: Shin, Ramdas and Rinaldo
    2024).

    Examples:
        >>> test, log_e_N = metrics.RiskEProcess.start(0.05).advance([False, False, True, False] * 50)
        >>> test.labels, test.wrong, test.is_alarmed()
        (200, 50, True)
    """

    risk: float
    labels: int
    wrong: int
    log_wealth: tuple[float, ...] | None
    """Log wealth of each bet; None before the first label."""
    peak: float
    """Largest log E after any label. Evidence never decreases."""

    form = "risk e-process"

    @classmethod
    def start(cls, risk: float) -> Self:
        """Return the state before any label.

        Args:
            risk: Promised share of wrong answers, inside (0, 1).

        Raises:
            ValueError: The risk is outside (0, 1).
        """
        if not (is_number(risk) and 0 < risk < 1):
            raise ValueError(f"risk is {risk!r}; allowed is (0, 1), the share of wrong answers that is promised")
        return cls(float(risk), 0, 0, None, 0.0)

    @property
    def log_e(self) -> float:
        """log E in nats, after every label so far; 0 at the start."""
        if self.log_wealth is None:
            return 0.0
        return float(_value(np.array([self.log_wealth]), np.array([self.labels]))[0])

    def advance(self, wrong_N: npt.ArrayLike, risk_N: npt.ArrayLike | None = None) -> tuple[Self, Array]:
        """Process more labels in their order.

        The result is bit-for-bit the same however a stream is divided into calls.

        Args:
            wrong_N: 1 (or true) for a wrong answer, 0 (or false) for a right one.
            risk_N: Promised risk of each answer, inside (0, 1), if it is not the same for all. The null hypothesis is
                then that each answer is wrong with at most its own probability, and `risk` is the largest of them.

        Returns:
            The new state, and log E after each label.

        Raises:
            ValueError: The input is not a vector of 0 and 1, or the risks are not one number in (0, 1) for each.
        """
        given_N = as_numbers(wrong_N, "wrong")
        if given_N.ndim != 1 or not np.isin(given_N, (0, 1)).all():
            raise ValueError(f"wrong has shape {given_N.shape}; expected a vector of 0 (right) and 1 (wrong)")
        if not len(given_N):
            return self, np.zeros(0)
        wrong_mask_N = given_N.astype(bool)
        paid_NK = self._paid(wrong_mask_N, None if risk_N is None else as_numbers(risk_N, "risk"))
        number_N = self.labels + 1 + np.arange(len(wrong_mask_N))
        laid_N = log_laid(number_N)
        wealth_K = np.full(len(ODDS), -np.inf) if self.log_wealth is None else np.array(self.log_wealth)
        wealth_NK = np.empty_like(paid_NK)
        for n in range(len(paid_NK)):
            wealth_NK[n] = wealth_K = np.logaddexp(wealth_K, laid_N[n]) + paid_NK[n]
        log_e_N = _value(wealth_NK, number_N)
        end = replace(
            self,
            labels=self.labels + len(wrong_mask_N),
            wrong=self.wrong + int(wrong_mask_N.sum()),
            log_wealth=tuple(wealth_K.tolist()),
            peak=max(self.peak, float(log_e_N.max())),
        )
        return end, log_e_N

    def _paid(self, wrong_N: npt.NDArray[np.bool_], risk_N: npt.NDArray[Any] | None) -> Array:
        """Return the log payoff of each bet on each label."""
        if risk_N is None:
            payoffs = payoffs_of(self.risk)
            return np.where(wrong_N[:, None], payoffs.log_wrong_K, payoffs.log_right_K)
        if risk_N.shape != wrong_N.shape:
            raise ValueError(f"risk has shape {risk_N.shape}; expected a number for each of {len(wrong_N)} answers")
        if (off_N := ~((risk_N > 0) & (risk_N < 1))).any():
            row = int(off_N.argmax())
            raise ValueError(f"risk[{row}] is {risk_N[row]:g}; allowed is (0, 1)")
        paid_NK = np.empty((len(wrong_N), len(ODDS)))
        for risk in np.unique(risk_N).tolist():
            of_N, payoffs = risk_N == risk, payoffs_of(risk)
            paid_NK[of_N] = np.where(wrong_N[of_N, None], payoffs.log_wrong_K, payoffs.log_right_K)
        return paid_NK

    def labels_to_notice(self, actual: float, alpha: float = 0.05) -> int:
        """Estimate how many labels it takes from now on to alarm, if the error rate is `actual` from now on.

        It is the number n at which the wealth, growing at its mean rate, reaches 1 / alpha:

            mean_k (M_k + gamma) exp(n (actual log wrong_k + (1 - actual) log right_k)) = 1 / alpha

        gamma is the share staked on the next label. Most streams alarm sooner (benchmarks/alarms/promise.py).

        Args:
            actual: Error rate from now on, above `risk`.
            alpha: Significance level, inside (0, 1).

        Raises:
            ValueError: The actual rate is not above `risk` or is above 1, or alpha is outside (0, 1).

        Examples:
            >>> test = metrics.RiskEProcess.start(0.05)
            >>> test.labels_to_notice(0.1) < test.labels_to_notice(0.075)
            True
        """
        check_alpha(alpha)
        if not (is_number(actual) and self.risk < actual <= 1):
            raise ValueError(
                f"actual is {actual!r}; allowed is ({self.risk:g}, 1], an error rate above the promised one"
            )
        payoffs = payoffs_of(self.risk)
        rate_K = actual * payoffs.log_wrong_K + (1 - actual) * payoffs.log_right_K
        if rate_K.max() <= 0:  # the rate is so close to the promise that no bet gains on average
            raise ValueError(f"actual is {actual!r}; it is too close to {self.risk:g} for any bet; give a larger one")
        laid = float(log_laid(np.array([self.labels + 1]))[0])
        wealth_K = np.logaddexp(-np.inf if self.log_wealth is None else np.array(self.log_wealth), laid)
        needed = math.log(len(ODDS) / alpha)

        def is_reached(n: int) -> bool:
            return float(scipy.special.logsumexp(wealth_K + n * rate_K)) >= needed

        high = 1
        while not is_reached(high):
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_reached(middle) else (middle, high)
        return high

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, which `from_json` restores exactly."""
        return {"form": self.form, **asdict(self), "log_wealth": self.log_wealth and list(self.log_wealth)}

    @classmethod
    def _restore(cls, tree: dict[str, Any]) -> Self:
        state, labels, wrong, wealth = cls.start(tree["risk"]), tree["labels"], tree["wrong"], tree["log_wealth"]
        if not (is_whole(labels) and is_whole(wrong) and 0 <= wrong <= labels):
            raise ValueError(f"{wrong!r} of {labels!r} labels are wrong; allowed are whole numbers, wrong <= labels")
        if (wealth is None) != (labels == 0):
            raise ValueError(f"log_wealth is {wealth!r:.100} after {labels} labels; expected null for 0 labels only")
        if wealth is None:
            return state
        if len(wealth) != len(ODDS) or not (np.isfinite([*wealth, tree["peak"]]).all() and tree["peak"] >= 0):
            raise ValueError(f"log_wealth must hold {len(ODDS)} finite numbers, and peak one from 0 on")
        return replace(state, labels=labels, wrong=wrong, log_wealth=tuple(wealth), peak=float(tree["peak"]))


def log_laid(number_N: npt.NDArray[np.int64]) -> Array:
    """Return the log share of the capital that is staked on label number 1, 2, ..."""
    before_N, after_N = 1 + np.log2(number_N), 1 + np.log2(number_N + 1.0)
    laid_N: Array = np.log(np.log1p(1 / number_N) / math.log(2) / (before_N * after_N))  # the difference, uncancelled
    return laid_N


def _value(log_wealth_NK: Array, number_N: npt.NDArray[np.int64]) -> Array:
    """Compute log E after label number 1, 2, ..."""
    not_laid_N = -np.log1p(np.log2(number_N + 1.0))
    mean_N = scipy.special.logsumexp(log_wealth_NK, axis=1) - math.log(log_wealth_NK.shape[1])
    log_e_N: Array = np.logaddexp(not_laid_N, mean_N)
    return log_e_N
