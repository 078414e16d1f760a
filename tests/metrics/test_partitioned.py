"""The e-process on partitions, beside its slow definition, and its false alarm rate."""

from __future__ import annotations

import json
import math

import numpy as np
import numpy.typing as npt
import pytest

from trueodds.metrics import CalibrationSums, EProcess, PartitionEProcess, cell_of
from trueodds.metrics.alarms.payoffs import Null, payoffs


def labels(n: int, seed: int, gap: float = 0.0) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    c_N = rng.beta(4, 1.5, n)
    return c_N, rng.random(n) < np.clip(c_N - gap, 0, 1)


def days(count: int, n: int, gap: float = 0.0) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]]:
    return [labels(n + 3 * day, day, gap) for day in range(count)]


@pytest.mark.parametrize("null", ["ece", "point"])
def test_it_is_the_product_of_payoffs_label_by_label(null: Null) -> None:
    """Slowly: the capital of each bet is multiplied by the payoff of every label, in any order."""
    table = payoffs(null, 0.02)
    capital, evidence = [0.0] * len(table.log_weight_K), PartitionEProcess.start(null, 0.02)
    rng = np.random.default_rng(0)
    for j, (c_N, right_N) in enumerate(days(6, 40, 0.15), start=1):
        gamma = 1 / (1 + math.log2(j)) - 1 / (1 + math.log2(j + 1))
        capital = [one + gamma for one in capital]
        staked = [math.exp(w) * one for w, one in zip(table.log_weight_K, capital, strict=True)]
        np.testing.assert_allclose(evidence.stakes(), staked, rtol=1e-12)
        for i in rng.permutation(len(c_N)):
            paid = table.log_right_CK if right_N[i] else table.log_wrong_CK
            capital = [one * math.exp(p) for one, p in zip(capital, paid[cell_of(c_N[i : i + 1])[0]], strict=True)]
        evidence = evidence.advance(CalibrationSums.from_top(c_N, right_N))
        rest = 1 / (1 + math.log2(j + 1))
        e = rest + sum(math.exp(w) * one for w, one in zip(table.log_weight_K, capital, strict=True))
        assert evidence.log_e == pytest.approx(math.log(e), rel=1e-9, abs=1e-9)
    assert (evidence.blocks, evidence.labels) == (6, sum(40 + 3 * k for k in range(6)))


def test_stakes_and_reserve_are_the_capital_and_do_not_depend_on_the_next_partition() -> None:
    evidence = PartitionEProcess.start()
    for j, (c_N, right_N) in enumerate(days(5, 30, 0.1), start=1):
        before = evidence.stakes()
        reserve = 1 / (1 + math.log2(j + 1))
        assert before.sum() + reserve == pytest.approx(math.exp(evidence.log_e))
        for other_N in (right_N, ~right_N, np.ones_like(right_N)):
            evidence.advance(CalibrationSums.from_top(c_N, other_N))
            np.testing.assert_array_equal(evidence.stakes(), before)
        evidence = evidence.advance(CalibrationSums.from_top(c_N, right_N))


def test_a_partition_of_twenty_labels_is_a_block_of_the_service() -> None:
    c_N, right_N = labels(400, 1, 0.1)
    of_service, _ = EProcess.start("ece").advance_each(c_N, right_N)
    evidence = PartitionEProcess.start("ece")
    for first in range(0, 400, 20):
        evidence = evidence.advance(CalibrationSums.from_top(c_N[first : first + 20], right_N[first : first + 20]))
    assert evidence.log_e == pytest.approx(of_service.log_e) and evidence.peak == pytest.approx(of_service.peak)


def test_an_empty_partition_changes_nothing_and_the_state_is_restored() -> None:
    evidence = PartitionEProcess.start("point")
    for c_N, right_N in days(3, 50):
        evidence = evidence.advance(CalibrationSums.from_top(c_N, right_N))
    assert evidence.advance(CalibrationSums.zero()) == evidence
    assert PartitionEProcess.from_json(json.dumps(evidence.to_json())) == evidence
    with pytest.raises(ValueError, match="expected form 'e-process'"):
        EProcess.from_json(evidence.to_json())


def test_the_average_payoff_of_a_partition_would_waste_it() -> None:
    """The bound of the docstring: 1 + L mean(x) grows by at most log(1 + L), however many labels a partition has."""
    c_N, right_N = labels(5_000, 2, 0.2)
    evidence = PartitionEProcess.start("ece").advance(CalibrationSums.from_top(c_N, right_N))
    x_N = -(right_N - c_N) - 0.02
    assert math.log1p(0.98 * x_N.mean()) <= math.log1p(0.98) < math.log(20) < evidence.log_e


def test_the_bet_with_a_variance_pays_less_than_the_product() -> None:
    """Fan, Grama and Liu: exp(L x + (log(1 - L) + L) x^2) <= 1 + L x for x >= -1."""
    for stake in (0.04, 0.15, 0.5, 0.9):
        x_N = np.linspace(-1, 3, 2_001)
        assert (np.exp(stake * x_N + (math.log1p(-stake) + stake) * x_N**2) <= 1 + stake * x_N + 1e-12).all()


@pytest.mark.parametrize("size", [4, 3_000])
@pytest.mark.parametrize("centre", [0.6, 0.97])
def test_few_calibrated_populations_ever_alarm(centre: float, size: int) -> None:
    """Sharp and dull, few and many labels a day, at the edge of the tolerance: at most 5% in a season."""
    rng = np.random.default_rng(3)
    c_M = np.clip(rng.beta(20 * centre, 20 * (1 - centre), 60), 0.3, 0.9999)
    table, cell_M, runs = payoffs("ece", 0.02), cell_of(c_M), 200
    wealth_RK, alarmed_R = np.full((runs, len(table.log_weight_K)), -np.inf), np.zeros(runs, bool)
    for day in range(1, 91):
        count_RM = rng.multinomial(size, np.full(60, 1 / 60), runs)
        right_RM = rng.binomial(count_RM, np.clip(c_M - 0.02, 0, 1))
        paid_RK = right_RM @ table.log_right_CK[cell_M] + (count_RM - right_RM) @ table.log_wrong_CK[cell_M]
        wealth_RK = PartitionEProcess.step(wealth_RK, paid_RK, day)
        alarmed_R |= PartitionEProcess.value(wealth_RK, table.log_weight_K, day) >= math.log(20)
    assert alarmed_R.mean() <= 0.05


def test_answers_that_are_right_or_wrong_together_alarm_falsely() -> None:
    """The condition of the docstring: copies of one answer tell each other's labels."""
    rng, alarmed = np.random.default_rng(4), 0
    for _ in range(40):
        evidence = PartitionEProcess.start("ece")
        for _ in range(20):
            right_N = np.repeat(rng.random(4) < 0.7, 50)
            evidence = evidence.advance(CalibrationSums.from_top(np.full(200, 0.7), right_N))
        alarmed += evidence.is_alarmed()
    assert alarmed > 0.2 * 40
