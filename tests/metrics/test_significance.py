"""The p-value of "calibrated": its level, its power, its statistic by hand and by a slow twin, its edges."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.streams import pool
from tests import reference_sequential as twin
from tests.metrics.rows import sums_of
from trueodds.metrics import CalibrationSums, calibration_test, ece, noise_floor
from trueodds.metrics.significance import calibration

Array = npt.NDArray[np.float64]


def rejected(shape: str, n: int, runs: int, off: npt.NDArray[Any] | float = 0.0, seed: int = 0) -> tuple[float, float]:
    """Share of runs with p <= .05, and of those in which the plug-in ECE exceeds its floor's 95th percentile."""
    confidence = pool(shape, 4_000).confidence_M
    chance = np.clip(confidence + off, 0, 1)
    rng = np.random.default_rng([seed, n])
    count_2 = np.zeros(2)
    for _ in range(runs):
        row = rng.integers(0, len(confidence), n)
        sums = CalibrationSums.from_top(confidence[row], rng.random(n) < chance[row])
        count_2 += calibration_test(sums).p_value <= 0.05, ece(sums) > noise_floor(sums).p95
    return count_2[0] / runs, count_2[1] / runs


@pytest.mark.few(2)
@pytest.mark.parametrize(("shape", "n"), [("A", 50), ("B", 50), ("C", 50), ("A", 500), ("C", 200), ("B", 20_000)])
def test_level(shape: str, n: int) -> None:
    """5% of 100 calibrated runs: 13 or more have a probability of .15%."""
    assert rejected(shape, n, 100)[0] < 0.125


def test_level_is_exact_where_errors_are_rare() -> None:
    """100 rows at .999: .1 errors expected. One error has probability 9.5%, two .5%: only the latter is significant."""
    p = [calibration_test(CalibrationSums.from_top([0.999] * 100, [0] * k + [1] * (100 - k))).p_value for k in range(4)]
    assert p[0] == 1
    assert p[1] == pytest.approx(0.095, abs=0.02)  # 1,999 draws: 3 standard errors
    assert p[2] == pytest.approx(0.0047, abs=0.0047)
    assert p[3] <= 2 / 2000


@pytest.mark.full
def test_power_for_spread_and_for_local_error() -> None:
    """More than the plug-in ECE for a gap of one sign, for one bin, and for signs that change from bin to bin."""
    c = pool("B", 4_000).confidence_M
    for off, least in ((np.full(len(c), -0.01), 0.9), (-0.01 * (c > 14 / 15), 0.85)):
        test, plug_in = rejected("B", 3_000, 30, off)
        assert test >= least
        assert test > plug_in
    c = pool("C", 4_000).confidence_M
    assert rejected("C", 6_000, 30, np.where(np.ceil(c * 15) % 2, 0.03, -0.03))[0] > 0.85


def test_what_speaks_loudest() -> None:
    rng = np.random.default_rng(0)
    c = rng.uniform(0.5, 1, 20_000)
    off = {
        "shift": -0.03 * np.ones(len(c)),
        "smooth": 0.08 * (c - 0.75),
        "jagged": np.where(np.ceil(c * 15) % 2, 0.04, -0.04),
    }
    for pattern, by in off.items():
        result = calibration_test(CalibrationSums.from_top(c, rng.random(len(c)) < c + by))
        assert result.pattern == pattern
        assert result.p_value <= 0.001
        assert "more than chance" in result.reading


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0.01, 0.99), st.integers(0, 1)), min_size=1, max_size=30), st.sampled_from([1, 15]))
def test_statistic_equals_its_twin(rows: list[twin.Row], bins: int) -> None:
    scores = twin.smooth_scores(rows, bins)
    result = calibration_test(sums_of(rows), bins=bins)
    assert result.statistic == pytest.approx(max(scores), abs=1e-8)


