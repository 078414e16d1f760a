"""How sure a measured ECE is: noise floor, an estimate of less bias and a confidence interval, from sums alone.

Notation: per bin b of n rows, S_b = sum (a-c) / n, w_b = n_b / n, V_b = sum c(1-c) / n^2, K_b = sum (1-2c) / n^2,
Q_b = n_b / n^2. Where rows have weights (`pipeline.metrics.weighted`), w = 1 / n is replaced by each row's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtri

from pipeline.metrics.binomial import binomial_interval, mean_deviation
from pipeline.metrics.bins import CELLS, Binning
from pipeline.metrics.inputs import Array, check_level
from pipeline.metrics.ranked import whole_bins
from pipeline.metrics.scores import Given, as_sums

DRAWS = 4096
GRID = 1 << 20  # steps of [0, 1]: the limits are resolved to 1e-6
SOME = 100  # draws that are no longer worth dividing
BLOCK = 16  # bins whose draws fit the cache together
RARE = 20  # fewer wrong (or right) answers than this are not normally distributed: exact binomial limits join in


@dataclass(frozen=True)
class NoiseFloor:
    """The ECE that a perfectly calibrated model would show on as many rows with the same confidences."""

    mean: float
    p95: float


@dataclass(frozen=True)
class EceInterval:
    """Plug-in ECE, an estimate of less bias, and the interval for the population's ECE in the same bins."""

    ece: float
    estimate: float
    lower: float
    upper: float
    level: float


@dataclass(frozen=True)
class GapTerms:
    """What the interval needs of each bin: sums over its rows of the weight times a power of what is said there."""

    gap_B: Array
    """S_b = sum w (a-c)."""
    weight_B: Array
    """w_b = sum w; 1 over all bins."""
    variance_B: Array
    """V_b = sum w^2 c(1-c): the variance of S_b if the model is calibrated."""
    skew_B: Array
    """K_b = sum w^2 (1-2c): its growth with the mean gap."""
    square_B: Array
    """Q_b = sum w^2; the effective number of rows is 1 / sum_b Q_b."""

    @property
    def effective_n(self) -> float:
        return 1 / float(self.square_B.sum())


def noise_floor(
    given: Given, labels_N: npt.ArrayLike | None = None, *, bins: int = 15, binning: Binning = "width"
) -> NoiseFloor:
    """Mean and 95th percentile of the plug-in ECE under perfect calibration.

    mean = sum_b D_b / n, variance = sum_b (n^2 V_b - D_b^2) / n^2, with D_b = E|right rows - their mean| of each bin
    (`pipeline.metrics.binomial.mean_deviation`); the percentile is that of the gamma distribution with this mean and
    variance. Against exact Monte Carlo within 1% (mean) and 2.6% (percentile) from 50 rows on, in 15 to 1,000 bins.
    Bins of equal mass are unions of cells (`pipeline.metrics.ranked.whole_bins`), as for `ece_interval`.

    Raises:
        ValueError: bad input, no rows, an unknown binning, or bins that `ece` refuses.
    """
    table = whole_bins(as_sums(given, labels_N), bins, binning)
    deviation_B = mean_deviation(table.confidence_B, table.count_B, table.variance_B)
    mean = float(deviation_B.sum()) / table.n
    variance = float((table.variance_B - deviation_B**2).sum()) / table.n**2
    if mean == 0 or variance <= 1e-12 * mean**2:  # certain answers, or a single row at .5: the ECE cannot vary
        return NoiseFloor(mean, mean)
    # With far less than one error expected the gamma's percentile falls to 0, below what zero errors leave.
    return NoiseFloor(mean, max(mean, float(gammaincinv(mean**2 / variance, 0.95)) * variance / mean))


