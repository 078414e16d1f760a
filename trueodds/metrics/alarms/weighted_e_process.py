"""Sequential evidence about the ECE of ALL answers, from labels that were drawn with known probabilities."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.alarms.anytime import AnytimeTest
from trueodds.metrics.alarms.payoffs import TURN, payoffs
from trueodds.metrics.alarms.stored import StoredState
from trueodds.processes.choices import SMALLEST_PROPENSITY
from trueodds.sums.inputs import Array, as_numbers, check_top, is_number, is_whole

SHARES = (0.98, 0.4, 0.15, 0.05)
"""Stakes, as shares of the largest stake at which no bet can lose more than its capital."""


@dataclass(frozen=True)
class WeightedEProcess(StoredState, AnytimeTest):
    """Sequential test that the ECE of all answers so far is at most `tolerance`, at every moment.

    It uses labels of known propensity. Answers are ordered by the arrival of their labels, real or hypothetical. An
    answer of confidence c gets its label with probability p (the propensity), which may depend on anything known before
    the label. Answers with p < `floor` are left out, labelled or not, and the null is about the others. For a sign
    pattern s and a stake L, a label pays

        1 + L floor/p (s(c) (a - c) - tolerance),    L = share / (1 + tolerance)

    and an answer without a label pays 1. E is the mean over all s and L. So x, the payoff minus 1, has mean L floor
    (s(c) (P(right) - c) - tolerance) for every p. Because 1 + x <= e^x, the product of the payoffs divided by e^(sum of
    these means) never grows on average (a supermartingale that begins at 1). The sum of the means is at most L floor n
    (ECE of the n answers so far - tolerance). While that ECE has never been above the tolerance, P(ever E >= 1/alpha)
    <= alpha (Ville 1939). This holds even if some range is labelled more often than the rest, or if traffic comes in
    phases.

    Unlike in `EProcess`, stakes stay constant and no fresh capital comes in. Fresh capital would test the traffic since
    some moment, and alarm in every bad phase. The price is that an error after a long calibrated time is detected late.
    Traffic that begins in a bad phase does have a large ECE at that moment, and may alarm.

    The floor must be fixed in advance. The nearer it is to the smallest propensity that occurs, the larger the stakes
    are; benchmarks/alarms/weighted_evidence.py measures the delays.

    Examples:
        >>> alarm, log_e_N = metrics.WeightedEProcess.start().advance([0.95] * 400, [True, False] * 200, [0.5] * 400)
        >>> alarm.labels, alarm.is_alarmed()
        (400, True)
    """

    tolerance: float
    floor: float
    labels: int
    """Number of labels on which bets were placed."""
    left_out: int
    """Number of labels whose answers had a propensity below the floor."""
    log_wealth: tuple[float, ...]
    peak: float
    """Largest log E after any label. Evidence never decreases."""

    form = "weighted e-process"

    @classmethod
    def start(cls, tolerance: float = 0.02, floor: float = SMALLEST_PROPENSITY) -> Self:
        """Return the state before any label.

        Args:
            tolerance: Largest acceptable ECE, in [0, .5).
            floor: Smallest propensity on which bets are placed, in (0, 1].

        Raises:
            ValueError: The tolerance is outside [0, .5), or the floor is outside (0, 1].
        """
        payoffs("ece", tolerance)  # checks the tolerance
        if not (is_number(floor) and 0 < floor <= 1):
            allowed = f"(0, 1], the smallest propensity, such as {SMALLEST_PROPENSITY}"
            raise ValueError(f"floor is {floor!r}; allowed is {allowed}")
        return cls(float(tolerance), float(floor), 0, 0, (0.0,) * (4 * len(SHARES)), 0.0)

    @property
    def log_e(self) -> float:
        """log E in nats, after every label so far; 0 at the start."""
        return float(scipy.special.logsumexp(self.log_wealth)) - math.log(len(self.log_wealth))

    def advance(
        self, confidence_N: npt.ArrayLike, correct_N: npt.ArrayLike, propensity_N: npt.ArrayLike
    ) -> tuple[Self, Array]:
        """Process more labels in their order.

        A label that is left out does not change log E. The result is bit-for-bit the same however a stream is divided
        into calls. The memory is N x 16 numbers.

        Args:
            confidence_N: Confidence of each answer.
            correct_N: Whether each answer is right.
            propensity_N: Probability with which each answer gets its label, in (0, 1].

        Returns:
            The new state, and log E after each label.

        Raises:
            ValueError: Shapes differ, propensities are outside (0, 1], or `CalibrationSums.from_top` does not accept
                the rows.
        """
        confidence, correct = check_top(confidence_N, correct_N)
        propensity = as_numbers(propensity_N, "propensity").astype(np.float64)
        if propensity.shape != confidence.shape:
            raise ValueError(
                f"propensity has shape {propensity.shape}; expected {confidence.shape}, one for each label"
            )
        good = (propensity > 0) & (propensity <= 1)
        if not good.all():
            raise ValueError(
                f"propensity holds {propensity[~good][0]}; allowed is (0, 1], the chance of the answer to get its label"
            )
        kept = propensity >= self.floor
        paid_NK = np.zeros((1 + len(confidence), len(self.log_wealth)))
        paid_NK[0] = self.log_wealth
        paid_NK[1:][kept] = self._log_payoffs(confidence[kept], correct[kept], self.floor / propensity[kept])
        wealth_NK = np.cumsum(paid_NK, axis=0)[1:]
        log_e_N: Array = scipy.special.logsumexp(wealth_NK, axis=1) - math.log(wealth_NK.shape[1])
        if not len(confidence):
            return self, log_e_N
        end = replace(
            self,
            labels=self.labels + int(kept.sum()),
            left_out=self.left_out + int((~kept).sum()),
            log_wealth=tuple(wealth_NK[-1].tolist()),
            peak=max(self.peak, float(log_e_N.max())),
        )
        return end, log_e_N

    def _log_payoffs(self, confidence_N: Array, correct_N: npt.NDArray[np.bool_], weight_N: Array) -> Array:
        stake_K = np.array(SHARES) / (1 + self.tolerance)
        side_N = np.where(confidence_N <= TURN, 1.0, -1.0)
        gap_N = correct_N - confidence_N
        gain_SN = np.stack([gap_N, -gap_N, side_N * gap_N, -side_N * gap_N]) - self.tolerance
        paid_NSK = np.log1p((weight_N * gain_SN).T[:, :, None] * stake_K)
        return paid_NSK.reshape(len(gap_N), len(self.log_wealth))

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, which `from_json` restores exactly."""
        return {"form": self.form, **asdict(self), "log_wealth": list(self.log_wealth)}

    @classmethod
    def _restore(cls, tree: dict[str, Any]) -> Self:
        state = cls.start(tree["tolerance"], tree["floor"])
        counts, wealth, peak = (tree["labels"], tree["left_out"]), tree["log_wealth"], tree["peak"]
        if not all(is_whole(count) and count >= 0 for count in counts):
            raise ValueError(f"labels and left_out are {counts}; allowed are whole numbers from 0 on")
        if len(wealth) != len(state.log_wealth) or not (np.isfinite([*wealth, peak]).all() and peak >= 0):
            raise ValueError(f"log_wealth must hold {len(state.log_wealth)} finite numbers, and peak one from 0 on")
        return replace(state, labels=counts[0], left_out=counts[1], log_wealth=tuple(wealth), peak=float(peak))
