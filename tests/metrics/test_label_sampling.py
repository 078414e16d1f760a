"""Propensities and samples of answers to label: against slow twins, by properties, and by simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.shapes import chance_at, pool_logits
from trueodds.metrics import draw_labels, inverse_probability_ece, label_propensities
from trueodds.processes.choices import LABEL_GOALS

Array = npt.NDArray[np.float64]
some_confidences = st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]) | st.floats(0, 1), min_size=1, max_size=40)


def twin_weights(
    confidence: list[float], goal: str, threshold: float, groups: list[str], group: str | None
) -> list[float]:
    """The weights as the documentation states them, one answer at a time."""
    spread = [math.sqrt(c * (1 - c) + 0.01) for c in confidence]
    if goal == "plain":
        return [1.0] * len(confidence)
    if goal == "ece":
        return spread
    if goal == "threshold":
        odds = [math.inf if c == 1 else c / (1 - c) for c in confidence]
        return [s * min(1.0, o / (threshold / (1 - threshold))) for s, o in zip(spread, odds, strict=True)]
    if group is not None:
        return [s * (name == group) for s, name in zip(spread, groups, strict=True)]
    weights = []
    for s, name in zip(spread, groups, strict=True):
        of_group = [other for other, its in zip(spread, groups, strict=True) if its == name]
        weights.append(s / sum(of_group) * sum(x * x for x in of_group) / len(of_group))
    return weights


def twin_fill(weights: list[float], budget: int, floor: float) -> list[float]:
    """Find lambda by halving; what answers of weight 0 cannot get by lambda, they share."""

    def filled(scale: float) -> list[float]:
        return [min(1.0, floor + scale * w) for w in weights]

    low, high = 0.0, 1.0
    while sum(filled(high)) < budget and high < 1e200:
        high *= 2
    for _ in range(2_000):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(filled(middle)) < budget else (low, middle)
    result = filled(high)
    zero = [k for k, w in enumerate(weights) if w == 0]
    if missing := budget - sum(result):
        for k in zero:
            result[k] += missing / len(zero)
    return result


@settings(max_examples=60, deadline=None)
@given(st.data(), some_confidences, st.sampled_from([*LABEL_GOALS, "one group"]), st.sampled_from([0.01, 0.5, 1.0]))
def test_propensities_equal_their_twin(data: st.DataObject, confidence: list[float], goal: str, floor: float) -> None:
    count = len(confidence)
    budget = data.draw(st.integers(1, count))
    groups = data.draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=count, max_size=count))
    options: dict[str, Any] = {"goal": goal, "floor": floor}
    group = groups[0] if goal == "one group" else None
    if goal == "threshold":
        options["threshold"] = 0.8
    elif goal in ("group", "one group"):
        options |= {"goal": "group", "groups_N": groups, "group": group}
    found = label_propensities(confidence, budget, **options)
    expected = twin_fill(twin_weights(confidence, options["goal"], 0.8, groups, group), budget, floor * budget / count)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert found.sum() == pytest.approx(budget, abs=1e-9)
    assert (found >= floor * budget / count - 1e-12).all() and (found <= 1).all()


def test_known_cases() -> None:
    np.testing.assert_allclose(label_propensities([0.3, 0.9, 0.99], 3), 1.0)
    np.testing.assert_allclose(label_propensities([0.3, 0.9, 0.99, 1.0], 1, floor=1), 0.25)
    # An answer of weight 0 keeps the floor, 0.2 * 2 / 4; the others share what is left.
    found = label_propensities([0.5] * 4, 2, goal="group", groups_N=["a", "a", "b", None], group="a", floor=0.2)
    np.testing.assert_allclose(found, [0.9, 0.9, 0.1, 0.1])
    # The answers of the group are all drawn, and the rest of the budget is shared.
    found = label_propensities([0.5] * 4, 3, goal="group", groups_N=["a", "a", "b", None], group="a", floor=0.2)
    np.testing.assert_allclose(found, [1, 1, 0.5, 0.5])
    # Two groups of one spread: the smaller one gets as many labels as the larger one.
    found = label_propensities([0.5] * 10, 4, goal="group", groups_N=["a"] * 8 + ["b"] * 2, floor=1e-9)
    np.testing.assert_allclose(found, [0.25] * 8 + [1.0] * 2, atol=1e-6)


def test_ece_has_the_smallest_variance_of_all_sums() -> None:
    """No other propensities of the same sum have a smaller sum of s^2 / pi."""
    rng = np.random.default_rng(1)
    confidence_N = rng.random(200)
    square_N = confidence_N * (1 - confidence_N) + 0.01
    best_N = label_propensities(confidence_N, 20, floor=1e-9)
    least = (square_N / best_N).sum()
    for _ in range(200):
        other_N = np.clip(best_N + rng.normal(0, 0.02, 200), 0.001, 1)
        other_N *= 20 / other_N.sum()
        assert (square_N / other_N).sum() >= least


@pytest.mark.few(2)
@pytest.mark.parametrize("method", ["poisson", "systematic"])
@pytest.mark.parametrize(("shape", "temperature"), [("A", 1.5), ("C", 1.0), ("D", 2.5)])
def test_weighted_sums_are_unbiased(method: Any, shape: str, temperature: float) -> None:
    """Sharp and dull nets, rare and common errors, and a tag of 2%."""
    logits_NC = pool_logits(shape, 400, 3)
    confidence_N, right_N = chance_at(logits_NC, 1.0), chance_at(logits_NC, temperature)
    rng = np.random.default_rng(2)
    correct_N, tag_N = rng.random(400) < right_N, rng.random(400) < 0.02
    propensity_N = label_propensities(confidence_N, 60)
    values = np.stack([np.ones(400), correct_N, correct_N - confidence_N, tag_N * (correct_N - confidence_N)])
    sums = []
    for seed in range(3_000):
        drawn = draw_labels(propensity_N, method=method, seed=seed)
        sums.append((values[:, drawn] / propensity_N[drawn]).sum(axis=1))
    error_4 = np.mean(sums, axis=0) - values.sum(axis=1)
    assert (np.abs(error_4) < 4 * np.std(sums, axis=0) / 3_000**0.5 + 1e-9).all()


@settings(max_examples=50)
@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=30), st.integers(0, 2**32))
def test_systematic_is_the_walk(propensity: list[float], seed: int) -> None:
    u, reached, expected = float(np.random.default_rng(seed).random()), 0.0, []
    for k, p in enumerate(propensity):
        before, reached = reached, reached + p
        if p == 1 or math.floor(reached - u) > math.floor(before - u):
            expected.append(k)
    found = draw_labels(propensity, seed=seed)
    assert found.tolist() == expected
    assert abs(len(found) - sum(propensity)) < 1 + 1e-9


def test_each_answer_is_drawn_with_its_propensity() -> None:
    propensity_N = np.array([0.02, 0.3, 0.3, 0.98, 1.0, 0.4])
    for method in ("poisson", "systematic"):
        drawn = np.zeros(6)
        for seed in range(4_000):
            drawn[draw_labels(propensity_N, method=method, seed=seed)] += 1
        assert (
            np.abs(drawn / 4_000 - propensity_N) < 4 * np.sqrt(propensity_N * (1 - propensity_N) / 4_000) + 1e-9
        ).all()


def test_the_interval_covers_and_is_narrower_where_the_net_is_nearly_calibrated() -> None:
    logits_NC = pool_logits("A", 10_000, 8)
    confidence_N = chance_at(logits_NC, 1.0)
    order_N, rng = np.argsort(confidence_N), np.random.default_rng(3)
    widths, missed = {}, 0
    for goal in ("plain", "ece"):
        propensity_N = label_propensities(confidence_N, 1_000, goal=goal)
        intervals = []
        for seed in range(12):
            drawn = order_N[draw_labels(propensity_N[order_N], seed=seed)]
            right = rng.random(len(drawn)) < confidence_N[drawn]
            intervals.append(inverse_probability_ece(confidence_N[drawn], right, propensity_N[drawn]).interval)
        widths[goal] = np.mean([one.upper - one.lower for one in intervals])
        missed += sum(one.lower > 0 for one in intervals)
    assert widths["ece"] < 0.93 * widths["plain"] and missed <= 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 0}, "budget is 0; allowed is a whole number from 1 to the number of answers, 3"),
        ({"budget": 4}, "budget is 4; allowed"),
        ({"budget": 1.5}, "budget is 1.5; allowed"),
        ({"floor": 0}, r"floor is 0; allowed is \(0, 1\]"),
        ({"floor": 1.1}, "floor is 1.1; allowed"),
        ({"goal": "eec"}, "unknown goal 'eec'.*Did you mean 'ece'"),
        ({"goal": "threshold"}, "'threshold' needs a threshold, such as 0.93"),
        ({"threshold": 0.9}, "'ece' takes no threshold; leave it out"),
        ({"goal": "threshold", "threshold": 1.0}, r"threshold is 1.0; allowed is \(0, 1\)"),
        ({"goal": "group"}, "'group' needs the group of each answer"),
        ({"groups_N": ["a"] * 3}, "'ece' takes no groups"),
        ({"goal": "group", "groups_N": ["a"]}, "groups has 1 rows for 3 answers"),
        ({"goal": "group", "groups_N": ["day", None, "day"], "group": "dya"}, "unknown group 'dya'; allowed: day"),
        ({"group": "a"}, "'ece' takes no group; leave 'a' out"),
        ({"confidence_N": [0.5, 1.2, 0.4]}, r"confidence holds 1.2; allowed is \[0, 1\]"),
        ({"confidence_N": [0.5, math.nan, 0.4]}, "confidence holds nan"),
        ({"confidence_N": []}, r"confidence has shape \(0,\)"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    given_options: dict[str, Any] = {"confidence_N": [0.5, 0.6, 0.9], "budget": 2, **options}
    with pytest.raises(ValueError, match=words):
        label_propensities(**given_options)


def test_bad_draws() -> None:
    for propensity, words in (([0.0], "holds 0.0"), ([1.2], "holds 1.2"), ([math.nan], "nan"), ([[0.5]], "shape")):
        with pytest.raises(ValueError, match=words):
            draw_labels(propensity)
    with pytest.raises(ValueError, match="unknown method 'pps'"):
        draw_labels([0.5], method="pps")  # type: ignore[arg-type]
