"""The mean of few or rare differences: a twin by drawing, exact special cases, p-values, coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.evidence.rare_differences import POPULATIONS, Lattice, measure
from trueodds.evaluation.paired_differences import BRIER, ERROR, NLL, RowScores, adjust_p_values, score_difference
from trueodds.metrics.significance import bounded_mean
from trueodds.metrics.significance.bounded_mean import BoundedMean, _saddlepoint
from trueodds.metrics.significance.differences import of_rows, of_seeds


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([1, 1, 0, -1, 0, 0, 0, 0], -1, 1), ([0.3, 0.1, -0.2, 2.5, 0.4], -2.5, 4), ([0.0] * 9 + [0.2], -0.2, 0.2)],
)
def test_the_limits_are_quantiles_of_randomly_weighted_means(values: list[float], low: float, high: float) -> None:
    weight_RN = np.random.default_rng(0).dirichlet(np.ones(len(values) + 1), 100_000)
    found = BoundedMean.of(values, low, high)
    for q in (0.005, 0.025, 0.2):
        lower, upper = found.limits(q)
        below, above = (weight_RN[:, :-1] @ values + weight_RN[:, -1] * end for end in (low, high))
        assert (below < lower).mean() == pytest.approx(q, rel=0.1) and (above > upper).mean() == pytest.approx(
            q, rel=0.1
        )


@pytest.mark.parametrize(("right", "count"), [(0, 7), (1, 300), (12, 40), (9, 9)])
def test_shares_have_the_limits_of_clopper_and_pearson(right: int, count: int) -> None:
    exact = stats.binomtest(right, count).proportion_ci(0.9)
    found = BoundedMean.of([1] * right + [0] * (count - right), 0, 1).limits(0.05)
    assert found == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize(("better", "worse"), [(0, 6), (1, 9), (3, 3), (7, 0), (12, 2)])
def test_errors_have_the_p_value_of_mcnemars_exact_test(better: int, worse: int) -> None:
    d_N = np.array([-1.0] * better + [1.0] * worse + [0.0] * 500)
    found, exact = of_rows(d_N[None], bound=1.0), stats.binomtest(better, better + worse).pvalue
    assert found.p_value == pytest.approx(max(exact, stats.ttest_1samp(d_N, 0).pvalue))
    assert (found.rows, found.differing) == (500 + better + worse, better + worse)


@pytest.mark.parametrize(("k", "j", "x", "y"), [(2, 1, 1, 1), (20, 1, 1, 1), (990, 1, 0.01, 2), (3, 4, 1, 1)])
def test_the_saddlepoint_is_within_5_percent_of_the_beta_distribution(k: int, j: int, x: float, y: float) -> None:
    exact = stats.beta.cdf(y / (x + y), k, j)
    assert stats.norm.cdf(_saddlepoint(np.array([x, -y]), np.array([k, j]))) == pytest.approx(exact, rel=0.05)


def test_rows_that_all_differ_alike_have_a_sign_test() -> None:
    for rows, noise in ((4, 0.0), (12, 1e-16)):
        found = of_rows([[0.3 + noise * (n % 2) for n in range(rows)]])
        away = 0.6 * (1 - 0.025 ** (1 / rows))
        assert found.p_value == pytest.approx(2.0 ** (1 - rows))
        assert (found.lower, found.upper) == pytest.approx((0.3 - away, 0.3 + away), abs=1e-9)
        seeds = of_seeds([0.3] * rows)
        assert (seeds.lower, seeds.upper, seeds.p_value) == pytest.approx((found.lower, found.upper, found.p_value))
    bounded = of_rows([[1.0] * 12], bound=1.0)
    assert bounded.upper == 1 and bounded.error is None and bounded.detectable(0.05) is None


def test_rows_that_never_differ_limit_the_share_that_does() -> None:
    share = 1 - 0.025 ** (1 / 300)
    for bound in (1.0, None):
        found = of_rows(np.zeros((2, 300)), bound=bound)
        assert (found.mean, found.p_value, found.differing) == (0, 1, 0)
        assert found.most_differing == pytest.approx(share)
        assert (found.lower, found.upper) == ((None, None) if bound is None else pytest.approx((-share, share)))
    seeds = of_seeds([0.0, 0.0])
    assert (seeds.mean, seeds.lower, seeds.upper, seeds.p_value) == (0, None, None, 1)


@given(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.0, 0.0, 1.0, 1.5]), min_size=4, max_size=60), st.integers(1, 3))
@settings(max_examples=12)
def test_the_interval_has_0_exactly_if_the_p_value_is_above_the_rest(values: list[float], seeds: int) -> None:
    d_SN = np.stack([np.roll(values, s) * (1 + 0.2 * s) for s in range(seeds)])
    for level in (0.6, 0.95):
        found = of_rows(d_SN, level, bound=4.0)
        assert found.lower is not None and found.upper is not None and found.p_value is not None
        assert found.lower <= found.mean + 1e-12 and found.mean - 1e-12 <= found.upper
        if abs(found.p_value - (1 - level)) > 1e-6:
            assert (found.lower <= 0 <= found.upper) == (found.p_value > 1 - level)


def test_limits_are_possible_differences() -> None:
    """Student's t alone goes from -3.2 to 2.5."""
    found = of_rows([[-1.0, 1.0, -1.0]], bound=1.0)
    assert (found.lower, found.upper) == (-1, 1) and found.p_value == pytest.approx(1)
    free = of_rows([[-1.0, 1.0, -1.0]])
    assert free.lower is not None and free.lower < -3


