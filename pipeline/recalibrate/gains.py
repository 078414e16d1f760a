"""Bounded scores of a version's answers, and the largest possible difference between two versions' scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from pipeline.choices import SMOOTHING
from trueodds.calibrators import (
    BiasCorrectedTemperature,
    Calibrator,
    EnsembleTemperature,
    GroupTemperature,
    Identity,
    MultilabelPlatt,
    PriorCorrected,
    Temperature,
)
from trueodds.sums.inputs import Array
from trueodds.sums.losses import brier_of

BLOCK_VALUES = 4_000_000
GRID = 20_001
"""Number of grid points between log odds of -60 and 60."""


def scores(
    calibrator: Calibrator,
    logits_NC: npt.NDArray[np.floating],
    labels_N: npt.NDArray[np.integer],
    smoothing: float = SMOOTHING,
    groups_N: npt.NDArray[np.object_] | None = None,
) -> tuple[Array, Array]:
    """Return ln((1 - e) p_y + e / K) of each row in nats, and the Brier score sum_k (p_k - [k = y])^2 of p itself.

    `groups_N` are the rows' groups, for a calibrator that has some.
    """
    rows, classes = logits_NC.shape
    log_N, brier_N = np.empty(rows), np.empty(rows)
    step = max(BLOCK_VALUES // max(classes, 1), 1)
    for first in range(0, rows, step):
        part = slice(first, first + step)
        p_NC = calibrator(logits_NC[part], groups=None if groups_N is None else groups_N[part])
        true_N = p_NC[np.arange(len(p_NC)), labels_N[part]]
        log_N[part] = np.log((1 - smoothing) * true_N + smoothing / classes)
        brier_N[part] = brier_of(true_N, (p_NC**2).sum(axis=1))
    return log_N, brier_N


def gain_limits(
    served: Calibrator, candidate: Calibrator, classes: int, smoothing: float = SMOOTHING, *, same_logits: bool = False
) -> tuple[float, float]:
    """Return the smallest and largest possible gain ln((1 - e) q_y + e/K) - ln((1 - e) p_y + e/K) over all logits.

    For any two versions they are -B and B with B = ln(1 + K (1 - e) / e), from probability 0 to 1. They are narrower if
    both versions score the same logits, one as p = softmax(z / T + a), and the other as q, a mixture of members
    softmax(z / U + c) and the uniform distribution. A member is p_k^b e^(c_k - b a_k) / sum_j p_j^b e^(c_j - b a_j)
    with b = T / U. The sum over j != k of p_j^b lies between (1 - p_k)^b and (K - 1)^(1 - b) (1 - p_k)^b, and the
    biases move the log odds by at most their spread. So q_k lies between two functions of p_k alone.

    The gain's limits are the extremes of these functions over p_k. They are found on a grid of its log odds. The slope
    of the gain in the log odds is at most 1 + b, so the limits are widened by that slope times half a step. Narrow
    limits detect small gains with far fewer labels. Calibrators with groups have the widest limits of all groups.
    """
    groups = dict.fromkeys([None, *served.known_groups, *candidate.known_groups])
    pairs = {_key(pair): pair for name in groups for pair in [(_within(served, name), _within(candidate, name))]}
    limits = [_pair_limits(*pair, classes, smoothing, same_logits) for pair in pairs.values()]
    return min(least for least, _ in limits), max(most for _, most in limits)


def label_gain_limits(
    served: MultilabelPlatt, candidate: MultilabelPlatt, smoothing: float = SMOOTHING
) -> tuple[float, float]:
    """Return the smallest and largest possible gain of one label, and so of a mean over an answer's labels.

    Label l has p = sigma(a z + b) and q = sigma(a' z + b'), so the log odds of q are (a'/a) times those of p, plus
    b' - (a'/a) b. These are the limits of `gain_limits` for two classes and T = 1/a, without a slack.
    """
    widest = float(np.log1p(2 * (1 - smoothing) / smoothing))
    curves = (
        [
            _Member(1.0, 1 / a, np.array([0.0, b]))
            for a, b in zip(np.asarray(one.slope_L).tolist(), np.asarray(one.offset_L).tolist(), strict=True)
        ]
        for one in (served, candidate)
    )
    limits = [_beside(p, [q], 2, smoothing) for p, q in zip(*curves, strict=True)]
    return max(min(least for least, _ in limits), -widest), min(max(most for _, most in limits), widest)


def _within(calibrator: Calibrator, group: str | None) -> Calibrator:
    """Return what a calibrator is within one group; None stands for rows of no known group."""
    if isinstance(calibrator, PriorCorrected):
        return calibrator.within(_within(calibrator.calibrator, group))
    if type(calibrator) is not GroupTemperature:
        return calibrator
    known = calibrator.temperatures
    return Temperature(calibrator.temperature if group is None else known.get(group, calibrator.temperature))


def _key(pair: tuple[Calibrator, Calibrator]) -> tuple[float | int, ...]:
    """Return a key that pairs with the same limits share."""
    return tuple(one.temperature if type(one) is Temperature else id(one) for one in pair)


def _pair_limits(
    served: Calibrator, candidate: Calibrator, classes: int, smoothing: float, same_logits: bool
) -> tuple[float, float]:
    """Return the limits of `gain_limits` for two calibrators without groups."""
    widest = float(np.log1p(classes * (1 - smoothing) / smoothing))
    one, other = _members(served, classes), _members(candidate, classes)
    if not same_logits or one is None or other is None or classes < 2:
        return -widest, widest
    if len(one) == 1 and one[0].weight == 1:
        least, most = _beside(one[0], other, classes, smoothing)
    elif len(other) == 1 and other[0].weight == 1:
        most, least = (-limit for limit in _beside(other[0], one, classes, smoothing))
    else:
        return -widest, widest
    return max(least, -widest), min(most, widest)


@dataclass(frozen=True)
class _Member:
    """A part of a calibrator: `weight` x softmax(z / temperature + bias)."""

    weight: float
    temperature: float
    bias_C: Array


def _beside(p: _Member, q: Sequence[_Member], classes: int, smoothing: float) -> tuple[float, float]:
    """Return the limits of the gain of mixture q over the single member p. The rest of q's weights is uniform."""
    odds_G, step = np.linspace(-60.0, 60.0, GRID, retstep=True)  # beyond it the gain only returns to 0
    uniform = max(1 - sum(member.weight for member in q), 0.0) / classes
    low_G, high_G, steepest = np.full(GRID, uniform), np.full(GRID, uniform), 0.0
    for member in q:
        b = p.temperature / member.temperature
        spread = float(np.ptp(member.bias_C - b * p.bias_C))
        ends = (0.0, float((1 - b) * np.log(classes - 1.0)))
        low_G += member.weight * scipy.special.expit(b * odds_G - max(ends) - spread)
        high_G += member.weight * scipy.special.expit(b * odds_G - min(ends) + spread)
        steepest = max(steepest, b)
    low_G, high_G, p_G = (
        np.log((1 - smoothing) * x_G + smoothing / classes) for x_G in (low_G, high_G, scipy.special.expit(odds_G))
    )
    error = float((1 + steepest) * step / 2)
    return min(float((low_G - p_G).min()), 0.0) - error, max(float((high_G - p_G).max()), 0.0) + error


def _members(calibrator: Calibrator, classes: int) -> list[_Member] | None:
    """Return the calibrator as a mixture without its uniform part; None if it has another form."""
    none_C = np.zeros(classes)
    if isinstance(calibrator, Identity):
        return [_Member(1.0, 1.0, none_C)]
    if type(calibrator) is Temperature:
        return [_Member(1.0, calibrator.temperature, none_C)]
    if type(calibrator) is BiasCorrectedTemperature:
        return [_Member(1.0, calibrator.temperature, np.asarray(calibrator.bias_C, np.float64))]
    if type(calibrator) is EnsembleTemperature:
        first, second, _ = (float(weight) for weight in np.asarray(calibrator.weight_3))
        return [_Member(first, calibrator.temperature, none_C), _Member(second, 1.0, none_C)]
    inner = _members(calibrator.calibrator, classes) if isinstance(calibrator, PriorCorrected) else None
    if isinstance(calibrator, PriorCorrected) and inner is not None and len(inner) == 1 and inner[0].weight == 1:
        bias_C = calibrator.slope * inner[0].bias_C + calibrator.shift_C
        return [_Member(1.0, inner[0].temperature / calibrator.slope, bias_C)]
    return None
