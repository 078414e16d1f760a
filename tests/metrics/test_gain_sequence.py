"""Confidence sequence of a mean gain: equal to its definition, valid at every label under drift, and not too wide."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests import reference_gain_sequence as twin
from trueodds.metrics import gain_evidence, gain_sequence
from trueodds.metrics.alarms import gain_sequence as module
from trueodds.metrics.alarms.gain_sequence import SHARES, bets, sum_of_bets

LOG_40 = math.log(40)


@pytest.mark.parametrize(("count", "mean", "sd", "least", "most"), [(1, 0, 1, -5, 7), (60, 0.3, 1, -5, 7)])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_equal_to_the_definition(count: int, mean: float, sd: float, least: float, most: float, level: float) -> None:
    gain_N = np.random.default_rng(count).normal(mean, sd, count).clip(least, most)
    found = gain_sequence(gain_N, least=least, most=most, level=level)
    assert found.lower == pytest.approx(twin.lower(gain_N.tolist(), least, level), abs=1e-7)
    assert found.upper == pytest.approx(-twin.lower((-gain_N).tolist(), -most, level), abs=1e-7)
    assert (found.labels, found.level) == (count, level) and found.mean == pytest.approx(gain_N.mean())
    weight_N = np.random.default_rng(1).uniform(0.05, 1, count)
    found = gain_sequence(gain_N, least=least, most=most, level=level, weight_N=weight_N)
    assert found.lower == pytest.approx(twin.lower(gain_N.tolist(), least, level, weight_N.tolist()), abs=1e-7)
    assert found.mean == pytest.approx(float(np.average(gain_N, weights=weight_N)))


def test_evidence_crosses_where_the_limit_does() -> None:
    gain_N = np.random.default_rng(3).normal(0.15, 1, 400).clip(-3, 3)
    above_N, below_N = gain_evidence(gain_N, least=-3, most=3)
    for n in (1, 5, 100, 250, 400):
        found = gain_sequence(gain_N[:n], least=-3, most=3)
        assert (found.lower > 0) == (above_N[n - 1] > LOG_40) and (found.upper < 0) == (below_N[n - 1] > LOG_40)
        assert above_N[n - 1] == pytest.approx(twin.log_wealth(gain_N[:n].tolist(), -3, 0.0), abs=1e-9)
    assert above_N[-1] > LOG_40 > below_N[-1]


def test_known_cases() -> None:
    """One label that gains nothing refutes nothing; the smallest gain leaves the largest stake .02 of its capital."""
    assert SHARES.sum() == pytest.approx(1)
    one = gain_sequence([0.0], least=-1, most=1)
    assert (one.lower, one.upper) == (-1, 1) and one.more is None
    assert bets(np.array([-2.0]), -2.0)[0, 0] == pytest.approx(math.log(0.02))
    steady = gain_sequence([0.01] * 5_000, least=-1, most=1)
    assert steady.lower > 0 and steady.more == 0
    assert steady.upper - steady.lower < 0.01


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    gain_N = np.random.default_rng(4).normal(0, 1, 1_000).clip(-3, 3)
    whole_K = bets(gain_N, -3.0).sum(axis=0)
    monkeypatch.setattr(module, "BLOCK", 77)
    assert sum_of_bets(gain_N, -3.0) == pytest.approx(whole_K, abs=1e-9)


def test_expectation_over_all_outcomes_is_at_most_one_whatever_the_means() -> None:
    """Every stake's wealth, divided by exp(L sum of the expectations), over all streams of 4 labels: 1 at most.

    The chances depend on the labels before. It is less than 1 only by the squares of the means.
    """
    least, low, high = -4.0, -4.0, 1.0
    total_K = np.zeros(14)
    for outcome in itertools.product((0, 1), repeat=4):
        chance, means, gains = 1.0, 0.0, []
        for n, won in enumerate(outcome):
            p = (0.2, 0.9, 0.5, 0.75)[(n + sum(outcome[:n])) % 4]
            chance *= p if won else 1 - p
            means += p * high + (1 - p) * low
            gains.append(high if won else low)
        stake_K = module.STAKES / -least
        total_K += chance * np.exp(bets(np.array(gains), least).sum(axis=0) - stake_K * means)
    assert (total_K <= 1 + 1e-12).all() and total_K[-1] > 0.999


def ever_outside(gain_RN: Any, mean_RN: Any, least: float, most: float) -> float:
    """Share of streams whose limits exclude the mean so far at any label: one test of each label's own mean."""
    missed = 0
    for gain_N, mean_N in zip(gain_RN, mean_RN, strict=True):
        total_N = np.cumsum(mean_N)
        out = False
        for d_N, sums_N, limit in ((gain_N, total_N, least), (-gain_N, -total_N, -most)):
            paid_NK = np.cumsum(bets(d_N, limit), axis=0) - (module.STAKES / -limit) * sums_N[:, None]
            out |= bool((np.exp(paid_NK) @ SHARES > 40).any())
        missed += out
    return missed / len(gain_RN)


