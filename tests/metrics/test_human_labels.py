"""Probabilities against human labels: twins, by hand, panels that are drawn, and what is refused."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference_metrics as twin
from tests.metrics.rows import drawn
from trueodds.metrics import (
    half_panels_error,
    samplewise_error,
    samplewise_interval,
    samplewise_noise_floor,
    second_panel_error,
    softmax,
)
from trueodds.metrics.human_labels import DISTANCES as NORMS
from trueodds.sums import rows
from trueodds.sums.inputs import check_counts

Array = npt.NDArray[np.float64]
GOOD = [[0.9, 0.1], [0.2, 0.8]]
panels = st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(lambda row: sum(row) >= 2)


def test_samplewise_by_hand() -> None:
    p, q = [[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]], [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    assert samplewise_error(p, q) == pytest.approx(0.6 / 2)
    assert samplewise_error(p, q, norm="l2") == pytest.approx(np.sqrt(0.04 + 0.09 + 0.01) / 2)
    assert samplewise_error(p, q, norm="max") == pytest.approx(0.3 / 2)
    assert samplewise_error(p, p) == 0
    assert samplewise_error(np.eye(2), np.eye(2)[::-1]) == 2


@pytest.mark.parametrize("norm", NORMS)
def test_samplewise_in_blocks(norm: Any) -> None:
    p, q = drawn(400, 9, spread=0.2)[0].astype(np.float32), np.asfortranarray(drawn(400, 9, seed=1, spread=0.2)[0])
    order = {"l1": 1, "l2": 2, "max": np.inf}[norm]
    expected = np.mean([np.linalg.norm(a.astype(np.float64) - b, order) for a, b in zip(p, q, strict=True)])
    with mock.patch.object(rows, "ELEMENTS", 9 * 7):
        assert samplewise_error(p, q, norm=norm) == pytest.approx(expected, rel=1e-12)


def test_counts_and_their_shares_are_the_same() -> None:
    rng = np.random.default_rng(3)
    q_NC = rng.dirichlet(np.full(4, 0.3), 200)
    counts_NC = rng.multinomial(rng.integers(1, 60, 200), q_NC)
    shares_NC = counts_NC / counts_NC.sum(axis=1, keepdims=True)
    for norm in NORMS:
        assert samplewise_error(q_NC, counts_NC, norm=norm) == samplewise_error(q_NC, shares_NC, norm=norm)
    one_vote = np.eye(4, dtype=int)[rng.integers(0, 4, 200)]
    assert samplewise_error(q_NC, one_vote) == samplewise_error(q_NC, one_vote.astype(float))


def test_one_vote_for_the_label_is_twice_what_is_missing_at_it() -> None:
    """||p - e_y||_1 = 2 (1 - p_y): the error of one-hot votes needs no other class."""
    p_NC, y_N = drawn(300, 6, spread=0.2)
    assert samplewise_error(p_NC, np.eye(6)[y_N]) == pytest.approx(2 * np.mean(1 - p_NC[np.arange(300), y_N]))


def test_samplewise_refuses() -> None:
    with pytest.raises(ValueError, match=r"human has shape \(1, 2\); expected \(2, 2\)"):
        samplewise_error(GOOD, [[0.5, 0.5]])
    with pytest.raises(ValueError, match="unknown norm 'kl'; allowed: l1, l2, max"):
        samplewise_error(GOOD, GOOD, norm="kl")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"human\[0, 0\] is 0.5; allowed are whole .*; or give shares of votes"):
        samplewise_error(GOOD, np.array([[0.5, 0.6], [1, 0]]))
    with pytest.raises(ValueError, match=r"human\[1, 0\] is nan; allowed are"):
        samplewise_error(GOOD, np.array([[30, 21], [np.nan, 50]]))
    with pytest.raises(ValueError, match=r"human holds -0\.5"):
        samplewise_error(GOOD, np.array([[1.5, -0.5], [1, 0]]))
    with pytest.raises(ValueError, match=r"human has 1 of 2 rows without a vote \(1\); every row needs a vote"):
        samplewise_error(GOOD, [[30, 21], [0, 0]])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("votes", [1, 4])
def test_vote_noise_equals_its_twin(votes: int, norm: Any) -> None:
    """Exact for l1; the others are of 200,000 fixed draws."""
    p = [[0.5, 0.3, 0.2], [0.9, 0.1, 0.0], [0.05, 0.05, 0.9]]
    expected = np.mean([twin.samplewise_noise(row, votes, norm) for row in p])
    value = samplewise_noise_floor(p, votes, norm=norm)
    assert value == pytest.approx(expected, rel=1e-12 if norm == "l1" else 0.005)
    assert samplewise_noise_floor(p, [votes] * 3, norm=norm) == value


def test_vote_noise_by_hand() -> None:
    """One vote: 2 (1 - p_y), so 4 p (1 - p) of two classes. Certain rows, and endless votes, leave no noise."""
    assert samplewise_noise_floor([[0.7, 0.3], [1.0, 0.0]], 1) == pytest.approx(4 * 0.21 / 2)
    assert samplewise_noise_floor(np.eye(3), 5) == 0
    many = samplewise_noise_floor([[0.5, 0.5]], 10**6)
    assert many == pytest.approx(2 * math.sqrt(2 / math.pi) * 0.5 / 1000, rel=1e-6)


def test_a_calibrated_models_samplewise_error_is_the_vote_noise() -> None:
    """The figures of the docstring, and the error of votes that are drawn from the probabilities themselves."""
    rng = np.random.default_rng(1)
    p_NC = softmax(rng.normal(0, 3, (4000, 10)))
    for votes, about in ((51, 0.16), (4, 0.53)):
        floor = samplewise_noise_floor(p_NC, votes)
        assert floor == pytest.approx(about, abs=0.01)
        assert samplewise_error(p_NC, rng.multinomial(votes, p_NC) / votes) == pytest.approx(floor, rel=0.02)
    uneven = rng.integers(1, 9, 4000)
    assert samplewise_error(p_NC, rng.multinomial(uneven, p_NC) / uneven[:, None]) == pytest.approx(
        samplewise_noise_floor(p_NC, uneven), rel=0.02
    )


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        (0, "votes holds 0; allowed are whole numbers from 1 on"),
        ([51, 2.5], "votes holds 2.5"),
        ([51], r"votes has shape \(1,\); expected one number, or \(2,\), one for each row"),
        (None, "votes has dtype object"),
    ],
)
def test_votes_are_checked(votes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        samplewise_noise_floor(GOOD, votes)
    with pytest.raises(ValueError, match="unknown norm 'kl'"):
        samplewise_noise_floor(GOOD, 5, norm="kl")  # type: ignore[arg-type]


@given(st.lists(panels, min_size=1, max_size=3))
def test_panels_equal_their_twins(counts: list[list[int]]) -> None:
    """Exact for l1: every way to draw a second panel, and every way to split the first."""
    second = np.mean([twin.samplewise_noise([v / sum(row) for v in row], sum(row), "l1") for row in counts])
    assert second_panel_error(counts) == pytest.approx(second, rel=1e-9, abs=1e-12)
    halves = np.mean([twin.half_panels(row, "l1") for row in counts])
    assert half_panels_error(counts) == pytest.approx(halves, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_halves_by_drawing(norm: Any) -> None:
    counts = [[3, 2, 0], [1, 1, 1], [7, 0, 1], [0, 9, 0]]
    expected = np.mean([twin.half_panels(row, norm) for row in counts])
    assert half_panels_error(counts, norm=norm) == pytest.approx(expected, rel=1e-9 if norm == "l1" else 0.01)
    assert half_panels_error([*counts, [0, 0, 1]], norm=norm) == half_panels_error(counts, norm=norm)  # no halves


def test_panels_by_hand() -> None:
    """Two people who disagree differ by 2 as halves; agreement, and one person's word, leave nothing to chance."""
    assert half_panels_error([[1, 1]]) == pytest.approx(2)
    assert half_panels_error([[51, 0]]) == second_panel_error([[51, 0]]) == 0
    assert second_panel_error([[1, 0], [0, 1]]) == 0
    assert second_panel_error([[1, 1]]) == pytest.approx(0.5)  # of 4 second panels two are of one mind: 1 away
    counts = [[46, 5], [30, 21]]
    shares = np.array(counts) / 51
    assert second_panel_error(counts) == pytest.approx(samplewise_noise_floor(shares, 51))


