"""Ordered classes: sums and metrics against loops over the rows, two levels against the binary figures, intervals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trueodds import metrics
from trueodds.metrics import OrderedEProcess, OrderedSums
from trueodds.metrics.significance.at_least import holm
from trueodds.sums.ordered import ordered_rows
from trueodds.sums.positive import PositiveClass, sums_of_top


def rows(n: int, levels: int, seed: int = 0, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of levels, and labels drawn from them at another temperature."""
    rng = np.random.default_rng(seed)
    z_NC = rng.normal(0, 2, (n, 1)) * np.linspace(-2, 2, levels) + rng.normal(0, 0.7, (n, levels))
    labels_N = (z_NC / temperature + rng.gumbel(size=z_NC.shape)).argmax(axis=1)
    return metrics.softmax(z_NC), labels_N


def rps_twin(p: list[float], label: int) -> float:
    """The formula by cumulative sums from below, as in Epstein 1969."""
    return sum((sum(p[: k + 1]) - (label <= k)) ** 2 for k in range(len(p) - 1))


@pytest.mark.parametrize("levels", [2, 3, 10])
def test_rps_bias_and_residuals_equal_their_twins(levels: int) -> None:
    p_NC, labels_N = rows(150, levels)
    twins = [rps_twin(p, y) for p, y in zip(p_NC.tolist(), labels_N.tolist(), strict=True)]
    assert metrics.rps(p_NC, labels_N) == pytest.approx(np.mean(twins), rel=1e-12)
    off = [sum(k * p for k, p in enumerate(p_C)) - y for p_C, y in zip(p_NC.tolist(), labels_N, strict=True)]
    found = metrics.level_bias(p_NC, labels_N)
    assert found.bias == pytest.approx(np.mean(off), abs=1e-12)
    assert found.expected == pytest.approx(np.mean(p_NC @ np.arange(levels)))
    assert found.observed == pytest.approx(labels_N.mean())
    by_row = ordered_rows(p_NC, labels_N)
    assert by_row.residual_N * (levels - 1) == pytest.approx(np.negative(off))
    best = [min(range(levels), key=lambda y: rps_twin(p, y)) for p in p_NC.tolist()]
    assert (by_row.is_median_N == (labels_N == best)).all()
    others = [
        sum(p[y] * rps_twin(p, y) for y in range(levels) if y != m) / (1 - p[m])
        for p, m in zip(p_NC.tolist(), best, strict=True)
    ]
    # 1e-6 is mixed into each level
    assert (
        by_row.rps_if_off_N == pytest.approx(others, rel=0.2)
        and np.median(np.abs(by_row.rps_if_off_N / others - 1)) < 1e-3
    )


def test_a_sure_answer_costs_its_distance() -> None:
    assert metrics.rps(np.eye(5)[[0, 4, 2]], [3, 4, 1]) == pytest.approx((3 + 0 + 1) / 3)


@pytest.mark.parametrize("levels", [2, 4])
def test_sums_add_and_subtract(levels: int) -> None:
    p_NC, labels_N = rows(300, levels)
    one, other = (OrderedSums.from_probabilities(p_NC[part], labels_N[part]) for part in (slice(100), slice(100, None)))
    whole = OrderedSums.from_probabilities(p_NC, labels_N)
    assert (one + other).n == whole.n == 300
    np.testing.assert_allclose((one + other).rows, whole.rows, atol=1e-12)
    np.testing.assert_allclose((whole - other).rows, one.rows, atol=1e-12)
    assert metrics.rps(one + other) == pytest.approx(metrics.rps(p_NC, labels_N))
    with pytest.raises(ValueError, match="subtract only rows"):
        one - other
    with pytest.raises(ValueError, match=f"sums of {levels} and 3 levels"):
        whole + OrderedSums.zero(3)


@pytest.mark.parametrize("n", [40, 3000])
@pytest.mark.parametrize("sharp", [1.0, 60.0])
def test_two_levels_are_the_binary_figures_exactly(n: int, sharp: float) -> None:
    rng = np.random.default_rng(n)
    p_N = 1 / (1 + np.exp(-sharp * rng.normal(-0.5, 2, n)))
    labels_N = (rng.random(n) < p_N**1.3).astype(int)
    p_NC = np.column_stack([1 - p_N, p_N])
    binary = PositiveClass("high", 1).sums(p_NC, labels_N)
    sums = OrderedSums.from_probabilities(p_NC, labels_N)
    assert sums.at_least == (binary,)
    assert metrics.rps(sums) == pytest.approx(metrics.brier(binary), rel=1e-12)
    score, both = metrics.rps_interval(sums), metrics.score_interval(sums_of_top(binary), score="brier")
    assert (score.lower, score.upper) == (both.lower / 2, both.upper / 2)
    sequence = metrics.gap_sequence(binary)
    anytime = metrics.level_bias(sums, anytime=True)
    assert (anytime.lower, anytime.upper) == (-sequence.upper, -sequence.lower)
    assert anytime.bias == -metrics.signed_gap(binary)
    (low,), (high,) = metrics.binomial_interval([labels_N.sum()], [n])
    once = metrics.level_bias(sums)
    assert (once.lower, once.upper) == (metrics.mean_confidence(binary) - high, metrics.mean_confidence(binary) - low)
    (one,) = metrics.at_least(sums)
    assert (one.ece, one.p_value) == (metrics.ece(binary), metrics.calibration_test(binary).p_value)
    assert one.more_than_chance == (one.p_value <= 0.05)


