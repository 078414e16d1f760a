"""The key property of every bet: at most 1 on average while the null holds, for all that a cell can hide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueodds.metrics import CELLS
from trueodds.metrics.alarms.payoffs import CENTRES, HALF_CELL, payoffs
from trueodds.sums.bins import EDGES


@pytest.mark.parametrize("eps", [0.0, 0.02, 0.1])
def test_point_bets_never_gain_within_the_tolerance(eps: float) -> None:
    """The key property: for every cell, every confidence in it and every truth within eps of that, E[payoff] <= 1."""
    table = payoffs("point", eps)
    right_CK, wrong_CK = np.exp(table.log_right_CK), np.exp(table.log_wrong_CK)
    worst = 0.0
    for share in (0.0, 0.25, 0.5, 1.0):
        confidence_C = EDGES[:-1] + share * np.diff(EDGES)
        for off in np.linspace(-eps, eps, 9):
            chance_C = np.clip(confidence_C + off, 0, 1)[:, None]
            worst = max(worst, float((chance_C * right_CK + (1 - chance_C) * wrong_CK).max()))
    assert worst <= 1 + 1e-12
    assert worst >= 1 - 1e-12  # and no capital is given away


def test_point_bets_gain_beyond_the_tolerance() -> None:
    """Just outside the tolerance of its whole cell a bet that points there wins: the slack is no larger than needed."""
    eps = 0.02
    table = payoffs("point", eps)
    for sign in (-1, 1):
        chance_C = CENTRES + sign * (eps + 3 * HALF_CELL)
        mean_CK = chance_C[:, None] * np.exp(table.log_right_CK) + (1 - chance_C)[:, None] * np.exp(table.log_wrong_CK)
        inside = (chance_C > 0.02) & (chance_C < 0.98)
        assert (mean_CK[inside].max(axis=1) > 1).all()


@settings(max_examples=200)
@given(st.data())
def test_ece_bets_never_gain_within_the_tolerance(data: st.DataObject) -> None:
    """Any population of at most 6 confidences (edges of cells among them) whose weighted |p - c| is eps in total."""
    eps = data.draw(st.sampled_from([0.0, 0.02, 0.1]))
    size = data.draw(st.integers(1, 6))
    cell = np.array(data.draw(st.lists(st.integers(0, CELLS - 1), min_size=size, max_size=size, unique=True)))
    place = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=size, max_size=size)))
    weight = np.array(data.draw(st.lists(st.floats(0.01, 1), min_size=size, max_size=size)))
    weight /= weight.sum()
    confidence = EDGES[cell] + place * np.diff(EDGES)[cell]
    share = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=size, max_size=size)))
    scale = np.abs(share).sum() or 1.0
    chance = np.clip(confidence + eps * share / scale / weight, 0, 1)
    assert weight @ np.abs(chance - confidence) <= eps + 1e-12
    table = payoffs("ece", eps)
    mean_K = (weight * chance) @ np.exp(table.log_right_CK[cell]) + (weight * (1 - chance)) @ np.exp(
        table.log_wrong_CK[cell]
    )
    assert mean_K.max() <= 1 + 1e-12


def test_ece_bets_are_tight() -> None:
    """All confidences at a cell's edge, all off by eps to one side: the bet on that side keeps all but rounding."""
    table = payoffs("ece", 0.02)
    for cell, edge, sign in ((1500, 0, -1), (1500, 1, 1)):
        chance = EDGES[cell + edge] + sign * 0.02
        mean_K = chance * np.exp(table.log_right_CK[cell]) + (1 - chance) * np.exp(table.log_wrong_CK[cell])
        assert mean_K.max() == pytest.approx(1, abs=1e-12)
