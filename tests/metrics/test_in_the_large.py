"""The alarm on p(positive): its bets, its states, and how often it is false."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trueodds.metrics import EProcess, PositiveEProcess
from trueodds.metrics.alarms.in_the_large import BETS, BY_POINTS, TOO_HIGH, TOO_LOW, log_payoffs
from trueodds.metrics.alarms.sequential import BLOCK


def twin(p_N: Any, positive_N: Any, tolerance: float, ratio: float) -> list[float]:
    """log E after each block, bet by bet and label by label, from the formulas."""
    wealth, found, labels = [0.0] * BETS, [], list(zip(p_N, positive_N, strict=True))
    for block in range(1, len(labels) // BLOCK + 1):
        gamma = 1 / (1 + math.log2(block)) - 1 / (1 + math.log2(block + 1))
        paid = [1.0] * BETS
        for p, positive in labels[(block - 1) * BLOCK : block * BLOCK]:
            y = float(positive)
            factors = [1 + L * (p / ratio - y) for L in TOO_HIGH] + [1 + L / ratio * (y - ratio * p) for L in TOO_LOW]
            factors += [1 + L * (sign * (p - y) - tolerance) for sign in (1, -1) for L in BY_POINTS]
            paid = [a * b for a, b in zip(paid, factors, strict=True)]
        wealth = [(w + gamma) * x for w, x in zip(wealth, paid, strict=True)]
        found.append(math.log(1 / (1 + math.log2(block + 1)) + sum(wealth) / BETS))
    return found


def drawn(prevalence: float, factor: float, count: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng([seed, round(1e4 * prevalence), round(100 * factor)])
    p_N = np.minimum(rng.gamma(0.5, 2 * prevalence * factor, count), 1.0)
    return p_N, rng.random(count) < p_N / factor


def test_it_is_the_formula() -> None:
    p_N, positive_N = drawn(0.05, 2, 400, 0)
    end, log_e_B = PositiveEProcess.start(0.02, 1.2).advance_each(p_N, positive_N)
    assert log_e_B == pytest.approx(twin(p_N, positive_N, 0.02, 1.2), abs=1e-9)
    assert end.log_e == pytest.approx(log_e_B[-1]) and end.peak == log_e_B.max()
    assert (end.blocks, end.labels) == (20, 400) and PositiveEProcess.start().log_e == 0


@pytest.mark.parametrize("p", [0.0, 1e-4, 0.02, 0.3, 0.7, 1.0])
@pytest.mark.parametrize(("tolerance", "ratio"), [(0.02, 1.2), (0.0, 1.05), (0.1, 3.0)])
def test_every_bet_pays_at_most_1_on_average_within_the_tolerances(p: float, tolerance: float, ratio: float) -> None:
    """At both ends of the truths that are put up with for that p: they are the worst. No bet loses all."""
    for truth in (max(p / ratio, p - tolerance), min(p * ratio, p + tolerance, 1.0)):
        paid_2K = np.exp(log_payoffs(np.array([p, p]), np.array([True, False]), tolerance, ratio))
        assert (paid_2K > 0).all() and (truth * paid_2K[0] + (1 - truth) * paid_2K[1] <= 1 + 1e-12).all()


def test_a_stream_may_be_cut_anywhere_and_kept_as_json() -> None:
    p_N, positive_N = drawn(0.02, 1.5, 2000, 1)
    whole, log_e_B = PositiveEProcess.start().advance_each(p_N, positive_N)
    state, found = PositiveEProcess.start(), []
    assert PositiveEProcess.from_json(state.to_json()) == state
    for rows in (slice(0, 20), slice(20, 1200), slice(1200, 2000)):
        state, values = PositiveEProcess.from_json(state.to_json()).advance_each(p_N[rows], positive_N[rows])
        found += values.tolist()
    assert state == whole and found == log_e_B.tolist()
    tree = whole.to_json()
    for damage in ({"labels": 3}, {"log_wealth": None}, {"log_wealth": [0.0]}, {"ratio": 1.0}, {"form": "e-process"}):
        with pytest.raises(ValueError, match=r"labels|wealth|ratio|form"):
            PositiveEProcess.from_json(tree | damage)


@pytest.mark.parametrize("factor", [1.0, 1.2, 1 / 1.2])
def test_it_is_hardly_ever_false(factor: float) -> None:
    """Looked at after every block of 4,000 labels, of 60 streams: calibrated, and at both limits of the ratio."""
    fired = 0
    for seed in range(60):
        p_N, positive_N = drawn((0.001, 0.005, 0.03)[seed % 3], factor, 4000, seed)
        fired += PositiveEProcess.start(0.02, 1.2).advance_each(p_N, positive_N)[0].is_alarmed(0.05)
    assert fired <= 7, "5% of 60 are 3; more than 7 have a chance of 1%"


@pytest.mark.full
@pytest.mark.parametrize("prevalence", [0.001, 0.02, 0.3])
def test_both_alarms_together_are_false_in_at_most_1_stream_in_20(prevalence: float) -> None:
    """At half the level each, of 100 calibrated streams of 20,000 labels."""
    fired = 0
    for seed in range(100):
        p_N, positive_N = drawn(prevalence, 1.0, 20_000, seed)
        positive_N = np.random.default_rng(seed).random(20_000) < p_N
        of_p, _ = PositiveEProcess.start().advance_each(p_N, positive_N)
        top = EProcess.start("ece").advance_each(np.maximum(p_N, 1 - p_N), (p_N > 0.5) == positive_N)[0]
        fired += of_p.is_alarmed(0.025) or top.is_alarmed(0.025)
    assert fired <= 11, "5% of 100 are 5; more than 11 have a chance of 1%"


@pytest.mark.parametrize("prevalence", [0.001, 0.02, 0.1])
def test_some_tens_of_expected_positives_show_a_p_that_is_four_times_too_high(prevalence: float) -> None:
    """At every prevalence about as many: the cells of the confidence would not see it at a prevalence of .001."""
    count = math.ceil(60 / prevalence / BLOCK) * BLOCK
    found = [PositiveEProcess.start().advance_each(*drawn(prevalence, 4, count, seed))[0] for seed in range(5)]
    assert all(state.is_alarmed(0.025) for state in found)
    p_N, positive_N = drawn(0.001, 4, 60_000, 0)
    top, _ = EProcess.start("ece").advance_each(np.maximum(p_N, 1 - p_N), (p_N > 0.5) == positive_N)
    assert not top.is_alarmed(0.05)
