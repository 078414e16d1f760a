"""The share of false alarms, and the delay of true ones, against the published figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.alarms.sequential import PUBLISHED
from benchmarks.streams import Pool, pool
from service.alarm import AlarmState
from service.settings import Settings
from tests.service.alarms import labels
from trueodds.metrics import EProcess
from trueodds.metrics.alarms.payoffs import Null
from trueodds.metrics.alarms.sequential import BLOCK

FOLDED = 10_000
"""Labels in one transaction of `fold`."""


BOTH: tuple[Null, ...] = ("ece", "point")


@pytest.fixture(scope="module")
def pools() -> dict[str, Pool]:
    return {shape: pool(shape, 50_000) for shape in "ABC"}


def stream(rows: Pool, truth: str, count: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng([seed, *f"{rows.shape}{truth}".encode()])
    drawn_N = rng.integers(0, len(rows.cell_M), count)
    return rows.confidence_M[drawn_N], rng.random(count) < rows.chances[truth][drawn_N]


def first_alarm(confidence_N: Any, correct_N: Any, null: Null) -> float:
    """Labels until the alarm; inf: none. By the call that the state makes."""
    _, log_e_B = EProcess.start(null).advance_each(confidence_N, correct_N)
    reached_B = log_e_B >= math.log(20)
    return float((np.argmax(reached_B) + 1) * BLOCK) if reached_B.any() else math.inf


@pytest.mark.full
def test_calibrated_streams_hardly_ever_alarm(pools: dict[str, Pool]) -> None:
    """201 streams of 100,000 labels, 67 of each shape: at most 5% of them alarm, for either null."""
    alarms = {
        null: sum(
            math.isfinite(first_alarm(*stream(rows, "calibrated", 100_000, seed), null))
            for rows in pools.values()
            for seed in range(67)
        )
        for null in BOTH
    }
    assert max(alarms.values()) <= 10


@pytest.mark.full
@pytest.mark.parametrize("truth", ["T = 1.25", "T = 1.5", "T = 2.5"])
@pytest.mark.parametrize("shape", ["A", "B", "C"])
def test_delays(pools: dict[str, Pool], shape: str, truth: str) -> None:
    """Medians of 200 streams, within 25% of the published ones or one block."""
    row = ("T = 1.25", "T = 1.5", "T = 2.5").index(truth)
    published = PUBLISHED["start", "point", "starts"][row]["ABC".index(shape)]
    assert published
    horizon = max(400, 5 * published) // BLOCK * BLOCK
    alarms = [first_alarm(*stream(pools[shape], truth, horizon, seed), "point") for seed in range(200)]
    assert np.median(alarms) <= max(1.25 * published, published + BLOCK)
    assert np.median(alarms) >= min(0.75 * published, published - BLOCK)


@pytest.mark.parametrize("truth", ["calibrated", "T = 1.5"])
def test_the_state_fires_when_the_e_process_does(pools: dict[str, Pool], truth: str) -> None:
    """In blocks of the log as the store gives them."""
    confidence_N, correct_N = stream(pools["C"], truth, 2 * FOLDED, seed=1)
    state = AlarmState.start(Settings())
    for first in range(0, len(confidence_N), FOLDED):
        rows = slice(first, first + FOLDED)
        state = state.take(labels(confidence_N[rows], correct_N[rows], first))
    for null in BOTH:
        fired = state.nulls[null].fired
        assert (fired.after if fired else math.inf) == first_alarm(confidence_N, correct_N, null)
    assert (state.nulls["point"].fired is None) == (truth == "calibrated")
