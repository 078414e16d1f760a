"""Expected precision and recall without labels: a slow twin, special cases, coverage, and what is refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import binom

from trueodds.metrics import (
    CalibrationRows,
    ExpectedDecision,
    ExpectedShare,
    expected_class_decisions,
    expected_decisions,
    thresholds,
)

NAMES = ("precision", "recall", "specificity", "f1")


def shares(p_N: np.ndarray, y_N: np.ndarray, t: float) -> list[float | None]:
    """Return the shares of known labels, by counting one answer after another."""
    hits = alerts = positives = silent_negatives = 0
    for p, y in zip(p_N, y_N, strict=True):
        alerts += p > t
        positives += y
        hits += p > t and y
        silent_negatives += p <= t and not y
    negatives = len(p_N) - positives
    pairs = ((hits, alerts), (hits, positives), (silent_negatives, negatives), (2 * hits, alerts + positives))
    return [above / below if below else None for above, below in pairs]


@pytest.mark.parametrize("t", [0.3, 0.5, 0.8])
def test_twin_by_enumeration(t: float) -> None:
    """All 1,024 sets of labels of ten answers: the limits leave out at most 2.5% on either side, but no more."""
    p_N = np.array([0.03, 0.2, 0.31, 0.4, 0.55, 0.6, 0.7, 0.85, 0.9, 0.99])
    expected = expected_decisions(p_N, at=[t])[0]
    labels = [np.array(y) for y in product([0, 1], repeat=10)]
    chance = np.array([np.prod(np.where(y, p_N, 1 - p_N)) for y in labels])
    columns = zip(*(shares(p_N, y, t) for y in labels), strict=True)
    for name, column in zip(NAMES, columns, strict=True):
        share = getattr(expected, name)
        known = np.array([value is not None for value in column])
        value_K, chance_K = np.array([v for v in column if v is not None]), chance[known] / chance[known].sum()
        assert chance_K[value_K < share.lower - 1e-9].sum() < 0.025 + 0.015  # the draws' own error
        assert chance_K[value_K > share.upper + 1e-9].sum() < 0.025 + 0.015
        assert chance_K[value_K <= share.lower + 1e-9].sum() > 0.025 - 0.015
        assert chance_K[value_K >= share.upper - 1e-9].sum() > 0.025 - 0.015


def test_points_are_ratios_of_sums() -> None:
    p_N = np.random.default_rng(1).beta(0.4, 2, 500)
    one = expected_decisions(p_N, at=[0.25])[0]
    alert_N = p_N > 0.25
    hits, positives = p_N[alert_N].sum(), p_N.sum()
    assert (one.answers, one.alerts, one.alert_share) == (500, alert_N.sum(), alert_N.mean())
    assert one.precision.value == pytest.approx(p_N[alert_N].mean())
    assert one.recall.value == pytest.approx(hits / positives)
    assert one.specificity.value == pytest.approx((1 - p_N[~alert_N]).sum() / (500 - positives))
    assert one.f1.value == pytest.approx(2 * hits / (alert_N.sum() + positives))
    precision, recall = one.precision.value, one.recall.value
    assert precision and recall and one.f1.value == pytest.approx(2 / (1 / precision + 1 / recall))


def limits_of(share: ExpectedShare) -> tuple[float, float]:
    assert share.lower is not None and share.upper is not None
    return share.lower, share.upper


def test_precision_of_one_probability_is_binomial() -> None:
    one = expected_decisions(np.full(300, 0.8), at=[0.5])[0]
    assert limits_of(one.precision) == pytest.approx(binom.ppf([0.025, 0.975], 300, 0.8) / 300, abs=2 / 300)
    assert one.recall.value == one.recall.lower == one.recall.upper == 1.0
    assert one.specificity.value == 0.0


def test_counts_are_repeated_rows_and_alerts_agree_with_thresholds() -> None:
    p_N, count_N = np.array([0.1, 0.3, 0.5, 0.7]), np.array([40, 30, 20, 10])
    at = (0.05, 0.3, 0.5, 0.7)
    counted = expected_decisions(p_N, counts=count_N, at=at)
    for one, other in zip(counted, expected_decisions(np.repeat(p_N, count_N), at=at), strict=True):
        for name in NAMES:
            assert vars(getattr(one, name)) == pytest.approx(vars(getattr(other, name)))
    labelled = thresholds(np.repeat(p_N, count_N), np.zeros(100), at=at)
    assert [one.alerts for one in counted] == [one.alerts for one in labelled] == [100, 30, 10, 0]
    single = [expected_decisions(p_N, counts=count_N, at=[t])[0] for t in at]
    assert [one.precision.value for one in counted] == [one.precision.value for one in single]


def test_no_denominator_is_no_share() -> None:
    none = expected_decisions([0.1, 0.2], at=[0.9])[0]
    assert (none.precision.value, none.precision.lower, none.precision.upper) == (None, None, None)
    assert none.recall.value == 0.0
    never = expected_decisions([0.0, 0.0], at=[0.5])[0]
    assert never.recall.value is None and never.specificity.value == 1.0


def test_cells_widen_the_interval() -> None:
    """If p is only known to 1/6,000, the positives among a million small ones are not known well."""
    p_N, count_N = np.array([1 / 6000, 0.9]), np.array([1_000_000, 100])
    exact = expected_decisions(p_N, counts=count_N, at=[0.5])[0].recall
    rough = expected_decisions(p_N, counts=count_N, at=[0.5], within=1 / 6000)[0].recall
    assert rough.value == exact.value
    assert rough.lower is not None and exact.lower is not None and rough.lower < exact.lower
    assert rough.upper is not None and exact.upper is not None and rough.upper > 0.9 > exact.upper


def test_each_class_against_the_rest() -> None:
    p_NC = np.random.default_rng(3).dirichlet([1, 2, 0.5], 400)
    found = expected_class_decisions(p_NC)
    top_N = p_NC.argmax(axis=1)
    for k, one in enumerate(found):
        assert one.threshold is None and one.alerts == (top_N == k).sum()
        assert one.precision.value == pytest.approx(p_NC[top_N == k, k].mean())
        assert one.recall.value == pytest.approx(p_NC[top_N == k, k].sum() / p_NC[:, k].sum())
    two = expected_class_decisions(p_NC[:, :2] / p_NC[:, :2].sum(axis=1, keepdims=True))[1]
    p_N = p_NC[:, 1] / p_NC[:, :2].sum(axis=1)
    assert two.recall.value == pytest.approx(expected_decisions(p_N, at=[0.5])[0].recall.value)


def test_information_is_that_of_the_likelihood() -> None:
    """The Fisher information is the second derivative of the log-likelihood's expectation, numerically."""
    p_N = np.random.default_rng(0).beta(1, 3, 50)
    z_N, h = logit(p_N), 1e-4

    def loss(a: float, b: float) -> float:
        s_N = a + b * z_N
        return float((np.logaddexp(0, s_N) - p_N * s_N).sum())

    second = [
        (loss(h, 1) - 2 * loss(0, 1) + loss(-h, 1)) / h**2,
        (loss(h, 1 + h) - loss(h, 1 - h) - loss(-h, 1 + h) + loss(-h, 1 - h)) / (4 * h**2),
        (loss(0, 1 + h) - 2 * loss(0, 1) + loss(0, 1 - h)) / h**2,
    ]
    assert CalibrationRows.of(p_N).information == pytest.approx(second, rel=1e-4)


