"""Calibration of every class's probability, not only the top label's, and of whole rows against human labels."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from trueodds.errors import unknown
from trueodds.metrics.intervals.binomial import mean_deviation
from trueodds.metrics.ranked import BINNINGS, mass_bins, rank
from trueodds.sums.bins import Binning, bin_of, check_bins
from trueodds.sums.inputs import ROW_SUM_TOLERANCE, Array, as_matrix, as_numbers, check_labels, is_number
from trueodds.sums.rows import ELEMENTS, checked_blocks

Distance = Literal["l1", "l2", "max"]
DISTANCES: tuple[Distance, ...] = ("l1", "l2", "max")
VOTED_ROWS = 200_000
COLUMNS_AT_ONCE = 16  # copied together, so that a cache line of row-major input is read once


def classwise_ece(
    probabilities_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    bins: int = 15,
    binning: Binning = "width",
    threshold: float = 0.0,
) -> float:
    """Classwise ECE: 1/C sum_k sum_b n_bk/n |freq_bk - mean p_bk|, the mean of `ece_per_class`.

    Kull et al. 2019; Nixon et al. 2019 (the static calibration error); eq. 14 of the gamma-net paper. C is the number
    of columns: a class that never occurs counts, where public code that takes max(label) + 1 drops it.
    `binning="mass"` with a threshold is the adaptive calibration error of that paper's eq. 15 and Nixon's thresholded
    ACE (its table's column ACE is `adaptive_ece`).

    Raises:
        ValueError: as `ece_per_class`.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.classwise_ece(probabilities, labels), 4)
    0.3
    """
    return float(ece_per_class(probabilities_NC, labels_N, bins=bins, binning=binning, threshold=threshold).mean())


def ece_per_class(
    probabilities_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    bins: int = 15,
    binning: Binning = "width",
    threshold: float = 0.0,
) -> Array:
    """Per class k the ECE of p_k as a probability of y = k: sum_b n_b/n |freq_b - mean p_b|, shape (C,).

    Bins as in `ece`; equal mass cuts each column by itself. Only rows with p_k >= threshold take part, and n counts
    them (0 where there are none): near-zero probabilities, which are most of them with many classes, would hide all
    else.

    Raises:
        ValueError: bad input, bins that do not divide 3,000 (equal width), bins < 1, an unknown binning, a threshold
            outside [0, 1).

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> metrics.ece_per_class(probabilities, labels).round(4)
    array([0.3, 0.3])
    """
    if not (is_number(threshold) and 0 <= threshold < 1):
        raise ValueError(f"threshold is {threshold!r}; allowed is [0, 1), such as 0.01")
    if binning not in BINNINGS:
        raise unknown("binning", binning, BINNINGS)
    per_class = _equal_width if binning == "width" else _equal_mass
    return per_class(probabilities_NC, labels_N, check_bins(bins, binning), threshold)


def _equal_width(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int, threshold: float) -> Array:
    """Of a row's probabilities fewer than `bins` exceed 1/bins: only those are binned, the rest is the column's sum."""
    matrix_NC = as_matrix(probabilities, "probabilities")
    classes = matrix_NC.shape[1]
    label_N, gap_K, kept_C = None, np.zeros(classes * bins), np.zeros(classes)
    for rows, block in checked_blocks(matrix_NC):
        if label_N is None:
            label_N = check_labels(labels, *matrix_NC.shape)
        wide = block.astype(np.float64, copy=False)
        place = np.flatnonzero(wide >= threshold) if threshold > 0 else np.flatnonzero(wide > 1 / bins)
        value, column = np.minimum(wide.take(place), 1.0), place % classes
        np.add.at(gap_K, column * bins + bin_of(value, bins), -value)
        if threshold > 0:
            kept_C += np.bincount(column, minlength=classes)
        else:
            kept_C += len(block)
            gap_K[::bins] -= np.ones(len(block)) @ wide - np.bincount(column, value, classes)
        label = label_N[rows]
        true = np.minimum(wide[np.arange(len(block)), label], 1.0)
        kept = true >= threshold
        np.add.at(gap_K, label[kept] * bins + bin_of(true[kept], bins), 1.0)
    return _share(np.abs(gap_K).reshape(classes, bins).sum(axis=1), kept_C)


def _equal_mass(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int, threshold: float) -> Array:
    matrix_NC = as_matrix(probabilities, "probabilities")
    for _ in checked_blocks(matrix_NC):
        pass
    label_N, classes = check_labels(labels, *matrix_NC.shape), matrix_NC.shape[1]
    gap_C, kept_C = np.zeros(classes), np.zeros(classes)
    for start in range(0, classes, COLUMNS_AT_ONCE):
        columns = np.ascontiguousarray(matrix_NC[:, start : start + COLUMNS_AT_ONCE].T).astype(np.float64)
        for k, p_N in enumerate(np.minimum(columns, 1.0), start):
            kept_N = p_N >= threshold
            kept_C[k] = np.count_nonzero(kept_N)
            if kept_C[k]:
                rows = rank(p_N[kept_N], label_N[kept_N] == k)
                gap_C[k] = np.abs(mass_bins(rows, bins).gap_B).sum()
    return _share(gap_C, kept_C)


def _share(gap_C: Array, kept_C: Array) -> Array:
    share: Array = np.divide(gap_C, kept_C, out=np.zeros_like(gap_C), where=kept_C > 0)
    return share


def samplewise_error(probabilities_NC: npt.ArrayLike, human_NC: npt.ArrayLike, *, norm: Distance = "l1") -> float:
    """Mean distance of each row's probabilities from the distribution of human labels: 1/n sum_i ||p_i - q_i||.

    l1: sum over classes, in [0, 2], twice the total variation. l2: Euclidean, in [0, sqrt 2]. max: the largest
    difference, in [0, 1]. Human labels are those of CIFAR-10H, say (Peterson et al. 2019), in which the BSCE paper
    (section 16.1) sees the ground truth of sample-wise calibration. No bins, no top label; unlike every other metric
    here it sees whether single rows are right about their own uncertainty.

    The votes of a few people scatter, so a model that is right about every row does not reach 0: what this noise alone
    explains is `samplewise_noise_floor`, .16 (l1) for ten classes at softmax(N(0, 3^2)) and 51 votes, .53 for 4.

    Raises:
        ValueError: bad input, shapes that disagree, an unknown norm, or rows of `human_NC` that do not sum to 1 (counts
            of votes: divide them by their row's sum).

    >>> round(metrics.samplewise_error([[0.9, 0.1], [0.6, 0.4]], [[1.0, 0.0], [0.5, 0.5]]), 4)
    0.2
    """
    if norm not in DISTANCES:
        raise unknown("norm", norm, DISTANCES)
    matrix_NC, human = as_matrix(probabilities_NC, "probabilities"), as_matrix(human_NC, "human")
    if matrix_NC.shape != human.shape:
        raise ValueError(f"human has shape {human.shape}; expected {matrix_NC.shape}, as the probabilities")
    if human.max() > 1 + ROW_SUM_TOLERANCE:
        cure = "If these are counts of votes, divide each row by its sum"
        raise ValueError(f"human holds {human.max():.6g}; allowed is [0, 1]. {cure}")
    total = 0.0
    for (_, p), (_, q) in zip(checked_blocks(matrix_NC), checked_blocks(human, "human"), strict=True):
        off = p.astype(np.float64) - q
        if norm == "l1":
            total += float(np.abs(off, out=off).sum())
        elif norm == "l2":
            total += float(np.sqrt(np.vecdot(off, off)).sum())
        else:
            total += float(np.abs(off, out=off).max(axis=1).sum())
    return total / len(matrix_NC)


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
    if norm not in DISTANCES:
        raise unknown("norm", norm, DISTANCES)
    matrix_NC = as_matrix(probabilities_NC, "probabilities")
    rows = len(matrix_NC)
    votes_N = _votes(votes, rows)
    rng, repeats, total = np.random.default_rng(20260101), -(-VOTED_ROWS // rows), 0.0
    for place, block in checked_blocks(matrix_NC):
        p = block.astype(np.float64)
        p /= p.sum(axis=1, keepdims=True)
        count = votes_N[place, None]
        if norm == "l1":
            mean = (p * count).ravel()
            away = mean_deviation(mean, np.repeat(count, p.shape[1]), mean * (1 - p.ravel()))
            total += float((away.reshape(p.shape) / count).sum())
            continue
        order, copies = 2 if norm == "l2" else np.inf, min(repeats, max(ELEMENTS // p.size, 1))
        many, counts = np.tile(p, (copies, 1)), np.tile(count, (copies, 1))
        turns = -(-repeats // copies)
        for _ in range(turns):
            drawn = rng.multinomial(counts[:, 0], many) / counts
            total += float(np.linalg.norm(drawn - many, order, axis=1).sum()) / (turns * copies)
    return total / rows


def _votes(votes: npt.ArrayLike, rows: int) -> npt.NDArray[np.int64]:
    votes_N = as_numbers(votes, "votes")
    if votes_N.shape not in ((), (rows,)):
        raise ValueError(f"votes has shape {votes_N.shape}; expected one number, or ({rows},), one for each row")
    sound = (votes_N >= 1) & (np.floor(votes_N) == votes_N) & np.isfinite(votes_N)
    if not sound.all():
        raise ValueError(f"votes holds {votes_N[~sound][0]}; allowed are whole numbers from 1 on")
    return np.broadcast_to(votes_N.astype(np.int64), (rows,))
