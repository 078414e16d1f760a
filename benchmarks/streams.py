"""Simulated streams of labels, and the label at which each alarm of `trueodds.metrics` first fires on them.

Shapes A, B and C are those of benchmarks/shapes.py. A stream draws rows from a pool of 200,000 and their labels from
the pool's true probability: the confidence itself (calibrated), the confidence minus or plus the tolerance (the edge of
the null), softmax(z / T), or .1 less between .5 and .8 (local). The recurrences are those of the library, over all
streams at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from benchmarks.shapes import chance_at, pool_logits
from trueodds.metrics import EProcess, ShiryaevRoberts, cell_of
from trueodds.metrics.alarms.payoffs import Null, Payoffs, payoffs

Array = npt.NDArray[np.float64]

POOL, TOLERANCE, LABELS = 200_000, 0.02, 100_000
CHUNK = 2_000  # labels per stream looked up at a time: a multiple of both block sizes
TEMPERATURES = {"T = 1.25": 1.25, "T = 1.5": 1.5, "T = 2.5": 2.5}


@dataclass(frozen=True)
class Alarm:
    """One way to raise the alarm: a recurrence over blocks, its start, and the log threshold."""

    name: str
    step: Callable[[Array, Array, int], Array]
    value: Callable[[Array, Array, int], Array]
    start: float
    threshold: float


def alarms(block: int) -> list[Alarm]:
    """Return the plain mixture of the note and the library's two alarms, at their thresholds."""
    level = float(-np.log(0.05))
    runs = [
        Alarm(
            f"SR, A = {length:,}", ShiryaevRoberts.step, ShiryaevRoberts.value, -np.inf, float(np.log(length / block))
        )
        for length in (10_000, 100_000, 2_000_000)
    ]
    return [
        Alarm("starts", EProcess.step, EProcess.value, -np.inf, level),
        Alarm("one start", lambda w, e, _: w + e, lambda w, log_w, _: logsumexp(w + log_w, axis=-1), 0.0, level),
        *runs,
    ]


@dataclass(frozen=True)
class Pool:
    """Confidences, their cells, and the true probabilities by name."""

    shape: str
    confidence_M: Array
    cell_M: npt.NDArray[np.intp]
    chances: dict[str, Array]


def pool(shape: str, rows: int = POOL) -> Pool:
    logits_NC = pool_logits(shape, rows, seed=11)
    c = chance_at(logits_NC, 1.0)
    chances = {
        "calibrated": c,
        "below by .02": np.maximum(c - TOLERANCE, 0.0),
        "above by .02": np.minimum(c + TOLERANCE, 1.0),
        **{name: chance_at(logits_NC, T) for name, T in TEMPERATURES.items()},
        "local": c - 0.1 * ((c > 0.5) & (c <= 0.8)),
    }
    return Pool(shape, c, cell_of(c), chances)


def block_payoffs(table: Payoffs, cell_SN: npt.NDArray[np.intp], right_SN: npt.NDArray[np.bool_], block: int) -> Array:
    """Return the log payoff of each block and bet: streams x blocks x bets."""
    log_paid_CK = np.concatenate([table.log_wrong_CK, table.log_right_CK])
    paid_SNK = log_paid_CK[cell_SN + right_SN * len(table.log_wrong_CK)]
    streams, labels, bet = paid_SNK.shape
    paid: Array = paid_SNK.reshape(streams, labels // block, block, bet).sum(axis=2)
    return paid


def first_alarms(
    rows: Pool, truth: str, null: Null, block: int, streams: int, labels: int, good: int, seed: int
) -> dict[str, Array]:
    """Return the labels at the first alarm of each kind per stream (inf: none). `good` calibrated labels come first."""
    rng = np.random.default_rng([seed, *f"{rows.shape}{truth}{null}{good}".encode()])
    table, kinds = payoffs(null, TOLERANCE), alarms(block)
    steps = {(kind.step, kind.start): kind for kind in kinds}  # the three SR share one recurrence
    wealth = {key: np.full((streams, len(table.log_weight_K)), kind.start) for key, kind in steps.items()}
    found = {kind.name: np.full(streams, np.inf) for kind in kinds}
    stop = labels < LABELS  # delays: no need to go on once the median is known
    waited_for = [kind.name for kind in kinds if kind.name != "one start" or not good]
    for first in range(0, good + labels, CHUNK):
        drawn_SN = rng.integers(0, len(rows.cell_M), (streams, CHUNK))
        chance = rows.chances["calibrated" if first < good else truth]
        right_SN = rng.random((streams, CHUNK)) < chance[drawn_SN]
        paid_SBK = block_payoffs(table, rows.cell_M[drawn_SN], right_SN, block)
        for b in range(CHUNK // block):
            number = first // block + b + 1
            value = {}
            for key, kind in steps.items():
                wealth[key] = kind.step(wealth[key], paid_SBK[:, b], number)
                value[key] = kind.value(wealth[key], table.log_weight_K, number)
            for kind in kinds:
                fresh = (value[kind.step, kind.start] >= kind.threshold) & np.isinf(found[kind.name])
                found[kind.name][fresh] = number * block
        if all(np.isfinite(found[name]).mean() > 0.6 for name in waited_for) and stop and first >= good:
            break
    return found