def fitted(z_N: np.ndarray, y_N: np.ndarray) -> np.ndarray:
    """Fit intercept and slope by maximum likelihood, with a trace of a penalty for separable rows."""

    def loss(map_2: np.ndarray) -> tuple[float, np.ndarray]:
        s_N = map_2[0] + map_2[1] * z_N
        off_N = expit(s_N) - y_N
        value = np.logaddexp(0, s_N).sum() - s_N @ y_N + 1e-3 * (map_2 @ map_2)
        return float(value), np.array([off_N.sum(), off_N @ z_N]) + 2e-3 * map_2

    found: np.ndarray = minimize(loss, [0.0, 1.0], jac=True, method="BFGS").x
    return found


@pytest.mark.full
@pytest.mark.parametrize(
    ("mean", "spread", "fit_rows", "answers"),
    [(0.0, 1.0, 0, 400), (-4.0, 1.0, 0, 5_000), (0.0, 4.0, 60, 2_000), (-1.0, 1.0, 300, 5_000)],
)
def test_coverage(mean: float, spread: float, fit_rows: int, answers: int) -> None:
    """Hidden labels lie inside in about 95% of 60 runs; 51 or fewer have a chance of .1%."""
    rng = np.random.default_rng(fit_rows + answers)
    inside = dict.fromkeys(NAMES, 0)
    for _ in range(60):
        z_N = rng.normal(mean, spread, answers)
        y_N, p_N, rows = rng.random(answers) < expit(z_N), expit(z_N), None
        if fit_rows:
            fit_z_N = rng.normal(mean, spread, fit_rows)
            map_2 = fitted(fit_z_N, (rng.random(fit_rows) < expit(fit_z_N)).astype(float))
            p_N, rows = expit(map_2[0] + map_2[1] * z_N), CalibrationRows.of(expit(map_2[0] + map_2[1] * fit_z_N))
        one = expected_decisions(p_N, at=[0.3], calibration=rows)[0]
        for name, share in zip(NAMES, shares(p_N, y_N, one.threshold or 0.3), strict=True):
            limits = getattr(one, name)
            inside[name] += share is None or limits.lower - 1e-12 <= share <= limits.upper + 1e-12
    assert min(inside.values()) >= 52, inside


