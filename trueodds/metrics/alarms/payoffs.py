"""Payoffs of the sequential tests: the return of a bet on a confidence cell for a right and for a wrong answer.

A bet is fixed before any label is seen, and pays at most 1 on average while the null holds. Only the cell of a
confidence is known. So every bet uses the cell's centre r and gives up half a cell's width: `|c - r| <= h/2`, h =
1/3000.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy

from trueodds.errors import unknown
from trueodds.sums.bins import CELLS, EDGES
from trueodds.sums.inputs import Array, is_number

Null = Literal["ece", "point"]

HALF_CELL = 0.5 / CELLS
CENTRES = (EDGES[:-1] + EDGES[1:]) / 2

# Temperature T and shift b of sigma(logit(c) / T + b): over- and under-confidence, with a shift, and a shift alone.
MAPS = (
    *((1.25, 0.0), (1.5, 0.0), (2.2, 0.0), (3.5, 0.0), (0.8, 0.0), (0.6, 0.0)),
    *((1.6, 0.4), (1.6, -0.4), (1.0, -0.4), (1.0, 0.4), (1.0, -1.0), (1.0, 1.0)),
)
LOCAL = tuple((low, shift) for low in (0.2, 0.4, 0.6, 0.8) for shift in (-0.1, 0.1))  # shifts on (low, low + .2]
MAPS_SHARE = 0.7  # share of the starting capital for MAPS; the local maps share the rest
TURN = 0.6  # confidence at which a sign pattern changes sign: an edge of the usual 15 bins
STAKES = (0.04, 0.15, 0.5)


@dataclass(frozen=True)
class Payoffs:
    """Log payoffs per cell and bet, and the log share of the starting capital that each bet receives."""

    log_right_CK: Array
    log_wrong_CK: Array
    log_weight_K: Array


def payoffs(null: Null, tolerance: float) -> Payoffs:
    """Return the payoffs for a null and a tolerance eps.

    point: The null is `|P(right | c) - c| <= eps` for every answer. A map q(c) that claims to be better pays q/p* if
    the answer is right and (1-q)/(1-p*) if it is wrong. p* = clip(q, r - eps - h/2, r + eps + h/2) is the tolerated
    truth nearest to q. The bet pays at most 1 on average for every truth within the tolerance of any confidence of the
    cell, and exactly 1 if q = p*.

    ece: The null is that at EVERY label, given everything before it, the ECE of the traffic that is being labelled is
    at most eps. A sign pattern s(c) and a stake L pay 1 + L (s(c) (a - r) - eps - h/2), since E[s(c) (a - c)] is at
    most that ECE (also the binned one if s changes at an edge of its bins). L must be the same for every c, or the
    inequality fails.

    This null is not about the ECE of all answers. That ECE may be .0199 while one bad corner is labelled 9 times as
    often as the rest, or while 9,000 good answers alternate with 1,000 bad ones; the null is false in both cases. With
    known propensities, `trueodds.metrics.alarms.weighted_e_process` tests the ECE of all answers.

    Raises:
        ValueError: The null is unknown, or the tolerance is outside [0, .5).
    """
    if null not in ("point", "ece"):
        raise unknown("null", null, ("point", "ece"))
    if not (is_number(tolerance) and 0 <= tolerance < 0.5):
        raise ValueError(f"tolerance is {tolerance!r}; allowed is [0, 0.5), such as 0.02")
    return _payoffs(null, float(tolerance))


@lru_cache(maxsize=16)
def _payoffs(null: Null, tolerance: float) -> Payoffs:
    payoffs = (_point if null == "point" else _ece)(tolerance + HALF_CELL)
    for table in (payoffs.log_right_CK, payoffs.log_wrong_CK, payoffs.log_weight_K):
        table.flags.writeable = False  # cached, so shared
    return payoffs


def _point(slack: float) -> Payoffs:
    log_odds_C = scipy.special.logit(np.clip(CENTRES, 1e-6, 1 - 1e-6))
    claims = [scipy.special.expit(log_odds_C / T + b) for T, b in MAPS]
    for low, shift in LOCAL:
        inside_C = np.abs(CENTRES - low - 0.1) < 0.1  # no centre lies on an edge
        claims.append(np.where(inside_C, np.clip(CENTRES + shift, 1e-4, 1 - 1e-4), CENTRES))
    claim_CK = np.stack(claims, axis=1)
    nearest_CK = np.clip(claim_CK, (CENTRES - slack)[:, None], (CENTRES + slack)[:, None])
    shares = np.repeat([MAPS_SHARE / len(MAPS), (1 - MAPS_SHARE) / len(LOCAL)], [len(MAPS), len(LOCAL)])
    return Payoffs(np.log(claim_CK / nearest_CK), np.log1p(-claim_CK) - np.log1p(-nearest_CK), np.log(shares))


def _ece(slack: float) -> Payoffs:
    side_C = np.where(CENTRES <= TURN, 1.0, -1.0)
    bets = [(sign_C, L) for sign_C in (np.ones(CELLS), -np.ones(CELLS), side_C, -side_C) for L in STAKES]
    right, wrong = (
        np.stack([np.log1p(L * (sign_C * (a - CENTRES) - slack)) for sign_C, L in bets], axis=1) for a in (1.0, 0.0)
    )
    return Payoffs(right, wrong, np.full(len(bets), -np.log(len(bets))))
