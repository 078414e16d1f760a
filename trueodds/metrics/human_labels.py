"""Probabilities of whole rows against how people labelled them, and what the scatter of few votes explains of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, stdtrit

from trueodds.errors import unknown
from trueodds.metrics.intervals.binomial import mean_deviation
from trueodds.sums.inputs import (
    ROW_SUM_TOLERANCE,
    Array,
    as_matrix,
    as_numbers,
    check_counts,
    check_level,
    check_probabilities,
)
from trueodds.sums.rows import ELEMENTS, checked_blocks

Distance = Literal["l1", "l2", "max"]
DISTANCES: tuple[Distance, ...] = ("l1", "l2", "max")
FARTHEST: dict[Distance, float] = {"l1": 2.0, "l2": 2.0**0.5, "max": 1.0}
"""Between two rows of probabilities."""
ORDER: dict[Distance, float] = {"l1": 1, "l2": 2, "max": np.inf}
DRAWN_ROWS = 200_000
SEED = 20260101
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SamplewiseInterval:
    """The mean distance of rows from the human labels, and the limits of its expectation.

    >>> interval = metrics.samplewise_interval([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2]], [[9, 0], [5, 5], [6, 1]])
    >>> interval.lower < interval.error < interval.upper
    True
    """

    error: float
    lower: float
    upper: float
    level: float


def samplewise_error(probabilities_NC: npt.ArrayLike, human_NC: npt.ArrayLike, *, norm: Distance = "l1") -> float:
    """Mean distance of each row's probabilities from the distribution of human labels: 1/n sum_i ||p_i - q_i||.

    l1: sum over classes, in [0, 2], twice the total variation. l2: Euclidean, in [0, sqrt 2]. max: the largest
    difference, in [0, 1]. `human_NC` holds counts of votes, q_i = V_i / m_i with m_i the votes of the row, or the
    shares q_i themselves. Such votes are those of CIFAR-10H (Peterson et al. 2019), in which the BSCE-GRA paper
    (section 16.1, which prints no formula) sees the ground truth of sample-wise calibration. No bins, no top label;
    unlike every other metric here it sees whether single rows are right about their own uncertainty.

    The votes of a few people scatter, so a model that is right about every row does not reach 0. What this noise alone
    explains is `samplewise_noise_floor` by the model, .16 (l1) for ten classes at softmax(N(0, 3^2)) and 51 votes, .53
    for 4; by the votes, whatever the model says, `second_panel_error` and `half_panels_error`.

    Raises:
        ValueError: bad input, shapes that disagree, an unknown norm, or a `human_NC` that is neither counts (whole
            numbers, a vote in every row) nor shares (every row sums to 1 within 1e-3).

    >>> round(metrics.samplewise_error([[0.9, 0.1], [0.6, 0.4]], [[1.0, 0.0], [0.5, 0.5]]), 4)
    0.2
    >>> round(metrics.samplewise_error([[0.9, 0.1], [0.6, 0.4]], [[51, 0], [25, 25]]), 4)
    0.2
    """
    return float(_distances(probabilities_NC, human_NC, norm).mean())


def samplewise_interval(
    probabilities_NC: npt.ArrayLike, human_NC: npt.ArrayLike, *, norm: Distance = "l1", level: float = 0.95
) -> SamplewiseInterval:
    """Interval for the expected `samplewise_error` over the population of rows, each with a panel as large as its own.

    Distances d_i are skewed: most rows are near the votes, a few wrong ones far away. Hall's transformation (1992)
    takes the skewness g out, with t Student's quantile at n - 1 degrees of freedom:

        mean - s / sqrt(n) * 3 sqrt(n) / g * (cbrt(1 + g (t / sqrt(n) - g / (6 n))) - 1)

    at the upper t for the lower limit and the other way round, cut to what distances can be. It has the accuracy of the
    bootstrap-t over rows without drawing. One row alone says nothing of its spread: all that is possible.

    Raises:
        ValueError: as `samplewise_error`; a level outside (0, 1).

    >>> interval = metrics.samplewise_interval([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2]], [[9, 0], [5, 5], [6, 1]])
    >>> round(interval.error, 4)
    0.1714
    """
    check_level(level)
    away_N = _distances(probabilities_NC, human_NC, norm)
    n, mean, most = len(away_N), float(away_N.mean()), FARTHEST[norm]
    if n == 1:
        return SamplewiseInterval(mean, 0.0, most, level)
    spread = float(away_N.std(ddof=1))
    if spread <= 1e-12 * mean or spread == 0:
        return SamplewiseInterval(mean, mean, mean, level)
    skewness = float((((away_N - mean) / away_N.std()) ** 3).mean())
    t = float(stdtrit(n - 1, (1 + level) / 2))
    below, above = (spread / n**0.5 * _unskewed(side, skewness, n) for side in (t, -t))
    return SamplewiseInterval(mean, max(mean - below, 0.0), min(mean - above, most), level)


def samplewise_noise_floor(probabilities_NC: npt.ArrayLike, votes: npt.ArrayLike, *, norm: Distance = "l1") -> float:
    """Mean `samplewise_error` of a perfectly calibrated model: each row's votes are drawn from its probabilities.

        1/n sum_i E ||V_i / m_i - p_i||,  V_i multinomial (m_i votes, p_i)

    l1: exact, the sum over classes of E|V_ik - m_i p_ik| / m_i by `mean_deviation`. l2 and max have no such form: the
    mean over fixed draws, 200,000 rows or more of them, so within about .3%.

    `votes`: how many people labelled each row, one number or one for each row.

    Raises:
        ValueError: bad probabilities, an unknown norm, or votes that are not whole numbers from 1 on.

    >>> round(metrics.samplewise_noise_floor([[0.9, 0.1], [0.6, 0.4]], 10), 4)
    0.1901
    """
    _check_norm(norm)
    matrix_NC = as_matrix(probabilities_NC, "probabilities")
    rows = len(matrix_NC)
    votes_N = _votes(votes, rows)
    rng, repeats, total = np.random.default_rng(SEED), -(-DRAWN_ROWS // rows), 0.0
    for place, block in checked_blocks(matrix_NC):
        p = block.astype(np.float64)
        p /= p.sum(axis=1, keepdims=True)
        count = votes_N[place, None]
        if norm == "l1":
            mean = (p * count).ravel()
            away = mean_deviation(mean, np.repeat(count, p.shape[1]), mean * (1 - p.ravel()))
            total += float((away.reshape(p.shape) / count).sum())
            continue
        copies = min(repeats, max(ELEMENTS // p.size, 1))
        many, counts = np.tile(p, (copies, 1)), np.tile(count, (copies, 1))
        turns = -(-repeats // copies)
        for _ in range(turns):
            drawn = rng.multinomial(counts[:, 0], many) / counts
            total += float(np.linalg.norm(drawn - many, ORDER[norm], axis=1).sum()) / (turns * copies)
    return total / rows


def second_panel_error(counts_NC: npt.ArrayLike, *, norm: Distance = "l1") -> float:
    """Mean distance of a second panel from the first: as many people for each row, who vote by the first one's shares.

        1/n sum_i E ||V'_i / m_i - q_i||,  q_i = V_i / m_i,  V'_i multinomial (m_i votes, q_i)

    What votes alone explain of any model's `samplewise_error`: it takes the first panel's shares for the truth, in the
    manner of the bootstrap, and so is the `samplewise_noise_floor` of a model that says those shares. It depends on no
    model. Of few votes it says too little (of one vote in each row, 0), because opinions that nobody in the first panel
    had are missing in the second one: `half_panels_error` errs to the other side, and the truth lies between.

    Raises:
        ValueError: counts that are not whole numbers, rows without a vote, or an unknown norm.

    >>> round(metrics.second_panel_error([[51, 0], [46, 5]]), 4)
    0.0327
    """
    counts = check_counts(counts_NC)
    votes_N = counts.sum(axis=1)
    return samplewise_noise_floor(counts / votes_N[:, None], votes_N, norm=norm)


def half_panels_error(counts_NC: npt.ArrayLike, *, norm: Distance = "l1") -> float:
    """Expected mean distance between the two halves of each row's panel, split at random.

        1/n sum_i E ||A_i / h_i - (V_i - A_i) / (m_i - h_i)||,  A_i multivariate hypergeometric, h_i = floor(m_i / 2)

    The halves are independent panels, whatever people think, so this is without bias how far two panels of half the
    size are apart. Larger panels are nearer to each other, and nearer still to the truth behind them: more than this
    is not the votes' doing. Rows with a single vote are left out.

    l1: exact, by the mean deviation of the hypergeometric distribution (Diaconis and Zabell 1991). l2 and max: the mean
    over fixed draws, 200,000 rows or more of them.

    Raises:
        ValueError: as `second_panel_error`; no row with two votes.

    >>> round(metrics.half_panels_error([[51, 0], [46, 5]]), 4)
    0.0705
    """
    _check_norm(norm)
    counts = check_counts(counts_NC)
    counts = counts[counts.sum(axis=1) >= 2]
    if not len(counts):
        raise ValueError("counts has a single vote in every row; two at least are needed in some, one for each half")
    votes_N = counts.sum(axis=1)
    half_N = votes_N // 2
    scale_N = votes_N / (half_N * (votes_N - half_N))
    if norm == "l1":
        return float((scale_N * _mean_deviation_of_halves(counts, votes_N, half_N)).mean())
    repeats = -(-DRAWN_ROWS // len(counts))
    copies = min(repeats, max(ELEMENTS // counts.size, 1))  # of few rows many at once
    turns = -(-repeats // copies)
    counts, half_N, scale_N = np.tile(counts, (copies, 1)), np.tile(half_N, copies), np.tile(scale_N, copies)
    rng, mean_NC = np.random.default_rng(SEED), counts * (half_N / counts.sum(axis=1))[:, None]
    total = 0.0
    for _ in range(turns):
        away_N = np.linalg.norm(_drawn_halves(counts, half_N, rng) - mean_NC, ORDER[norm], axis=1)
        total += float((scale_N * away_N).mean())
    return float(total / turns)


def _mean_deviation_of_halves(counts_NC: Counts, votes_N: Counts, half_N: Counts) -> Array:
    """sum_k E|A_k - h V_k / m| per row: 2 v (m - V - h + v) P(A_k = v) / m with v = floor(h V / m) + 1."""
    row, column = np.nonzero(counts_NC)
    count, votes, half = counts_NC[row, column], votes_N[row], half_N[row]
    above = half * count // votes + 1
    possible = above <= np.minimum(half, count)
    row, count, votes, half, above = (values[possible] for values in (row, count, votes, half, above))
    chance = np.exp(_log_choose(count, above) + _log_choose(votes - count, half - above) - _log_choose(votes, half))
    away = 2 * above * (votes - count - half + above) * chance / votes
    total_N: Array = np.bincount(row, away, minlength=len(counts_NC)).astype(np.float64)
    return total_N


def _log_choose(n: Counts, k: Counts) -> Array:
    chosen: Array = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return chosen


def _drawn_halves(counts_NC: Counts, half_N: Counts, rng: np.random.Generator) -> Counts:
    """Class by class: how many of those who are still to be chosen for the first half voted for it."""
    drawn_NC, wanted_N, left_N = np.empty_like(counts_NC), half_N.copy(), counts_NC.sum(axis=1)
    for k, count_N in enumerate(counts_NC.T):
        left_N -= count_N
        drawn_NC[:, k] = rng.hypergeometric(count_N, left_N, wanted_N)
        wanted_N -= drawn_NC[:, k]
    return drawn_NC


def _distances(probabilities_NC: npt.ArrayLike, human_NC: npt.ArrayLike, norm: Distance) -> Array:
    """||p_i - q_i|| of each row."""
    _check_norm(norm)
    matrix_NC, human = as_matrix(probabilities_NC, "probabilities"), as_matrix(human_NC, "human")
    if matrix_NC.shape != human.shape:
        raise ValueError(f"human has shape {human.shape}; expected {matrix_NC.shape}, as the probabilities")
    shares_NC = _shares(human)
    away_N = np.empty(len(matrix_NC))
    for place, block in checked_blocks(matrix_NC):
        off = block.astype(np.float64) - shares_NC[place]
        if norm == "l1":
            away_N[place] = np.abs(off, out=off).sum(axis=1)
        elif norm == "l2":
            away_N[place] = np.sqrt(np.vecdot(off, off))
        else:
            away_N[place] = np.abs(off, out=off).max(axis=1)
    return away_N


def _shares(human_NC: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Shares as they are, counts divided by the votes of their row; a single vote is both."""
    if (np.abs(human_NC.sum(axis=1, dtype=np.float64) - 1) <= ROW_SUM_TOLERANCE).all():
        return check_probabilities(human_NC, "human")
    try:
        counts_NC = check_counts(human_NC, "human")
    except ValueError as error:
        raise ValueError(f"{error}; or give shares of votes, of which every row sums to 1 (within 1e-3)") from None
    shares_NC: Array = counts_NC / counts_NC.sum(axis=1, keepdims=True)
    return shares_NC


def _unskewed(t: float, skewness: float, n: int) -> float:
    """The studentised mean whose transform, of the same median and no skewness, is t."""
    if abs(skewness) < 1e-6:
        return t
    root = n**0.5
    return float(3 * root / skewness * (np.cbrt(1 + skewness * (t / root - skewness / (6 * n))) - 1))


def _check_norm(norm: Distance) -> None:
    if norm not in DISTANCES:
        raise unknown("norm", norm, DISTANCES)


def _votes(votes: npt.ArrayLike, rows: int) -> npt.NDArray[np.int64]:
    votes_N = as_numbers(votes, "votes")
    if votes_N.shape not in ((), (rows,)):
        raise ValueError(f"votes has shape {votes_N.shape}; expected one number, or ({rows},), one for each row")
    sound = (votes_N >= 1) & (np.floor(votes_N) == votes_N) & np.isfinite(votes_N)
    if not sound.all():
        raise ValueError(f"votes holds {votes_N[~sound][0]}; allowed are whole numbers from 1 on")
    return np.broadcast_to(votes_N.astype(np.int64), (rows,))
