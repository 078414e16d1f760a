"""Prequential evaluation of recalibration: a fit to earlier labels predicts each block of labels, then learns from it.

The scored event is "the answer is right", under its served confidence c and under recalibrated ones. No prediction uses
a fit that has seen the label. So the gain is not optimistic (prequential: Dawid 1984), and it is valid at any time.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.alarms.gain_sequence import HELD, SHARES, STAKES, centred_bets, limit_of
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.metrics.alarms.stored import StoredState
from trueodds.sums.inputs import Array, check_top, is_number, is_whole

HALF_LIVES = (math.inf, 5_000.0, 500.0)
"""Labels after which a fit has half forgotten a label. Each fit is one expert; the served confidence is another.

The first learns a steady error best, the last a recent one.
"""
PRIOR = (0.5, 0.2, 0.2, 0.1)
"""Initial share of the capital of the served confidence and of each fit."""
SHARE = 0.002
"""Share of every expert's capital that PRIOR redistributes after a block. It expects one change in 10,000 labels."""
RIDGE = 10.0
"""Strength of the penalty towards a = 1, b = 0, about that of forty labels of confidence .5."""
REFIT = 5
"""Blocks between fits."""
SUREST = 1 - 1e-6
MOST_LOG_ODDS = math.log(SUREST / (1 - SUREST))
"""Largest log odds. Larger confidences count as 1 - 1e-6, served or recalibrated, so that no single label decides."""
LOWEST, WIDTH, GROUPS = -4.0, 0.32, 41
CENTRES = LOWEST + WIDTH * (np.arange(GROUPS) + 0.5)
"""Log odds of the groups that a fit sees, from .018 to .9999. The map need not be exact to be valid."""
FIT_STEPS = 50
SERVED = 0.1
"""Smallest share of the served confidence. So no block costs more than log 10 nats, which bounds the stakes."""
WIDEST = -math.log(SERVED)
LEVEL = 0.95
"""Confidence level of the lower limit of the mean gain."""


