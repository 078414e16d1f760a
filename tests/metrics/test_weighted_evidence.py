"""Evidence about all answers from labels drawn with known probabilities: its twin, its promise, its state."""

from __future__ import annotations

import json
import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.alarms.weighted_evidence import RESULT
from tests.reference_sequential import weighted_e_values
from trueodds.metrics import EProcess, WeightedEProcess


def rows_of(count: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.random(count), rng.integers(0, 2, count), rng.choice([0.02, 0.05, 0.3, 1.0], count)


def test_equal_to_its_twin() -> None:
    stream = rows_of(300)
    state, log_e_N = WeightedEProcess.start(0.03, 0.05).advance(*stream)
    expected = weighted_e_values(list(zip(*(part.tolist() for part in stream), strict=True)), 0.03, 0.05)
    np.testing.assert_allclose(np.exp(log_e_N), expected, rtol=1e-9)
    assert state.log_e == pytest.approx(math.log(expected[-1])) and state.peak == max(0.0, log_e_N.max())
    assert (state.labels, state.left_out) == ((stream[2] >= 0.05).sum(), (stream[2] < 0.05).sum())
    assert log_e_N[np.flatnonzero(stream[2] < 0.05)[-1]] == log_e_N[np.flatnonzero(stream[2] < 0.05)[-1] - 1]


def test_at_the_edge_the_bet_on_that_side_is_worth_one() -> None:
    """Known case: every label certain (propensity = floor = 1), all of one confidence that is off by the tolerance."""
    start, mean_K = WeightedEProcess.start(0.02, 1.0), np.zeros(16)
    for right, chance in ((1, 0.78), (0, 0.22)):
        mean_K += chance * np.exp(start.advance([0.8], [right], [1.0])[0].log_wealth)
    assert mean_K.max() == pytest.approx(1, abs=1e-12) and mean_K.min() < 0.97


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_it_gains_nothing_while_the_ece_so_far_is_within_the_tolerance(data: st.DataObject) -> None:
    """Three answers, every outcome enumerated: the gap and the propensity of each are free, the ECE so far is not."""
    eps, floor = 0.05, 0.1
    confidence = data.draw(st.lists(st.sampled_from([0.3, 0.6, 0.9]), min_size=3, max_size=3))
    propensity = data.draw(st.lists(st.sampled_from([0.1, 0.3, 1.0]), min_size=3, max_size=3))
    sign = data.draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=3, max_size=3))
    gap, spent = [], 0.0
    for k in range(3):  # what was saved before may be spent in one answer
        gap.append(min(eps * (k + 1) - spent, 0.1) * data.draw(st.sampled_from([0.0, 1.0])))
        spent += gap[-1]
    mean = 0.0
    for outcome in product((None, 0, 1), repeat=3):  # no label, wrong, right
        chance = 1.0
        for a, c, p, g, s in zip(outcome, confidence, propensity, gap, sign, strict=True):
            rate = c + s * g
            chance *= 1 - p if a is None else p * (rate if a else 1 - rate)
        index = [k for k in range(3) if outcome[k] is not None]
        right = [outcome[k] == 1 for k in index]
        parts = ([confidence[k] for k in index], right, [propensity[k] for k in index])
        mean += chance * math.exp(WeightedEProcess.start(eps, floor).advance(*parts)[0].log_e)
    assert mean <= 1 + 1e-12


def streams(kind: str, seed: int, answers: int = 60_000) -> tuple[Any, Any, Any]:
    """Labels of answers whose ECE as a whole is .0199, made of good ones and of a tenth that is off by .199."""
    rng = np.random.default_rng(seed)
    confidence_N = rng.uniform(0.5, 1, answers)
    bad_N = rng.random(answers) < 0.1 if kind == "corner" else np.arange(answers) % 10_000 >= 9_000
    propensity_N = np.where(bad_N, 0.9, 0.1) if kind == "corner" else np.full(answers, 0.3)
    told_N = rng.random(answers) < propensity_N
    right_N = rng.random(answers) < confidence_N - 0.199 * bad_N
    return confidence_N[told_N], right_N[told_N], propensity_N[told_N]


