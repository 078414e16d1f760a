"""Prediction-powered estimates and a judge's error rates: slow twins, an oracle, special cases, coverage, refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm, t

from benchmarks.evidence.judge_rates import measure
from benchmarks.evidence.judged import OF_KINDS, event, kinds, net
from trueodds.metrics import PoweredMean, binomial_interval, judge_errors, powered_gap, powered_mean
from trueodds.metrics.labelling.powered import _Sample, degrees_of_freedom
from trueodds.metrics.labelling.weighted_share import weighted_share

Array = npt.NDArray[np.float64]


def drawn(seed: int, answers: int = 400, labels: int = 60, error: float = 0.1) -> tuple[Array, Array, Array]:
    """Human labels of a sample with unequal propensities, a judge's labels, and the propensities."""
    rng = np.random.default_rng(seed)
    truth_N = rng.random(answers) < 0.3
    judge_N = np.where(rng.random(answers) < error, ~truth_N, truth_N).astype(float)
    propensity_N = np.where(rng.random(answers) < 0.5, 1.5, 0.5) * labels / answers
    human_N = np.where(rng.random(answers) < propensity_N, truth_N, np.nan)
    return human_N, judge_N, propensity_N


def twin_variance(b: float, human: Array, judge: Array, propensity: Array, ends: tuple[float, float]) -> float:
    """V(b) as the docstring states it: one answer after another, then the pairs."""
    chosen = [i for i in range(len(human)) if not math.isnan(human[i])]
    total = sum(1 / propensity[i] for i in chosen)
    n_eff = total**2 / sum(1 / propensity[i] ** 2 for i in chosen)
    pairs, z2 = [(low, high) for low in ends for high in ends], norm.ppf(0.975) ** 2
    n = n_eff + z2
    share = {i: 1 / propensity[i] / total * n_eff / n for i in chosen}
    all_judge = sum(judge) / len(judge)
    e_mean = sum(share[i] * (human[i] - b * judge[i]) for i in chosen)
    e_mean += sum(z2 / 4 / n * (y - b * g) for y, g in pairs)
    total_of_answers = cross = own = 0.0
    for i, g in enumerate(judge):
        total_of_answers += (b * (g - all_judge) / len(judge)) ** 2
        if i in share:
            off = human[i] - b * g - e_mean
            cross += 2 * b * (g - all_judge) / len(judge) * share[i] * off
            own += (share[i] * off) ** 2
    for y, g in pairs:
        off = y - b * g - e_mean
        cross += 2 * b * (g - all_judge) / len(judge) * z2 / 4 / n * off
        own += z2 / 4 * (off / n) ** 2
    return float(total_of_answers + cross + own * n / (n - 1))


def twin_degrees(human: Array, propensity: Array) -> float:
    """Satterthwaite's degrees of freedom of the weighted variance, less one for the mean."""
    weights = [1 / p for y, p in zip(human, propensity, strict=True) if not math.isnan(y)]
    return float(sum(w**2 for w in weights) ** 2 / sum(w**4 for w in weights) - 1)


@pytest.mark.parametrize("seed", range(5))
def test_twin(seed: int) -> None:
    human_N, judge_N, propensity_N = drawn(seed)
    found = powered_mean(human_N, judge_N, propensity_N=propensity_N)
    parts = human_N, judge_N, propensity_N, (0.0, 1.0)
    half = t.ppf(0.975, twin_degrees(human_N, propensity_N)) * twin_variance(found.weight, *parts) ** 0.5
    alone = t.ppf(0.975, twin_degrees(human_N, propensity_N)) * twin_variance(0.0, *parts) ** 0.5
    assert found.lower > 0 and found.upper - found.lower == pytest.approx(2 * half, rel=1e-9)
    assert found.human_upper - found.human_lower == pytest.approx(2 * alone, rel=1e-9)
    assert found.saving == pytest.approx((alone / half) ** 2, rel=1e-9)
    known = np.isfinite(human_N)
    weight = 1 / propensity_N[known] / (1 / propensity_N[known]).sum()
    shift = judge_N.mean() - weight @ judge_N[known]
    assert found.human_value == pytest.approx(weight @ human_N[known])
    assert found.value == pytest.approx(weight @ human_N[known] + found.weight * shift)
    best = min(np.linspace(0, 1, 41), key=lambda b: twin_variance(b, *parts))
    assert 0.5 < found.weight <= best + 0.025  # the pairs' distance from the labels is no correlation