def test_coverage_at_every_label_though_the_mean_drifts() -> None:
    """300 streams of 2,000 labels: a mean that swings, and rare large losses. Missed in at most 5% + two errors."""
    rng, number_N = np.random.default_rng(5), np.arange(2_000)
    mean_N = 0.3 * np.sin(number_N / 200)
    swing_RN = (mean_N + rng.normal(0, 1, (300, 2_000))).clip(-8, 8)
    assert ever_outside(swing_RN, np.broadcast_to(mean_N, swing_RN.shape), -8, 8) <= 0.05
    rare_RN = np.where(rng.random((300, 2_000)) < 0.002, -8.0, 0.01)
    mean = 0.01 * 0.998 - 8 * 0.002
    assert ever_outside(rare_RN, np.full(rare_RN.shape, mean), -8, 8) <= 0.05


def test_of_labels_drawn_by_propensity_the_sign_is_that_of_all_answers() -> None:
    """The candidate gains where labels are likely and loses more where they are not. Unweighted it looks better."""
    rng, wrong, decided, naive = np.random.default_rng(6), 0, 0, 0
    for _ in range(60):
        bad_N = rng.random(6_000) < 0.5
        gain_N = np.where(bad_N, -0.4, 0.2) + rng.normal(0, 0.3, 6_000).clip(-1, 1)
        chance_N = np.where(bad_N, 0.1, 0.8)
        got = rng.random(6_000) < chance_N
        found = gain_sequence(gain_N[got], least=-2, most=2, weight_N=0.1 / chance_N[got])
        wrong, decided = wrong + (found.lower > 0), decided + (found.upper < 0)
        naive += gain_sequence(gain_N[got], least=-2, most=2).lower > 0
    assert (wrong, naive) == (0, 60) and decided >= 55


@pytest.mark.full
def test_labels_still_needed_are_about_right() -> None:
    """The stream needs about 3,000; at 1,000 labels the prediction is within a factor of three in most streams."""
    ratios = []
    for seed in range(30):
        gain_N = np.random.default_rng(seed).normal(0.06, 0.8, 30_000).clip(-9, 9)
        needed = int(np.argmax(gain_evidence(gain_N, least=-9, most=9)[0] > LOG_40)) + 1
        found = gain_sequence(gain_N[:1_000], least=-9, most=9)
        if found.mean > 0 and found.more:
            ratios.append((1_000 + found.more) / needed)
    assert len(ratios) > 15 and 0.5 < np.median(ratios) < 2
    assert gain_sequence([0.5, -0.5] * 100, least=-1, most=1).more is None


@pytest.mark.parametrize(
    ("gain", "changes", "words"),
    [
        ([], {}, "one label at least"),
        ([2.0], {}, r"gain holds 2.0; allowed is \[-1, 1\]"),
        ([math.nan], {}, "gain holds nan"),
        ([0.1], {"least": 0.0}, "on both sides of 0"),
        ([0.1], {"most": math.inf}, "finite limits"),
        ([0.1], {"level": 1.0}, "level is 1.0"),
        ([0.1], {"weight_N": [0.0]}, "weight holds"),
        ([0.1], {"weight_N": [0.5, 0.5]}, "weight has shape"),
    ],
)
def test_bad_input_is_named(gain: list[float], changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        gain_sequence(gain, **{"least": -1.0, "most": 1.0, **changes})
