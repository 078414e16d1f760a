"""What seeds and rows say of differences: against slow twins, special cases, and the coverage of the intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.evidence import calibration_differences
from pipeline.config import Evaluation
from pipeline.studies.baseline_comparison import _time, cohens_d, over_seeds
from pipeline.studies.measuring import is_plug_in
from trueodds.calibrators import Identity
from trueodds.evaluation.measurement import measure
from trueodds.metrics.significance.differences import holm, of_rows, of_seeds
from trueodds.metrics.significance.power import detectable

NUMBERS = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=8)


@given(NUMBERS)
def test_over_seeds_is_the_interval_of_students_t(values: list[float]) -> None:
    found = over_seeds(values, 0.9)
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in values) / (len(values) - 1))
    assert found.mean == pytest.approx(mean, abs=1e-9) and found.deviation == pytest.approx(deviation, abs=1e-9)
    assert found.lower is not None and found.upper is not None
    if deviation > 1e-6:
        expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)
        assert (found.lower, found.upper) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_one_seed_and_many() -> None:
    one = over_seeds([0.3])
    assert (one.values, one.mean, one.deviation, one.lower) == (1, 0.3, None, None)
    many = np.random.default_rng(0).exponential(size=40)
    found = over_seeds(list(many))
    assert found.lower is not None and found.upper is not None
    assert found.upper - many.mean() > many.mean() - found.lower, "BCa follows the skew"
    for wrong in ([], [math.nan]):
        with pytest.raises(ValueError, match="allowed are finite numbers, at least one"):
            over_seeds(wrong)


@given(NUMBERS, NUMBERS)
def test_cohens_d(first: list[float], second: list[float]) -> None:
    a, b = np.array(first), np.array(second)
    pooled = (sum((a - a.mean()) ** 2) + sum((b - b.mean()) ** 2)) / (len(a) + len(b) - 2)
    if pooled < 1e-9:
        return
    assert cohens_d(first, second) == pytest.approx((a.mean() - b.mean()) / math.sqrt(pooled), rel=1e-6)
    factor = 1 - 3 / (4 * (len(a) + len(b)) - 9)
    assert cohens_d(first, second, small_samples=True) == pytest.approx(factor * cohens_d(first, second))
    t = stats.ttest_ind(first, second).statistic
    assert t == pytest.approx(cohens_d(first, second) / math.sqrt(1 / len(a) + 1 / len(b)), rel=1e-6)


def test_cohens_d_without_variance_or_values() -> None:
    assert math.isnan(cohens_d([1, 1], [2, 2]))
    with pytest.raises(ValueError, match="1 and 2 values; an effect size needs at least two on each side"):
        cohens_d([1], [1, 2])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_its_steps_reject(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for level in (0.01, 0.05, 0.3):
        rejected: set[int] = set()
        for step, place in enumerate(sorted(range(len(p_values)), key=lambda k: (p_values[k], k))):
            if p_values[place] * (len(p_values) - step) > level:
                break
            rejected.add(place)
        assert {k for k, p in enumerate(adjusted) if p <= level} == rejected


def test_seeds_alone_are_students_paired_test() -> None:
    found, expected = of_seeds([0.1, 0.3, 0.15]), stats.ttest_1samp([0.1, 0.3, 0.15], 0)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.lower, found.upper) == pytest.approx(tuple(expected.confidence_interval()))
    assert (of_seeds([0.1]).mean, of_seeds([0.1]).lower, of_seeds([0.1]).detectable(0.05)) == (0.1, None, None)
    with pytest.raises(ValueError, match="allowed is"):
        of_seeds([])


@pytest.mark.parametrize("seeds", [2, 5])
def test_the_detectable_difference_is_found_in_four_of_five_repetitions(seeds: int) -> None:
    rng = np.random.default_rng(5)
    size = detectable(1 / math.sqrt(seeds), seeds - 1, 0.05)
    drawn = rng.normal(size, 1, (4000, seeds))
    assert (stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.02)
    assert detectable(1.0, 1, 0.05 / 20) > 10 * detectable(1.0, 1), "after a correction for many"


def test_one_seed_is_the_paired_t_test_of_rows() -> None:
    d_N = np.random.default_rng(1).normal(0.1, 1, 200)
    found = of_rows(d_N[None])
    expected = stats.ttest_1samp(d_N, 0)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.lower, found.upper) == pytest.approx(tuple(expected.confidence_interval()))
    same = of_rows(np.zeros((3, 5)))
    assert (same.mean, same.lower, same.upper, same.p_value, same.seeds) == (0, None, None, 1, 3)
    with pytest.raises(ValueError, match=r"differences have shape \(4,\); allowed is \(seeds, rows\)"):
        of_rows([1, 2, 3, 4])


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_the_interval_covers_the_mean_over_other_seeds_and_rows(spread: float) -> None:
    """True difference .02; seeds shift it by `spread`, rows by 1, half of it shared by all seeds."""
    rng, covered, runs = np.random.default_rng(2), 0, 400
    for _ in range(runs):
        shared_N, own_SN = rng.normal(0, 0.7, 300), rng.normal(0, 0.7, (4, 300))
        found = of_rows(0.02 + rng.normal(0, spread, (4, 1)) + shared_N + own_SN)
        assert found.lower is not None and found.upper is not None
        covered += found.lower <= 0.02 <= found.upper
    assert 0.93 <= covered / runs <= 0.995


def test_a_bootstrap_of_the_difference_of_two_eces_calls_calibrated_models_different() -> None:
    """The fault for which studies test none: 40 pairs of calibrated models, one sharp; the tests beside it hold."""
    setting = calibration_differences.Setting(1000, 1, 0.0, 0.0)
    found = calibration_differences.measure(setting, runs=40, seed=2, sets=2)
    assert found["bootstrap"] > 0.6 and max(found["squared"], found["nll"], found["brier"]) < 0.2


def test_what_is_a_plug_in_estimate() -> None:
    """Every column of a measurement that is a calibration error, of test and validation rows; no mean over rows is."""
    values = measure(Identity(), np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 1], Evaluation()).values
    estimates = {name for name in values if is_plug_in(name)}
    assert {"ece", "ece_l2", "mce", "adaptive_ece", "adaptive_ece_l2", "label_binned_ece", "debiased_ece", "sweep_ece",
            "ks_error", "smooth_ece", "kde_ece", "sece", "classwise_ece", "classwise_adaptive_ece",
            "top_brier_reliability"} <= estimates  # fmt: skip
    assert not {"error_rate", "accuracy", "nll", "brier", "top_brier", "mean_confidence", "mean_entropy", "phi_nll",
                "refinement_nll", "temperature", "seconds",
                "squared_calibration_error"} & estimates  # fmt: skip
    assert is_plug_in("val_ece") and is_plug_in("val_adaptive_ece_l2") and not is_plug_in("val_error_rate")


def test_equal_times_of_all_seeds_are_no_certain_ratio() -> None:
    """Two runs of the same number of seconds, and two that are both twice as long: a sign test cannot tell them."""
    assert (
        _time("s", of_seeds([0.0, 0.0]), 1.0, 1) == "s: 1.00 times the baseline's time, no difference in 2 seeds (p 1)."
    )
    twice = of_seeds([math.log(2)] * 2)
    low, high = (2 ** (1 + sign * 2 * (1 - 0.025**0.5)) for sign in (-1, 1))
    expected = f"s: 2.00 times the baseline's time [{low:.2f}, {high:.2f}], not significantly different"
    assert _time("s", twice, twice.p_value, 1).startswith(expected)
