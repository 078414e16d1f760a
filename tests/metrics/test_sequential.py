"""E-process and Shiryaev-Roberts: never more than 1 on average under the null, equal to their definition, safe."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.streams import Pool, first_alarms, pool
from tests import reference
from tests import reference_sequential as twin
from tests.metrics.rows import sums_of
from trueodds.errors import ConfigError
from trueodds.metrics import CalibrationSums, EProcess, ShiryaevRoberts, blocks
from trueodds.metrics.alarms.payoffs import CENTRES, Null, payoffs

NULLS: tuple[Null, ...] = ("point", "ece")
FORMS = (EProcess, ShiryaevRoberts)
some_labels = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=40)


def after(form: type[EProcess] | type[ShiryaevRoberts], null: Null, rows: list[list[twin.Row]]) -> float:
    state = form.start(null)
    for block in rows:
        state = state.advance(sums_of(block))
    return state.log_e if isinstance(state, EProcess) else state.log_r


@pytest.mark.few(4)
@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize("confidence", [0.3, 0.7, 0.999])
@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_expectation_over_all_outcomes(null: Null, confidence: float, sign: int) -> None:
    """6 labels, all 64 outcomes, truth at the edge of the null: E[E] <= 1, E[R] <= blocks, after every label.

    Blocks end at moments that depend on what was seen (after a wrong answer, or three labels), and the unfinished
    one is read as well.
    """
    chance = min(max(confidence + sign * 0.02, 0.0), 1.0)
    mean_e, mean_r = np.zeros(6), np.zeros(6)
    for outcome in itertools.product((0, 1), repeat=6):
        likelihood = math.prod(chance if a else 1 - chance for a in outcome)
        e, r, open_block = EProcess.start(null), ShiryaevRoberts.start(null), CalibrationSums.zero()
        for i, a in enumerate(outcome):
            open_block = open_block + CalibrationSums.from_top([confidence], [a])
            read_e, read_r = e.advance(open_block), r.advance(open_block)
            mean_e[i] += likelihood * math.exp(read_e.log_e)
            mean_r[i] += likelihood * (math.exp(read_r.log_r) - read_r.blocks)
            if a == 0 or open_block.n == 3:
                e, r, open_block = read_e, read_r, CalibrationSums.zero()
    assert mean_e.max() <= 1 + 1e-12
    assert mean_r.max() <= 1e-12
    assert mean_e.min() > 0.9  # nor is much given away in 6 labels


@pytest.mark.parametrize("null", NULLS)
def test_equal_to_the_definition(null: Null) -> None:
    rng = np.random.default_rng(1)
    for sizes in ([1], [3, 1, 7], [20, 20, 5, 20], [1] * 12):
        rows = [[(float(c), int(rng.random() < 0.6)) for c in rng.random(size)] for size in sizes]
        assert after(EProcess, null, rows) == pytest.approx(math.log(twin.e_value(rows, null, 0.02)), abs=1e-9)
        value = after(ShiryaevRoberts, null, rows)
        assert value == pytest.approx(math.log(twin.shiryaev_roberts(rows, null, 0.02)), abs=1e-9)


@settings(max_examples=30)
@given(some_labels, st.sampled_from(NULLS))
def test_equal_to_the_definition_anywhere(rows: list[twin.Row], null: Null) -> None:
    assert after(EProcess, null, [rows]) == pytest.approx(math.log(twin.e_value([rows], null, 0.02)), abs=1e-9)


def test_one_label_by_hand() -> None:
    """All 12 ece bets pay 1 + L (s (a - r) - eps - h/2), r = 1501/6000, on half of the capital."""
    r = 1501 / 6000  # cell 750 of 3,000: (.25, .2503]
    slack = 0.02 + 1 / 6000
    paid = [1 + L * (sign * (1 - r) - slack) for sign in (1, -1, 1, -1) for L in (0.04, 0.15, 0.5)]
    state = EProcess.start("ece").advance(CalibrationSums.from_top([0.2502], [1]))
    assert math.exp(state.log_e) == pytest.approx(0.5 + 0.5 * sum(paid) / 12)
    assert (state.blocks, state.labels) == (1, 1)


def test_capital_is_complete() -> None:
    """Where no bet is placed E stays 1: shares of the bets and of the starts sum to 1."""
    for null in NULLS:
        assert np.exp(payoffs(null, 0.02).log_weight_K).sum() == pytest.approx(1)
    state = EProcess.start("point", tolerance=0.45)
    for _ in range(50):
        state = state.advance(CalibrationSums.from_top([0.5], [1]))  # every map is within .45 of .5
    assert state.log_e == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("null", NULLS)
def test_json_restores_exactly(form: type[EProcess] | type[ShiryaevRoberts], null: Null) -> None:
    rng = np.random.default_rng(2)
    state = form.start(null, tolerance=0.03)
    for block in blocks(rng.random(90), rng.integers(0, 2, 90)):
        text = json.dumps(state.to_json(), allow_nan=False)
        assert form.from_json(text) == state
        assert form.from_json(json.loads(text)) == state
        assert len(text) < 700
        state = state.advance(block)
        assert form.from_json(text).advance(block) == state


def test_json_is_checked() -> None:
    tree = EProcess.start("point").advance(CalibrationSums.from_top([0.7], [0])).to_json()
    bad: list[tuple[dict[str, object], str]] = [
        ({"form": "cusum"}, "expected form 'e-process'"),
        ({"extra": 1}, "expected form 'e-process' and null, tolerance"),
        ({"null": "ece"}, "must hold 12 finite numbers"),
        ({"log_wealth": [0.0] * 3}, "must hold 20 finite numbers"),
        ({"log_wealth": None}, "null wealth for 0"),
        ({"labels": 0}, "allowed: one or more each"),
        ({"blocks": "1"}, "damaged state .*: blocks is '1'; allowed are whole numbers"),
        ({"blocks": 1.0}, "blocks is 1.0; allowed are whole numbers"),
        ({"labels": 1.5}, "labels is 1.5; allowed are whole numbers"),
        ({"labels": True}, "labels is True; allowed are whole numbers"),
        ({"peak": None}, "damaged state"),
        ({"tolerance": 0.5}, r"allowed is \[0, 0.5\)"),
    ]
    for change, message in bad:
        with pytest.raises(ValueError, match=message):
            EProcess.from_json({**tree, **change})
    with pytest.raises(ValueError, match="expected form 'shiryaev-roberts'"):
        ShiryaevRoberts.from_json(tree)


@settings(max_examples=30)
@given(some_labels, st.randoms(use_true_random=False))
def test_order_inside_a_block_does_not_matter(rows: list[twin.Row], random: Random) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert after(EProcess, "point", [rows]) == pytest.approx(after(EProcess, "point", [shuffled]), abs=1e-12)
    # where in its cell a confidence lies does not matter either
    moved = [(float(CENTRES[reference.cell(c)]), a) for c, a in rows]
    assert after(EProcess, "ece", [rows]) == pytest.approx(after(EProcess, "ece", [moved]), abs=1e-12)


def test_an_empty_block_is_none() -> None:
    state = EProcess.start().advance(CalibrationSums.from_top([0.6], [0]))
    assert state.advance(CalibrationSums.zero()) is state


def test_sums_without_nll_and_probabilities_are_one() -> None:
    p = [[0.7, 0.3], [0.4, 0.6]]
    full = CalibrationSums.from_probabilities(p, [0, 0])
    assert EProcess.start().advance(full) == EProcess.start().advance(CalibrationSums.from_top([0.7, 0.6], [1, 0]))


def test_evidence_once_shown_stays() -> None:
    bad, good = (
        CalibrationSums.from_top([0.95] * 40, [0] * 20 + [1] * 20),
        CalibrationSums.from_top([0.8] * 5, [1] * 4 + [0]),
    )
    start = EProcess.start("ece")
    assert not start.is_alarmed()
    assert start.p_value == 1
    loud = start.advance(bad)
    assert loud.is_alarmed(0.05)
    assert loud.p_value == pytest.approx(math.exp(-loud.log_e))
    quiet = loud
    for _ in range(200):
        quiet = quiet.advance(good)
    assert quiet.log_e < loud.log_e
    assert quiet.p_value == loud.p_value
    assert quiet.is_alarmed(0.05)
    assert start == EProcess.start("ece")  # nothing was changed in place
    assert not quiet.is_alarmed(loud.p_value / 2)


def test_huge_blocks_stay_finite() -> None:
    """10^7 labels in one block, good and bad, then more: no overflow, and fresh bets see what comes."""
    state = EProcess.start("point")
    right = CalibrationSums.from_cells([[2700, 1e7, 0.90017 * 1e7, 0.90017e7, 0, 0, 0, 0]])
    wrong = CalibrationSums.from_cells([[2700, 1e7, 0.90017 * 1e7, 0.3e7, 0, 0, 0, 0]])
    state = state.advance(right)
    assert state.log_wealth is not None
    assert max(state.log_wealth) < 0  # what was laid on that block is lost, some of it to exp(-10^6)
    assert min(state.log_wealth) < -1e5
    assert math.log(0.5) < state.log_e < 0  # half is not laid yet
    state = state.advance(CalibrationSums.from_top([0.9001] * 100, [0] * 50 + [1] * 50))
    assert state.is_alarmed()
    state = state.advance(wrong)
    assert 1e5 < state.log_e < math.inf
    assert state.p_value == 0
    assert state.labels == 20_000_100
    assert EProcess.from_json(json.dumps(state.to_json(), allow_nan=False)) == state


def test_gammas_after_ten_million_blocks() -> None:
    """The share laid on a late block is a difference of near equals; its log must still be right."""
    value = EProcess.step(np.array([-np.inf]), np.zeros(1), 10_000_000)[0]
    # derivative of 1 / (1 + log2 j) at the middle of the step
    middle = 10_000_000.5
    expected = 1 / (middle * math.log(2) * (1 + math.log2(middle)) ** 2)
    assert math.exp(value) == pytest.approx(expected, rel=1e-9)


def test_blocks_in_order_of_arrival() -> None:
    cut = list(blocks([0.1, 0.2, 0.3, 0.4, 0.5], [0, 1, 0, 1, 1], size=2))
    assert [block.n for block in cut] == [2, 2, 1]
    assert cut[1] == CalibrationSums.from_top([0.3, 0.4], [0, 1])
    assert list(blocks([], [])) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize("size", [1, 7, 20])
def test_many_blocks_at_once(form: type[EProcess] | type[ShiryaevRoberts], null: Null, size: int) -> None:
    """As block by block, with the value after each; to the last bit the same if it is cut anywhere between blocks."""
    rng = np.random.default_rng(size)
    confidence, correct = rng.random(30 * size), rng.integers(0, 2, 30 * size)
    state, values = form.start(null), []
    for block in blocks(confidence, correct, size):
        state = state.advance(block)
        values.append(state.log_e if isinstance(state, EProcess) else state.log_r)
    evidence, value_B = form.start(null).advance_each(confidence, correct, size)
    assert (evidence.blocks, evidence.labels) == (state.blocks, state.labels) == (30, 30 * size)
    np.testing.assert_allclose(value_B, values, rtol=1e-9, atol=1e-12)
    assert evidence.log_wealth == pytest.approx(state.log_wealth, rel=1e-9, abs=1e-12)
    assert evidence.peak == pytest.approx(max(values)) and evidence.peak == value_B.max()
    for cut in (1, 13, 29):
        first, one_B = form.start(null).advance_each(confidence[: cut * size], correct[: cut * size], size)
        second, two_B = first.advance_each(confidence[cut * size :], correct[cut * size :], size)
        assert second == evidence and [*one_B, *two_B] == value_B.tolist()
    same, none_B = evidence.advance_each([], [])
    assert same is evidence and not len(none_B)
    with pytest.raises(ValueError, match=f"3 labels in blocks of {size + 3}; allowed are whole blocks only"):
        evidence.advance_each([0.5] * 3, [1] * 3, size + 3)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown null 'points'; allowed: point, ece"):
        EProcess.start("points")  # type: ignore[arg-type]
    for tolerance in (-0.01, 0.5, math.nan, None, "a", True, [0.1]):
        with pytest.raises(ValueError, match=r"allowed is \[0, 0.5\), such as 0.02"):
            EProcess.start("ece", tolerance)  # type: ignore[arg-type]
    for count, correct in ((1.5, 1.0), (2.0, 0.5), (1.0, 2.0)):
        sums = CalibrationSums.zero()
        sums.cells[:3, 10] = count, 0.0035 * count, correct
        with pytest.raises(ValueError, match="not counts of right and wrong labels"):
            EProcess.start().advance(sums)
    for alpha in (0.0, 1.0, math.nan, None):
        with pytest.raises(ValueError, match="alpha is"):
            EProcess.start().is_alarmed(alpha)  # type: ignore[arg-type]
    for run_length, block in ((10.0, 20), (math.inf, 20), (100.0, 0), ("a", 20)):
        with pytest.raises(ValueError, match="run_length is"):
            ShiryaevRoberts.start().is_alarmed(run_length, block)  # type: ignore[arg-type]
    for size in (0, 1.5, True, None, "2"):
        with pytest.raises(ValueError, match=f"size is {size!r}; allowed are whole numbers"):
            list(blocks([0.5], [1], size=size))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="vectors of one length"):
        list(blocks([0.5], [1, 0]))
    for confidence, was, words in (([1.5], [1], "holds 1.5"), ([0.5], [2], "holds 2"), ([0.5], [1, 0], "one length")):
        with pytest.raises(ValueError, match=words):
            EProcess.start().advance_each(confidence, was, 1)


def test_states_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        EProcess.start().labels = 3  # type: ignore[misc]


@pytest.fixture(scope="module")
def shape_c() -> Pool:
    return pool("C", 20_000)


@pytest.mark.few(2)
@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize("truth", ["calibrated", "below by .02", "above by .02"])
def test_false_alarms(shape_c: Pool, truth: str, null: Null) -> None:
    """100 streams of 20,000 labels of shape C, where chance is loudest: 5% are allowed, and 12 have p = .4%."""
    alarms = first_alarms(shape_c, truth, null, 20, 100, 20_000, 0, seed=3)
    assert np.isfinite(alarms["starts"]).sum() <= 11
    assert np.isfinite(alarms["SR, A = 100,000"]).sum() <= 32  # at most 20% may, in a fifth of the run length


def test_a_change_is_seen(shape_c: Pool) -> None:
    """T = 1.5 after 2,000 good labels: the median delay lies near the published one (760 from the start on)."""
    delays = first_alarms(shape_c, "T = 1.5", "point", 20, 60, 4_000, 2_000, seed=4)["starts"] - 2_000
    assert (delays < 0).mean() <= 0.05
    assert 500 < np.median(delays) < 1_700


def test_library_and_benchmark_are_one(shape_c: Pool) -> None:
    """The recurrences over many streams give what `advance` gives, block by block."""
    rng = np.random.default_rng(5)
    confidence, correct = rng.random(200), rng.integers(0, 2, 200)
    state, table = EProcess.start("point"), payoffs("point", 0.02)
    wealth_SK = np.full((2, len(table.log_weight_K)), -np.inf)
    for number, block in enumerate(blocks(confidence, correct), 1):
        state = state.advance(block)
        count, _, right = block.cells[:3]
        paid_K = right @ table.log_right_CK + (count - right) @ table.log_wrong_CK
        wealth_SK = EProcess.step(wealth_SK, np.stack([paid_K, paid_K]), number)
        value_S = EProcess.value(wealth_SK, table.log_weight_K, number)
        np.testing.assert_allclose(value_S, state.log_e, rtol=1e-10)
