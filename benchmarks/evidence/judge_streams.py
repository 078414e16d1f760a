"""Populations of two versions with a known mean gain, and streams of labels that are judged after every label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from pipeline.choices import SMOOTHING
from pipeline.recalibrate.gains import gain_limits
from trueodds.calibrators import Identity, Temperature
from trueodds.metrics import softmax
from trueodds.metrics.alarms.gain_sequence import SHARES, STAKES, bets, limit_of

Array = npt.NDArray[np.float64]

LABELS, LEVEL, CHUNK, PHASE = 20_000, 0.95, 2_000, 1_000
THRESHOLD, OLD = float(np.log(2 / (1 - LEVEL))), float(np.log(20))
POOL = 40_000
RECORDS = {"DenseNet": "densenet-bc-100-cifar-100", "WRN": "wideresnet-16-4-cifar-100", "LeNet": "lenet-5-cifar-10"}
"""Files of `--records`: `predictions` (softmax, N x C) and `ground_truth` (N)."""


@dataclass(frozen=True)
class Population:
    """Gains of a pool of labelled answers, which is the population. Streams draw from it with replacement."""

    name: str
    kind: str
    """Kind of population: same logits, two nets, synthetic, drifting, by confidence."""
    gain_M: Array
    """Gains of the bounded log score."""
    old_M: Array
    """Unbounded gains ln q_y - ln p_y, for the likelihood ratio."""
    least: float
    most: float
    propensity_M: Array | None = None
    """Probability of each answer to get a label."""
    other_M: Array | None = None
    """Gains in alternate phases, if the mean drifts."""


@dataclass(frozen=True)
class Judged:
    """One stream: the label of its verdict, the verdict, and the interval there."""

    labels: int
    verdict: str
    truth: float
    """Mean gain up to the verdict, or up to the last label."""
    lower: float
    upper: float
    old: int | None
    """Number of labels at which the old e-value reached 20."""
    old_truth: float


def judged(population: Population, rng: np.random.Generator) -> Judged:
    """Judge after every label until one limit leaves 0, or 20,000 labels are used."""
    pool = len(population.gain_M)
    shares_M, weight_N = None, None
    if population.propensity_M is not None:
        shares_M = population.propensity_M / population.propensity_M.sum()
    drawn_N = rng.choice(pool, LABELS, p=shares_M) if shares_M is not None else rng.integers(0, pool, LABELS)
    gain_N, old_N = population.gain_M[drawn_N], population.old_M[drawn_N]
    mean_N = np.full(LABELS, population.gain_M.mean())
    if population.propensity_M is not None:
        weight_N = population.propensity_M.min() / population.propensity_M[drawn_N]
    if population.other_M is not None:
        second_N = np.arange(LABELS) // PHASE % 2 == 1
        gain_N = np.where(second_N, population.other_M[drawn_N], gain_N)
        mean_N = np.where(second_N, population.other_M.mean(), mean_N)
    truth_N = np.cumsum(mean_N) / np.arange(1, LABELS + 1)
    crossed = np.flatnonzero(np.cumsum(old_N if population.other_M is None else gain_N) >= OLD)
    old = int(crossed[0]) + 1 if len(crossed) else None
    stop, verdict, (paid_K, lost_K) = stopped(gain_N, population.least, population.most, weight_N)
    size = stop if weight_N is None else float(weight_N[:stop].sum())
    lower = limit_of(paid_K, -population.least, THRESHOLD) / size
    upper = -limit_of(lost_K, population.most, THRESHOLD) / size
    return Judged(stop, verdict, float(truth_N[stop - 1]), lower, upper, old, float(truth_N[(old or 1) - 1]))


def stopped(gain_N: Array, least: float, most: float, weight_N: Array | None) -> tuple[int, str, tuple[Array, Array]]:
    """Return the labels at the first verdict, the verdict, and what each stake has earned by then, for and against."""
    sums, seen = [np.zeros(len(STAKES)), np.zeros(len(STAKES))], 0.0
    for first in range(0, len(gain_N), CHUNK):
        part = slice(first, first + CHUNK)
        weight = None if weight_N is None else weight_N[part]
        paths = [
            before_K + np.cumsum(bets(sign * gain_N[part], limit, weight, (first, sign * seen)), axis=0)
            for sign, limit, before_K in ((1.0, least, sums[0]), (-1.0, -most, sums[1]))
        ]
        if max(float(path.max()) for path in paths) > THRESHOLD:  # else the mixture is below it, too
            above_2N = np.stack([np.exp(np.minimum(path, 500.0)) @ SHARES for path in paths]) > np.exp(THRESHOLD)
            if above_2N.any():
                at = int(np.argmax(above_2N.any(axis=0)))
                verdict = "better" if above_2N[0, at] else "worse"
                return first + at + 1, verdict, (paths[0][at], paths[1][at])
        sums, seen = [path[-1] for path in paths], seen + float(gain_N[part].sum())
    return len(gain_N), "undecided", (sums[0], sums[1])


def mixed(p_NC: Array, labels_N: npt.NDArray[np.integer]) -> Array:
    """Return ln((1 - e) p_y + e / K)."""
    p_N = p_NC[np.arange(len(labels_N)), labels_N]
    score_N: Array = np.log((1 - SMOOTHING) * p_N + SMOOTHING / p_NC.shape[1])
    return score_N


def of_temperatures(
    name: str,
    kind: str,
    served: tuple[Array, float],
    candidate_NC: Array,
    labels_N: npt.NDArray[np.integer],
    gain: float,
    between: tuple[float, float],
    drifting: tuple[Array, npt.NDArray[np.integer]] | None = None,
) -> Population:
    """Draw a population whose candidate has the temperature, within limits, that gives the mean gain `gain`."""
    served_NC, served_T = served
    p_NC = softmax(served_NC / served_T)
    base_N = mixed(p_NC, labels_N)

    def excess(T: float) -> float:
        return float((mixed(softmax(candidate_NC / T), labels_N) - base_N).mean()) - gain

    T = float(brentq(excess, *between, xtol=1e-7))
    q_NC, rows = softmax(candidate_NC / T), np.arange(len(labels_N))
    same = candidate_NC is served_NC
    least, most = gain_limits(Temperature(served_T), Temperature(T), p_NC.shape[1], same_logits=same)
    old_N = np.log(np.maximum(q_NC[rows, labels_N], 1e-300) / np.maximum(p_NC[rows, labels_N], 1e-300))
    return Population(name, kind, mixed(q_NC, labels_N) - base_N, old_N, least, most)


def read_records(folder: Path) -> dict[str, tuple[Array, npt.NDArray[np.intp]]]:
    """Read logits and labels of the nets.

    Raises:
        FileNotFoundError: A file does not exist.
    """
    found = {}
    for name, file in RECORDS.items():
        with np.load(folder / f"{file}.npz") as arrays:
            p_NC = np.clip(arrays["predictions"].astype(np.float64), 1e-38, 1.0)
            found[name] = (np.log(p_NC), arrays["ground_truth"].astype(np.intp))
    return found


def of_records(folder: Path) -> list[Population]:
    """Return recalibrations of two nets, and one net against another."""
    nets, found = read_records(folder), []
    for name, T, steeper, flatter in (("WRN", 1.7, (0.3, 1.0), (1.15, 6.0)), ("LeNet", 2.4, (0.4, 1.4), (1.45, 6.0))):
        (z_NC, labels_N), served = nets[name], f"{name}, T = {T}"
        for gain, between in (
            *((gain, steeper) for gain in (-0.03, -0.003, -0.0004, 0.0)),
            *((gain, flatter) for gain in (-0.0004, 0.003, 0.01, 0.1)),
        ):
            if (name, gain) == ("LeNet", 0.1):  # more than any temperature gains
                continue
            side = "a sharper T" if between is steeper else "T nearby"
            words = f"{served}; {side}, {gain:+g}" if gain else f"{served}; {side}, equal"
            found.append(of_temperatures(words, "same logits", (z_NC, T), z_NC, labels_N, gain, between))
        near = next(one for one in found if one.name == f"{served}; T nearby, +0.003")
        widest = gain_limits(Identity(), Identity(), z_NC.shape[1])
        found.append(Population(f"{near.name}, limits of any two", near.kind, near.gain_M, near.old_M, *widest))
    (w_NC, labels_N), (d_NC, _) = nets["WRN"], nets["DenseNet"]
    for gain in (-0.07, -0.03, -0.003, -0.0004, 0.0, 0.003, 0.01, 0.03, 0.07):
        name = f"DenseNet beside WRN, {gain:+g}" if gain else "DenseNet beside WRN, equal"
        found.append(of_temperatures(name, "two nets", (w_NC, 1.0), d_NC, labels_N, gain, (1.0, 2.1)))
    (equal, better, worse) = (next(p for p in found if p.name == f"DenseNet beside WRN, {g}") for g in EXTREMES)
    widest = (equal.least, equal.most)
    for one, other, words in ((better, worse, "first better"), (worse, better, "first worse")):
        found.append(
            Population(
                f"phases of {PHASE:,}, {words}", "drifting", one.gain_M, one.old_M, *widest, other_M=other.gain_M
            )
        )
    confidence_M = softmax(d_NC).max(axis=1)
    chance_M = np.where(confidence_M > 0.7, 0.1, 0.8)
    for one in (equal, better, worse):
        name = one.name.rpartition(", ")[2]
        found.append(
            Population(f"labels of low confidence, {name}", "by confidence", one.gain_M, one.old_M, *widest,
                       propensity_M=chance_M)
        )  # fmt: skip
    return found


EXTREMES = ("equal", "+0.07", "-0.07")


def synthetic() -> list[Population]:
    """Return sharp and dull answers of 2, 10 and 100 classes, and a rare class with costly errors."""
    found = []
    for classes in (2, 10, 100):
        for shape, spread in (("sharp", 12.0), ("dull", 1.0)):
            rng = np.random.default_rng(classes)
            z_NC = rng.normal(0, spread, (POOL, classes))
            labels_N = (z_NC / 1.5 + rng.gumbel(size=z_NC.shape)).argmax(axis=1)
            for gain in (-0.003, -0.0004, 0.003):
                served = 2.1
                found.append(
                    of_temperatures(
                        f"{classes} classes, {shape}, {gain:+g}", "synthetic", (z_NC, served), z_NC, labels_N, gain,
                        (1.55, 9.0),
                    )
                )  # fmt: skip
            found.append(
                of_temperatures(
                    f"{classes} classes, {shape}, equal", "synthetic", (z_NC, 2.1), z_NC, labels_N, 0.0, (0.5, 1.45)
                )
            )
    widest = gain_limits(Identity(), Identity(), 2)
    for share, words in ((2_000, "1 in 2,000"), (200, "1 in 200")):
        loss = widest[0] * 0.9
        mean = -0.0005
        gain_M = np.full(POOL, 0.0)
        gain_M[::share] = loss
        gain_M[gain_M == 0] = (mean * POOL - gain_M.sum()) / (gain_M == 0).sum()
        found.append(Population(f"dear errors, {words}, {mean:+g}", "synthetic", gain_M, gain_M, *widest))
    return found
