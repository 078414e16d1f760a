"""Inversion of the ECE's test: how large the true gaps can be in a direction before the plug-in ECE is too small.

Notation and statistics are those of `trueodds.metrics.intervals.calibration_error`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from trueodds.sums.inputs import Array

DRAWS = 4096
GRID = 1 << 20  # steps of [0, 1]: the limits are resolved to 1e-6
SOME = 100  # with fewer open draws, dividing them further saves nothing
FALSE_POSITIONS = 12  # steps of false position before the search changes to bisection
BLOCK = 16  # bins whose draws fit into the cache together


@dataclass(frozen=True)
class GapTerms:
    """Sums over the rows of each bin that the interval needs."""

    gap_B: Array
    """S_b = sum w (a-c)."""
    weight_B: Array
    """w_b = sum w; its total over the bins is 1."""
    variance_B: Array
    """V_b = sum w^2 c(1-c), the variance of S_b if the model is calibrated."""
    skew_B: Array
    """K_b = sum w^2 (1-2c), the growth of that variance with the mean gap."""
    square_B: Array
    """Q_b = sum w^2. The effective number of rows is 1 / sum_b Q_b."""

    @property
    def effective_n(self) -> float:
        return 1 / float(self.square_B.sum())


class Search:
    """Search for theta(u, p) to a step of 2^-20 that evaluates only draws whose result is still open.

    Between two values of theta, T* changes by at most d theta + |Z| d sigma, summed over bins. So between two close
    ends, only draws closer to T than that change must be evaluated. False position on the deciding draw (T* of the
    right rank) finds such ends.
    """

    def __init__(self, terms: GapTerms, observed: float, draws_BR: Array | None = None) -> None:
        """Prepare a search.

        Args:
            terms: Terms of the bins.
            observed: The plug-in ECE T.
            draws_BR: Draws of the Z_b, B x DRAWS. None: independent standard normal ones.
        """
        self.limit = observed * (1 + 1e-12)
        self.occupied = occupied = terms.weight_B > 0
        weight_B = np.where(occupied, terms.weight_B, 1.0)
        self.variance_B, self.skew_B = terms.variance_B, terms.skew_B / weight_B
        self.square_B = terms.square_B / weight_B**2
        normal_BR = normals(len(occupied)) if draws_BR is None else draws_BR
        self.normal_BR = normal_BR if occupied.all() else normal_BR[occupied]
        self.room = np.empty(min(BLOCK, len(self.normal_BR)) * DRAWS)
        largest = -float(scipy.special.ndtri(0.5 / DRAWS))
        self.farthest = largest if draws_BR is None else float(np.abs(draws_BR).max())  # the largest |Z| of all draws
        self.still_B = self.spread(np.zeros(len(occupied)))
        self.at_zero_R = self.away(np.zeros(len(self.normal_BR)), self.still_B, self.normal_BR)
        self.scale = float(self.at_zero_R.std())  # two ends that are farther apart than this leave most draws open

    def variance(self, shift_B: Array) -> Array:
        """Return v_b(s), the variance that the hypothesis implies, for all bins."""
        variance_B: Array = np.maximum(self.variance_B + shift_B * self.skew_B, shift_B**2 * self.square_B)
        return variance_B

    def spread(self, shift_B: Array) -> Array:
        """Return the standard deviation sqrt(v_b(s)) of the occupied bins."""
        spread_B: Array = np.sqrt(self.variance(shift_B)[self.occupied])
        return spread_B

    def away(self, shift_B: Array, spread_B: Array, normal_BR: Array) -> Array:
        """Compute T* - T of each draw, at given shifts of the occupied bins."""
        fixed = 0.0
        if not spread_B.all():
            loose = spread_B > 0
            fixed = float(np.abs(shift_B[~loose]).sum())
            shift_B, spread_B, normal_BR = shift_B[loose], spread_B[loose], normal_BR[loose]
        away_R = np.full(normal_BR.shape[1], fixed - self.limit)
        offset_B1 = (shift_B / spread_B)[:, None]
        for start in range(0, len(spread_B), BLOCK):
            some = slice(start, start + BLOCK)
            few = normal_BR[some]
            one_BR = np.add(few, offset_B1[some], out=self.room[: few.size].reshape(few.shape))
            away_R += spread_B[some] @ np.abs(one_BR, out=one_BR)
        return away_R

    def theta(self, direction_B: Array, target: float) -> float:
        """Find the last step of 2^-20 at which more than `target` of the draws have T* <= T; 0 if there is none.

        If their share falls monotonically there is only one such step. A flat share may cross `target` more than once.
        """
        rank = int(target * DRAWS)  # more than this many draws have T* <= T if and only if the draw of this rank has
        ends = _Ends(_value_of_rank(self.at_zero_R, rank), self.limit)
        if ends.below > 0:
            return 0.0
        unit_B, normal_BR = direction_B[self.occupied], self.normal_BR
        spread_low, spread_high = self.still_B, self.spread(direction_B)
        far, turns = True, 0
        while ends.high - ends.low > 1:
            middle = ends.guess(self.scale) if far else (ends.low + ends.high) // 2
            spread_B = self.spread(middle / GRID * direction_B)
            away_R = self.away(middle / GRID * unit_B, spread_B, normal_BR)
            if far:
                is_low = ends.close_in(middle, _value_of_rank(away_R, rank))
            else:
                is_low = bool(np.count_nonzero(away_R <= 0) > rank)
                ends.low, ends.high = (middle, ends.high) if is_low else (ends.low, middle)
            spread_low, spread_high = (spread_B, spread_high) if is_low else (spread_low, spread_B)
            turns += 1
            reach = (ends.high - ends.low) / GRID + self.farthest * float(np.abs(spread_high - spread_low).sum())
            far = far and reach >= self.scale and turns < FALSE_POSITIONS
            if reach < self.scale and len(away_R) >= SOME:
                open_R = np.abs(away_R) <= reach
                if 2 * np.count_nonzero(open_R) < len(open_R):
                    rank -= int(np.count_nonzero(away_R[~open_R] <= 0))
                    normal_BR = normal_BR[:, open_R]
        return ends.low / GRID


class _Ends:
    """Two steps around theta, and T* - T of the deciding draw there. `above` is unknown at first."""

    def __init__(self, below: float, limit: float) -> None:
        self.low, self.high, self.below, self.above = 0, GRID, below, math.inf
        self._limit, self._was_low = limit, True

    def guess(self, scale: float) -> int:
        """Guess a little beyond the point where a line crosses T, so that the next step lands on the other side."""
        low, high = self.low / GRID, self.high / GRID
        if math.isinf(self.above):  # T* grows about as fast as theta if the shifts outweigh the noise, else slower
            theta = low - 2 * self.below if low else max(self._limit, -self.below)
        else:
            theta = low + (high - low) * self.below / (self.below - self.above)
            theta += scale / 8 if self._was_low else -scale / 8
        return min(max(round(theta * GRID), self.low + 1), self.high - 1)

    def close_in(self, middle: int, away: float) -> bool:
        """Move one end to `middle` and return whether it is the new `low`.

        An end that stays twice counts half (the Illinois rule).
        """
        is_low = away <= 0
        if is_low:
            self.low, self.below = middle, away
            self.above /= 2 if self._was_low else 1
        else:
            self.high, self.above = middle, away
            self.below /= 1 if self._was_low else 2
        self._was_low = is_low
        return is_low


def _value_of_rank(values_R: Array, rank: int) -> float:
    return float(np.partition(values_R, rank)[rank]) if rank < len(values_R) else math.inf


@lru_cache(maxsize=8)
def normals(bins: int) -> Array:
    """Return the same DRAWS normal quantiles for every bin, each in its own order (a Latin hypercube).

    The ECE is a sum over bins, so evenly spaced draws in each bin halve the error of the limits' levels. With 800
    antithetic draws (whose halves mirror each other if the ECE is 0), the 97.5% level came out as 96.3 to 96.8%.
    """
    rank_BR = np.tile(np.arange(DRAWS, dtype=np.float64), (bins, 1))
    normal_BR: Array = scipy.special.ndtri((np.random.default_rng(20260101).permuted(rank_BR, axis=1) + 0.5) / DRAWS)
    normal_BR.flags.writeable = False  # cached, so shared
    return normal_BR
