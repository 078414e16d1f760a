"""Evidence about a promised error rate: equal to its twin, at most 1 on average under the null, and valid to watch."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from tests import reference_promise as twin
from trueodds.metrics import RiskEProcess, risk_sequence

RISKS = (0.01, 0.05, 0.3)


@pytest.mark.parametrize("risk", RISKS)
def test_the_e_process_is_its_twin(risk: float) -> None:
    wrong_N = np.random.default_rng(3).random(40) < 2 * risk
    state, log_e_N = RiskEProcess.start(risk).advance(wrong_N)
    expected = [math.log(twin.e_value(wrong_N[:n].tolist(), risk)) for n in range(1, 41)]
    assert log_e_N == pytest.approx(expected, abs=1e-9)
    assert state.log_e == log_e_N[-1] and state.peak == max(0.0, log_e_N.max())
    assert (state.labels, state.wrong) == (40, int(wrong_N.sum()))


def test_on_average_it_is_1_at_most_whatever_comes_before() -> None:
    """All 2^8 outcomes; the probability stays within the promise and depends on what came before."""
    risk, mean_N = 0.2, np.zeros(8)
    for outcome in itertools.product((False, True), repeat=8):
        likelihood, chance = 1.0, risk
        for is_wrong in outcome:
            likelihood *= chance if is_wrong else 1 - chance
            chance = risk if is_wrong else risk / 2
        mean_N += likelihood * np.exp(RiskEProcess.start(risk).advance(outcome)[1])
    assert mean_N.max() <= 1 + 1e-12


def test_one_label_by_hand() -> None:
    _, log_e_N = RiskEProcess.start(0.05).advance([True])
    mean = sum(q / 0.05 for q in twin.claims(0.05)) / 7
    assert math.exp(log_e_N[0]) == pytest.approx(0.5 + 0.5 * mean)


def test_however_a_stream_is_cut_it_is_the_same_to_the_last_bit() -> None:
    wrong_N = np.random.default_rng(4).random(500) < 0.08
    whole, log_e_N = RiskEProcess.start(0.05).advance(wrong_N)
    state, parts = RiskEProcess.start(0.05), []
    for cut in np.array_split(wrong_N, [1, 7, 300, 300]):
        state, log_e = state.advance(cut)
        parts.append(log_e)
        state = RiskEProcess.from_json(json.dumps(state.to_json()))
    assert state == whole and np.array_equal(np.concatenate(parts), log_e_N)


@pytest.mark.full
@pytest.mark.parametrize("risk", RISKS)
def test_kept_promises_alarm_in_1_of_20_at_most(risk: float) -> None:
    wrong_RN = np.random.default_rng(5).random((300, 1500)) < risk
    alarmed = sum(RiskEProcess.start(risk).advance(wrong_N)[0].is_alarmed() for wrong_N in wrong_RN)
    assert alarmed <= 24  # more than 24 of 300: an exact test of 5% rejects at 1%


@pytest.mark.full
def test_a_break_after_a_long_good_past_is_found() -> None:
    rng, found = np.random.default_rng(6), []
    for _ in range(50):
        good_N, bad_N = rng.random(5000) < 0.03, rng.random(2000) < 0.15
        _, log_e_N = RiskEProcess.start(0.05).advance(np.concatenate([good_N, bad_N]))
        found.append(bool((log_e_N[5000:] >= math.log(20)).any()))
    assert sum(found) >= 49


def test_about_the_stated_number_of_labels_finds_a_break() -> None:
    expected = RiskEProcess.start(0.05).labels_to_notice(0.1)
    wrong_RN = np.random.default_rng(7).random((200, expected)) < 0.1
    share = np.mean([RiskEProcess.start(0.05).advance(wrong_N)[0].is_alarmed() for wrong_N in wrong_RN])
    assert 0.5 <= share <= 0.98
    assert RiskEProcess.start(0.05).labels_to_notice(0.15) < expected < RiskEProcess.start(0.05).labels_to_notice(0.075)
    past, _ = RiskEProcess.start(0.05).advance([False] * 2000)
    assert past.labels_to_notice(0.1) > expected  # little capital is laid on a label that comes so late
    with pytest.raises(ValueError, match="an error rate above the promised one"):
        RiskEProcess.start(0.05).labels_to_notice(0.05)
    with pytest.raises(ValueError, match="too close"):
        RiskEProcess.start(0.05).labels_to_notice(0.0501)


@pytest.mark.parametrize("bad", [{"labels": -1}, {"wrong": 9}, {"log_wealth": [0.0]}, {"risk": 2}, {"peak": -1.0}])
def test_a_damaged_state_is_refused(bad: dict[str, object]) -> None:
    tree = RiskEProcess.start(0.05).advance([True, False])[0].to_json()
    with pytest.raises(ValueError, match=r"allowed|expected|must"):
        RiskEProcess.from_json({**tree, **bad})


def test_other_labels_than_right_and_wrong_are_refused() -> None:
    with pytest.raises(ValueError, match=r"0 .right. and 1 .wrong."):
        RiskEProcess.start(0.05).advance([0.5])
    with pytest.raises(ValueError, match="the share of wrong answers"):
        RiskEProcess.start(0)


@pytest.mark.few(1)
@pytest.mark.parametrize(("wrong", "labels"), [(0, 30), (3, 50), (50, 50), (20, 300)])
def test_the_sequence_is_its_twin(wrong: int, labels: int) -> None:
    found, (low, high) = risk_sequence(wrong, labels), twin.limits(wrong, labels, 0.95)
    assert found.risk == wrong / labels
    assert found.lower == pytest.approx(low if wrong else 0.0, abs=1e-4)
    assert found.upper == pytest.approx(high if wrong < labels else 1.0, abs=1e-4)


@pytest.mark.full
def test_the_sequence_covers_a_mean_that_moves_after_every_label() -> None:
    rng, missed = np.random.default_rng(8), 0
    for _ in range(100):
        p_N = np.where(np.arange(1000) % 300 < 150, 0.02, 0.2)
        wrong_N = rng.random(1000) < p_N
        counts_N, mean_N = wrong_N.cumsum(), p_N.cumsum() / np.arange(1, 1001)
        for n in range(9, 1000, 30):
            sequence = risk_sequence(int(counts_N[n]), n + 1)
            if not sequence.lower <= mean_N[n] <= sequence.upper:
                missed += 1
                break
    assert missed <= 10  # more: an exact test of 5% rejects at 1%


def test_bad_counts_are_refused() -> None:
    for wrong, labels in ((1, 0), (2, 1), (-1, 5)):
        with pytest.raises(ValueError, match="whole numbers"):
            risk_sequence(wrong, labels)
    with pytest.raises(ValueError, match="level"):
        risk_sequence(1, 2, level=1.0)


def test_risks_of_their_own_are_used_label_by_label() -> None:
    rng = np.random.default_rng(0)
    wrong_N, risk_N = rng.random(60) < 0.3, rng.choice([0.05, 0.2, 0.1], 60)
    whole, log_e_N = RiskEProcess.start(0.2).advance(wrong_N, risk_N)
    state = RiskEProcess.start(0.2)
    for wrong, risk, log_e in zip(wrong_N, risk_N, log_e_N, strict=True):
        state, value = state.advance([wrong], [risk])
        assert value[0] == log_e
    assert state == whole
    same = np.full(60, 0.2)
    assert RiskEProcess.start(0.2).advance(wrong_N, same)[0] == RiskEProcess.start(0.2).advance(wrong_N)[0]
    one = RiskEProcess.start(0.2).advance([True], [0.05])[1][0]
    assert one > RiskEProcess.start(0.2).advance([True])[1][0]
    for bad, message in (
        ([0.1], "a number for each of 60"),
        (np.full(60, 1.0), r"risk\[0\] is 1; allowed is \(0, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            RiskEProcess.start(0.2).advance(wrong_N, bad)