def ece_interval(
    given: Given,
    labels_N: npt.ArrayLike | None = None,
    *,
    bins: int = 15,
    level: float = 0.95,
    binning: Binning = "width",
) -> EceInterval:
    """Interval for the population's binned ECE by inverting its test; the bootstrap's coverage is as low as 0.

    If the true per-bin gaps are s, the plug-in ECE is distributed as T*(s) = sum_b |s_b + sqrt(v_b(s)) Z_b| with
    v_b(s) = max(V_b + g_b K_b, g_b^2 Q_b), g_b = s_b / w_b (a score interval's variance). Along a direction u
    theta(u, p) is the theta >= 0 with P(T*(theta u) <= T) = p. With q = (1 - level) / 2:

        lower = min(theta(raw, 1-q), theta(kept, 1-q)),  estimate = theta(raw, 1/2),  upper = theta(raised, q)

    raw: u ~ S_b; kept: only bins with |S_b| > 2 sd_b (none: the most significant one); raised: |S_b| lifted to sd_b.
    Three directions, because the upward bias depends on whether few bins carry the error or all of them.

    The estimate is median-unbiased if the true gaps are shaped like the observed ones. It is high where the error is
    confined to few bins, or the bins are many: 2,000 rows of shape B with right answers at .97 c, in 100 bins, leave it
    at or below the truth in 1% of samples instead of 50%.

    With fewer than 20 wrong (or fewer than 20 right) rows the interval also covers the exact binomial
    (Clopper-Pearson) limits of |accuracy - mean confidence|, the part of the ECE that all bins share: ten right answers
    at .999 leave accuracies down to .69 open, and normal draws do not see that (without, coverage is 0 to .4 at
    ECE .01 and 10 to 50 rows). Not with more: those limits ignore that rows differ, and cost a fifth of width.

    An ECE that is small by luck would leave no theta at all (0 in n rows at .5: an interval of [0, 0]), so the upper
    limit is also at least z sqrt(sum_b V_b), the precision of the signed gap.

    Measured coverage at a nominal 95% (benchmarks/interval_coverage.py): at least 93.7% in 72 settings, 500 to 50,000
    rows, with rare errors from 10 rows on. A fixed-n interval: looking after every label and acting on what is seen
    is not covered. Levels above .999 ask more of the 4,096 fixed draws than they can tell.

    Bins of equal mass end at whole cells, the nearest to an equal share (`pipeline.metrics.ranked.whole_bins`): the
    halves of a cell share one gap, and would be taken for two that agree by chance. Where they come is decided by the
    confidences alone, so given these the interval is the same. Its `ece` is the plug-in value in those bins; `ece`
    itself cuts through cells.

    Raises:
        ValueError: bad input, no rows, a level outside (0, 1), an unknown binning, or bins that `ece` refuses.
    """
    table = whole_bins(as_sums(given, labels_N), bins, binning)
    n, skew_B = table.n, table.count_B - 2 * table.confidence_B
    parts = (table.gap_B / n, table.count_B / n, table.variance_B / n**2, skew_B / n**2, table.count_B / n**2)
    empty = min(bins, CELLS) - len(table.count_B)  # equal mass: one table of draws, however many bins have become one
    terms = GapTerms(*(np.pad(part, (0, empty)) for part in parts))
    # to the last bit what `ece` gives
    return interval_of(terms, float(np.abs(table.gap_B).sum() / n), float(table.correct_B.sum()) / n, level)


def interval_of(terms: GapTerms, observed: float, accuracy: float, level: float) -> EceInterval:
    """The interval of `ece_interval` from the terms of its bins, the plug-in ECE sum_b |S_b| and the accuracy.

    Raises:
        ValueError: a level outside (0, 1).
    """
    check_level(level)
    q, n = (1 - level) / 2, terms.effective_n
    gap_B, weight_B = terms.gap_B, terms.weight_B
    search = _Search(terms, observed)
    spread_B = np.sqrt(np.maximum(search.variance(gap_B), terms.variance_B))
    sign_B = np.where(gap_B < 0, -1.0, 1.0)
    score_B = np.divide(np.abs(gap_B), spread_B, out=np.zeros_like(gap_B), where=spread_B > 0)
    kept_B = score_B > 2 if (score_B > 2).any() else np.arange(len(gap_B)) == score_B.argmax()
    raw, kept = _unit(gap_B, weight_B), _unit(np.where(kept_B, gap_B, 0.0), weight_B)
    raised = _unit(sign_B * np.maximum(np.abs(gap_B), spread_B), weight_B)
    lower = search.theta(raw, 1 - q)
    if (kept != raw).any():
        lower = min(lower, search.theta(kept, 1 - q))
    estimate, upper = search.theta(raw, 0.5), search.theta(raised, q)
    if min(accuracy, 1 - accuracy) * n < RARE - 1e-6:  # 20 of 400 must not count as 19.999...
        least, most = _exact_gap_limits(accuracy, accuracy - float(gap_B.sum()), n, q)
        lower, upper = min(lower, least), max(upper, most)
    certain = -float(ndtri(q)) * float(np.sqrt(terms.variance_B.sum()))
    return EceInterval(observed, estimate, lower, min(max(upper, estimate, certain), 1.0), level)


