"""The squared calibration error and its paired difference: slow twins, special cases, bias and size by simulation."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.evidence import calibration_differences
from trueodds.metrics import (
    CalibrationSums,
    ece,
    softmax,
    squared_calibration_difference,
    squared_calibration_error,
)
from trueodds.metrics.significance import nets as module
from trueodds.metrics.significance.nets import Nets
from trueodds.metrics.significance.squared_error import null_of

Array = npt.NDArray[np.float64]
Net = tuple[Array, npt.NDArray[np.bool_]]


def twin(confidence: list[float], correct: list[bool], bins: int = 15) -> float:
    """The mean of d_i d_j over pairs of different rows in each bin, weighted by the bin's rows."""
    rows: dict[int, list[float]] = {}
    for c, a in zip(confidence, correct, strict=True):
        rows.setdefault(max(math.ceil(round(c * bins, 9)) - 1, 0), []).append(a - c)
    total = 0.0
    for d in rows.values():
        pairs = [d[i] * d[j] for i, j in combinations(range(len(d)), 2)]
        total += len(d) * (sum(pairs) / len(pairs) if pairs else 0.0)
    return total / len(confidence)


def by_halves(d: list[float]) -> float:
    """The product of the mean gaps of two halves of a bin, averaged over all splits."""
    products, n = [], len(d)
    for half in combinations(range(n), n // 2):
        rest = [d[i] for i in range(n) if i not in half]
        products.append(np.mean([d[i] for i in half]) * np.mean(rest))
    return float(np.mean(products))


def drawn(rng: np.random.Generator, n: int, ends: tuple[float, float], gap: float = 0.0) -> Net:
    confidence_N = rng.uniform(*ends, n)
    return confidence_N, rng.random(n) < confidence_N - gap


ROWS = st.lists(st.tuples(st.integers(0, 60).map(lambda k: k / 60), st.booleans()), min_size=3, max_size=25)


@given(ROWS)
@settings(max_examples=40, deadline=None)
def test_the_value_and_what_is_left_without_a_row_are_their_slow_twins(rows: list[tuple[float, bool]]) -> None:
    confidence, correct = (list(column) for column in zip(*rows, strict=True))
    net = Nets.of([(confidence, correct)], 15)
    assert net.values_S[0] == pytest.approx(twin(confidence, correct), abs=1e-12)
    left_out = [twin(confidence[:k] + confidence[k + 1 :], correct[:k] + correct[k + 1 :]) for k in range(len(rows))]
    assert net.left_out_SN[0] == pytest.approx(left_out, abs=1e-12)


@pytest.mark.parametrize("n", [2, 6])
def test_it_is_the_product_of_halves_and_the_plug_in_less_its_variance(n: int) -> None:
    rng = np.random.default_rng(n)
    confidence_N = rng.uniform(0.81, 0.86, n)
    correct_N = np.arange(n) % 3 > 0
    d_N = correct_N - confidence_N
    value = Nets.of([(np.append(confidence_N, 0.5), np.append(correct_N, True))], 15).values_S[0] * (n + 1) / n
    assert value == pytest.approx(by_halves(list(d_N))), "the row at .5 is alone in its bin and counts 0"
    assert value == pytest.approx(d_N.mean() ** 2 - d_N.var(ddof=1) / n)


def test_one_bin_with_a_known_gap_and_a_calibrated_one() -> None:
    """80 of 100 right: at .9 the gap is .1, at .8 it is 0, less the variance .16 / 99."""
    right_N = np.arange(100) < 80
    for confidence, gap in ((0.9, 0.1), (0.8, 0.0)):
        sums = CalibrationSums.from_top(np.full(100, confidence), right_N)
        found = squared_calibration_error(sums)
        assert found.value == pytest.approx(gap**2 - 0.16 / 99)
        assert found.lower == 0 < found.upper if gap == 0 else 0 <= found.lower < found.value < found.upper
        assert (found.p_value < 0.05) == (gap > 0)


def test_probabilities_and_their_sums_agree() -> None:
    rng = np.random.default_rng(0)
    p_NC = softmax(rng.normal(0, 2, (500, 4)))
    labels_N = rng.integers(0, 4, 500)
    of_rows = squared_calibration_error(p_NC, labels_N)
    of_sums = squared_calibration_error(CalibrationSums.from_probabilities(p_NC, labels_N))
    assert of_sums.value == pytest.approx(of_rows.value, abs=1e-4) and of_rows.p_value < 0.001


@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_it_has_no_bias_where_the_plug_in_has_one(gap: float) -> None:
    rng, values, plug_in = np.random.default_rng(7), [], []
    for _ in range(1500):
        net = drawn(rng, 120, (0.3, 0.9), gap)
        values.append(Nets.of([net], 15).values_S[0])
        plug_in.append(ece(CalibrationSums.from_top(*net)) ** 2)
    error = np.std(values) / math.sqrt(len(values))
    assert np.mean(values) == pytest.approx(gap**2, abs=4 * error)
    assert np.mean(plug_in) > gap**2 + 4 * error


@pytest.mark.parametrize("gap", [0.0, 0.1])
def test_the_jackknife_is_at_least_the_variance(gap: float) -> None:
    """Efron and Stein 1981: its mean is above the variance, about twice it at calibration."""
    rng, values, variances, n = np.random.default_rng(8), [], [], 200
    for _ in range(1000):
        net = Nets.of([drawn(rng, n, (0.3, 0.9), gap)], 15)
        left_out_N = net.left_out_SN[0]
        values.append(net.values_S[0])
        variances.append((n - 1) * left_out_N.var())
    ratio = np.mean(variances) / np.var(values)
    assert (1.6 < ratio < 2.4) if gap == 0 else (0.95 < ratio < 1.5)


def test_the_null_is_that_of_labels_drawn_from_the_confidences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of drawing, of three seeds with one uniform number a row, against a loop over labels."""
    rng = np.random.default_rng(3)
    confidence_SN = rng.uniform(0.4, 0.95, (3, 150))
    net = Nets.of([(c_N, np.zeros(150)) for c_N in confidence_SN], 15)
    means = []
    for _ in range(1000):
        u_N = rng.random(150)
        means.append(np.mean([Nets.of([(c_N, u_N < c_N)], 15).values_S[0] for c_N in confidence_SN]))
    monkeypatch.setattr(module, "EXACT_BELOW", math.inf)
    labels_R = net.null()
    monkeypatch.setattr(module, "EXACT_BELOW", 0.0)
    sums_R = net.null()
    assert len(labels_R) == module.EXACT_DRAWS and len(sums_R) == module.NORMAL_DRAWS
    assert stats.ks_2samp(means, labels_R).pvalue > 0.001
    for null_R in (labels_R, sums_R):
        assert null_R.std() == pytest.approx(np.std(means), rel=0.1)
        assert np.quantile(np.abs(null_R), 0.95) == pytest.approx(np.quantile(np.abs(means), 0.95), rel=0.12)


def test_certain_answers_and_the_same_net_twice() -> None:
    certain = (np.ones(50), np.ones(50, bool))
    found = squared_calibration_difference([certain], [certain])
    most = 2 * (1 - 0.025 ** (1 / 50)) ** 2  # the squared share of wrong rows of each, by Clopper and Pearson
    assert (found.mean, found.p_value) == (0, 1)
    assert (found.lower, found.upper) == pytest.approx((-most, most))
    net = drawn(np.random.default_rng(1), 300, (0.3, 0.9))
    same = squared_calibration_difference([net], [net])
    assert same.mean == 0 and same.p_value == 1 and same.lower is not None and same.lower < 0
    other = drawn(np.random.default_rng(2), 300, (0.5, 1.0), 0.1)
    there, back = squared_calibration_difference([other], [net]), squared_calibration_difference([net], [other])
    assert there.mean == pytest.approx(-back.mean) and there.p_value == pytest.approx(back.p_value or 0, abs=0.02)


def test_what_cannot_be_compared() -> None:
    net = drawn(np.random.default_rng(1), 10, (0.3, 0.9))
    short = (net[0][:5], net[1][:5])
    for one, other, words in (
        ([], [], "0 and 0 seeds; give one or more, and as many for both"),
        ([net, net], [net], "2 and 1 seeds"),
        ([net], [short], "10 and 5 rows; give the same rows for both"),
        ([net, short], [net, net], r"the seeds have \[5, 10\] rows; allowed is one number for all, 3 or more"),
        ([(net[0] + 1, net[1])], [net], r"allowed is \[0, 1\]"),
    ):
        with pytest.raises(ValueError, match=words):
            squared_calibration_difference(one, other)
    with pytest.raises(ValueError, match="bins is 7; allowed are the divisors"):
        squared_calibration_difference([net], [net], bins=7)


@pytest.mark.full
@pytest.mark.parametrize("gap", [0.0, 0.05])
@pytest.mark.parametrize("seeds", [1, 3])
def test_methods_of_unlike_sharpness_with_one_calibration_are_not_told_apart(seeds: int, gap: float) -> None:
    """A bootstrap of the plug-in ECE tells them apart where both are calibrated, surer with more seeds."""
    found = calibration_differences.measure(calibration_differences.Setting(1000, seeds, gap, gap), 200, seed=5)
    for name in ("squared", "nll", "brier"):
        assert found[f"{name}_holds"], f"{name}: {found[name]:.1%}"
    if not gap:
        assert found["bootstrap"] > 0.7 and (seeds == 1 or found["bootstrap"] > 0.95)


@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_the_size_of_a_few_pairs(gap: float) -> None:
    setting = calibration_differences.Setting(500, 2, gap, gap)
    found = calibration_differences.measure(setting, 60, seed=9, beside=False, sets=2)
    assert found["squared"] <= 0.1


def test_a_difference_is_found() -> None:
    setting = calibration_differences.Setting(3000, 1, 0.0, 0.05)
    assert calibration_differences.measure(setting, 20, seed=6, beside=False, sets=1)["squared"] > 0.8


def test_the_null_of_a_difference_is_wider_than_that_of_nets_that_agree() -> None:
    """The methods' labels are drawn apart: dependence between their rows only makes the true width smaller."""
    rng = np.random.default_rng(11)
    confidence_N, other_N = rng.uniform(0.3, 0.9, (2, 300))
    one, other = (Nets.of([(c, np.zeros(300))], 15) for c in (confidence_N, other_N))
    values = []
    for _ in range(800):
        u_N = rng.random(300)
        pair = [Nets.of([(c, u_N < c)], 15).values_S[0] for c in (confidence_N, other_N)]
        values.append(pair[0] - pair[1])
    assert np.std(values) < null_of(one, other).std()


def test_rows_that_are_alone_in_their_bins_tell_nothing() -> None:
    alone = np.array([0.1, 0.5, 0.9]), np.array([True, False, True])
    one = squared_calibration_error(CalibrationSums.from_top(*alone))
    assert (one.value, one.lower, one.upper, one.p_value) == (0, 0, 1, 1)
    together = np.full(3, 0.9), np.array([True, False, True])
    for first, second in ((alone, alone), (alone, together), (together, alone)):
        found = squared_calibration_difference([first], [second])
        assert found.lower is not None and found.upper is not None
        assert (found.lower, found.upper) == (max(found.mean - 1, -1), min(found.mean + 1, 1)) or found.lower == -1
