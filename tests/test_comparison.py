"""`judge`: the gain and its limits by hand, whom it calls better, in which words, and how often wrongly."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import softmax

from pipeline.recalibrate import CandidateComparison, Rules, compare
from pipeline.recalibrate.candidate_numbers import candidate_number, pair_number
from pipeline.recalibrate.gains import gain_limits, scores
from tests import reference_gain_sequence as twin
from trueodds.bundle.audit_log import Change
from trueodds.calibrators import (
    BiasCorrectedTemperature,
    Calibrator,
    EnsembleTemperature,
    Identity,
    Temperature,
    Vector,
)
from trueodds.errors import ConfigError
from trueodds.sums.inputs import Array

SERVED, TRUE = Temperature(1.7), Temperature(4.0)


def answers(count: int, truth: float, seed: int = 0) -> tuple[Array, npt.NDArray[np.int64]]:
    """Logits of 4 classes, and labels drawn from softmax(z / truth)."""
    rng = np.random.default_rng(seed)
    z_NC = rng.normal(0, 3, (count, 4))
    labels_N = (softmax(z_NC / truth, axis=1).cumsum(axis=1) > rng.random((count, 1))).argmax(axis=1)
    return z_NC, labels_N


def test_the_scores_by_hand() -> None:
    z_NC, labels_N = np.log([[0.5, 0.3, 0.2], [1e-30, 0.5, 0.5]]), np.array([1, 0])
    log_N, brier_N = scores(Identity(), z_NC, labels_N, 0.003)
    assert log_N == pytest.approx([math.log(0.997 * 0.3 + 0.001), math.log(0.001)])
    assert brier_N == pytest.approx([0.25 + 0.49 + 0.04, 1.5])


@pytest.mark.parametrize("count", [1, 60, 600])
def test_the_interval_is_the_confidence_sequence_of_the_bounded_gain(count: int) -> None:
    (z_NC, labels_N), e, rows = answers(600, 4.0), 0.01, np.arange(600)
    candidate = Vector([0.3] * 4, [0.1, 0.0, 0.0, 0.0])
    p_N, q_N = (c(z_NC)[rows, labels_N] for c in (SERVED, candidate))
    gains = np.log(((1 - e) * q_N + e / 4) / ((1 - e) * p_N + e / 4))[:count].tolist()
    found = compare(SERVED, candidate, z_NC[:count], labels_N[:count], rules=Rules(smoothing=e))
    widest = math.log(1 + 4 * (1 - e) / e)
    assert found.gain == pytest.approx(np.mean(gains))
    assert found.lower == pytest.approx(twin.lower(gains, -widest), abs=1e-7)
    assert found.upper == pytest.approx(-twin.lower([-gain for gain in gains], -widest), abs=1e-7)
    assert found.brier is not None and found.brier.lower < found.brier.mean < found.brier.upper


BIASED = BiasCorrectedTemperature(1.4, [0.5, -0.2, -0.3])
MIXED = EnsembleTemperature(2.0, [0.7, 0.2, 0.1])


@pytest.mark.parametrize(
    ("served", "candidate", "classes", "near"),
    [
        (Identity(), Temperature(1.3), 10, 0.9),
        (Temperature(1.5), Temperature(1.0), 2, 0.9),
        (Temperature(0.7), Temperature(3.0), 3, 0.9),
        (Temperature(1.2), BIASED, 3, 0.5),
        (BIASED, BiasCorrectedTemperature(1.0, [0.0, 0.1, -0.1]), 3, 0.5),
        (Temperature(1.2), MIXED, 10, 0.5),
        (MIXED, Identity(), 3, 0.5),
    ],
)
def test_no_gain_lies_beyond_the_limits(served: Calibrator, candidate: Calibrator, classes: int, near: float) -> None:
    """Logits of all sizes, every label: some come near the limits, narrower than those of any two versions."""
    rng = np.random.default_rng(0)
    z_NC = rng.normal(0, 1, (4_000, classes)) * rng.uniform(0, 40, (4_000, 1))
    spiked_NC = np.zeros((4_000, classes))
    spiked_NC[np.arange(4_000), rng.integers(0, classes, 4_000)] = np.linspace(-40, 40, 4_000)
    z_NC = np.concatenate([z_NC, spiked_NC])
    p_NC, q_NC = (0.999 * calibrator(z_NC) + 0.001 / classes for calibrator in (served, candidate))
    gain_NC = np.log(q_NC / p_NC)
    least, most = gain_limits(served, candidate, classes, same_logits=True)
    assert least < gain_NC.min() < near * least and near * most < gain_NC.max() < most
    widest = math.log(999 * classes + 1)
    assert gain_limits(served, candidate, classes) == pytest.approx((-widest, widest))
    assert -widest < least and most <= widest
    other = Vector([1.0] * classes, [0.1] * classes)
    assert gain_limits(served, other, classes, same_logits=True) == pytest.approx((-widest, widest))


def test_whom_it_calls_better_and_in_which_words() -> None:
    z_NC, labels_N = answers(3_000, 4.0)
    better = compare(SERVED, TRUE, z_NC, labels_N)
    assert better.verdict == "better" and better.enough and better.labels == 3_000
    words = better.words()
    assert words.startswith("3,000 fresh labels: the candidate's log loss is ") and "nats a label lower" in words
    assert "valid however often you look; over the labelled answers" in words and "The candidate is better." in words
    assert "(1 - e) p + e/K with e = 0.001" in words and "Brier score, which does not decide" in words
    assert better.evidence().startswith("better on 3,000 fresh labels: gain +0.1")
    worse = compare(TRUE, SERVED, z_NC, labels_N)
    assert worse.verdict == "worse" and "nats a label higher" in worse.words()
    assert "The candidate is worse." in worse.words()
    early = compare(SERVED, TRUE, z_NC[:100], labels_N[:100])
    assert early.verdict == "undecided" and not early.enough and early.more is not None
    assert "Not yet decided; a gain of this size would take about" in early.words()
    assert "labels more" in early.words() or "label more" in early.words()
    none = compare(SERVED, TRUE, z_NC[:0], labels_N[:0])
    assert none.words().startswith("No fresh labels yet") and none.verdict == "undecided"
    assert "after the candidate was published and after the served version took over." in none.words()
    assert (
        none.words() + " 3 labels left out: their propensity is unknown or below 0.05."
        == replace(none, left_out=3).words()
    )
    assert none.evidence() == "no fresh labels"
    assert CandidateComparison(5, 0.0, -1.0, 1.0).words().count("Not yet decided.") == 1
    assert "more than 10 million labels" in CandidateComparison(500, 0.0, -1.0, 1.0).words()


def test_a_margin_promotes_what_is_hardly_worse_and_withdraws_what_is_worse_by_more() -> None:
    z_NC, labels_N = answers(20_000, 4.0)
    close = Temperature(3.8)  # .0003 nats worse
    assert compare(TRUE, close, z_NC, labels_N).verdict == "undecided"
    found = compare(TRUE, close, z_NC, labels_N, rules=Rules(margin=0.02))
    assert found.verdict == "better" and "The candidate is at most 0.02 nats worse." in found.words()
    assert found.lower is not None and -0.02 < found.lower < 0 and "margin 0.02" in found.evidence()
    far = compare(TRUE, Temperature(2.0), z_NC, labels_N, rules=Rules(margin=0.02))
    assert far.verdict == "worse" and "more than 0.02 nats worse" in far.words()
    equal = compare(TRUE, TRUE, z_NC[:1_000], labels_N[:1_000], rules=Rules(margin=0.02))
    assert equal.verdict == "better"


def test_with_propensities_it_is_about_all_answers() -> None:
    """The candidate is better where labels are likely, on the rows of class 0, and worse on the others."""
    z_NC, labels_N = answers(20_000, 1.0, seed=3)
    served, candidate = Identity(), Vector([1.0] * 4, [0.8, 0.0, 0.0, 0.0])
    rng = np.random.default_rng(4)
    chance_N = np.where(labels_N == 0, 0.9, 0.15)
    got = rng.random(20_000) < chance_N
    naive = compare(served, candidate, z_NC[got], labels_N[got])
    found = compare(served, candidate, z_NC[got], labels_N[got], None, Rules(smallest_propensity=0.1), chance_N[got])
    assert naive.verdict == "better" and found.verdict == "worse" and found.weighted
    assert "over all answers with propensity 0.1 or more: the size is an estimate" in found.words()
    partly_N = np.where(rng.random(got.sum()) < 0.2, np.nan, chance_N[got])
    left = compare(served, candidate, z_NC[got], labels_N[got], z_NC[got], Rules(), partly_N)
    assert left.left_out == np.isnan(partly_N).sum() and "labels left out: their propensity is unknown" in left.words()
    assert not compare(served, candidate, z_NC[:9], labels_N[:9], None, None, np.full(9, np.nan)).weighted
    all_out = compare(served, candidate, z_NC[:9], labels_N[:9], None, None, np.full(9, 0.01))
    assert (all_out.labels, all_out.left_out, all_out.verdict) == (0, 9, "undecided")


def test_all_candidates_together_share_the_error() -> None:
    levels = [Rules(candidate=k, budget="together").level for k in range(1, 2_000)]
    assert Rules(candidate=9).level == 0.95 and levels[0] == pytest.approx(1 - 0.05 * 6 / math.pi**2)
    assert 0.0499 < sum(1 - level for level in levels) < 0.05
    words = replace(compare(SERVED, TRUE, *answers(50, 4.0)), rules=Rules(candidate=2, budget="together")).words()
    assert "This is candidate 2; all candidates together share an error of 5%." in words


def test_the_number_of_a_candidate_comes_from_the_log() -> None:
    def change(action: str, before: str | None, after: str | None) -> Change:
        return Change(action, before, after, "", "me", "2026-01-01T00:00:00+00:00")  # type: ignore[arg-type]

    log = [
        change("publish", None, "a"),
        change("shadow", None, "b"),
        change("shadow", "b", None),
        change("shadow", None, "c"),
        change("shadow", "c", None),
        change("recalibrated", None, "b"),
        change("shadow", None, "d"),
    ]
    assert [candidate_number(log[:n], "b") for n in (2, 4, 6)] == [1, 1, 3]
    assert candidate_number(log, "c") == 2 and candidate_number(log, "new") == 5
    assert candidate_number(log, "d") == 4
    log += [change("promote", "a", "b"), change("recalibrated", "b", None)]
    assert candidate_number(log, "d") == 5, "beside another version its evidence begins anew"
    log += [change("recalibrated", None, "e"), change("promote", "b", "d"), change("shadow", "d", None)]
    log += [change("recalibrated", "e", None), change("shadow", None, "f")]
    assert candidate_number(log, "f") == 7, "neither what is promoted nor a calibrator that is withdrawn has a new turn"


def test_each_pair_of_an_observed_version_and_a_shadow_has_a_number_of_its_own() -> None:
    numbers = [pair_number(version, shadow) for version in range(20) for shadow in range(20)]
    assert sorted(numbers) == list(range(1, 401)) and [pair_number(k, k) for k in range(3)] == [1, 2, 5]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"margin": -0.1}, "margin is -0.1; allowed is a number of nats from 0 to 10,"),
        ({"margin": 1e300}, r"margin is 1e\+300"),
        ({"smoothing": 1e-320}, "smoothing is 1e-320; allowed is a number from 1e-12 to below 1"),
        ({"smoothing": math.nan}, "smoothing is nan"),
        ({"margin": math.nan}, "margin is nan"),
        ({"smoothing": 0.0}, "smoothing is 0.0; allowed is"),
        ({"smallest_propensity": 1.5}, r"smallest propensity is 1.5; allowed is \(0, 1\]"),
        ({"candidate": 0}, "candidate is number 0"),
        ({"budget": "all"}, "budget is 'all'; allowed: each, together"),
    ],
)
def test_bad_rules_are_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Rules(**given)  # type: ignore[arg-type]


@pytest.mark.full
def test_looks_at_every_label_promote_no_worse_candidate_where_the_served_is_wrong() -> None:
    """The fault of the e-value: served and candidate are wrong by a like amount, and its 20 promotes most of the time.

    80 streams of 2,000 labels of a coin. The served version says .8 of one side, the candidate .8 of the other.
    """
    rng, log_score = np.random.default_rng(0), math.log(0.8 / 0.2)
    e_value = sequence = 0
    z_NC = np.zeros((2_000, 2))
    one, other = (Vector([1.0, 1.0], [sign * log_score / 2, -sign * log_score / 2]) for sign in (1, -1))
    for _ in range(80):
        labels_N = (rng.random(2_000) < 0.5).astype(np.int64)
        gain_N = np.where(labels_N == 1, log_score, -log_score)
        e_value += bool((gain_N.cumsum() >= math.log(20)).any())
        looks = (compare(one, other, z_NC[:n], labels_N[:n]).verdict for n in range(20, 2_001, 220))
        sequence += any(verdict != "undecided" for verdict in looks)
    assert e_value > 40 and sequence <= 4
