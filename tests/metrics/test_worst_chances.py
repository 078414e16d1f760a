"""Chances of groups to be the worst one: against slow twins, and sums that stay unbiased if labels follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.evidence.label_queue import steer
from trueodds.metrics import label_propensities, worst_chances
from trueodds.metrics.labelling.worst_chances import PRIOR_GAP, largest_chances


@pytest.mark.parametrize("groups", [1, 2, 6, 25])
def test_chances_are_those_of_drawn_gaps(groups: int) -> None:
    rng = np.random.default_rng(groups)
    mean_G, deviation_G = rng.normal(0, 0.05, groups), rng.uniform(0.004, 0.1, groups)
    largest_R = np.abs(rng.normal(mean_G, deviation_G, (100_000, groups))).argmax(axis=1)
    chance_G = largest_chances(mean_G, deviation_G)
    assert np.abs(np.bincount(largest_R, minlength=groups) / 100_000 - chance_G).max() < 0.008
    assert chance_G.sum() == pytest.approx(1)


def test_many_groups_with_labels_take_fewer_points() -> None:
    rng = np.random.default_rng(0)
    mean_G, deviation_G = rng.normal(0, 0.05, 1_500), np.full(1_500, 0.05)
    chance_G = largest_chances(mean_G, deviation_G)
    assert chance_G.sum() == pytest.approx(1) and np.argmax(chance_G) == np.argmax(np.abs(mean_G))


def test_estimates_are_weighted_one_label_at_a_time() -> None:
    rng = np.random.default_rng(1)
    c_N, a_N, p_N = rng.uniform(0.5, 1, 90), rng.random(90) < 0.6, rng.uniform(0.1, 1, 90)
    groups: list[str | None] = [("a", "b", None)[k % 3] for k in range(90)]
    found = {one.group: one for one in worst_chances(c_N, a_N, groups, ["a", None, "new"], propensity_N=p_N)}
    assert set(found) == {"a", None, "new"} and (found["new"].labels, found["new"].signed_gap) == (0, None)
    mean, deviation = [], []
    for name in ("a", None):
        rows = [k for k in range(90) if groups[k] == name]
        weight = sum(1 / p_N[k] for k in rows)
        gap = sum((a_N[k] - c_N[k]) / p_N[k] for k in rows) / weight
        variance = sum((c_N[k] * (1 - c_N[k]) + 0.01) / p_N[k] ** 2 for k in rows) / weight**2
        assert found[name].labels == 30 and found[name].signed_gap == pytest.approx(gap)
        mean.append(gap * PRIOR_GAP**2 / (PRIOR_GAP**2 + variance))
        deviation.append((PRIOR_GAP**2 * variance / (PRIOR_GAP**2 + variance)) ** 0.5)
    expected = largest_chances(np.array([*mean, 0.0]), np.array([*deviation, PRIOR_GAP]))
    assert [found[name].chance for name in ("a", None, "new")] == pytest.approx(expected)


def test_labels_without_a_propensity_do_not_count_beside_drawn_ones() -> None:
    """Complaints, which are all wrong, would make the tag look bad."""
    c, a, tags = [0.9] * 30, [True] * 18 + [False] * 12, ["night"] * 30
    p = [0.5] * 20 + [np.nan] * 10
    (one,) = worst_chances(c, a, tags, ["night"], propensity_N=p)
    assert one.labels == 20 and one.signed_gap == pytest.approx(0)
    (all_,) = worst_chances(c, a, tags, ["night"], propensity_N=[np.nan] * 30)
    assert all_.labels == 30


def test_without_labels_all_groups_are_equal() -> None:
    assert [one.chance for one in worst_chances([], [], [], ["a", "b", "c", "b"])] == pytest.approx([1 / 3] * 3)


def test_shares_beyond_the_floor_are_the_chances() -> None:
    groups = ["a"] * 100 + ["b"] * 300
    propensity = label_propensities(
        [0.8] * 400, 40, goal="group", groups_N=groups, chances={"a": 0.75, "b": 0.25}, floor=0.5
    )
    assert propensity[:100].sum() == pytest.approx(5 + 15) and propensity[100:].sum() == pytest.approx(15 + 5)
    certain = label_propensities([0.8] * 400, 40, goal="group", groups_N=groups, chances={"a": 1.0, "b": 0.0})
    assert certain.min() == pytest.approx(0.05) and certain.sum() == pytest.approx(40)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chances": {"a": 1.0}}, "chances lack the group 'b'"),
        ({"chances": {"a": 1.5, "b": 0.1}}, "chances hold 1.5; allowed is"),
        ({"chances": {"a": 0.5, "b": 0.5}, "group": "a"}, "chances are for the goal 'group' without a group"),
        ({"chances": {}, "goal": "ece", "groups_N": None}, "chances are for the goal 'group'"),
    ],
)
def test_bad_chances(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        label_propensities([0.8, 0.9], 1, **{"goal": "group", "groups_N": ["a", "b"], **change})


def test_bad_labels() -> None:
    with pytest.raises(ValueError, match="names is empty"):
        worst_chances([], [], [], [])
    with pytest.raises(ValueError, match="groups has 1 rows for 2 labels"):
        worst_chances([0.9, 0.8], [True, True], ["a"], ["a"])
    with pytest.raises(ValueError, match=r"propensity holds 0.0; allowed is \(0, 1\]"):
        worst_chances([0.9], [True], ["a"], ["a"], propensity_N=[0.0])
    with pytest.raises(ValueError, match="propensity has shape"):
        worst_chances([0.9], [True], ["a"], ["a"], propensity_N=[0.5, 0.5])


@pytest.mark.full
def test_sums_stay_unbiased_while_labels_go_to_the_worst_tag() -> None:
    """12 draws in each of 14 runs: the mean error of the weighted sum lies within 5 standard errors (1 in 4,000)."""
    rng = np.random.default_rng(5)
    found, _, bias = zip(*(steer("D", 1, "steered", rng) for _ in range(14)), strict=True)
    assert abs(np.mean(bias)) < 5 * np.std(bias, ddof=1) / 14**0.5
    assert np.mean([one is not None for one in found]) > 0.9
