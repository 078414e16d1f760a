"""Payoffs of the sequential tests: what a bet on a confidence cell pays for a right and for a wrong answer.

A bet is fixed before any label is seen, and pays at most 1 on average while the null holds. Confidences are known by
their cell only, so every bet takes the cell's centre r and gives away half a cell's width: |c - r| <= h/2, h = 1/3000.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import expit, logit

from trueodds.errors import unknown
from trueodds.sums.bins import CELLS, EDGES
from trueodds.sums.inputs import Array, is_number

Null = Literal["ece", "point"]

HALF_CELL = 0.5 / CELLS
CENTRES = (EDGES[:-1] + EDGES[1:]) / 2

# Temperature and shift of sigma(logit(c) / T + b): over- and under-confidence, more on one side, a plain shift.
MAPS = (
    *((1.25, 0.0), (1.5, 0.0), (2.2, 0.0), (3.5, 0.0), (0.8, 0.0), (0.6, 0.0)),
    *((1.6, 0.4), (1.6, -0.4), (1.0, -0.4), (1.0, 0.4), (1.0, -1.0), (1.0, 1.0)),
)
LOCAL = tuple((low, shift) for low in (0.2, 0.4, 0.6, 0.8) for shift in (-0.1, 0.1))  # on (low, low + .2]
MAPS_SHARE = 0.7  # of the starting capital; the local maps share the rest
TURN = 0.6  # where a sign pattern changes sides: an edge of the usual 15 bins
STAKES = (0.04, 0.15, 0.5)


@dataclass(frozen=True)
class Payoffs:
    """Log payoffs per cell and bet, and the log share of the starting capital that each bet receives."""

    log_right_CK: Array
    log_wrong_CK: Array
    log_weight_K: Array


def payoffs(null: Null, tolerance: float) -> Payoffs:
    """The payoffs for one null and tolerance eps.

    point: |P(right | c) - c| <= eps for every answer. A map q(c) that claims to know better pays q/p* if right and
    (1-q)/(1-p*) if wrong, p* = clip(q, r - eps - h/2, r + eps + h/2) being the tolerated truth nearest to q: at most
    1 on average for every truth within the tolerance of any confidence of the cell, and 1 for certain where q = p*.

    ece: at EVERY label, given what came before, the ECE of the traffic that is being labelled is at most eps. A sign
    pattern s(c) and a stake L pay 1 + L (s(c) (a - r) - eps - h/2), since E[s(c) (a - c)] is at most that ECE (also
    the binned one where s turns at an edge of its bins). L is the same for every c, or the inequality is lost. This
    is not about the ECE of all answers: that may be .0199 while one bad corner is labelled 9 times as often as the
    rest, or while 9,000 good answers alternate with 1,000 bad ones, and the null is false in both. With known
    propensities `trueodds.metrics.alarms.weighted` tests that ECE.

    Raises:
        ValueError: an unknown null, or a tolerance outside [0, .5).
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
    log_odds_C = logit(np.clip(CENTRES, 1e-6, 1 - 1e-6))
    claims = [expit(log_odds_C / T + b) for T, b in MAPS]
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
