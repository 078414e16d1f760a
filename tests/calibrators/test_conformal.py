"""Conformal sets: scores against a slow twin, ranks against their definition, refusals, and storing."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from trueodds.calibrators import conformal
from trueodds.calibrators.conformal import ConformalSets, LiveSets, SetRule, SetSettings
from trueodds.calibrators.conformal.ranks import fewest_rows
from trueodds.errors import ConfigError
from trueodds.processes.choices import SetMethod
from trueodds.sums.inputs import Array, softmax

Rows = tuple[Array, Any]


def population(rows: int, classes: int, seed: int, spread: float = 2.0, *, honest: bool = True) -> Rows:
    """Draw probabilities and labels. The labels follow the probabilities if they are honest, else flatter ones."""
    rng = np.random.default_rng(seed)
    logits_NC = rng.normal(0, spread, (rows, classes))
    true_NC = softmax(logits_NC if honest else logits_NC / 2)
    labels_N = (true_NC.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return softmax(logits_NC), labels_N


def slow_score(p: list[float], k: int, method: str, u: float, penalty: float, free: int) -> float:
    """Compute the score of class k as the papers define it: by a loop over sorted classes."""
    if method in ("lac", "class"):
        return 1 - p[k]
    total = 0.0
    for rank, j in enumerate(sorted(range(len(p)), key=lambda j: (-p[j], j)), start=1):
        if j == k:
            extra = penalty * max(0, rank - free) if method == "raps" else 0.0
            return total + u * p[j] + extra
        total += p[j]
    raise AssertionError


@pytest.mark.parametrize("method", conformal.SET_METHODS)
def test_scores_are_those_of_the_slow_twin(method: SetMethod) -> None:
    p_NC, _ = population(40, 6, 1)
    p_NC[0] = 1 / 6  # ties
    draws_N = np.random.default_rng(2).random(40)
    scores_NC = conformal.scores_of(p_NC, method, draws_N, penalty=0.1, free_ranks=2)
    slow = [
        [slow_score(p.tolist(), k, method, u, 0.1, 2) for k in range(6)] for p, u in zip(p_NC, draws_N, strict=True)
    ]
    np.testing.assert_allclose(scores_NC, slow, atol=1e-12)


@pytest.mark.parametrize("rows", [0, 1, 8, 9, 19, 99, 189, 1000])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99, 0.7])
def test_ranks_are_exact(rows: int, level: float) -> None:
    exact = math.ceil((rows + 1) * Fraction(str(level)))
    assert conformal.rank_of(rows, level) == min(exact, rows + 1)
    assert (conformal.rank_of(rows, level) <= rows) == (rows >= fewest_rows(level))
    for confidence in (0.8, 0.95):
        rank = conformal.rank_of(rows, level, confidence)
        below = [beta.cdf(level, k, rows + 1 - k) if k <= rows else 0.0 for k in (rank - 1, rank) if k >= 1]
        assert below[-1] <= 1 - confidence
        assert rank == 1 or below[0] > 1 - confidence


def test_the_floor_is_the_quantile_of_the_beta_law() -> None:
    assert conformal.coverage_floor(90, 99, 0.9) == pytest.approx(beta.ppf(0.05, 90, 10))
    assert conformal.coverage_floor(10, 9, 0.9) == 0.9  # every class is in every set
    assert conformal.coverage_floor(conformal.rank_of(99, 0.9, 0.95), 99, 0.9) == 0.9
    for small, large in pairwise((99, 999, 9999)):
        assert conformal.coverage_floor(round(0.9 * (small + 1)), small, 0.9) < conformal.coverage_floor(
            round(0.9 * (large + 1)), large, 0.9
        )


@pytest.mark.parametrize("method", conformal.SET_METHODS)
def test_the_json_restores_every_bit(method: SetMethod) -> None:
    sets = conformal.fit(*population(300, 4, 3), method)
    again = ConformalSets.from_json(sets.to_json())
    for level in (0.5, 0.9, 0.999):
        assert again.at(level) == sets.at(level)
        assert SetRule.model_validate_json(sets.at(level).model_dump_json()) == sets.at(level)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"form": 2}, "fit them again"),
        ({"method": "lax"}, "unknown conformal method 'lax'"),
        ({"method": "aps", "classes": 2}, "aps needs three classes"),
        ({"rows": [299]}, "scores"),
        ({"rows": [-1]}, "whole numbers"),
        ({"scores_zlib_b64": "AAAA"}, "fit them again"),
        ({"penalty": -1}, "penalty is -1"),
        ({"more": 1}, "fit them again"),
    ],
)
def test_damaged_json_is_refused(change: dict[str, Any], words: str) -> None:
    tree = conformal.fit(*population(300, 4, 3)).to_json()
    with pytest.raises(ValueError, match=words):
        ConformalSets.from_json({**tree, **change})


@pytest.mark.parametrize("method", ["aps", "raps"])
def test_two_classes_need_a_threshold_instead(method: SetMethod) -> None:
    with pytest.raises(ValueError, match=r"use lac or class, or choose a threshold of the confidence"):
        conformal.fit(*population(100, 2, 0), method)


@pytest.mark.parametrize("method", ["lac", "class"])
def test_two_classes_give_one_both_or_none(method: SetMethod) -> None:
    p_NC = np.array([[0.95, 0.05], [0.6, 0.4], [0.5, 0.5], [0.1, 0.9]] * 100)
    mostly = conformal.fit(p_NC, [0, 0, 0, 1] * 100, method).at(0.9).sets(p_NC[:4])
    assert set(mostly.sum(axis=1)) <= {0, 1, 2} and mostly[0, 0] and not mostly[0, 1]
    narrow = SetRule(method="lac", level=0.5, thresholds=(0.3,), ranks=(1,), rows=(3,)).sets(p_NC[:4])
    assert narrow.sum(axis=1).tolist() == [1, 0, 0, 1]  # an empty set stays empty


def test_a_class_with_few_rows_is_in_every_set() -> None:
    p_NC, labels_N = population(400, 3, 5)
    keep = (labels_N != 2) | (np.cumsum(labels_N == 2) <= 8)
    rule = conformal.fit(p_NC[keep], labels_N[keep], "class").at(0.9)
    assert rule.unlimited_classes == (2,) and rule.rows[2] == 8 and rule.floors[2] == 0.9
    assert rule.sets(p_NC)[:, 2].all() and not rule.sets(p_NC)[:, 0].all()
    nine = (labels_N != 2) | (np.cumsum(labels_N == 2) <= 9)
    assert conformal.fit(p_NC[nine], labels_N[nine], "class").at(0.9).unlimited_classes == ()


def test_too_few_rows_give_every_class() -> None:
    rule = conformal.fit(*population(8, 3, 0)).at(0.9)
    assert rule.thresholds == (None,) and rule.sets([[0.98, 0.01, 0.01]]).all()


def test_the_same_id_gives_the_same_set() -> None:
    p_NC, labels_N = population(500, 8, 7)
    rule = conformal.fit(p_NC, labels_N, "aps").at(0.8)
    same_NC = np.repeat(p_NC[:1], 300, axis=0)
    ids = [f"row {n}" for n in range(300)]
    sets = rule.sets(same_NC, ids)
    assert (rule.sets(same_NC[::-1], ids[::-1])[::-1] == sets).all()
    assert len(np.unique(sets, axis=0)) == 2  # the last class is in or out


def test_a_step_that_moves_by_a_bit_stays_in_the_set() -> None:
    p_NC = np.array([[0.7, 0.2, 0.1]] * 50)
    rule = conformal.fit(p_NC, [0] * 45 + [1] * 5).at(0.95)
    moved_NC = p_NC[:1] * (1 - 1e-15)
    assert rule.thresholds[0] == pytest.approx(0.8) and rule.sets(moved_NC).tolist() == [[True, True, False]]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"thresholds": (0.5, 0.5), "ranks": (1, 1), "rows": (9, 9)}, "lac has one threshold; there are 2"),
        ({"ranks": (1, 2)}, "same number of values"),
        ({"ranks": (12,)}, "has the rank 12 of 9 rows"),
        ({"thresholds": (None,)}, "threshold None has the rank 1"),
    ],
)
def test_rules_that_contradict_themselves(values: dict[str, Any], words: str) -> None:
    good: dict[str, Any] = {"method": "lac", "level": 0.9, "thresholds": (0.5,), "ranks": (1,), "rows": (9,)}
    with pytest.raises(ValueError, match=words):
        SetRule.model_validate({**good, **values})


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("lax", {}, r"method = 'lax'.*Allowed: lac, aps, raps, class. Did you mean 'lac'"),
        ("lac", {"level": 0.9}, r"option 'level'; allowed: levels, .* Did you mean 'levels'"),
        ("lac", {"levels": [1.0]}, "levels = 1.0"),
        ("lac", {"levels": []}, "levels"),
        ("lac", {"levels": [0.9, 0.9]}, "a level occurs twice"),
        ("lac", {"share": 0}, "share = 0"),
        ("lac", {"method": "aps"}, "option 'method'"),
    ],
)
def test_settings_that_are_refused(method: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SetSettings.of(method, options)


def test_rows_are_split_without_overlap() -> None:
    first, rest = conformal.split_rows(101, 0.5, 3)
    assert sorted([*first, *rest]) == list(range(101)) and len(first) == 50
    with pytest.raises(ValueError, match="both parts need a row"):
        conformal.split_rows(1, 0.5, 3)


def test_measured_sets_count_what_a_loop_counts() -> None:
    p_NC, labels_N = population(200, 4, 11)
    rule = conformal.fit(*population(200, 4, 12), "aps").at(0.7)
    measured, inside_NC = conformal.measure(rule, p_NC, labels_N), rule.sets(p_NC)
    assert measured.hits == sum(bool(row[y]) for row, y in zip(inside_NC, labels_N, strict=True))
    assert list(measured.sizes) == [int((inside_NC.sum(axis=1) == s).sum()) for s in range(len(measured.sizes))]
    lower, upper = measured.interval()
    assert lower < measured.coverage < upper


def test_live_counts_do_not_depend_on_the_calls() -> None:
    rng = np.random.default_rng(0)
    covered, sizes, labels = rng.random(300) < 0.9, rng.integers(0, 4, 300), rng.integers(0, 5, 300)
    tags = [None if n % 7 == 0 else f"tag {n % 130}" for n in range(300)]
    whole = LiveSets().take(covered, sizes, labels, tags)
    parts = LiveSets()
    for start in range(0, 300, 37):
        part = slice(start, start + 37)
        parts = parts.take(covered[part], sizes[part], labels[part], tags[part])
    assert parts == whole and len(whole.tags) == 100 and whole.other_tags[0] > 0
    assert LiveSets.model_validate_json(whole.model_dump_json()) == whole
    with pytest.raises(ValueError, match="do not add up"):
        LiveSets.model_validate({**whole.model_dump(), "hits": 0})