def test_the_truth_lies_between_the_second_panel_and_the_halves() -> None:
    """What a model that knows each row's shares shows; and the halves are right about panels of half the size."""
    rng = np.random.default_rng(5)
    q_NC = rng.dirichlet([6.0, *[0.04] * 9], 20_000)
    counts_NC = rng.multinomial(51, q_NC)
    for norm in NORMS:
        known = samplewise_error(q_NC, counts_NC, norm=norm)
        low, high = second_panel_error(counts_NC, norm=norm), half_panels_error(counts_NC, norm=norm)
        assert low < known < high
        apart = samplewise_error(rng.multinomial(25, q_NC) / 25, rng.multinomial(26, q_NC) / 26, norm=norm)
        assert high == pytest.approx(apart, rel=0.03)


def test_interval_by_its_twin() -> None:
    rng = np.random.default_rng(6)
    p_NC, counts_NC = rng.dirichlet([3.0, 0.3, 0.3], 80), rng.multinomial(20, rng.dirichlet([3.0, 0.3, 0.3], 80))
    for norm in NORMS:
        away = [samplewise_error(p_NC[i : i + 1], counts_NC[i : i + 1], norm=norm) for i in range(80)]
        interval = samplewise_interval(p_NC, counts_NC, norm=norm, level=0.9)
        assert interval.error == samplewise_error(p_NC, counts_NC, norm=norm) and interval.level == 0.9
        assert [interval.lower, interval.upper] == pytest.approx(twin.unskewed_limits(away, 0.9), rel=1e-6)