def test_twin_of_gap() -> None:
    human_N, judge_N, propensity_N = drawn(7)
    confidence_N = np.linspace(0.2, 0.9, len(human_N))
    found = powered_gap(confidence_N, human_N, judge_N, propensity_N=propensity_N)
    ends = (-confidence_N.mean(), 1 - confidence_N.mean())
    parts = human_N - confidence_N, judge_N - confidence_N, propensity_N, ends
    half = t.ppf(0.975, twin_degrees(human_N, propensity_N)) * twin_variance(found.weight, *parts) ** 0.5
    assert found.upper - found.lower == pytest.approx(2 * half, rel=1e-9)


@pytest.mark.parametrize("place", [0, 3])
def test_coverage_with_very_unequal_propensities(place: int) -> None:
    """With n_eff - 1 degrees of freedom the coverage is 90% and 84%."""
    found = kinds(*OF_KINDS[place], "worst", 300)
    assert found.setting.covered >= 0.95 and found.setting.covered_human >= 0.95


def test_equal_weights_have_the_degrees_of_freedom_of_students_t() -> None:
    assert degrees_of_freedom(np.full(40, 0.3)) == pytest.approx(39)
    assert degrees_of_freedom(np.array([1.0, *[1e-3] * 500])) == 1.0


@pytest.mark.full
def test_agreement_with_very_unequal_propensities() -> None:
    """With the number of labels less one as degrees of freedom the coverage is 82%."""
    rng, runs, covered = np.random.default_rng(0), 300, 0
    shares_K, propensities_K, rates_K = np.array([0.7, 0.3]), np.array([0.06, 0.004]), np.array([0.95, 0.5])
    for _ in range(runs):
        kind_N = rng.choice(2, 3_000, p=shares_K)
        truth_N = rng.random(3_000) < 0.3
        judge_N = np.where(rng.random(3_000) < rates_K[kind_N], truth_N, ~truth_N)
        chosen_N = rng.random(3_000) < propensities_K[kind_N]
        pairs = truth_N[chosen_N].astype(np.intp), judge_N[chosen_N].astype(np.intp)
        found = judge_errors(*pairs, 2, propensity_L=propensities_K[kind_N][chosen_N]).agreement
        covered += found.lower <= shares_K @ rates_K <= found.upper
    assert covered / runs >= 0.93


def oracle_rows() -> tuple[Array, Array]:
    i = np.arange(30_000)
    human = (i * 7919) % 1000 < 300
    judge = np.where((i * 104729) % 1009 < 100, ~human, human)
    chosen = (i * 48271) % 30011 < 3000
    return np.where(chosen, human, np.nan), judge.astype(float)


def test_ppi_python_says_the_same() -> None:
    """`ppi_mean_pointestimate` and `ppi_mean_ci` of ppi-python 0.2.3 on these rows, with its power tuning."""
    human_N, judge_N = oracle_rows()
    found = powered_mean(human_N, judge_N)
    assert found.value == pytest.approx(0.30225235, abs=1e-5)
    assert (found.lower, found.upper) == pytest.approx((0.29115993, 0.31334476), abs=2e-4)


def test_without_pairs_it_is_the_variance_of_the_paper() -> None:
    """PPI++: lambda^2 var(g) / N_u + var(y - lambda g) / n, with lambda = b (1 - n / N) and N_u = N - n."""
    human_N, judge_N = oracle_rows()
    known, n, count = np.isfinite(human_N), 3_000, 30_000
    sample = _Sample(human_N[known], judge_N[known], np.full(n, 1 / n), judge_N, float(n))
    variance = sample.variance((0.0, 1.0), pseudo=0.0)
    power = variance.best * (1 - n / count)
    spread = power**2 * judge_N[~known].var() / (count - n) + (human_N - power * judge_N)[known].var() / n
    assert variance.at(variance.best)[1] == pytest.approx(spread, rel=0.005)
    slope = np.cov(human_N[known], judge_N[known])[0, 1] / judge_N.var()
    assert variance.best == pytest.approx(slope, rel=0.01)


