"""Alarms by group: the evidence of each group, e-BH with weights, and how often marks are false."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from trueodds.metrics import EProcess, GroupAlarm, cell_of, e_benjamini_hochberg
from trueodds.metrics.alarms.payoffs import CENTRES
from trueodds.metrics.alarms.sequential import BLOCK


def stream(n: int, seed: int = 0, off: float = 0.0) -> tuple[Any, Any, list[list[str]]]:
    """Labels of two overlapping groups, and of `a`, whose answers are right `off` less often than they say."""
    rng = np.random.default_rng(seed)
    confidence_N = rng.uniform(0.55, 1, n)
    groups = [["a"] if rng.random() < 0.4 else [name for name in "bc" if rng.random() < 0.7] for _ in range(n)]
    less_N = np.array([off * ("a" in own) for own in groups])
    return confidence_N, rng.random(n) < confidence_N - less_N, groups


def of_group(name: str, confidence_N: Any, correct_N: Any, groups: list[list[str]]) -> tuple[Any, Any]:
    has_N = np.array([name in own for own in groups])
    return confidence_N[has_N], correct_N[has_N]


def test_each_group_has_the_evidence_of_its_own_labels() -> None:
    """Also within a block: by the sum over bets of wealth, as it is defined."""
    rows = stream(335)
    alarm = GroupAlarm.start().advance(*rows)
    assert alarm.labels == 335 and sorted(alarm.names) == ["a", "b", "c"]
    for g, name in enumerate(alarm.names):
        confidence_N, correct_N = of_group(name, *rows)
        whole = len(confidence_N) // BLOCK * BLOCK
        process, _ = EProcess.start("ece").advance_each(confidence_N[:whole], correct_N[:whole])
        assert len(confidence_N) == alarm.labels_G[g]
        assert alarm.blocks[g] == process.blocks
        assert alarm.log_wealth[g] == pytest.approx(process.log_wealth, rel=1e-12)
        rest = len(confidence_N) - whole
        now = process.advance_each(confidence_N[whole:], correct_N[whole:], rest)[0] if rest else process
        assert alarm.log_e_G[g] == pytest.approx(now.log_e, rel=1e-12)
    assert any(alarm.rest)


def test_the_evidence_is_a_fair_game_label_by_label() -> None:
    """At the limit of the null, each label leaves E as it is on average, or lower, also within a block.

    The expectation over the next label is exact, from both outcomes.
    """
    tolerance, rng = 0.02, np.random.default_rng(3)
    alarm = GroupAlarm.start(tolerance)
    for _ in range(90):
        c = float(CENTRES[cell_of(np.array([rng.uniform(0.5, 1)]))[0]])
        for truth in (max(c - tolerance, 0.0), c, min(c + tolerance, 1.0)):
            after = [math.exp(alarm.advance([c], [right], [["g"]]).log_e_G[0]) for right in (False, True)]
            before = math.exp(alarm.log_e_G[0]) if alarm.names else 1.0
            assert (1 - truth) * after[0] + truth * after[1] <= before * (1 + 1e-9)
        alarm = alarm.advance([c], [bool(rng.random() < c - 0.1)], [["g"]])


def test_a_stream_may_be_divided_and_stored_anywhere() -> None:
    confidence_N, correct_N, groups = stream(500, off=0.3)
    whole = GroupAlarm.start().advance(confidence_N, correct_N, groups)
    rng, parts = np.random.default_rng(1), GroupAlarm.start()
    ends = [0, *sorted(rng.integers(0, 500, 30).tolist()), 500]
    for first, end in pairwise(ends):
        parts = parts.advance(confidence_N[first:end], correct_N[first:end], groups[first:end])
        parts = GroupAlarm.from_json(json.dumps(parts.to_json()))
    assert parts == whole and whole.marks() == whole.lasting_marks() == ["a"]
    after = whole.marked_after[whole.names.index("a")]
    assert (
        after is not None
        and not GroupAlarm.start()
        .advance(confidence_N[: after - 1], correct_N[: after - 1], groups[: after - 1])
        .lasting_marks()
    )
    assert GroupAlarm.start().advance(confidence_N[:after], correct_N[:after], groups[:after]).lasting_marks() == ["a"]


def test_a_good_time_takes_the_mark_away_but_not_the_mark_for_good() -> None:
    bad, good = stream(300, off=0.4), stream(6_000, seed=1)
    alarm = GroupAlarm.start().advance(*bad)
    assert alarm.marks() == alarm.lasting_marks() == ["a"]
    alarm = alarm.advance(*good)
    assert alarm.marks() == [] and alarm.lasting_marks() == ["a"]


def test_places_are_for_the_first_groups() -> None:
    alarm = GroupAlarm.start(places=2).advance([0.9] * 4, [True] * 4, [["a"], ["b", "b"], ["c", "a"], ["c"]])
    assert (alarm.names, alarm.left_out, alarm.labels_G.tolist()) == (("a", "b"), 2, [2, 1])
    assert alarm.weight_G == pytest.approx([2 / 3, 1 / 3])
    equal = GroupAlarm.start(places=3, equal=True).advance([0.9], [True], [["a"]])
    assert equal.weight_G == pytest.approx([1 / 3]) and equal.threshold_G == pytest.approx([120])


def test_e_benjamini_hochberg_is_its_definition() -> None:
    """The largest r with at least r groups of w E >= 1 / (alpha r), by trying each r."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 9))
        log_e_G, weight_G = rng.normal(3, 3, n), rng.dirichlet(np.ones(n))
        scaled_G = weight_G * np.exp(log_e_G)
        sizes = [r for r in range(1, n + 1) if (scaled_G >= 1 / (0.05 * r)).sum() >= r]
        expected = scaled_G >= 1 / (0.05 * max(sizes)) if sizes else np.zeros(n, bool)
        assert (e_benjamini_hochberg(log_e_G, weight_G) == expected).all()
    assert e_benjamini_hochberg([], []).tolist() == []


