"""Sample-wise calibration: each row's probabilities against the votes of several people, and the noise of few votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

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
from trueodds.sums.two_columns import as_columns

Distance = Literal["l1", "l2", "max"]
DISTANCES: tuple[Distance, ...] = ("l1", "l2", "max")
FARTHEST: dict[Distance, float] = {"l1": 2.0, "l2": 2.0**0.5, "max": 1.0}
"""Largest possible distance between two rows of probabilities."""
ORDER: dict[Distance, float] = {"l1": 1, "l2": 2, "max": np.inf}
DRAWN_ROWS = 200_000
SEED = 20260101
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SamplewiseInterval:
    """Mean distance of the rows from the human labels, with a confidence interval for its expectation.

    Examples:
        >>> interval = metrics.samplewise_interval([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2]], [[9, 0], [5, 5], [6, 1]])
        >>> interval.lower < interval.error < interval.upper
        True
    """

    error: float
    lower: float
    upper: float
    level: float


def samplewise_error(probabilities_NC: npt.ArrayLike, human_NC: npt.ArrayLike, *, norm: Distance = "l1") -> float:
    """Compute the mean distance of each row's probabilities from its distribution of human labels.

        1/n sum_i ||p_i - q_i||

    The norms are

        l1:   sum over classes, in [0, 2]; twice the total variation
        l2:   Euclidean distance, in [0, sqrt 2]
        max:  largest difference, in [0, 1]

    `human_NC` holds the vote counts V_i with q_i = V_i / m_i, where m_i is the row's number of votes; or it holds the
    shares q_i themselves. There are no bins and no top label. Unlike all other metrics here, it shows whether single
    rows state their own uncertainty correctly.

    The votes of a few people scatter, so a model that is right about every row does not reach 0.
    `samplewise_noise_floor` is the error of such a model: for ten classes at softmax(N(0, 3^2)) it is .16 (l1) with 51
    votes and .53 with 4. `second_panel_error` and `half_panels_error` estimate this noise from the votes alone.

    Args:
        probabilities_NC: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; each row sums to 1.
        human_NC: Vote counts or shares of votes, shape (N, C).
        norm: "l1", "l2" or "max".

    Returns:
        The mean distance.

    Raises:
        ValueError: The input is invalid, the shapes differ, the norm is unknown, or `human_NC` holds neither counts
            (whole numbers, a vote in every row) nor shares (every row sums to 1 within 1e-3).

    References:
        The BSCE-GRA paper, section 16.1, takes such votes as the ground truth of sample-wise calibration; it prints no
        formula. The votes of CIFAR-10H: Peterson et al. 2019, Human uncertainty makes classification more robust.

    Examples:
        >>> round(metrics.samplewise_error([[0.9, 0.1], [0.6, 0.4]], [[1.0, 0.0], [0.5, 0.5]]), 4)
        0.2
        >>> round(metrics.samplewise_error([[0.9, 0.1], [0.6, 0.4]], [[51, 0], [25, 25]]), 4)
        0.2
    """
    probabilities_NC = as_columns(probabilities_NC)
    return float(_distances(probabilities_NC, human_NC, norm).mean())


def samplewise_interval(
    probabilities_NC: npt.ArrayLike, human_NC: npt.ArrayLike, *, norm: Distance = "l1", level: float = 0.95
) -> SamplewiseInterval:
    """Compute a confidence interval for the expected `samplewise_error`.

    The expectation is over the population of rows, each with as many votes as it has here. The distances d_i are
    skewed: most rows are near the votes, a few wrong ones far away. Hall's transformation removes the skewness g. With
    Student's quantile t at n - 1 degrees of freedom, a limit is

        mean - s / sqrt(n) * 3 sqrt(n) / g * (cbrt(1 + g (t / sqrt(n) - g / (6 n))) - 1)

    The upper t gives the lower limit and the lower t the upper limit. Both are cut to the possible range of distances.
    The accuracy is that of the bootstrap-t over rows, without drawing. A single row has no spread, so its interval is
    the whole range. n equal distances have none either. They limit the share of other distances to 1 - q^(1/n), with q
    = (1 - level) / 2, and the interval has such a share at either end of the range.

    Args:
        probabilities_NC: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; each row sums to 1.
        human_NC: Vote counts or shares of votes, shape (N, C).
        norm: "l1", "l2" or "max".
        level: Confidence level of both limits together, inside (0, 1).

    Returns:
        The mean distance and its limits.

    Raises:
        ValueError: The input is invalid (see `samplewise_error`), or `level` is outside (0, 1).

    References:
        Hall 1992, On the removal of skewness by transformation.

    Examples:
        >>> interval = metrics.samplewise_interval([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2]], [[9, 0], [5, 5], [6, 1]])
        >>> round(interval.error, 4)
        0.1714
    """
    probabilities_NC = as_columns(probabilities_NC)
    check_level(level)
    away_N = _distances(probabilities_NC, human_NC, norm)
    n, mean, most = len(away_N), float(away_N.mean()), FARTHEST[norm]
    if n == 1:
        return SamplewiseInterval(mean, 0.0, most, level)
    spread = float(away_N.std(ddof=1))
    if spread <= 1e-12 * mean or spread == 0:
        others = 1 - ((1 - level) / 2) ** (1 / n)
        return SamplewiseInterval(mean, mean * (1 - others), mean + (most - mean) * others, level)
    skewness = float((((away_N - mean) / away_N.std()) ** 3).mean())
    t = float(scipy.special.stdtrit(n - 1, (1 + level) / 2))
    below, above = (spread / n**0.5 * _unskew(side, skewness, n) for side in (t, -t))
    return SamplewiseInterval(mean, max(mean - below, 0.0), min(mean - above, most), level)


def samplewise_noise_floor(probabilities_NC: npt.ArrayLike, votes: npt.ArrayLike, *, norm: Distance = "l1") -> float:
    """Compute the mean `samplewise_error` of a perfectly calibrated model.

    The votes of such a model's rows are drawn from its probabilities:

        1/n sum_i E ||V_i / m_i - p_i||,  V_i multinomial (m_i votes, p_i)

    l1 is exact: the sum over classes of `E|V_ik - m_i p_ik| / m_i` (`mean_deviation`). l2 and max have no closed form.
    They are the mean over at least 200,000 fixed draws of a row, which is accurate to about .3%.

    Args:
        probabilities_NC: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; each row sums to 1.
        votes: Number of people who labelled each row: one number, or shape (N,).
        norm: "l1", "l2" or "max".

    Returns:
        The mean distance.

    Raises:
        ValueError: The probabilities are invalid, the norm is unknown, or votes are not whole numbers from 1 on.

    Examples:
        >>> round(metrics.samplewise_noise_floor([[0.9, 0.1], [0.6, 0.4]], 10), 4)
        0.1901
    """
    probabilities_NC = as_columns(probabilities_NC)
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
    """Compute the mean distance of a second panel of people from the first.

    The second panel has as many people for each row, who vote according to the first panel's shares:

        1/n sum_i E ||V'_i / m_i - q_i||,  q_i = V_i / m_i,  V'_i multinomial (m_i votes, q_i)

    This is the part of any model's `samplewise_error` that the votes alone explain; it depends on no model. It takes
    the first panel's shares as the truth, like the bootstrap. So it equals the `samplewise_noise_floor` of a model that
    states these shares. With few votes it is too small (0 with one vote per row), because opinions that are missing in
    the first panel are missing in the second. `half_panels_error` errs in the other direction; the truth lies between
    the two.

    Args:
        counts_NC: Vote counts, shape (N, C).
        norm: "l1", "l2" or "max".

    Returns:
        The mean distance.

    Raises:
        ValueError: Counts are not whole numbers, a row has no vote, or the norm is unknown.

    Examples:
        >>> round(metrics.second_panel_error([[51, 0], [46, 5]]), 4)
        0.0327
    """
    counts = check_counts(counts_NC)
    votes_N = counts.sum(axis=1)
    return samplewise_noise_floor(counts / votes_N[:, None], votes_N, norm=norm)


def half_panels_error(counts_NC: npt.ArrayLike, *, norm: Distance = "l1") -> float:
    """Compute the expected mean distance between two random halves of each row's panel.

        1/n sum_i E ||A_i / h_i - (V_i - A_i) / (m_i - h_i)||,  A_i multivariate hypergeometric, h_i = floor(m_i / 2)

    The halves are independent panels. So this is an unbiased estimate of the distance between two panels of half the
    size. Larger panels are closer to each other, and closer still to the truth. So an error above this value is not
    explained by the votes. Rows with a single vote are left out.

    l1 is exact, by the mean deviation of the hypergeometric distribution. l2 and max are the mean over at least 200,000
    fixed draws of a row.

    Args:
        counts_NC: Vote counts, shape (N, C).
        norm: "l1", "l2" or "max".

    Returns:
        The mean distance.

    Raises:
        ValueError: Counts are not whole numbers, a row has no vote, the norm is unknown, or no row has two votes.

    References:
        Diaconis and Zabell 1991, Closed form summation for classical distributions.

    Examples:
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
    copies = min(repeats, max(ELEMENTS // counts.size, 1))  # with few rows, many draws at a time
    turns = -(-repeats // copies)
    counts, half_N, scale_N = np.tile(counts, (copies, 1)), np.tile(half_N, copies), np.tile(scale_N, copies)
    rng, mean_NC = np.random.default_rng(SEED), counts * (half_N / counts.sum(axis=1))[:, None]
    total = 0.0
    for _ in range(turns):
        away_N = np.linalg.norm(_drawn_halves(counts, half_N, rng) - mean_NC, ORDER[norm], axis=1)
        total += float((scale_N * away_N).mean())
    return float(total / turns)


def _mean_deviation_of_halves(counts_NC: Counts, votes_N: Counts, half_N: Counts) -> Array:
    """Compute `sum_k E|A_k - h V_k / m|` per row: 2 v (m - V - h + v) P(A_k = v) / m with v = floor(h V / m) + 1."""
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
    chosen: Array = scipy.special.gammaln(n + 1.0) - scipy.special.gammaln(k + 1.0) - scipy.special.gammaln(n - k + 1.0)
    return chosen


def _drawn_halves(counts_NC: Counts, half_N: Counts, rng: np.random.Generator) -> Counts:
    """Draw the votes of the first half, class by class, from the people who are still available."""
    drawn_NC, wanted_N, left_N = np.empty_like(counts_NC), half_N.copy(), counts_NC.sum(axis=1)
    for k, count_N in enumerate(counts_NC.T):
        left_N -= count_N
        drawn_NC[:, k] = rng.hypergeometric(count_N, left_N, wanted_N)
        wanted_N -= drawn_NC[:, k]
    return drawn_NC


def _distances(probabilities_NC: npt.ArrayLike, human_NC: npt.ArrayLike, norm: Distance) -> Array:
    """Compute ||p_i - q_i|| of each row."""
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
    """Return shares unchanged, and divide counts by the votes of their row. A single vote is both."""
    if (np.abs(human_NC.sum(axis=1, dtype=np.float64) - 1) <= ROW_SUM_TOLERANCE).all():
        return check_probabilities(human_NC, "human")
    try:
        counts_NC = check_counts(human_NC, "human")
    except ValueError as error:
        raise ValueError(f"{error}; or give shares of votes, of which every row sums to 1 (within 1e-3)") from None
    shares_NC: Array = counts_NC / counts_NC.sum(axis=1, keepdims=True)
    return shares_NC


def _unskew(t: float, skewness: float, n: int) -> float:
    """Return the studentised mean that Hall's transformation maps to t."""
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