def test_perfect_judge_is_as_good_as_labels_of_all() -> None:
    rng = np.random.default_rng(0)
    truth_N = (rng.random(50_000) < 0.4).astype(float)
    human_N = np.where(np.arange(50_000) < 1_000, truth_N, np.nan)
    found = powered_mean(human_N, truth_N)
    assert found.squared_correlation == pytest.approx(1) and found.weight > 0.99 and found.saving > 15
    assert found.value == pytest.approx(truth_N.mean(), abs=2e-4)


@pytest.mark.parametrize("judge", [0.0, 1.0])
def test_a_judge_that_says_one_thing_changes_nothing(judge: float) -> None:
    human_N = drawn(1)[0]
    found = powered_mean(human_N, np.full(len(human_N), judge))
    alone = (found.human_value, found.human_lower, found.human_upper)
    assert (found.value, found.lower, found.upper) == alone
    assert found.weight == found.squared_correlation == 0 and found.saving == found.unlike_p_value == 1


def test_a_judge_that_errs_always_is_not_used() -> None:
    human_N, judge_N, propensity_N = drawn(2, error=1.0)
    found = powered_mean(human_N, judge_N, propensity_N=propensity_N)
    assert found.weight == 0 and found.saving == 1 and found.lower == found.human_lower


def test_the_judges_bias_cancels() -> None:
    """A judge that calls half of the negatives positive: its mean is .65, the truth .3."""
    rng, values = np.random.default_rng(4), []
    for _ in range(300):
        truth_N = rng.random(2_000) < 0.3
        judge_N = truth_N | (rng.random(2_000) < 0.5)
        values.append(powered_mean(np.where(np.arange(2_000) < 200, truth_N, np.nan), judge_N).value)
    assert np.mean(values) == pytest.approx(0.3, abs=4 * np.std(values) / 300**0.5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 1), st.integers(30, 200), st.booleans())
def test_never_wider_than_human_labels_alone(seed: int, error: float, labels: int, is_weighted: bool) -> None:
    human_N, judge_N, propensity_N = drawn(seed, 600, labels, error)
    if np.isfinite(human_N).sum() < 30:
        return
    found = powered_mean(human_N, judge_N, propensity_N=propensity_N if is_weighted else None)
    assert 0 <= found.weight <= 1 and found.saving >= 1
    assert found.lower <= found.value <= found.upper
    if found.lower > 0 and found.upper < 1 and found.human_lower > 0 and found.human_upper < 1:
        assert found.upper - found.lower <= found.human_upper - found.human_lower + 1e-12


def enough(covered: float, runs: int) -> bool:
    """Whether a coverage is not significantly below 95%."""
    return bool(binom.cdf(round(covered * runs), runs, 0.95) > 0.002)


@pytest.mark.parametrize("share", [0.5, 0.02])
@pytest.mark.parametrize("labels", [30, 300])
@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.8, 0.9), (0.5, 0.5)])
def test_coverage_of_shares(share: float, labels: int, rates: tuple[float, float]) -> None:
    found = event(share, "", labels, 10 * labels, 150, rates)
    assert enough(found.covered, 150) and enough(found.covered_human, 150)


def test_coverage_of_a_net_by_bin_and_with_propensities() -> None:
    found = net("C", 2.0, "hard", "ece", 300, 100)
    assert {one.about for one in found} == {"accuracy", "gap", "gap of a bin"}
    assert all(enough(one.covered, one.runs) for one in found)


def test_two_thirds_of_the_variance_save_two_thirds_of_the_labels() -> None:
    error = (1 - (2 / 3) ** 0.5) / 2
    found = event(0.5, "", 1_000, 100_000, 30, (1 - error, 1 - error))
    assert 2.6 < found.saving < 3.2


def test_gaps_of_the_judge() -> None:
    """An answer without a judge's label counts with the judge's mean: nothing is biased, and less is gained."""
    human_N, judge_N, propensity_N = drawn(5, 4_000, 400)
    some_N = np.where(np.arange(4_000) % 4 == 0, np.nan, judge_N)
    full, part = (powered_mean(human_N, some, propensity_N=propensity_N) for some in (judge_N, some_N))
    filled = np.where(np.isnan(some_N), np.nanmean(some_N), some_N)
    assert part == powered_mean(human_N, filled, propensity_N=propensity_N)
    assert 1 < part.saving < full.saving