def test_interval_is_that_of_the_bootstrap_over_rows() -> None:
    rng = np.random.default_rng(7)
    n = 400
    p_NC = rng.dirichlet([8.0, 0.2, 0.2], n)
    p_NC[:20] = p_NC[:20, ::-1]  # one in twenty wrong and sure of it
    counts_NC = rng.multinomial(51, rng.dirichlet([8.0, 0.2, 0.2], n))
    interval = samplewise_interval(p_NC, counts_NC)
    away_N = np.abs(p_NC - counts_NC / 51).sum(axis=1)
    again_BN = away_N[rng.integers(0, n, (8000, n))]
    t_B = (again_BN.mean(axis=1) - away_N.mean()) / again_BN.std(axis=1)
    lower, upper = away_N.mean() - away_N.std() * np.quantile(t_B, [0.975, 0.025])
    width = upper - lower
    assert abs(interval.lower - lower) < 0.05 * width and abs(interval.upper - upper) < 0.05 * width
    assert interval.upper - interval.error > 1.2 * (interval.error - interval.lower)  # few rows far away: to the right


def test_interval_at_the_ends() -> None:
    alone = samplewise_interval([[0.9, 0.1]], [[4, 1]])
    assert (alone.lower, alone.upper) == (0, 2)
    same = samplewise_interval([[0.9, 0.1]] * 5, [[4, 1]] * 5)
    others = 1 - 0.025 ** (1 / 5)  # the exact binomial limit of the share of rows at another distance
    assert (same.lower, same.upper) == pytest.approx((0.2 * (1 - others), 0.2 + 1.8 * others))
    even = samplewise_interval([[0.9, 0.1], [0.7, 0.3]] * 50, [[5, 5]] * 100)  # no skewness: Student's
    assert even.upper - even.error == pytest.approx(even.error - even.lower)
    wild = samplewise_interval([[1.0, 0.0]] * 3 + [[0.0, 1.0]], [[1, 0]] * 4)
    assert 0 <= wild.lower < wild.error < wild.upper <= 2
    with pytest.raises(ValueError, match="level is 2; allowed is"):
        samplewise_interval(GOOD, GOOD, level=2)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[3, -1], [1, 0]], r"counts\[0, 1\] is -1; allowed are whole numbers 0\.\.1,000,000"),
        ([[3, 1], [1.5, 0]], r"counts\[1, 0\] is 1.5"),
        ([[3, np.inf], [1, 0]], r"counts\[0, 1\] is inf"),
        ([[3, 2_000_000], [1, 0]], r"counts\[0, 1\] is 2e\+06"),
        ([3, 1], r"counts has shape \(2,\); expected \(rows, classes\)"),
        ([["a", "b"]], "counts has dtype"),
        ([[0, 0]] * 12 + [[1, 0]], r"counts has 12 of 13 rows without a vote \(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.\)"),
    ],
)
def test_counts_are_checked(counts: Any, message: str) -> None:
    for reader in (check_counts, second_panel_error, half_panels_error):
        with pytest.raises(ValueError, match=message):
            reader(counts)


def test_halves_need_two_votes() -> None:
    with pytest.raises(ValueError, match="counts has a single vote in every row; two at least are needed in some"):
        half_panels_error([[1, 0], [0, 1]])
    for panel in (second_panel_error, half_panels_error):
        with pytest.raises(ValueError, match="unknown norm 'kl'; allowed: l1, l2, max"):
            panel([[5, 5]], norm="kl")  # type: ignore[arg-type]
