"""Tests claims of the papers numerically: each is checked on many random draws. Takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds import metrics

Array = npt.NDArray[np.float64]
DRAWS = 2000
ROWS = 400
"""Number of rows of a random table of confidences. The estimators differ most if there are few rows."""
EXAMPLE = 0.9
"""Probability of the likelier of two classes in the sentence about minimisers."""


@dataclass(frozen=True)
class ClaimCheck:
    """A claim of a paper: the number of draws in which it held, the largest violation, and a sentence."""

    source: str
    claim: str
    held: int
    draws: int
    failed_by: float
    words: str


def findings(draws: int = DRAWS, seed: int = 0) -> list[ClaimCheck]:
    """Test all claims on the same draws each time."""
    rng = np.random.default_rng(seed)
    parts: tuple[Callable[[np.random.Generator, int], ClaimCheck], ...] = (
        brier_identity, brier_minimiser, focal_bound, focal_bound_below_one, sece_bound, label_binned_bound,
    )  # fmt: skip
    return [part(rng, draws) for part in parts]


def lines(checks: Sequence[ClaimCheck]) -> str:
    """Return findings as a Markdown table, with a sentence for each."""
    head = ["| claim | from | holds in | largest violation |", "|---|---|---:|---:|"]
    rows = [
        f"| {one.claim.replace('|', chr(92) + '|')} | {one.source} | {one.held:,} of {one.draws:,} draws |"
        f" {'-' if one.held == one.draws else format(one.failed_by, '.2g')} |"
        for one in checks
    ]
    return "\n".join([*head, *rows, "", *(f"- {one.claim} ({one.source}): {one.words}" for one in checks)])


def minimiser(eta: npt.ArrayLike, gamma: float = 2.0, steps: int = 400) -> Array:
    """Return the fixed point of training by BSCE-GRA: q with sum_y eta_y u(q, y) (q - e_y) = 0, u = ||q - e_y||^gamma.

    That is q_k proportional to eta_k u(q, k), found by damped iteration. For two classes
    odds(q) = odds(eta)^(1 / (1 + gamma)).

    Args:
        eta: True probabilities, shape (K,), or (N, K) for N distributions at once.
        gamma: Exponent of the weight.
        steps: Number of iterations.

    Returns:
        An array of the shape of `eta`.

    Examples:
        >>> minimiser([0.9, 0.1]).round(3).tolist()
        [0.675, 0.325]
    """
    log_eta = np.log(np.asarray(eta, np.float64))
    log_q = log_eta
    for _ in range(steps):
        q = _softmax(log_q)
        distance = np.linalg.norm(q[..., :, None] - np.eye(q.shape[-1]), axis=-2)
        log_q = (gamma * log_q + log_eta + gamma * np.log(distance)) / (1 + gamma)
    return _softmax(log_q)


def brier_identity(rng: np.random.Generator, draws: int) -> ClaimCheck:
    """Test E_y ||p - y||^2 - ||p - eta||^2 = sum_k eta_k (1 - eta_k) (BSCE-GRA paper, eq. 12)."""
    gaps = []
    for _ in range(draws):
        p_K, eta_K = _pair(rng)
        expected = sum(eta_K[k] * ((p_K - np.eye(len(p_K))[k]) ** 2).sum() for k in range(len(p_K)))
        gaps.append(abs(expected - ((p_K - eta_K) ** 2).sum() - (eta_K * (1 - eta_K)).sum()))
    worst = float(np.max(gaps))
    words = (
        "The Brier score exceeds the squared distance to the true probabilities by a term that depends only on them."
    )
    return _finding("bsce-gra, eq. 12", "E|p-y|^2 - |p-eta|^2 = sum eta (1-eta)", np.array(gaps) < 1e-12, worst, words)


def brier_minimiser(rng: np.random.Generator, draws: int) -> ClaimCheck:
    """Test that training by BSCE-GRA converges to q = eta (BSCE-GRA paper, section 9)."""
    drawn = [_pair(rng)[1] for _ in range(draws)]
    gaps, below = np.empty(0), 0
    for classes in sorted({len(eta_K) for eta_K in drawn}):
        eta_NK = np.stack([eta_K for eta_K in drawn if len(eta_K) == classes])
        q_NK = minimiser(eta_NK)
        gaps = np.append(gaps, np.abs(q_NK - eta_NK).sum(axis=1) / 2)
        below += int((q_NK.max(axis=1) < eta_NK.max(axis=1)).sum())
    example = float(minimiser([EXAMPLE, 1 - EXAMPLE])[0])
    words = (
        "The printed proof takes the weight |q - eta|^2 as known and constant. Training uses the label instead of eta"
        f" and converges elsewhere: for a class of probability {EXAMPLE:g} the net predicts {example:.3f}. On average"
        f" {np.mean(gaps):.3f} of the probability is misplaced, and the largest probability is too small in"
        f" {100 * below / draws:.1f}% of the draws. Such nets are under-confident, which offsets the over-confidence"
        " of a net that has memorised its training rows."
    )
    return _finding("bsce-gra, section 9", "training converges to q = eta", gaps < 1e-6, float(np.max(gaps)), words)


def focal_bound(rng: np.random.Generator, draws: int) -> ClaimCheck:
    """Test L_focal >= KL(q || p) + H(q) - gamma H(p), gamma >= 1 (Mukhoti et al. 2020, section 4)."""
    words = "Minimising focal loss raises the entropy of the predictions, as the paper states."
    return _focal(rng, draws, (1.0, 5.0), "gamma from 1 to 5", words)


def focal_bound_below_one(rng: np.random.Generator, draws: int) -> ClaimCheck:
    """Test the same with gamma < 1, which the proof does not cover: Bernoulli's inequality is reversed there."""
    words = (
        "The proof needs (1-p)^gamma >= 1 - gamma p, which is false below 1. The draws show whether the bound holds."
    )
    return _focal(rng, draws, (0.05, 0.95), "gamma from .05 to .95", words)