def test_human_labels_without_a_propensity_are_left_out() -> None:
    human_N, judge_N, propensity_N = drawn(6)
    gone = np.flatnonzero(np.isfinite(human_N))[:5]
    without, empty = propensity_N.copy(), human_N.copy()
    without[gone], empty[gone] = np.nan, np.nan
    same = powered_mean(empty, judge_N, propensity_N=propensity_N)
    assert powered_mean(human_N, judge_N, propensity_N=without) == same and same.labels == np.isfinite(empty).sum()


@pytest.mark.parametrize("scale", [1e-100, 1e-200, 1e-308])
def test_only_the_ratios_of_propensities_count(scale: float) -> None:
    human_N, judge_N, propensity_N = drawn(6)
    same, found = (powered_mean(human_N, judge_N, propensity_N=s * propensity_N) for s in (1.0, scale))
    for name in ("value", "lower", "upper", "effective_n", "saving"):
        assert getattr(found, name) == pytest.approx(getattr(same, name), rel=1e-6)
    one, other = (
        judge_errors([0, 0, 1], [0, 1, 1], 2, propensity_L=s * np.array([0.5, 0.2, 0.3])) for s in (1.0, scale)
    )
    assert (other.agreement.lower, other.agreement.upper) == pytest.approx((one.agreement.lower, one.agreement.upper))


def test_labels_that_are_no_random_sample_show() -> None:
    rng = np.random.default_rng(8)
    truth_N = rng.random(3_000) < 0.5
    judge_N = np.where(rng.random(3_000) < 0.1, ~truth_N, truth_N)
    plain, chosen = np.arange(3_000) < 200, rng.random(3_000) < np.where(judge_N, 0.12, 0.03)
    assert not powered_mean(np.where(plain, truth_N, np.nan), judge_N).unlike
    assert powered_mean(np.where(chosen, truth_N, np.nan), judge_N).unlike
    weighted = powered_mean(np.where(chosen, truth_N, np.nan), judge_N, propensity_N=np.where(judge_N, 0.12, 0.03))
    assert not weighted.unlike and weighted.lower < 0.5 < weighted.upper


def test_a_choice_by_the_judges_labels_biases_the_gap_without_propensities() -> None:
    """The page says so: people label five times as often what the judge calls wrong."""
    text = Path("docs/how-to/judges-labels.md").read_text(encoding="utf-8")
    assert "Such a choice biases the gap" in text and "labels alone hardly biases" not in text
    rng, runs = np.random.default_rng(3), 60
    covered = np.zeros(2)
    for _ in range(runs):
        confidence_N = 1 - 0.5 * rng.random(10_000) ** 2
        right_N = rng.random(10_000) < confidence_N - 0.05
        judge_N = np.where(rng.random(10_000) < 0.1, ~right_N, right_N).astype(float)
        propensity_N = np.where(judge_N == 1, 0.08, 0.4)
        human_N = np.where(rng.random(10_000) < propensity_N, right_N, np.nan)
        for k, given_N in enumerate((None, propensity_N)):
            gap = powered_gap(confidence_N, human_N, judge_N, propensity_N=given_N)
            covered[k] += gap.lower <= -0.05 <= gap.upper
    assert covered[0] / runs < 0.8 and enough(covered[1] / runs, runs)


