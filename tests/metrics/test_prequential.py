"""Prequential comparison: equal to its definition, never more than 1 on average, and right about whom it helps."""

from __future__ import annotations

import itertools
import json
import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from benchmarks.streams import Pool, pool
from tests import reference_prequential as twin
from trueodds.metrics import Prequential
from trueodds.metrics.alarms.prequential import CENTRES, GROUPS, fit, objective


def stream(count: int, seed: int, heat: float = 1.0) -> tuple[Any, Any]:
    """Confidences, and whether they were right: with chance sigma(logit(c) / heat)."""
    rng = np.random.default_rng(seed)
    confidence_N = rng.uniform(0.3, 0.999, count)
    odds_N = np.log(confidence_N / (1 - confidence_N))
    return confidence_N, rng.random(count) < 1 / (1 + np.exp(-odds_N / heat))


def test_equal_to_the_definition() -> None:
    confidence_N, correct_N = stream(12 * 20, seed=1, heat=2.0)
    confidence_N[3], correct_N[3] = 1.0, False  # counts as 1 - 1e-6
    rows = list(zip(confidence_N.tolist(), map(int, correct_N), strict=True))
    log_e, served = twin.compare([rows[first : first + 20] for first in range(0, 240, 20)])
    evidence = Prequential.start().advance_each(confidence_N, correct_N)
    states = [Prequential.start().advance_each(confidence_N[:end], correct_N[:end]) for end in range(0, 241, 20)]
    gains = [after.log_e - before.log_e for before, after in itertools.pairwise(states)]
    shares = [math.exp(state.log_share_K[0]) for state in states[:-1]]
    assert min(shares) >= 0.1 and min(gain - math.log(share) for gain, share in zip(gains, shares, strict=True)) >= 0
    assert evidence.evidence == pytest.approx(twin.log_evidence(gains, shares), abs=1e-9)
    assert evidence.log_e == pytest.approx(log_e, abs=1e-5)
    assert evidence.served_log_loss == pytest.approx(served / 240, abs=1e-12)
    assert evidence.recalibrated_log_loss == pytest.approx((served - log_e) / 240, abs=1e-7)


def test_one_block_by_hand() -> None:
    """Nothing is known before the first block, so every fit is the served confidence. .1 goes to the served one."""
    state = Prequential.start()
    assert (state.log_e, state.served_log_loss, state.recalibrated_log_loss) == (0.0, None, None)
    state = state.advance([0.8, 0.9, 0.5], [1, 0, 1])
    assert state.log_e == pytest.approx(0, abs=1e-12)
    assert np.exp(state.log_share_K) == pytest.approx([0.55, 0.18, 0.18, 0.09])
    assert state.served_log_loss == pytest.approx(-(math.log(0.8) + math.log(0.1) + math.log(0.5)) / 3)
    assert state.advance([], []) is state


def test_a_known_map_is_found() -> None:
    """Truth sigma(logit(c) / 2): a = .5, b = 0; the gain per label comes near the divergence of the two."""
    confidence_N, correct_N = stream(40_000, seed=2, heat=2.0)
    state = Prequential.start().advance_each(confidence_N, correct_N)
    assert state.maps_R2[0] == pytest.approx([0.5, 0.0], abs=0.03)
    odds_N = np.log(confidence_N / (1 - confidence_N))
    q_N = 1 / (1 + np.exp(-odds_N / 2))
    best = np.where(correct_N, np.log(q_N / confidence_N), np.log((1 - q_N) / (1 - confidence_N))).sum()
    assert 0.8 * best < state.log_e < best
    assert state.gain_lower is not None and 0.5 * best < 40_000 * state.gain_lower < best


def test_expectation_over_all_outcomes() -> None:
    """If the served confidences are right E keeps its value on average, after maps have moved away from them too; a
    confidence that counts as less than it is gives a little away.
    """
    before = Prequential.start().advance_each(*stream(200, seed=3, heat=3.0))
    assert abs(before.maps_R2[0, 0] - 1) > 0.3
    confidences, mean = (0.6, 0.95, 1 - 1e-8, 0.3), np.zeros(2)
    for outcome in itertools.product((0, 1), repeat=4):
        chance = math.prod(c if a else 1 - c for c, a in zip(confidences, outcome, strict=True))
        after = before.advance(confidences[:2], outcome[:2])
        mean += chance * np.exp([after.log_e, after.advance(confidences[2:], outcome[2:]).log_e])
    assert mean == pytest.approx(math.exp(before.log_e), rel=2e-3)
    assert (mean <= math.exp(before.log_e) * (1 + 1e-12)).all()