def test_near_values_are_grouped_if_there_are_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).standard_t(2, 3_000)
    exact = BoundedMean.of(values, -60, 60)
    monkeypatch.setattr(bounded_mean, "CELLS", 1_000)
    grouped = BoundedMean.of(values, -60, 60)
    assert len(exact.value_K) == 3_000 and len(grouped.value_K) < 700 and grouped.count_K.sum() == 3_000
    assert grouped.value_K @ grouped.count_K == pytest.approx(values.sum())
    for one, other in zip(exact.limits(0.025), grouped.limits(0.025), strict=True):
        assert other - values.mean() == pytest.approx(one - values.mean(), rel=1e-3)


def test_many_differing_rows_keep_students_interval() -> None:
    d_N = np.random.default_rng(4).choice([-1.0, 0.0, 1.0], 400)
    found, students = of_rows(d_N[None], bound=1.0), stats.ttest_1samp(d_N, 0)
    assert found.p_value == pytest.approx(students.pvalue) and found.differing is None


def test_rows_without_a_wrong_answer_may_have_one() -> None:
    """Two models that were right in all of 100 rows: a wrong row would cost the surer one more."""
    right_N = np.ones(100, bool)
    ours, theirs = (RowScores.of_confidence(np.full(100, c), right_N) for c in (0.999, 0.99))
    for measure_, otherwise in ((NLL, np.log(0.01 / 0.001)), (BRIER, 0.999**2 - 0.99**2)):
        found = score_difference([(ours, theirs)], measure_)
        assert found.mean < 0 and found.upper is not None and found.p_value is not None and found.p_value > 0.05
        assert found.upper == pytest.approx(found.mean + (otherwise - found.mean) * (1 - 0.025**0.01), rel=1e-6)


def test_the_sentence_tells_how_many_rows_differ() -> None:
    right_N = np.arange(200) > 4
    nets = [RowScores.of_confidence(np.linspace(0.6, 0.9, 200), of) for of in (right_N, right_N | (np.arange(200) < 2))]
    (tested,) = adjust_p_values([(ERROR, score_difference([(nets[0], nets[1])], ERROR))])
    said = tested.sentence("b", "a's", correction=False, seeds=False)
    assert said.startswith("b: error +1.00 points [-") and "chance explains it; 2 of 200 rows differ (p 0.5)." in said


@pytest.mark.parametrize("place", [1, 6])
def test_the_interval_covers_where_students_does_not(place: int) -> None:
    population = POPULATIONS[place]
    found = measure(population, 50, 60, seed=3, mean=population.mean() if isinstance(population, Lattice) else 0.0321)
    assert found["coverage"] >= 0.9 and found["students"] < 0.9 and found["disagree"] == 0