def sece_bound(rng: np.random.Generator, draws: int) -> ClaimCheck:
    """Test SECE >= the kernel-density ECE (gamma-net paper, eq. 12)."""
    gaps = np.array([metrics.kde_ece(t) - metrics.sece(t) for t in (_table(rng) for _ in range(draws))])
    words = (
        f"{ROWS} rows per draw. SECE at the paper's bandwidth of .01 follows single rows, so it is usually the larger"
        " one. The proof leaves out a term of the other classes, and does not compare estimators."
    )
    return _finding("gamma-net, eq. 12", "SECE >= KDE-ECE", gaps <= 0, float(max(gaps.max(), 0)), words)


def label_binned_bound(rng: np.random.Generator, draws: int) -> ClaimCheck:
    """Test ECE_lb >= ECE_bin in the same bins (Karandikar et al. 2021, section 3)."""
    gaps = np.array([max(_above(table)) for table in (_table(rng) for _ in range(draws))])
    words = "l1 and l2, bins of equal width and of equal mass. It follows from Jensen's inequality in every draw."
    return _finding("soft-calibration, section 3", "ECE_lb >= ECE_bin", gaps <= 1e-12, float(max(gaps.max(), 0)), words)


def _above(table: metrics.CalibrationSums) -> list[float]:
    """Return the ECE minus the label-binned ECE, for each norm and binning."""
    return [
        metrics.ece(table, norm=norm, binning=binning) - metrics.label_binned_ece(table, norm=norm, binning=binning)
        for norm in ("l1", "l2") for binning in ("width", "mass")
    ]  # fmt: skip


def _focal(rng: np.random.Generator, draws: int, gammas: tuple[float, float], what: str, words: str) -> ClaimCheck:
    """Test the bound of focal loss for a range of gamma."""
    gaps = np.empty(draws)
    for k in range(draws):
        p_K, q_K = _pair(rng)
        gamma = rng.uniform(*gammas)
        focal = -(q_K * (1 - p_K) ** gamma * np.log(p_K)).sum()
        bound = -(q_K * np.log(p_K)).sum() + gamma * (p_K * np.log(p_K)).sum()
        gaps[k] = bound - focal
    claim = f"focal loss >= KL(q|p) + H(q) - gamma H(p), {what}"
    return _finding("focal, section 4", claim, gaps <= 1e-12, float(max(gaps.max(), 0)), words)


def _finding(source: str, claim: str, holds_N: npt.NDArray[np.bool_], failed_by: float, words: str) -> ClaimCheck:
    """Return the finding of a claim."""
    return ClaimCheck(source, claim, int(holds_N.sum()), len(holds_N), failed_by if not holds_N.all() else 0.0, words)


def _pair(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return two distributions over 2 to 20 classes, from flat to sharp."""
    classes, sharpness = int(rng.integers(2, 21)), rng.uniform(0.2, 3.0, 2)
    first, second = (_softmax(rng.normal(0, 1.5 * s, classes)) for s in sharpness)
    return first, second


def _table(rng: np.random.Generator) -> metrics.CalibrationSums:
    """Return ROWS confidences and hits of a model that is calibrated, over-confident or under-confident."""
    confidence_N = rng.beta(rng.uniform(1, 8), rng.uniform(0.5, 3), ROWS) * 0.9 + 0.1
    hit_N = rng.random(ROWS) < np.clip(confidence_N ** rng.uniform(0.5, 3), 0, 1)
    return metrics.CalibrationSums.from_top(confidence_N, hit_N)


def _softmax(z: Array) -> Array:
    """Return the softmax over the last axis."""
    e: Array = np.exp(z - z.max(axis=-1, keepdims=True))
    found: Array = e / e.sum(axis=-1, keepdims=True)
    return found