def test_without_the_rows_of_the_fit_the_interval_is_too_narrow() -> None:
    """60 rows of a fit matter more than the hidden labels of 5,000 answers."""
    p_N = np.random.default_rng(5).beta(2, 2, 5_000)
    alone = expected_decisions(p_N, at=[0.5])[0].precision
    both = expected_decisions(p_N, at=[0.5], calibration=CalibrationRows.of(p_N[:60]))[0].precision
    assert both.upper - both.lower > 4 * (alone.upper - alone.lower)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: expected_decisions([0.5, 1.2]), "row 1 has the probability 1.2"),
        (lambda: expected_decisions([[0.5, 0.5]]), r"expected \(N,\)"),
        (lambda: expected_decisions([]), "no answers"),
        (lambda: expected_decisions([0.5], counts=[0]), "no answers"),
        (lambda: expected_decisions([0.5], counts=[1.5]), "whole numbers"),
        (lambda: expected_decisions([0.5], counts=[1, 2]), "one for each probability"),
        (lambda: expected_decisions([0.5], at=[-0.1]), "threshold -0.1"),
        (lambda: expected_decisions([0.5], level=1.0), "level"),
        (lambda: expected_decisions([0.5], within=-1), "within is -1"),
        (lambda: expected_decisions([float("nan")]), "row 0"),
        (lambda: expected_class_decisions([[0.5, 0.6]]), "sum"),
        (
            lambda: expected_class_decisions([[0.5, 0.5]], calibration=[CalibrationRows.of([0.5])]),
            "calibration has 1 classes",
        ),
        (lambda: CalibrationRows.of([]), "no calibration rows"),
    ],
)
def test_refusals(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]


def test_the_result_is_the_same_every_time() -> None:
    p_N = np.random.default_rng(7).random(100)
    first: ExpectedDecision = expected_decisions(p_N, at=[0.5])[0]
    assert expected_decisions(p_N, at=[0.5])[0] == first
