"""The NLL that temperature scaling leaves, and what a calibrator gave: against slow twins and known cases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pipeline.config import Evaluation
from tests import reference
from tests import reference_calibrators as reference_of_calibrators
from trueodds import calibrators, metrics
from trueodds.calibrators.temperature import SHRINKAGE
from trueodds.evaluation.improvement import post_hoc_improvement, refinement_nll
from trueodds.evaluation.measurement import measure
from trueodds.sums.inputs import softmax

Array = Any


def rows(n: int, classes: int = 4, seed: int = 0) -> tuple[Array, Array]:
    """Logits of a calibrated net, and labels drawn from what it says."""
    random = np.random.default_rng(seed)
    logits_NC = 2 * random.standard_normal((n, classes))
    labels_N = (softmax(logits_NC).cumsum(1) < random.random((n, 1))).sum(1)
    return logits_NC, labels_N


def nll(logits_NC: Array, labels_N: Array) -> float:
    return metrics.nll(softmax(logits_NC), labels_N)


def test_equals_the_slow_twin() -> None:
    logits, labels = rows(60)
    z, y = (3 * logits).tolist(), labels.tolist()
    low, high = 0.1, 20.0
    for _ in range(100):
        thirds = (2 * low + high) / 3, (low + 2 * high) / 3
        values = [reference_of_calibrators.shrunk_nll(z, y, t, SHRINKAGE) for t in thirds]
        low, high = (low, thirds[1]) if values[0] < values[1] else (thirds[0], high)
    expected = reference_of_calibrators.affine_nll(z, y, (np.eye(4) / low).tolist(), [0.0] * 4)
    assert refinement_nll(3 * logits, labels) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 5.0])
def test_sharper_or_flatter_logits_are_as_refined(sharpness: float) -> None:
    logits, labels = rows(4000)
    calibrated = nll(logits, labels)
    assert refinement_nll(sharpness * logits, labels) == pytest.approx(calibrated, rel=1e-3)
    if sharpness != 1:
        assert nll(sharpness * logits, labels) > 1.1 * calibrated


def test_other_rows_of_answers_are_less_refined() -> None:
    logits, labels = rows(4000)
    blurred = logits + np.random.default_rng(1).standard_normal((4000, 4))
    assert refinement_nll(blurred, labels) > 1.05 * refinement_nll(logits, labels)


def test_a_net_without_errors_and_one_that_says_nothing_are_finite() -> None:
    assert 0 <= refinement_nll(800 * np.eye(3), np.arange(3)) < 1e-6
    assert refinement_nll(np.zeros((6, 3)), np.arange(6) % 3) == pytest.approx(np.log(3))


def test_an_improvement_equals_the_slow_twin() -> None:
    logits, labels = rows(400)
    before, after = softmax(3 * logits), softmax(logits)
    found = post_hoc_improvement(before, after, labels, level=0.9)
    expected = reference.post_hoc_improvement(before.tolist(), after.tolist(), labels.tolist(), 0.9)
    for score, one in found.items():
        assert (one.value, one.lower, one.upper) == pytest.approx(expected[score], rel=1e-9)
    whole = metrics.brier(before, labels) - metrics.brier(after, labels)
    assert found["brier"].value == pytest.approx(whole, rel=1e-9)


def test_an_improvement_of_nothing_and_of_one_row() -> None:
    logits, labels = rows(50)
    p = softmax(logits)
    assert all((one.value, one.lower, one.upper) == (0, 0, 0) for one in post_hoc_improvement(p, p, labels).values())
    sure = softmax(2 * logits)
    back, forth = (post_hoc_improvement(*pair, labels)["nll"] for pair in ((p, sure), (sure, p)))
    assert back.value == -forth.value and back.lower == pytest.approx(-forth.upper)
    one = post_hoc_improvement(p[:1], softmax(2 * logits)[:1], labels[:1])["nll"]
    assert math.isfinite(one.value) and (one.lower, one.upper) == (-math.inf, math.inf)


def test_its_interval_covers() -> None:
    logits, labels = rows(200_000, seed=1)
    whole = post_hoc_improvement(softmax(2 * logits), softmax(logits), labels)
    inside = 0
    for seed in range(200):
        logits, labels = rows(400, seed=seed + 2)
        one = post_hoc_improvement(softmax(2 * logits), softmax(logits), labels)["brier"]
        inside += one.lower <= whole["brier"].value <= one.upper
    assert 180 <= inside <= 199


def test_its_interval_covers_where_errors_are_rare() -> None:
    """One answer in 100 is wrong. Student's limits lack it in samples where no answer is."""
    sharp, dull, truth = np.array([0.9999, 0.0001]), np.array([0.99, 0.01]), np.array([0.99, 0.01])
    mean = {"nll": float(truth @ np.log(dull / sharp))}
    mean["brier"] = float(truth @ [((sharp - e) ** 2).sum() - ((dull - e) ** 2).sum() for e in np.eye(2)])
    inside, students = dict.fromkeys(mean, 0), 0
    for seed in range(100):
        labels = (np.random.default_rng(seed).random(150) < 0.01).astype(int)
        before, after = np.tile(sharp, (150, 1)), np.tile(dull, (150, 1))
        found = post_hoc_improvement(before, after, labels)
        for name, value in mean.items():
            inside[name] += found[name].lower <= value <= found[name].upper
        students += _student_contains(np.log(after / before)[np.arange(150), labels], mean["nll"])
    assert students < 90 <= min(inside.values())


def _student_contains(difference_N: Array, mean: float) -> bool:
    half = stats.t.ppf(0.975, len(difference_N) - 1) * difference_N.std(ddof=1) / math.sqrt(len(difference_N))
    return bool(abs(difference_N.mean() - mean) <= half)


def test_both_stand_among_the_figures() -> None:
    logits, labels = rows(600)
    fitted = calibrators.fit(3 * logits[:300], labels[:300], "temperature")
    test = 3 * logits[300:], labels[300:]
    before, after = (measure(one, *test, Evaluation()).values for one in (calibrators.Identity(), fitted))
    assert (before["phi_nll"], before["phi_brier_lower"]) == (0, 0)
    assert after["phi_nll"] == pytest.approx(before["nll"] - after["nll"]) and after["phi_nll_lower"] > 0
    assert after["phi_brier"] == pytest.approx(before["brier"] - after["brier"])
    assert before["refinement_nll"] == pytest.approx(after["refinement_nll"], rel=1e-4), "T scales what T has scaled"
    assert after["refinement_nll"] < after["nll"] < before["nll"]