@pytest.mark.parametrize("off", [0, 2, 5])
def test_p_value_against_every_outcome(off: int) -> None:
    """8 rows: all 256 outcomes and their probabilities; the draws may err by 3 standard errors."""
    confidence = [0.55, 0.6, 0.62, 0.7, 0.8, 0.85, 0.93, 0.97]
    rows = [(c, int(i >= off)) for i, c in enumerate(confidence)]
    observed, exact = max(twin.smooth_scores(rows, 15)), 0.0
    for outcome in itertools.product((0, 1), repeat=8):
        if max(twin.smooth_scores(list(zip(confidence, outcome, strict=True)), 15)) >= observed - 1e-9:
            exact += math.prod(c if a else 1 - c for c, a in zip(confidence, outcome, strict=True))
    p_value = calibration_test(sums_of(rows)).p_value
    assert p_value == pytest.approx(exact, abs=3 * math.sqrt(exact * (1 - exact) / 2000) + 1e-3)


def test_one_confidence_by_hand() -> None:
    """n rows at .5, k right: Z_1 = (k - n/2) / (sqrt(n)/2), the other waves vanish; a two-sided binomial test."""
    result = calibration_test(CalibrationSums.from_top([0.5] * 64, [1] * 44 + [0] * 20))
    z = (44 - 32) / 4
    assert result.statistic == pytest.approx((z**2 - 1) / math.sqrt(2))
    tail = 2 * sum(math.comb(64, k) for k in range(44, 65)) / 2**64
    assert result.p_value == pytest.approx(tail, abs=0.0035)


def test_exact_and_normal_draws_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Just below the bound both are at hand: the p-values differ by what 2,000 draws leave open."""
    rng = np.random.default_rng(3)
    for _ in range(6):
        c = rng.uniform(0.5, 1, 850)  # sum c(1-c) about 142
        sums = CalibrationSums.from_top(c, rng.random(850) < c - 0.02)
        exact = calibration_test(sums).p_value
        with monkeypatch.context() as patch:
            patch.setattr(calibration, "EXACT_BELOW", 0.0)
            normal = calibration_test(sums).p_value
        assert exact != normal
        assert exact == pytest.approx(normal, abs=4 * math.sqrt(0.25 / 2000))


def test_order_does_not_matter_and_answers_repeat() -> None:
    rng = np.random.default_rng(1)
    c, a = rng.random(300), rng.integers(0, 2, 300)
    order = rng.permutation(300)
    one = calibration_test(CalibrationSums.from_top(c, a))
    other = calibration_test(CalibrationSums.from_top(c[order], a[order]))
    assert one == calibration_test(CalibrationSums.from_top(c, a))
    assert one.p_value == other.p_value
    assert one.statistic == pytest.approx(other.statistic)


def test_certain_answers() -> None:
    wrong = calibration_test(CalibrationSums.from_top([1.0] * 9 + [0.7], [1] * 8 + [0, 1]))
    assert (wrong.p_value, wrong.pattern) == (0.0, "impossible")
    assert "a confidence of 0 or 1 was wrong" in wrong.reading
    right = calibration_test(CalibrationSums.from_top([1.0] * 9 + [0.0], [1] * 9 + [0]))
    assert right.p_value == 1
    assert "no larger than chance" in right.reading


def test_what_subtraction_leaves_is_no_answer() -> None:
    """8.9e-16 of confidence stay in a cell of certain, right answers: not an error where none can be."""
    near = CalibrationSums.from_top([0.9998] * 2, [1] * 2)
    left = (CalibrationSums.from_top([1.0] * 7, [1] * 7) + near) - near
    assert left.total("confidence") > 7
    assert calibration_test(left).p_value == 1


@pytest.mark.parametrize("confidence", [5e-324, 1e-17, 1 - 1e-16, 0.5])
def test_tiny_variances_are_no_trouble(confidence: float) -> None:
    result = calibration_test(CalibrationSums.from_top([confidence, 0.9, 0.4], [confidence > 0.6, 1, 0]))
    assert 0.1 < result.p_value <= 1
    assert math.isfinite(result.statistic)


def test_input_is_checked() -> None:
    assert calibration_test([[0.7, 0.3]], [0]).p_value == calibration_test(CalibrationSums.from_top([0.7], [1])).p_value
    with pytest.raises(ValueError, match="bins is 7"):
        calibration_test([[0.7, 0.3]], [0], bins=7)
    with pytest.raises(ValueError, match="no labelled rows"):
        calibration_test(CalibrationSums.zero())