@dataclass(frozen=True, eq=False)
class Prequential(StoredState):
    """Prequential comparison of the served confidence with recalibrated ones.

    The state is a mixture of both, which is a test martingale for the null that the served confidence is right. A fit
    is q(c) = sigma(a logit(c) + b) with the (a, b) of `fit`. Let l_k(block) be the log likelihood of a block under
    expert k, where 0 is the served confidence, and w_k the shares of the experts. Then

        E <- E sum_k w_k exp(l_k - l_0),   w_k <- (1 - s) w_k exp(l_k) / sum + s prior_k

    and then w <- .9 w, plus .1 for the served one (fixed share: Herbster and Warmuth 1998). If every served confidence
    is right, given the past, E is 1 on average at every moment and P(ever E >= 1/alpha) <= alpha.

    E is evidence against the served confidences, which are rarely exactly right. It is not evidence that recalibrating
    helps. For that, use `evidence` and `gain_lower`. They come from the confidence sequence of `gain_sequence` for the
    mean gain of the blocks, log sum_k w_k exp(l_k - l_0), which is at least log w_0.

    Examples:
        >>> served = metrics.Prequential.start().advance_each([0.95] * 400, [True, False] * 200)
        >>> served.recalibrated_log_loss < served.served_log_loss
        True
    """

    blocks: int
    labels: int
    log_e: float
    """Log likelihood that the mixture gains over the served confidences, in nats."""
    served_nats: float
    """Sum of the negative log likelihoods of the served confidences, in nats."""
    log_share_K: Array
    """Log share of each expert's capital, the served one first."""
    maps_R2: Array
    """(a, b) of each fit in use."""
    counts_RG2: Array
    """Wrong and right labels by log odds of the confidence, as far as each fit remembers them."""
    paid_K: Array
    """Earnings of each stake on the mean gain, in nats."""

    form = "prequential 2"

    @classmethod
    def start(cls) -> Self:
        """Return the state before any label."""
        fits = len(HALF_LIVES)
        maps = np.tile([1.0, 0.0], (fits, 1))
        return cls(0, 0, 0.0, 0.0, np.log(PRIOR), maps, np.zeros((fits, GROUPS, 2)), np.zeros(len(STAKES)))

    @property
    def served_log_loss(self) -> float | None:
        """Mean negative log likelihood under the served confidence, in nats; None before the first label."""
        return self.served_nats / self.labels if self.labels else None

    @property
    def recalibrated_log_loss(self) -> float | None:
        """Mean negative log likelihood under the mixture, in nats; None before the first label."""
        return (self.served_nats - self.log_e) / self.labels if self.labels else None

    @property
    def evidence(self) -> float:
        """log E that the mean gain so far is above 0, in nats. P(ever E >= 1/alpha while it is not) <= alpha."""
        return float(scipy.special.logsumexp(self.paid_K + np.log(SHARES)))

    @property
    def gain_lower(self) -> float | None:
        """Lower limit of the mean gain so far, in nats per label; None before the first block.

        With probability .95 it holds after every block (`gain_sequence`, with blocks in place of labels).
        """
        if not self.labels:
            return None
        return limit_of(self.paid_K, WIDEST, -math.log(1 - LEVEL)) / self.labels

    def advance(self, confidence_N: npt.ArrayLike, correct_N: npt.ArrayLike) -> Self:
        """Process one more block of labels: score it with the fits to earlier labels, then learn from it.

        Args:
            confidence_N: Confidence of each answer.
            correct_N: Whether each answer is right.

        Returns:
            The new state.

        Raises:
            ValueError: Shapes differ, a confidence is outside [0, 1], or correctness is not 0 or 1.
        """
        odds_N, sign_N = _odds_and_signs(confidence_N, correct_N)
        return self._block(odds_N, sign_N) if len(odds_N) else self

    def advance_each(self, confidence_N: npt.ArrayLike, correct_N: npt.ArrayLike, size: int = BLOCK) -> Self:
        """Process N / `size` whole blocks of labels in their order, with `advance`.

        Args:
            confidence_N: Confidence of each answer.
            correct_N: Whether each answer is right.
            size: Labels per block.

        Returns:
            The new state.

        Raises:
            ValueError: The size does not divide N, or `advance` does not accept the rows.
        """
        odds_N, sign_N = _odds_and_signs(confidence_N, correct_N)
        if not (is_whole(size) and size >= 1) or len(odds_N) % size:
            raise ValueError(f"{len(odds_N)} labels in blocks of {size!r}; allowed are whole blocks only")
        state = self
        for first in range(0, len(odds_N), size):
            state = state._block(odds_N[first : first + size], sign_N[first : first + size])
        return state

    def _block(self, odds_N: Array, sign_N: Array) -> Self:
        maps = self.maps_R2
        # The served odds are within the limits already.
        odds_KN = np.vstack([odds_N, maps[:, :1] * odds_N + maps[:, 1:]])
        loss_K = -scipy.special.log_expit(np.clip(odds_KN, -MOST_LOG_ODDS, MOST_LOG_ODDS) * sign_N).sum(axis=1)
        log_paid_K = self.log_share_K + (loss_K[0] - loss_K)
        highest = log_paid_K.max()
        paid_K = np.exp(log_paid_K - highest)
        total = paid_K.sum()
        group_N = np.clip(((odds_N - LOWEST) / WIDTH).astype(np.intp), 0, GROUPS - 1)
        seen_G2 = np.bincount(2 * group_N + (sign_N > 0), minlength=2 * GROUPS).reshape(GROUPS, 2)
        counts = self.counts_RG2 * np.exp2(-len(odds_N) / np.array(HALF_LIVES))[:, None, None] + seen_G2
        blocks, gain = self.blocks + 1, float(highest + math.log(total))
        share_K = (1 - SHARE) * paid_K / total + SHARE * np.array(PRIOR)
        mean = np.array([[self.log_e / (self.blocks + HELD)]])
        paid_1K = centred_bets(np.array([[gain]]), mean, float(self.log_share_K[0]), STAKES / WIDEST)
        return replace(
            self,
            blocks=blocks,
            labels=self.labels + len(odds_N),
            log_e=self.log_e + gain,
            served_nats=self.served_nats + float(loss_K[0]),
            log_share_K=np.log((1 - SERVED) * share_K + SERVED * (np.arange(len(share_K)) == 0)),
            maps_R2=fit(counts, maps) if blocks % REFIT == 0 else maps,
            counts_RG2=counts,
            paid_K=self.paid_K + paid_1K[0],
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prequential) and self.to_json() == other.to_json()

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, which `from_json` restores exactly. Counts of groups without labels are left out."""
        tree = asdict(self)
        seen = np.flatnonzero(self.counts_RG2.sum(axis=(0, 2)))
        shares, maps = self.log_share_K.tolist(), self.maps_R2.tolist()
        counts = {str(g): self.counts_RG2[:, g].tolist() for g in seen.tolist()}
        arrays = {"log_share_K": shares, "maps_R2": maps, "counts_RG2": counts, "paid_K": self.paid_K.tolist()}
        return {"form": self.form, **tree, **arrays}

    @classmethod
    def _restore(cls, tree: dict[str, Any]) -> Self:
        state = cls.start()
        counts, group_of = np.zeros_like(state.counts_RG2), {str(g): g for g in range(GROUPS)}
        for group, seen in tree["counts_RG2"].items():
            counts[:, group_of[group]] = seen
        shares, maps, paid = (np.array(tree[name], np.float64) for name in ("log_share_K", "maps_R2", "paid_K"))
        if (shares.shape, maps.shape, paid.shape) != (state.log_share_K.shape, state.maps_R2.shape, state.paid_K.shape):
            raise ValueError(
                f"log_share_K {shares.shape}, maps_R2 {maps.shape}, paid_K {paid.shape} have other shapes than expected"
            )
        plain = [tree["log_e"], tree["served_nats"]]
        if not (all(map(is_number, plain)) and all(np.isfinite(a).all() for a in (shares, maps, counts, paid, plain))):
            raise ValueError("a damaged state of a prequential comparison: all its numbers must be finite")
        blocks, labels = tree["blocks"], tree["labels"]
        if not (is_whole(blocks) and is_whole(labels) and 0 <= blocks <= labels and (counts >= 0).all()):
            raise ValueError(f"{blocks!r} blocks of {labels!r} labels; allowed: whole numbers, one label or more each")
        return cls(blocks, labels, float(plain[0]), float(plain[1]), shares, maps, counts, paid)


def fit(counts_RG2: Array, start_R2: Array) -> Array:
    """Fit (a, b) with the least penalised log loss to each of R sets of counts (see `objective`).

    This is Newton's method, in which no group's log odds move by more than 1 per step. Over such a step the curvature
    changes by less than a factor e, so every step descends.
    """
    map_R2, n_RG = start_R2.copy(), counts_RG2.sum(axis=2)
    reach_2E = np.array([[CENTRES[0], CENTRES[-1]], [1.0, 1.0]])
    for _ in range(FIT_STEPS):
        p_RG = scipy.special.expit(map_R2[:, :1] * CENTRES + map_R2[:, 1:])
        slope_R2 = _gradient(counts_RG2[:, :, 1], n_RG, p_RG, map_R2)
        weight_RG = n_RG * p_RG * (1 - p_RG)
        aa, ab, bb = weight_RG @ CENTRES**2 + RIDGE, weight_RG @ CENTRES, weight_RG.sum(axis=1) + RIDGE
        step_R2 = np.stack([bb * slope_R2[:, 0] - ab * slope_R2[:, 1], aa * slope_R2[:, 1] - ab * slope_R2[:, 0]], 1)
        step_R2 /= (aa * bb - ab * ab)[:, None]
        longest_R = np.abs(step_R2 @ reach_2E).max(axis=1)
        map_R2 -= step_R2 / np.maximum(longest_R, 1.0)[:, None]
        if longest_R.max() < 1e-6:
            break
    return map_R2


def objective(counts_G2: Array, map_2: Array) -> tuple[float, Array]:
    """Compute the penalised log loss of one set of counts, in nats, and its gradient by (a, b).

    -sum_g [right_g log sigma(z_g) + wrong_g log sigma(-z_g)] + RIDGE / 2 ((a - 1)^2 + b^2),  z_g = a x_g + b
    """
    a, b = map_2
    z_G = a * CENTRES + b
    loss = -(counts_G2[:, 1] @ scipy.special.log_expit(z_G) + counts_G2[:, 0] @ scipy.special.log_expit(-z_G))
    counts_1G2 = counts_G2[None]
    slope = _gradient(counts_1G2[:, :, 1], counts_1G2.sum(axis=2), scipy.special.expit(z_G)[None], np.array([[a, b]]))[
        0
    ]
    return float(loss + RIDGE / 2 * ((a - 1) ** 2 + b**2)), slope


def _gradient(right_RG: Array, n_RG: Array, p_RG: Array, map_R2: Array) -> Array:
    excess_RG = n_RG * p_RG - right_RG
    slopes: Array = np.stack([excess_RG @ CENTRES, excess_RG.sum(axis=1)], axis=1) + RIDGE * (map_R2 - [1.0, 0.0])
    return slopes


def _odds_and_signs(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[Array, Array]:
    """Return the log odds of the confidences within the limits, and a sign: 1 if right, -1 if wrong."""
    confidence_N, correct_N = check_top(confidence, correct)
    odds_N = np.clip(scipy.special.logit(confidence_N), -MOST_LOG_ODDS, MOST_LOG_ODDS)
    return odds_N, np.where(correct_N, 1.0, -1.0)