@pytest.mark.parametrize("kind", ["corner", "phases"])
def test_where_the_labelled_traffic_is_not_all_traffic(kind: str) -> None:
    """The plain test alarms in all of these streams: its null is about the labelled traffic at every label."""
    weighted = plain = 0
    for seed in range(20):
        confidence, correct, propensity = streams(kind, seed)
        whole = len(confidence) // 20 * 20
        plain += EProcess.start("ece").advance_each(confidence[:whole], correct[:whole])[0].is_alarmed()
        weighted += WeightedEProcess.start(floor=0.1).advance(confidence, correct, propensity)[0].is_alarmed()
    assert plain == 20 and weighted <= 1


def test_what_was_measured() -> None:
    """The claim of docs/explanation/claims.md, by its result: 0 to 5% weighted where the plain test always alarms."""
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["false_alarms"]
    assert {row["stream"] for row in rows} == {"corner", "phases", "phases, all labelled"} and len(rows) == 9
    assert all(row["streams"] >= 100 and row["plain"] == 1 and row["weighted"] <= 0.05 for row in rows)


def test_an_error_in_what_is_seldom_labelled_is_found() -> None:
    """The labelled traffic looks good; all answers together are not: .27 of ECE in answers of propensity .1."""
    rng = np.random.default_rng(1)
    confidence_N, rare_N = rng.uniform(0.5, 1, 20_000), rng.random(20_000) < 0.9
    propensity_N = np.where(rare_N, 0.1, 1.0)
    told_N, right_N = rng.random(20_000) < propensity_N, rng.random(20_000) < confidence_N - 0.3 * rare_N
    parts = confidence_N[told_N], right_N[told_N], propensity_N[told_N]
    state, log_e_N = WeightedEProcess.start(floor=0.1).advance(*parts)
    assert state.is_alarmed() and np.argmax(log_e_N >= math.log(20)) < 200
    assert state.p_value == math.exp(-log_e_N.max()) and not WeightedEProcess.start().is_alarmed()


def test_the_state_survives_and_does_not_depend_on_cuts() -> None:
    stream = rows_of(200, seed=3)
    whole, log_e_N = WeightedEProcess.start().advance(*stream)
    for cut in (0, 1, 77, 200):
        first, one_N = WeightedEProcess.start().advance(*(part[:cut] for part in stream))
        first = WeightedEProcess.from_json(json.dumps(first.to_json(), allow_nan=False))
        second, two_N = first.advance(*(part[cut:] for part in stream))
        assert second == whole and [*one_N, *two_N] == log_e_N.tolist()


def test_bad_input_is_refused() -> None:
    for floor in (0, -0.1, 1.1, math.nan, True, "a"):
        with pytest.raises(ValueError, match=r"floor is .*allowed is \(0, 1\]"):
            WeightedEProcess.start(0.02, floor)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"tolerance is 0\.5"):
        WeightedEProcess.start(0.5)
    start = WeightedEProcess.start()
    for propensity, words in (([0.0], "holds 0.0"), ([1.5], "holds 1.5"), ([math.nan], "nan"), ([0.5, 0.5], "shape")):
        with pytest.raises(ValueError, match=words):
            start.advance([0.5], [1], propensity)
    with pytest.raises(ValueError, match="confidence holds 2"):
        start.advance([2], [1], [0.5])
    with pytest.raises(ValueError, match="alpha is 0"):
        start.is_alarmed(0)
    sound = start.to_json()
    for change in ({"form": "e-process"}, {"labels": -1}, {"labels": 1.0}, {"log_wealth": [0.0]}, {"peak": math.inf},
                   {"log_wealth": None}, {"floor": 0}, {"more": 1}):  # fmt: skip
        with pytest.raises(ValueError):
            WeightedEProcess.from_json({**sound, **change})
