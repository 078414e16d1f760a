"""`trueodds.threshold` beside slow twins, on cases that are known, and in replays."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas
import pytest
from scipy.stats import binom

import trueodds
from tests import reference_acting as twin
from trueodds.metrics.decisions.risk import least_count, least_counts, risk_p_value

RISK, ALPHA = Fraction(1, 20), Fraction(1, 20)


def rows(n: int, seed: int, digits: int = 4, sharp: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Confidences, and whether each answer is right: as often as its confidence says."""
    rng = np.random.default_rng(seed)
    c_N = (1 - 0.5 * rng.random(n) ** sharp).round(digits)
    return c_N, rng.random(n) < c_N


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("digits", [4, 2])
def test_it_is_the_threshold_of_loops_and_exact_fractions(seed: int, digits: int) -> None:
    c_N, right_N = rows(160, seed, digits, sharp=6)
    found = trueodds.threshold(c_N, right_N)
    expected = twin.threshold(list(zip(c_N.tolist(), right_N.tolist(), strict=True)), RISK, ALPHA)
    assert found.threshold == expected
    if expected is not None:
        acts_N = c_N >= expected
        assert (found.acted, found.wrong) == (acts_N.sum(), (acts_N & ~right_N).sum())
        assert found.share == acts_N.mean() and found.loss == found.wrong / found.acted


def test_p_values_are_those_of_the_twins_and_hold_for_uneven_losses() -> None:
    for wrong, n in ((0, 59), (3, 153), (7, 100), (0, 1), (40, 40)):
        exact = float(twin.binomial_tail(wrong, n, RISK))
        assert float(risk_p_value(wrong, n, 0.05)) == pytest.approx(exact)
        for loss in (Fraction(wrong), Fraction(wrong) * Fraction(7, 10)):
            expected = twin.hoeffding_bentkus(loss, n, RISK)
            assert float(risk_p_value(float(loss), n, 0.05, binary=False)) == pytest.approx(expected)
    rng = np.random.default_rng(0)
    losses_MN = rng.choice([0.0, 0.1, 1.0], p=[0.9, 0.5 / 9, 0.4 / 9], size=(2_000, 200))  # mean .05
    p_M = risk_p_value(losses_MN.sum(axis=1), 200, 0.05, binary=False)
    assert (p_M <= 0.05).mean() <= binom.isf(0.05, 2_000, 0.05) / 2_000


def test_the_fewest_acted_answers_of_each_number_of_wrong_ones() -> None:
    assert [least_count(risk, 0.05) for risk in (0.05, 0.01, 0.1)] == [59, 299, 29]
    expected = [next(n for n in range(1, 400) if twin.binomial_tail(wrong, n, RISK) <= ALPHA) for wrong in (0, 1, 2, 5)]
    assert least_counts(np.array([0.0, 1, 2, 5]), 0.05, 0.05, 1_000).tolist() == expected
    assert least_counts(np.array([5.0]), 0.05, 0.05, 100).tolist() == [101]


def test_fifty_nine_right_answers_are_enough_and_fifty_eight_are_not() -> None:
    enough = trueodds.threshold([0.99] * 59, [1] * 59)
    assert (enough.reason, enough.threshold, enough.acted, enough.more_labels) == ("certified", 0.99, 59, None)
    few = trueodds.threshold([0.99] * 58, [1] * 58)
    assert (few.reason, few.threshold, few.acted, few.share, few.more_labels) == ("too_few", None, 0, 0.0, 1)
    assert trueodds.threshold([0.99] * 59, [1] * 58 + [0]).reason == "too_few"


