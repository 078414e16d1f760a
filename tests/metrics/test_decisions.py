"""Alerts by p(positive): shares and costs beside slow twins, what is known of them, and that their limits hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from tests import reference_metrics as twin
from trueodds.metrics import CalibrationSums, Costs, binomial_interval, decision_cost, thresholds
from trueodds.sums.positive import PositiveClass


def rows(n: int, temperature: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """p(positive) of n rows and their labels, drawn of a sigmoid of that temperature."""
    rng = np.random.default_rng(seed)
    z_N = rng.normal(-0.5, 2, n)
    return 1 / (1 + np.exp(-z_N / temperature)), (rng.random(n) < 1 / (1 + np.exp(-z_N))).astype(int)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("costs", [Costs(10, 1), Costs(1, 4)])
def test_costs_are_those_of_a_loop_over_rows_and_edges(costs: Costs, seed: int) -> None:
    p_N, label_N = rows(60, seed=seed)
    found = decision_cost(p_N, label_N, costs)
    cost_E = twin.decision_costs(list(zip(p_N.tolist(), label_N.tolist(), strict=True)), costs.miss, costs.alarm)
    k = round(costs.threshold * 3000)
    assert found.at.threshold == k / 3000
    assert found.cost == pytest.approx(cost_E[k]) and found.best_cost == pytest.approx(min(cost_E))
    assert cost_E[round(found.best_threshold * 3000)] == pytest.approx(min(cost_E))
    assert (found.always, found.never) == pytest.approx((cost_E[0], cost_E[-1]))
    assert found.lower <= found.cost <= found.upper and 0 <= found.saving_lower <= found.saving <= found.saving_upper


def test_shares_are_counts_with_their_binomial_limits() -> None:
    p_N, label_N = rows(500)
    for t, at in zip((0.0, 0.1, 0.5, 1.0), thresholds(p_N, label_N, at=(0, 0.1, 0.5, 1), level=0.9), strict=True):
        alert_N, hit_N = p_N > t, (p_N > t) & (label_N == 1)
        assert (at.alerts, at.hits) == (alert_N.sum(), hit_N.sum())
        counts = [
            (at.alert_rate, alert_N.sum(), 500),
            (at.precision, hit_N.sum(), alert_N.sum()),
            (at.recall, hit_N.sum(), label_N.sum()),
            (at.false_alarm_rate, (alert_N & ~hit_N).sum(), 500 - label_N.sum()),
        ]
        for share, k, n in counts:
            assert share.value == (k / n if n else None)
            assert [share.lower, share.upper] == pytest.approx(np.array(binomial_interval(k, n, level=0.9)))


@pytest.mark.parametrize("costs", [Costs(10, 1), Costs(1, 1), Costs(1, 3)])
def test_the_least_cost_is_that_of_isotonic_regression_at_the_threshold_of_the_costs(costs: Costs) -> None:
    """Brummer and du Preez 2006, on rows that lie in the middle of their cells."""
    p_N, label_N = rows(400, temperature=0.5)
    p_N = (np.floor(p_N * 3000) + 0.5) / 3000
    order = np.lexsort((1 - label_N, p_N))
    _, group_N = np.unique(p_N[order], return_inverse=True)
    count_G, hit_G = np.bincount(group_N), np.bincount(group_N, label_N[order])
    fitted_G = isotonic_regression(hit_G / count_G, weights=count_G).x
    alert_G = fitted_G > costs.threshold
    cost = (costs.miss * hit_G[~alert_G].sum() + costs.alarm * (count_G - hit_G)[alert_G].sum()) / 400
    assert decision_cost(p_N, label_N, costs).best_cost == pytest.approx(cost)


def test_sums_say_the_same_and_so_do_other_units_of_cost() -> None:
    p_N, label_N = rows(800, temperature=0.6)
    sums = PositiveClass.sums_of(p_N, label_N == 1)
    one, same = decision_cost(p_N, label_N, Costs(10, 1)), decision_cost(sums, costs=Costs(10, 1))
    assert one == same and thresholds(sums) == thresholds(p_N, label_N)
    cents = decision_cost(sums, costs=Costs(1000, 100))
    assert cents.best_threshold == one.best_threshold and cents.saving_upper == pytest.approx(100 * one.saving_upper)


def test_of_calibrated_rows_next_to_nothing_is_saved_and_of_others_what_is_known() -> None:
    """T = .6, z normal about -.5: 200,000 rows say what the best threshold saves."""
    calibrated = decision_cost(*rows(20_000), Costs(10, 1))
    assert calibrated.saving_lower == 0 and calibrated.saving < 0.01 * calibrated.cost
    many = decision_cost(*rows(200_000, temperature=0.6, seed=5), Costs(10, 1))
    known = many.cost - many.best_cost
    covered, estimates = 0, []
    for seed in range(100):
        found = decision_cost(*rows(1000, temperature=0.6, seed=seed), Costs(10, 1))
        covered += found.saving_lower <= known <= found.saving_upper
        covered += found.lower <= many.cost <= found.upper
        estimates.append(found.saving)
    assert covered >= 184  # of 200; benchmarks/intervals/decisions.py has the table
    assert np.mean(estimates) == pytest.approx(known, rel=0.15)


def test_the_outermost_costs_and_thresholds() -> None:
    """The first and the last edge that a cell lies beyond; at 0 every row is an alert."""
    tiny, huge = Costs(2999, 1), Costs(1, 2999)
    rows_2 = [0.0, 1.0], [0, 1]
    assert [decision_cost(*rows_2, costs).at.threshold * 3000 for costs in (tiny, huge)] == pytest.approx([1, 2999])
    assert decision_cost(*rows_2, tiny).cost == decision_cost(*rows_2, huge).cost == 0
    assert [at.alerts for at in thresholds(*rows_2, at=(0, 1))] == [2, 0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.2, 0.7], [0, 2]), "labels hold 2"),
        (([0.2, 1.7], [0, 1]), r"p\(positive\) holds 1.7"),
        (([0.2, float("nan")], [0, 1]), r"p\(positive\)"),
        (([0.2, 0.7], [0]), "vectors of one length"),
        (([[0.2, 0.8]], [0]), "that of the positive class"),
        (([], []), "there are no labelled rows"),
        ((CalibrationSums.zero(),), "there are no labelled rows"),
        ((CalibrationSums.zero(), [1]), "pass no labels with them"),
    ],
)
def test_bad_input_is_named(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        thresholds(*arguments)  # type: ignore[arg-type]


def test_bad_costs_and_thresholds_are_named() -> None:
    for miss, alarm in ((0, 1), (1, -2), (1, float("inf"))):
        with pytest.raises(ValueError, match="positive numbers"):
            Costs(miss, alarm)
    for miss, alarm in ((100_000, 1), (1, 3000)):
        with pytest.raises(ValueError, match="at most 2,999 times the other"):
            Costs(miss, alarm)
    with pytest.raises(ValueError, match=r"threshold 1.5; allowed is \[0, 1\]"):
        thresholds([0.5], [1], at=[1.5])
