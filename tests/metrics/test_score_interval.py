"""Intervals of NLL and Brier: Student's, and the limits of rare errors, from sums and squares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests import reference
from trueodds.metrics import CalibrationSums, score_interval, softmax


def sums_of(nll: Any, brier: Any, wrong: int | None = None) -> CalibrationSums:
    """Rows of confidence .7, the last half of them wrong unless it is said how many are."""
    n = len(nll)
    correct = np.arange(n) < n - (n // 2 if wrong is None else wrong)
    return CalibrationSums.from_top(np.full(n, 0.7), correct, nll_N=nll, brier_N=brier)


def two_classes(right: int, wrong: int, c: float) -> CalibrationSums:
    """Rows that all say c of two classes."""
    correct = np.arange(right + wrong) < right
    nll, brier = -np.log(np.where(correct, c, 1 - c)), 2 * np.where(correct, 1 - c, c) ** 2
    return CalibrationSums.from_top(np.full(len(correct), c), correct, nll_N=nll, brier_N=brier)


def test_by_hand() -> None:
    """Half of 80 rows lose .4, half (wrong) 1.2: mean .8, s^2 = .16 x 80 / 79, t(79, .975) = 1.99045."""
    interval = score_interval(sums_of([0.4] * 40 + [1.2] * 40, [0.2] * 40 + [1.0] * 40))
    half = 1.990450210 * math.sqrt(0.16 / 79)
    assert (interval.value, interval.lower, interval.upper) == pytest.approx((0.8, 0.8 - half, 0.8 + half))
    brier = score_interval(sums_of([0.4] * 40 + [1.2] * 40, [0.2] * 40 + [1.0] * 40), score="brier", level=0.5)
    half = 0.677608 * math.sqrt(0.16 / 79)
    assert (brier.value, brier.lower, brier.upper) == pytest.approx((0.6, 0.6 - half, 0.6 + half), rel=1e-6)


def test_limits_stay_where_scores_can_be() -> None:
    assert score_interval(sums_of([0.0, 0.1], [2.0, 1.0]), score="brier").upper == 2
    assert score_interval(sums_of([0.0, 0.1], [2.0, 1.0])).lower == 0
    one = score_interval(sums_of([0.3], [0.2]))
    assert (one.value, one.lower, one.upper) == (0.3, 0, math.inf)


@pytest.mark.parametrize(("right", "wrong"), [(50, 0), (999, 1), (993, 7), (4981, 19)])
def test_errors_of_one_price_have_the_exact_limits_of_their_number(right: int, wrong: int) -> None:
    """c = .999 of two classes: an error costs log 1,000, so the limits are those of a Poisson count (Garwood 1936)."""
    n, interval = right + wrong, score_interval(two_classes(right, wrong, 0.999))

    def below(k: int, mean: float) -> float:
        return sum(math.exp(j * math.log(mean) - mean - math.lgamma(j + 1)) for j in range(k + 1))

    most = reference.bisect(lambda mean: 0.025 - below(wrong, mean), 1e-9, 100)
    least = reference.bisect(lambda mean: 0.975 - below(wrong - 1, mean), 1e-9, 100) if wrong else 0.0
    sure = right * -math.log(0.999)
    assert interval.value == pytest.approx((sure + wrong * math.log(1000)) / n)
    # of n answers the errors are binomial and vary less, by a share of wrong / n
    assert n * interval.upper == pytest.approx(sure + most * math.log(1000), rel=0.005)
    assert n * interval.lower == pytest.approx(sure + least * math.log(1000), rel=0.02)


@pytest.mark.parametrize("score", ["nll", "brier"])
@pytest.mark.parametrize("wrong", [(), (3,), (1, 4, 8, 10)])
def test_rare_errors_equal_their_twin(wrong: tuple[int, ...], score: Any) -> None:
    """Ten classes, a row in each of 12 cells; the other classes share evenly, so they count as 9."""
    confidence = [0.62 + 0.03 * k for k in range(12)]
    correct = [int(k not in wrong) for k in range(12)]
    nll = [-math.log(c if a else (1 - c) / 9) for c, a in zip(confidence, correct, strict=True)]
    brier = []
    for c, a in zip(confidence, correct, strict=True):
        others = 9 * ((1 - c) / 9) ** 2
        brier.append(c**2 + others + 1 - 2 * (c if a else (1 - c) / 9))
    interval = score_interval(CalibrationSums.from_top(confidence, correct, nll_N=nll, brier_N=brier), score=score)
    losses = nll if score == "nll" else brier
    if_wrong = [-math.log((1 - c) / 9) if score == "nll" else 1 + c**2 for c in confidence]
    lower, upper = reference.rare_error_limits(losses, correct, if_wrong, 0.025, 2.200985160)
    assert (interval.lower, interval.upper) == pytest.approx((lower, upper), rel=1e-6)


@pytest.mark.parametrize("n", [50, 200, 1000, 5000])
@pytest.mark.parametrize("errors", [0.0003, 0.001, 0.003])
def test_coverage_of_near_certain_answers(errors: float, n: int) -> None:
    """.999 of two classes, as often wrong as that or not: sums depend on the number of errors only, so this is exact.

    Student's interval covers .02 to .9. Two-sided 95% is promised down to 93%.
    """
    truth = {
        "nll": -(1 - errors) * math.log(0.999) - errors * math.log(0.001),
        "brier": 2 * (1 - errors) * 0.001**2 + 2 * errors * 0.999**2,
    }
    covered = dict.fromkeys(truth, 0.0)
    for wrong in range(45):
        chance = math.comb(n, wrong) * errors**wrong * (1 - errors) ** (n - wrong)
        for score, value in truth.items():
            interval = score_interval(two_classes(n - wrong, wrong, 0.999), score=score)  # type: ignore[arg-type]
            covered[score] += chance * (interval.lower <= value <= interval.upper)
    assert min(covered.values()) >= 0.93


def test_coverage_of_few_rows_with_few_errors() -> None:
    """50 answers of a calibrated net that is right in 95%: in 300 runs less than 269 has probability .1% at 93%.

    benchmarks/intervals/scores.py has the full table; Student's interval covers 84%.
    """
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 1.2, (4000, 10))
    logits[:, 0] += np.maximum(rng.normal(10, 4.1, 4000), 0)
    p_NC = softmax(logits)
    truth, held = float(-(p_NC * np.log(p_NC)).sum(axis=1).mean()), 0
    for _ in range(300):
        drawn = p_NC[rng.integers(0, 4000, 50)]
        labels = np.minimum((drawn.cumsum(axis=1) < rng.random((50, 1))).sum(axis=1), 9)
        interval = score_interval(drawn, labels)
        held += interval.lower <= truth <= interval.upper
    assert held >= 269


def test_many_errors_leave_students_interval() -> None:
    """5,000 rows, 250 errors: not a bit wider."""
    interval = score_interval(two_classes(4750, 250, 0.9))
    loss = np.repeat([-math.log(0.9), -math.log(0.1)], [4750, 250])
    half = 1.960439 * loss.std(ddof=1) / math.sqrt(5000)
    assert (interval.lower, interval.upper) == pytest.approx((loss.mean() - half, loss.mean() + half), rel=1e-6)


def test_a_model_that_is_hardly_ever_right() -> None:
    """All 50 wrong at .999: the share of right answers may be .071, so the NLL may be as low as .929 x 6.9."""
    interval = score_interval(two_classes(0, 50, 0.999))
    assert interval.lower == pytest.approx(0.025 ** (1 / 50) * math.log(1000), rel=1e-6)
    assert interval.upper == pytest.approx(math.log(1000))


def test_coverage() -> None:
    """Exponential losses, 1,000 rows: 95% of 400 intervals hold the mean; fewer than 362 has probability .1%."""
    rng = np.random.default_rng(0)
    intervals = [score_interval(sums_of(rng.exponential(0.5, 1000), np.zeros(1000))) for _ in range(400)]
    assert 362 <= sum(one.lower <= 0.5 <= one.upper for one in intervals) <= 396


def test_input_is_checked() -> None:
    with pytest.raises(ValueError, match="unknown score 'mse'; allowed: nll, brier"):
        score_interval(sums_of([1.0], [1.0]), score="mse")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hold no nll"):
        score_interval(CalibrationSums.from_top([0.5, 0.5], [1, 1]))
    with pytest.raises(ValueError, match="level is 1"):
        score_interval(sums_of([1.0], [1.0]), level=1)


def test_one_dear_error_that_was_not_seen_is_named() -> None:
    """200 rows at .8, 40 wrong, and 40 at 1 - 1e-9, all right: a wrong one of these would cost 9 log 10 nats."""
    rng = np.random.default_rng(0)
    confidence = np.append(np.full(200, 0.8), np.full(40, 1 - 1e-9))
    right = np.append(rng.permutation(200) >= 40, np.ones(40, bool))
    p = np.stack([1 - confidence, confidence], axis=1)
    interval = score_interval(p, right.astype(int))
    assert interval.unseen is not None and interval.unseen == pytest.approx(9 * math.log(10), abs=0.1)
    n, wrong = len(right), right.copy()
    assert interval.value + interval.unseen / n > interval.upper
    wrong[-1] = False
    seen = score_interval(p, wrong.astype(int))
    assert seen.value > interval.upper and seen.unseen is None and seen.upper > seen.value + interval.unseen / n


def test_nothing_is_named_where_one_error_changes_little() -> None:
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.6, 0.99, 5000)
    right = rng.random(5000) < confidence
    p = np.stack([1 - confidence, confidence], axis=1)
    assert score_interval(p, right.astype(int)).unseen is None
    assert score_interval(p, right.astype(int), score="brier").unseen is None