def test_too_few_is_told_apart_from_none() -> None:
    c_N = np.linspace(1, 0.5, 400)
    none = trueodds.threshold(c_N, np.arange(400) % 4 > 0)
    assert none.reason == "none" and none.more_labels is None and none.tried_wrong > 0.2 * none.tried
    right_N = np.arange(400) % 3 > 0
    right_N[:40] = True  # the surest tenth is always right, and that is too few to say so
    few = trueodds.threshold(c_N, right_N)
    assert few.reason == "too_few" and few.more_labels is not None
    hundred = trueodds.threshold(c_N[:100], np.arange(100) % 4 > 0)  # what the surest 5% would be is not seen
    assert hundred.reason == "too_few" and hundred.more_labels == 59 * 20 - 100
    more = 400 + few.more_labels
    right_N = np.arange(more) % 3 > 0
    right_N[: more // 10] = True
    assert trueodds.threshold(np.linspace(1, 0.5, more), right_N).reason == "certified"


def test_equal_confidences_act_together_and_the_order_of_rows_does_not_matter() -> None:
    c_N, right_N = np.repeat([0.99, 0.9, 0.6], 200), np.ones(600, bool)
    right_N[[3, 210, 230, 250]] = False
    right_N[420:470] = False
    found = trueodds.threshold(c_N, right_N)
    assert (found.threshold, found.acted, found.wrong) == (0.9, 400, 4)
    mixed = np.random.default_rng(0).permutation(600)
    assert trueodds.threshold(c_N[mixed], right_N[mixed]) == found


def test_labels_do_not_move_the_first_threshold_and_answers_without_one_count_for_the_share_only() -> None:
    c_N, right_N = rows(600, 1)
    tried = {trueodds.threshold(c_N, np.random.default_rng(seed).permutation(right_N)).tried for seed in range(5)}
    assert len(tried) == 1
    found = trueodds.threshold(c_N, right_N)
    more_N = np.concatenate([c_N, np.full(600, 0.5)])
    half = trueodds.threshold(more_N, np.concatenate([right_N, np.full(600, np.nan)]))
    assert (half.threshold, half.acted, half.wrong, half.labels) == (found.threshold, found.acted, found.wrong, 600)
    assert half.share == pytest.approx(found.share / 2) and half.answers == 1_200
    assert half.share_lower < half.share < half.share_upper


def test_each_group_has_its_own_and_the_budget_is_split() -> None:
    c_N, right_N = rows(2_000, 2)
    group_N = np.where(np.arange(2_000) % 2, "day", "night")
    found = trueodds.threshold(c_N, right_N, groups_N=group_N)
    assert found.threshold is None and [one.group for one in found.groups] == ["day", "night"]
    for one in found.groups:
        own_N = group_N == one.group
        alone = trueodds.threshold(c_N[own_N], right_N[own_N], confidence=0.975)
        assert one.confidence == pytest.approx(0.975)
        assert (one.threshold, one.acted, one.wrong) == (alone.threshold, alone.acted, alone.wrong)
    assert found.acted == sum(one.acted for one in found.groups)
    assert found.share == pytest.approx(np.mean([one.share for one in found.groups]))


def test_costs_of_one_size_are_a_share_and_dearer_ones_act_less() -> None:
    c_N, right_N = rows(2_000, 3)
    plain = trueodds.threshold(c_N, right_N)
    same = trueodds.threshold(c_N, right_N, risk=0.5, cost_N=np.full(2_000, 10.0))
    assert (same.threshold, same.acted, same.wrong) == (plain.threshold, plain.acted, plain.wrong)
    assert same.loss == pytest.approx(10 * plain.loss)
    cost_N = np.where(np.arange(2_000) % 2, 10.0, 1.0)
    mixed = trueodds.threshold(c_N, right_N, risk=0.5, cost_N=cost_N)
    assert mixed.acted > 0 and mixed.loss == pytest.approx(((cost_N * ~right_N)[c_N >= mixed.threshold]).mean())
    by_cost = trueodds.threshold(c_N, right_N, risk=2, cost_N=cost_N, groups_N=cost_N)
    cheap = next(one for one in by_cost.groups if one.group == "1.0")
    assert cheap.acted == cheap.labels == 1_000  # no error of this group costs more than 2


def net(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw from a whole of 4,000 answers; the third is the true risk of acting from each answer's confidence on."""
    c_M, right_M = rows(4_000, 0, digits=9, sharp=2)
    order_M = np.argsort(-c_M)
    risk_M = np.empty(4_000)
    risk_M[order_M] = np.cumsum(~right_M[order_M]) / np.arange(1, 4_001)
    draw_N = np.random.default_rng(seed).integers(4_000, size=n)
    return c_M[draw_N], right_M[draw_N], risk_M[draw_N]


@pytest.mark.parametrize("n", [150, 600])
def test_replays_break_the_promise_in_at_most_one_of_twenty(n: int) -> None:
    broken, replays = 0, 300
    for seed in range(replays):
        c_N, right_N, risk_N = net(n, seed)
        at = trueodds.threshold(c_N, right_N).threshold
        broken += at is not None and bool(risk_N[c_N == at][0] > 0.05)
    assert broken <= binom.isf(0.05, replays, 0.05)


def test_it_certifies_no_less_than_the_controller_of_mapie() -> None:
    ours, theirs, grid = [], [], np.linspace(0.99, 0, 100).tolist()
    for seed in range(25):
        c_N, right_N, _ = net(400, seed)
        at = twin.mapie(list(zip(c_N.tolist(), right_N.tolist(), strict=True)), RISK, ALPHA, grid)
        theirs.append(0.0 if at is None else (c_N >= at).mean())
        ours.append(trueodds.threshold(c_N, right_N).share)
    assert np.mean(ours) >= np.mean(theirs)


def test_every_way_of_writing_no_label_is_one() -> None:
    """`predicted == label` of pandas columns with gaps is of the dtype `boolean`, with NA in the gaps."""
    c_N, right_N, _ = net(400, 0)
    found = trueodds.threshold(c_N, np.where(np.arange(400) < 9, np.nan, right_N))
    right = [bool(one) for one in right_N[9:]]
    for gap, dtype in ((None, object), (pandas.NA, "boolean"), (pandas.NA, "Int64"), (np.nan, object)):
        assert trueodds.threshold(c_N, pandas.Series([gap] * 9 + right, dtype=dtype)) == found
    assert trueodds.threshold(c_N[:, None], np.array([None] * 9 + right)) == found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.9, 1.2], [1, 1]), r"confidence holds 1.2; allowed is \[0, 1\]$"),
        (([98, 70], [1, 1]), r"confidence holds 98; allowed is \[0, 1\]: divide percentages by 100"),
        (([0.9, 0.8], [1]), "vectors of one length"),
        (([[0.9, 0.1]], [1]), "each answer's confidence"),
        (([0.9, 0.8], [1, 2]), "correct holds 2"),
        (([0.9, 0.8], ["True", "False"]), "correct has dtype <U5; allowed are 0 and 1, or False and True, and NaN"),
        (([], []), "no answers"),
    ],
)
def test_bad_rows_are_named(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trueodds.threshold(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"risk": 1.0}, r"risk is 1.0; allowed is \(0, 1\)"),
        ({"risk": 10, "cost_N": [10, 1]}, r"risk is 10; allowed is \(0, 10\)"),
        ({"cost_N": [0, 1]}, "not a positive number"),
        ({"risk": "5%"}, r"risk is '5%'; allowed is \(0, 1\)"),
        ({"confidence": 95}, r"confidence is 95; allowed is \(0, 1\), such as 0\.95"),
        ({"groups_N": [1.0, np.nan]}, r"groups\[1\] is nan, a missing value; take these rows out"),
        ({"groups_N": ["a"]}, "one name for each of 2 answers"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trueodds.threshold([0.9, 0.8], [1, 1], **options)  # type: ignore[arg-type]