def test_names_of_levels_and_bad_input() -> None:
    p_NC = [[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]
    names = ["low", "middle", "high"]
    assert metrics.rps(p_NC, ["low", "high"], classes=names) == metrics.rps(p_NC, [0, 2])
    with pytest.raises(ValueError, match="there is 1 class; ordered classes are two or more"):
        metrics.rps([[1.0]], [0])
    with pytest.raises(ValueError, match="probabilities need labels"):
        metrics.rps(p_NC)
    with pytest.raises(ValueError, match="OrderedSums already hold their labels"):
        metrics.rps(OrderedSums.from_probabilities(p_NC, [0, 2]), [0, 2])
    with pytest.raises(ValueError, match="do not hold the order of the classes; pass probabilities or OrderedSums"):
        metrics.rps(metrics.CalibrationSums.from_top([0.5], [True]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there are no labelled rows"):
        metrics.rps(OrderedSums.zero(3))
    with pytest.raises(ValueError, match="level is 2"):
        metrics.rps_interval(p_NC, [0, 2], level=2)


def test_students_interval_by_hand() -> None:
    """Many wrong rows: mean +- t s / sqrt n, of the scores and of the residuals."""
    p_NC, labels_N = rows(400, 5, temperature=2.0)
    score_N = np.array([rps_twin(p, y) for p, y in zip(p_NC.tolist(), labels_N.tolist(), strict=True)])
    half = 1.9659273 * score_N.std(ddof=1) / 20
    found = metrics.rps_interval(p_NC, labels_N)
    assert (found.lower, found.upper) == pytest.approx((score_N.mean() - half, score_N.mean() + half), rel=1e-6)
    off_N = p_NC @ np.arange(5) - labels_N
    half = 1.9659273 * off_N.std(ddof=1) / 20
    bias = metrics.level_bias(p_NC, labels_N)
    assert (bias.lower, bias.upper) == pytest.approx((off_N.mean() - half, off_N.mean() + half), abs=1e-3)


def test_no_error_at_all_still_has_an_upper_limit() -> None:
    """300 sure rows without an error: the score's limit is that of 3.7 errors of the mean distance of other levels."""
    p_NC, labels_N = np.eye(5)[[0] * 300], np.zeros(300, int)
    found = metrics.rps_interval(p_NC, labels_N)
    assert found.lower == found.value == 0.0
    assert found.upper == pytest.approx(3.6889 * 2.5 / 300, rel=1e-3)
    bias = metrics.level_bias(p_NC, labels_N)
    assert bias.bias == 0.0 and bias.lower < -0.01 < 0.01 < bias.upper


def test_anytime_limits_are_those_of_bets_on_the_residuals() -> None:
    """The wealth of the bets, row by row: at the limits it is 40, less the small price of the cells."""
    p_NC, labels_N = rows(500, 4, temperature=1.5)
    residual_N = (labels_N - p_NC @ np.arange(4)) / 3
    found = metrics.level_bias(p_NC, labels_N, anytime=True)
    stakes = 0.98 * np.array([0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.3, 0.5])
    for sign, m in ((1, -found.upper / 3), (-1, -found.lower / 3)):
        wealth = np.mean([np.exp(np.log1p(sign * L * (residual_N - m)).sum()) for L in stakes])
        assert wealth == pytest.approx(40, rel=0.01)


def test_marks_follow_holm() -> None:
    assert holm([0.01, 0.04, 0.02], 0.05) == [True, True, True]
    assert holm([0.03, 0.03], 0.05) == [False, False]
    assert holm([0.02, 0.03], 0.05) == [True, True]
    assert holm([0.2, 0.001, 0.03], 0.05) == [False, True, False]
    assert holm([], 0.05) == []


def test_a_level_that_is_off_is_marked() -> None:
    """Only P(level >= 2) is wrong: half of the probability of level 2 belongs to level 1."""
    rng = np.random.default_rng(3)
    p_NC = rng.dirichlet([2, 2, 2, 2], 3000)
    true_NC = p_NC.copy()
    true_NC[:, 1] += p_NC[:, 2] / 2
    true_NC[:, 2] /= 2
    labels_N = (true_NC.cumsum(axis=1)[:, :-1] < rng.random((3000, 1))).sum(axis=1)
    assert [one.more_than_chance for one in metrics.at_least(p_NC, labels_N)] == [False, True, False]
    found = metrics.at_least(p_NC, labels_N)[1]
    assert found.level == 2 and found.gap < -0.1


@pytest.mark.full
def test_intervals_cover_and_marks_are_few() -> None:
    """A small version of benchmarks/intervals/ordered.py."""
    covered, marks, runs = np.zeros(3), 0, 120
    for seed in range(runs):
        p_NC, labels_N = rows(150, 3, seed)
        sums = OrderedSums.from_probabilities(p_NC, labels_N)
        found = metrics.level_bias(sums), metrics.level_bias(sums, anytime=True)
        expected = np.mean([sum(p[y] * rps_twin(p, y) for y in range(3)) for p in p_NC.tolist()])
        score = metrics.rps_interval(sums)
        covered += [one.lower <= 0 <= one.upper for one in found] + [score.lower <= expected <= score.upper]
        marks += any(one.more_than_chance for one in metrics.at_least(sums)) if seed < 40 else 0
    assert (covered / runs >= 0.9).all(), covered / runs
    assert marks <= 6


def test_the_mean_of_the_evidence_is_that_of_each_threshold() -> None:
    p_NC, labels_N = rows(400, 4, temperature=2.5)
    by_row = ordered_rows(p_NC, labels_N)
    state, log_e_B = OrderedEProcess.start(4).advance_each(by_row.at_least_NK, by_row.reached_NK)
    each = [
        metrics.EProcess.start("ece").advance_each(p_N, reached_N)[1]
        for p_N, reached_N in zip(by_row.at_least_NK.T, by_row.reached_NK.T, strict=True)
    ]
    np.testing.assert_allclose(np.exp(log_e_B), np.exp(each).mean(axis=0), rtol=1e-10)
    assert state.log_e == pytest.approx(log_e_B[-1]) and state.peak == log_e_B.max() and state.labels == 400
    half, first_B = OrderedEProcess.start(4).advance_each(by_row.at_least_NK[:200], by_row.reached_NK[:200])
    again, second_B = half.advance_each(by_row.at_least_NK[200:], by_row.reached_NK[200:])
    assert again == state and np.array_equal(np.concatenate([first_B, second_B]), log_e_B)


def test_two_levels_are_the_evidence_of_p_positive() -> None:
    p_NC, labels_N = rows(200, 2, temperature=2.5)
    state, log_e_B = OrderedEProcess.start(2).advance_each(p_NC[:, 1:], labels_N[:, None] == 1)
    alone, alone_B = metrics.EProcess.start("ece").advance_each(p_NC[:, 1], labels_N == 1)
    assert np.array_equal(log_e_B, alone_B) and state.peak == alone.peak and state.p_value == alone.p_value


@pytest.mark.parametrize("labels", [0, 60])
def test_the_evidence_survives_json(labels: int) -> None:
    by_row = ordered_rows(*rows(labels, 3)) if labels else None
    state = OrderedEProcess.start(3, 0.05)
    if by_row:
        state, _ = state.advance_each(by_row.at_least_NK, by_row.reached_NK)
    restored = OrderedEProcess.from_json(json.dumps(state.to_json()))
    assert restored == state and (restored.levels, restored.tolerance) == (3, 0.05)
    changes: list[dict[str, object]] = [{"thresholds": []}, {"peak": "x"}, {"peak": None if labels else 1.0}]
    for change in changes:
        with pytest.raises(ValueError, match=r"allowed|one or more|damaged"):
            OrderedEProcess.from_json({**state.to_json(), **change})


def test_evidence_refuses_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"allowed is \(N, 2\) for both, one column per level but the lowest"):
        OrderedEProcess.start(3).advance_each([[0.5]], [[True]])
    with pytest.raises(ValueError, match="there is 1 class"):
        OrderedEProcess.start(1)


@pytest.mark.parametrize("levels", [2, 5])
def test_a_rounded_certainty_does_not_refute(levels: int) -> None:
    """Calibrated probabilities in steps of .01: half of "at least" are 0 or 1 exactly, and some of those are wrong."""
    rng = np.random.default_rng(2)
    centre_N1 = rng.uniform(0, levels - 1, (3000, 1))
    p_NC = metrics.softmax(-4 * (np.arange(levels) - centre_N1) ** 2)
    labels_N = (p_NC.cumsum(axis=1)[:, :-1] < rng.random((3000, 1))).sum(axis=1)
    rounded_NC = p_NC.round(2)
    at_exact = metrics.at_least(OrderedSums.from_probabilities(p_NC, labels_N))
    sums = OrderedSums.from_probabilities(rounded_NC, labels_N, resolution=0.01)
    assert [one.more_than_chance for one in metrics.at_least(sums)] == [one.more_than_chance for one in at_exact]
    assert metrics.rps(sums) == pytest.approx(metrics.rps(p_NC, labels_N), abs=0.005)
    if levels == 2:
        assert sums.at_least == (PositiveClass("high", 1).sums(rounded_NC, labels_N, resolution=0.01),)