class _Search:
    """Finds theta(u, p) by halving [0, 1] twenty times, without asking draws whose answer is known.

    T* moves by no more than d theta + |Z| d sigma, summed over bins. So no draw need be looked at where all are far
    above T or far below, and between two ends only those that lie closer to T than T* can move in between.
    """

    def __init__(self, terms: GapTerms, observed: float) -> None:
        self.limit = observed * (1 + 1e-12)
        self.occupied = occupied = terms.weight_B > 0
        weight_B = np.where(occupied, terms.weight_B, 1.0)
        self.variance_B, self.skew_B = terms.variance_B, terms.skew_B / weight_B
        self.square_B = terms.square_B / weight_B**2
        normal_BR = _normals(len(occupied))
        self.normal_BR = normal_BR if occupied.all() else normal_BR[occupied]
        self.room = np.empty(min(BLOCK, len(self.normal_BR)) * DRAWS)
        self.farthest = -float(ndtri(0.5 / DRAWS))  # of all draws of |Z|
        self.still_B = self.spread(np.zeros(len(occupied)))
        self.at_zero_R = self.away(np.zeros(len(self.normal_BR)), self.still_B, self.normal_BR)
        self.scale = float(self.at_zero_R.std())  # farther apart than this, two ends leave most draws open
        self.most = float(self.at_zero_R.max()) + self.limit  # of sum sigma |Z| without any shift

    def variance(self, shift_B: Array) -> Array:
        """v_b(s), what the hypothesis implies; of all bins."""
        found: Array = np.maximum(self.variance_B + shift_B * self.skew_B, shift_B**2 * self.square_B)
        return found

    def spread(self, shift_B: Array) -> Array:
        """Its root; of the occupied bins."""
        found: Array = np.sqrt(self.variance(shift_B)[self.occupied])
        return found

    def noise(self, spread_B: Array) -> float:
        """At least any draw's sum over bins of sigma |Z|."""
        bound = self.farthest * float(spread_B.sum())
        if self.still_B.all():
            bound = min(bound, float((spread_B / self.still_B).max()) * self.most)
        return bound * (1 + 1e-9)

    def away(self, shift_B: Array, spread_B: Array, normal_BR: Array) -> Array:
        """T* - T of each draw, at some shifts of the occupied bins."""
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
        """The last of 2^20 steps at which more than `target` of the draws have T* <= T; 0 if none has."""
        wanted, normal_BR, settled = target * DRAWS, self.normal_BR, 0
        if np.count_nonzero(self.at_zero_R <= 0) <= wanted:
            return 0.0
        unit_B = direction_B[self.occupied]
        low, spread_low, high, spread_high = 0, self.still_B, GRID, self.spread(direction_B)
        while high - low > 1:
            middle = (low + high) // 2
            theta = middle / GRID
            spread_B = self.spread(theta * direction_B)
            if normal_BR is self.normal_BR and theta > self.noise(spread_B) + self.limit:
                high, spread_high = middle, spread_B
                continue
            away_R = self.away(theta * unit_B, spread_B, normal_BR)
            if settled + np.count_nonzero(away_R <= 0) > wanted:
                low, spread_low = middle, spread_B
            else:
                high, spread_high = middle, spread_B
            if len(away_R) < SOME:
                continue
            reach = (high - low) / GRID + self.farthest * float(np.abs(spread_high - spread_low).sum())
            if reach < self.scale:
                open_R = np.abs(away_R) <= reach
                if 2 * np.count_nonzero(open_R) < len(open_R):
                    settled += int(np.count_nonzero(away_R[~open_R] <= 0))
                    normal_BR = normal_BR[:, open_R]
        return low / GRID


def _unit(direction_B: Array, weight_B: Array) -> Array:
    """Scaled to sum |u| = 1; without any gap to point along, spread like the rows."""
    total = np.abs(direction_B).sum()
    return direction_B / total if total > 0 else weight_B


@lru_cache(maxsize=8)
def _normals(bins: int) -> Array:
    """Per bin the same DRAWS normal quantiles, each in an order of its own (a Latin hypercube).

    The ECE adds over bins, so spacing every bin's draws evenly halves the error of the limits' levels: with 800
    antithetic draws (whose halves mirror each other where the ECE is 0) the 97.5% level came out as 96.3 to 96.8%.
    """
    rank_BR = np.tile(np.arange(DRAWS, dtype=np.float64), (bins, 1))
    normal_BR: Array = ndtri((np.random.default_rng(20260101).permuted(rank_BR, axis=1) + 0.5) / DRAWS)
    normal_BR.flags.writeable = False  # cached, so shared
    return normal_BR


def _exact_gap_limits(accuracy: float, confidence: float, n: float, q: float) -> tuple[float, float]:
    """Least and most that |accuracy - mean confidence| can be, by the exact binomial limits of the accuracy."""
    low, high = (float(limit) for limit in binomial_interval(min(accuracy * n, n), n, level=1 - 2 * q))
    return max(low - confidence, confidence - high, 0.0), max(confidence - low, high - confidence)