@pytest.mark.full
def test_false_marks_are_rare_at_every_look() -> None:
    """50 overlapping groups at the limit of the null, and five that are off: at each of 10 looks, over 40 streams."""
    rng, names = np.random.default_rng(7), [f"g{k}" for k in range(50)]
    share_SD = np.zeros((40, 10))
    found = ever = 0
    for s in range(40):
        alarm = GroupAlarm.start(places=55)
        for day in range(10):
            confidence_N = np.where(rng.random(120) < 0.5, 0.98, rng.uniform(0.5, 0.9, 120))
            has_NG = rng.random((120, 50)) < np.linspace(0.02, 0.4, 50)
            own = [[names[g] for g in np.flatnonzero(has_G)] for has_G in has_NG]
            off_N = rng.integers(0, 10, 120)
            groups = [[f"off {k}"] if k < 5 else tags for k, tags in zip(off_N.tolist(), own, strict=True)]
            correct_N = rng.random(120) < confidence_N - np.where(off_N < 5, 0.4, 0.02)
            alarm = alarm.advance(confidence_N, correct_N, groups)
            marked = alarm.marks()
            share_SD[s, day] = sum(name in names for name in marked) / max(len(marked), 1)
        found += len(marked)
        ever += any(name in names for name in alarm.lasting_marks())
    assert share_SD.mean(axis=0).max() <= 0.05 and ever <= 3 and found > 40 * 4


def test_refusals() -> None:
    alarm = GroupAlarm.start().advance([0.9] * 30, [True] * 30, [["a"]] * 30)
    changes: list[dict[str, Any]] = [
        {"names": []},
        {"blocks": [2]},
        {"rest": [[0]]},
        {"marked_after": [99]},
        {"labels": 3},
    ]
    for change in changes:
        with pytest.raises(ValueError, match=r"."):
            GroupAlarm.from_json({**alarm.to_json(), **change})
    with pytest.raises(TypeError, match=r"row 0: groups are 'night'; give a list"):
        alarm.advance([0.9], [True], ["night"])
    with pytest.raises(TypeError, match=r"row 1: a group is 3"):
        alarm.advance([0.9] * 2, [True] * 2, [["a"], [3]])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"groups are given for 1 rows, but there are 2 labels"):
        alarm.advance([0.9] * 2, [True] * 2, [["a"]])
    with pytest.raises(ValueError, match=r"places is 0"):
        GroupAlarm.start(places=0)
    with pytest.raises(ValueError, match=r"weights sum to 1.2"):
        e_benjamini_hochberg([1.0, 2.0], [0.6, 0.6])
    with pytest.raises(ValueError, match=r"one length"):
        e_benjamini_hochberg([1.0], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"log_e holds nan"):
        e_benjamini_hochberg([math.nan], [1.0])