def loss(counts_G2: Any, at: Any) -> float:
    return objective(counts_G2, at)[0]


def test_gradient_and_minimum() -> None:
    rng = np.random.default_rng(4)
    counts_RG2 = rng.integers(0, 30, (3, GROUPS, 2)).astype(float)
    counts_RG2[2] = 0
    counts_RG2[2, -1, 0] = 50.0  # very sure, and always wrong: a full Newton step would leap
    for counts_G2, minimum in zip(counts_RG2, fit(counts_RG2, np.tile([1.0, 0.0], (3, 1))), strict=True):
        for at in (np.array([1.3, -0.4]), minimum):
            numeric = twin.numeric_gradient(partial(loss, counts_G2), at)
            assert objective(counts_G2, at)[1] == pytest.approx(numeric, rel=1e-5, abs=1e-3)
        assert np.abs(objective(counts_G2, minimum)[1]).max() < 1e-4
    assert CENTRES[0] < -3.8 and CENTRES[-1] > 8.7  # of the first and last confidence cell a top label comes in


def test_json_restores_exactly_and_cuts_do_not_matter() -> None:
    confidence_N, correct_N = stream(620, seed=5, heat=0.7)
    whole = Prequential.start().advance_each(confidence_N, correct_N).to_json()
    for cut in (20, 100, 340, 600):
        part = Prequential.start().advance_each(confidence_N[:cut], correct_N[:cut])
        text = json.dumps(part.to_json(), allow_nan=False)
        assert Prequential.from_json(text).advance_each(confidence_N[cut:], correct_N[cut:]).to_json() == whole
    assert len(json.dumps(whole)) < 6_000


def test_json_is_checked() -> None:
    tree = Prequential.start().advance_each(*stream(20, seed=6)).to_json()
    bad: list[tuple[dict[str, Any], str]] = [
        ({"form": "x"}, "expected form 'prequential 2'"),
        ({"extra": 1}, "expected form 'prequential 2'"),
        ({"labels": 0}, "1 blocks of 0 labels"),
        ({"blocks": 1.5}, "1.5 blocks"),
        ({"log_e": None}, "damaged"),
        ({"log_e": math.inf}, "must be finite"),
        ({"maps_R2": [[1.0, 0.0]]}, "other shapes"),
        ({"paid_K": [0.0]}, "other shapes"),
        ({"counts_RG2": {"77": [[0, 1]] * 3}}, "damaged"),
        ({"counts_RG2": {"-1": [[0, 1]] * 3}}, "damaged"),
        ({"counts_RG2": {"7": [[0, -1]] * 3}}, "whole numbers, one label"),
        ({"counts_RG2": []}, "damaged"),
    ]
    for change, words in bad:
        with pytest.raises(ValueError, match=words):
            Prequential.from_json({**tree, **change})
    for pair, words in ((([0.5], [1, 0]), "one length"), (([1.5], [1]), "holds 1.5"), (([0.5], [3]), "holds 3")):
        with pytest.raises(ValueError, match=words):
            Prequential.start().advance(*pair)
    with pytest.raises(ValueError, match="2 labels in blocks of 3; allowed are whole blocks only"):
        Prequential.start().advance_each([0.5] * 2, [1] * 2, 3)


@pytest.fixture(scope="module")
def shape_c() -> Pool:
    return pool("C", 20_000)


@pytest.mark.full
def test_whom_it_helps(shape_c: Pool) -> None:
    """Calibrated: no stream of 40 ever says yes. T = 1.5, from the start or late: nearly all do, within 6,000."""
    rng = np.random.default_rng(7)

    def first_yes(truth: str, good: int, labels: int) -> float:
        drawn_N = rng.integers(0, len(shape_c.cell_M), good + labels)
        chance_N = np.where(
            np.arange(good + labels) < good, shape_c.chances["calibrated"][drawn_N], shape_c.chances[truth][drawn_N]
        )
        confidence_N, correct_N = shape_c.confidence_M[drawn_N], rng.random(good + labels) < chance_N
        state = Prequential.start()
        for first in range(0, good + labels, 100):
            state = state.advance_each(confidence_N[first : first + 100], correct_N[first : first + 100])
            if state.evidence >= math.log(20):
                return first + 100 - good
        return math.inf

    assert np.isfinite([first_yes("calibrated", 0, 5_000) for _ in range(40)]).sum() <= 1
    assert np.median([first_yes("T = 1.5", 0, 6_000) for _ in range(15)]) < 3_000
    late = [first_yes("T = 1.5", 4_000, 6_000) for _ in range(15)]
    assert sorted(late)[-4] < 6_000 and min(late) > -4_000