ROWS: dict[str, Any] = {"human_N": [1.0, 0.0] * 20 + [None] * 60, "judge_N": [1.0, 0.0] * 50}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"human_N": [1.0] * 29 + [None] * 71}, "there are 29 human labels; 30 are needed"),
        ({"judge_N": [1.0]}, r"judge has shape \(1,\); expected \(100,\)"),
        ({"judge_N": [2.0] * 100}, r"judge holds 2.0; allowed are \[0, 1\]"),
        ({"judge_N": ["yes"] * 100}, "judge has dtype <U3; allowed are numbers in"),
        ({"human_N": [[1.0]] * 100}, "human has shape"),
        ({"judge_N": [None] * 40 + [1.0] * 60}, "labelled only answers without a human label"),
        ({"judge_N": [1.0] * 40 + [None] * 60}, "labelled only answers with a human label"),
        ({"propensity_N": [0.0] * 100}, "propensity holds 0"),
        ({"propensity_N": [0.5]}, "propensity has shape"),
        ({"propensity_N": [0.001] + [1.0] * 99}, "as informative as 1.1 plain ones; 10 are needed"),
        ({"level": 1.0}, "level"),
    ],
)
def test_refusals(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        powered_mean(**{**ROWS, **changed})


def test_refusals_of_gap() -> None:
    with pytest.raises(ValueError, match=r"confidence holds 1.5; allowed is \[0, 1\]"):
        powered_gap([1.5] * 100, **ROWS)
    with pytest.raises(ValueError, match="confidence has shape"):
        powered_gap([0.5], **ROWS)
    with pytest.raises(ValueError, match="fewest is 5; allowed is 10 and more"):
        powered_gap([0.5] * 100, **ROWS, fewest=5)
    assert isinstance(powered_gap([0.5] * 100, **ROWS), PoweredMean)


def test_twin_of_judge_errors() -> None:
    rng = np.random.default_rng(3)
    human, judge = rng.integers(0, 3, 200), rng.integers(0, 3, 200)
    errors = judge_errors(human, judge, 3)
    pairs = list(zip(human.tolist(), judge.tolist(), strict=True))
    for k in range(3):
        of = [a for a in pairs if a[0] == k]
        others = [a for a in pairs if a[0] != k]
        for share, hits, rows in (
            (errors.sensitivity_C[k], sum(j == k for _, j in of), of),
            (errors.specificity_C[k], sum(j != k for _, j in others), others),
        ):
            assert share.value == pytest.approx(hits / len(rows))
            assert (share.lower, share.upper) == pytest.approx(tuple(map(float, binomial_interval(hits, len(rows)))))
        assert errors.confusion_CC[k].tolist() == [sum(j == m for _, j in of) for m in range(3)]
    assert errors.agreement.value == pytest.approx(sum(h == j for h, j in pairs) / 200)


def test_judge_errors_are_weighted() -> None:
    """A class that is labelled four times as often does not count four times."""
    human, judge, propensity = [0] * 40 + [1] * 10, [0] * 40 + [0] * 10, [0.4] * 40 + [0.1] * 10
    errors = judge_errors(human, judge, ["cat", "dog"], propensity_L=propensity)
    assert errors.agreement.value == pytest.approx(0.5) and errors.sensitivity_C[1].value == 0
    assert errors.agreement.upper - errors.agreement.lower > 0.3  # 32 effective answers
    assert judge_errors([0, 0], [0, 0], 2).sensitivity_C[1].value is None


def test_an_unseen_error_may_have_the_largest_weight() -> None:
    """Ten answers of class 1 have small weights and are found; an answer of class 0 weighs ten times as much as each.

    At worst, the unseen answers of class 1 have that weight and are missed. If they are a share f of the labels, ten
    hits come with probability (1 - f)^10 = .025.
    """
    human, judge, propensity = [1] * 10 + [0], [1] * 10 + [0], [0.5] * 10 + [0.05]
    rate = judge_errors(human, judge, 2, propensity_L=propensity).sensitivity_C[1]
    found = 0.025**0.1
    assert rate.value == rate.upper == 1
    assert rate.lower == pytest.approx(found / (found + 10 * (1 - found)), abs=0.002)


def test_limits_of_weighted_shares_are_quantiles_of_exponential_weights() -> None:
    """Draw the exponential numbers of the docstring instead of the saddlepoint formula."""
    rng = np.random.default_rng(0)
    for hits, weights in (([1, 1, 0, 1, 0, 1], [1, 0.3, 0.2, 0.5, 0.05, 0.1]), ([0, 0, 1], [0.2, 0.2, 0.9])):
        hit_L, weight_L = np.array(hits, np.bool_), np.array(weights)
        draws_DL, extra_D = weight_L * rng.exponential(size=(200_000, len(hits))), rng.exponential(size=200_000)
        total_D = draws_DL.sum(axis=1) + extra_D
        _, lower, upper = weighted_share(hit_L, weight_L)
        assert lower == pytest.approx(np.quantile(draws_DL @ hit_L / total_D, 0.025), abs=0.004)
        assert upper == pytest.approx(np.quantile((draws_DL @ hit_L + extra_D) / total_D, 0.975), abs=0.004)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_rates_of_all_classes_are_those_of_each_class_alone(is_weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in blocks of classes, with classes that nobody and only the judge gives, and with weights that are all 1."""
    monkeypatch.setattr("trueodds.metrics.labelling.judge_errors.MOST_CELLS", 500)
    rng = np.random.default_rng(7)
    human, judge = rng.integers(0, 10, 300), rng.integers(0, 11, 300)
    judge = np.where(rng.random(300) < 0.8, human, judge)
    human[human == 3] = 4
    propensity = np.where(human == 5, 0.05, rng.uniform(0.05, 1, 300)) if is_weighted else np.full(300, 0.5)
    errors = judge_errors(human, judge, 12, propensity_L=propensity)
    weight = propensity.min() / propensity
    for k in range(12):
        for of_class, hit, found in (
            (human == k, judge == k, errors.sensitivity_C[k]),
            (human != k, judge != k, errors.specificity_C[k]),
        ):
            value, lower, upper = weighted_share(hit[of_class], weight[of_class])
            assert found.value == (None if value is None else pytest.approx(value, abs=1e-12))
            assert (found.lower, found.upper) == pytest.approx((lower, upper), abs=3e-9)


def _share_twin(hit_L: npt.NDArray[np.bool_], weight_L: Array, p: float) -> float:
    """P(sum w (h - p) D + (1 - p) D_0 < 0) by a root search and the formula of Lugannani and Rice, row by row."""
    scale = np.append(weight_L * (hit_L - p), 1 - p)
    s = scipy.optimize.brentq(
        lambda s: (scale / (1 - s * scale)).sum(), (1 - 1e-12) / scale.min(), (1 - 1e-12) / scale.max(), xtol=1e-14
    )
    term = scale / (1 - s * scale)
    r = np.sign(s) * np.sqrt(2 * np.log1p(-s * scale).sum())
    u = s * np.sqrt((term**2).sum())
    return float(scipy.stats.norm.cdf(r) + scipy.stats.norm.pdf(r) * (1 / r - 1 / u))


@pytest.mark.parametrize("count", [2, 9, 300])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_limits_are_quantiles_of_the_saddlepoint_formula(count: int, share: float) -> None:
    rng = np.random.default_rng([count, int(100 * share)])
    hit_L, weight_L = rng.random(count) < share, 1.01 ** -rng.integers(0, 200, count).astype(np.float64)
    weight_L = np.exp(np.round(np.log(weight_L) * 100) / 100)  # so that rows share a step only if they share a weight
    hit_L[0], hit_L[1] = True, False
    _, lower, upper = weighted_share(hit_L, weight_L, 0.9)
    assert _share_twin(hit_L, weight_L, upper) == pytest.approx(0.95, abs=1e-6)
    assert _share_twin(~hit_L, weight_L, 1 - lower) == pytest.approx(0.95, abs=1e-6)


@pytest.mark.parametrize(("hits", "count"), [(0, 1), (0, 5), (2, 5), (19, 20), (37, 100), (1, 1_000)])
def test_limits_of_almost_equal_weights_are_those_of_clopper_and_pearson(hits: int, count: int) -> None:
    hit_L, weight_L = np.arange(count) < hits, np.full(count, 1 - 1e-9)
    _, *limits = weighted_share(hit_L, weight_L)
    assert limits == pytest.approx(tuple(map(float, binomial_interval(hits, count))), abs=0.003)
    assert weighted_share(hit_L, np.ones(count))[1:] == pytest.approx(tuple(map(float, binomial_interval(hits, count))))


@pytest.mark.parametrize(
    ("hits", "weights"), [([1], [1e-300]), ([1, 0, 1, 1], [1, 1e-300, 0.5, 0.2]), ([1, 0], [5e-324] * 2)]
)
def test_weights_whose_squares_underflow_tell_nothing(hits: list[int], weights: list[float]) -> None:
    """An answer of propensity 1 beside others of 1e-300 changes no limit."""
    _, lower, upper = weighted_share(np.array(hits, np.bool_), np.array(weights))
    heavy_L = np.array(weights) > 0.1
    _, without, _ = weighted_share(np.array(hits, np.bool_)[heavy_L], np.array(weights)[heavy_L])
    assert lower == pytest.approx(without, abs=1e-6) and upper == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.floats(1e-6, 1)), min_size=1, max_size=30), st.floats(0.01, 0.999))
def test_weighted_shares_lie_between_their_limits(rows: list[tuple[bool, float]], level: float) -> None:
    hit_L, weight_L = np.array([hit for hit, _ in rows]), np.array([weight for _, weight in rows])
    value, lower, upper = weighted_share(hit_L, weight_L, level)
    mirrored = weighted_share(~hit_L, weight_L, level)
    assert value is not None and 0 <= lower <= upper <= 1
    assert (1 - mirrored[2], 1 - mirrored[1]) == pytest.approx((lower, upper), abs=1e-6)
    if level > 0.9:
        assert lower <= value + 1e-9 and value <= upper + 1e-9


@pytest.mark.parametrize(
    ("classes", "kinds", "labels"),
    [(10, "20 times, worse if rare", 8), (2, "20 times, worse if rare", 30), (20, "plain", 2), (2, "three kinds", 30)],
)
def test_error_rates_by_class_cover(classes: int, kinds: str, labels: int) -> None:
    found = measure(classes, "zipf", kinds, labels, max(80 // classes, 6))
    assert binom.cdf(round(found.covered * found.rates), found.rates, 0.95) > 0.05


def test_limits_of_an_effective_number_of_rows_do_not_cover() -> None:
    found = measure(2, "equal", "10 times, worse if rare", 30, 60)
    assert found.covered >= 0.95 > 0.9 > found.covered_effective


def test_a_kind_without_a_label_needs_the_smallest_propensity() -> None:
    """Eight labels of a kind with propensity 1, none of a kind with .05: nothing is known about most answers."""
    labels = [0] * 8, [0] * 8, 2
    unknown = judge_errors(*labels, propensity_L=[1.0] * 8).sensitivity_C[0]
    known = judge_errors(*labels, propensity_L=[1.0] * 8, smallest_propensity=0.05).sensitivity_C[0]
    assert unknown.lower == pytest.approx(float(binomial_interval(8, 8)[0])) and known.lower < 0.1 < unknown.lower


@pytest.mark.full
def test_coverage_of_judge_errors_with_propensities() -> None:
    """People label four times as often what the judge calls positive; without the propensities, no interval covers."""
    rng, runs = np.random.default_rng(9), 200
    covered, plain = 0, 0
    for _ in range(runs):
        truth_N = rng.random(3_000) < 0.2
        judge_N = np.where(truth_N, rng.random(3_000) < 0.8, rng.random(3_000) < 0.1)
        propensity_N = np.where(judge_N, 0.2, 0.05)
        chosen = rng.random(3_000) < propensity_N
        labels = truth_N[chosen].astype(int), judge_N[chosen].astype(int), 2
        rate = judge_errors(*labels, propensity_L=propensity_N[chosen]).sensitivity_C[1]
        wrong = judge_errors(*labels).sensitivity_C[1]
        covered += rate.lower <= 0.8 <= rate.upper
        plain += wrong.lower <= 0.8 <= wrong.upper
    assert enough(covered / runs, runs) and plain / runs < 0.5


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("human must hold one index of a class", ([2], [0], 2)),
        ("judge must hold one index of a class", ([0], [0.5], 2)),
        ("expected two equal ones", ([0], [0, 1], 2)),
        ("expected two equal ones", ([], [], 2)),
    ],
)
def test_refusals_of_judge_errors(words: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=words):
        judge_errors(*arguments)


def test_refused_propensities_of_judge_errors() -> None:
    with pytest.raises(ValueError, match=r"propensity must have shape \(1,\) and lie in \(0, 1\]"):
        judge_errors([0], [0], 2, propensity_L=[0.0])


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("allowed is more than 0 and at most 0.2", {"propensity_L": [0.2], "smallest_propensity": 0.5}),
        ("allowed is more than 0", {"propensity_L": [0.2], "smallest_propensity": 0.0}),
        ("allowed is more than 0", {"propensity_L": [0.2], "smallest_propensity": float("nan")}),
        ("given without propensity_L", {"smallest_propensity": 0.5}),
    ],
)
def test_refused_smallest_propensities(words: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=words):
        judge_errors([0], [0], 2, **more)
