"""The exponents of the focal family: Lambert W against bisection, steps and schedules at their edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipeline import methods
from pipeline.methods import gamma_star, losses
from pipeline.methods.gamma import CAP, RULES, SCHEDULES, gradient_ratio, p_zero, resolve
from pipeline.methods.method import Moment
from pipeline.methods.targets import distribution
from tests import reference_losses as reference
from tests.methods.batches import batch


@settings(max_examples=100, deadline=None)
@given(p=st.floats(1e-6, 0.4999))
def test_gamma_star_equals_bisection(p: float) -> None:
    assert float(gamma_star(p)) == pytest.approx(reference.gamma_star(p), rel=1e-6, abs=1e-6)


def test_gamma_star_at_the_values_of_the_note() -> None:
    known = {0.05: 37.8, 0.1: 14.92, 0.15: 8.03, 0.19: 5.34, 0.2: 4.851, 0.25: 3.070, 0.3: 1.957, 0.4: 0.681}
    for p, value in known.items():
        assert float(gamma_star(p)) == pytest.approx(value, abs=0.06 if p == 0.05 else 6e-3)
        assert reference.g(p, float(gamma_star(p))) == pytest.approx(0, abs=1e-9)


def test_gamma_star_at_the_edges() -> None:
    p = np.array([0.0, 5e-324, 1e-300, np.nextafter(0.5, 0), 0.5, np.nextafter(0.5, 1), 0.7, 1.0])
    exponents = gamma_star(p)
    assert exponents[0] == np.inf and exponents[1] == np.inf and 1e300 < exponents[2] < np.inf
    assert (exponents[3:] >= 0).all() and exponents[3] < 1e-7 and (exponents[4:] == 0).all()
    near = gamma_star(np.linspace(0.499, 0.5, 10_001))
    assert np.isfinite(near).all() and (near >= 0).all() and (np.diff(near) <= 1e-7).all()
    assert gamma_star(np.zeros((0,))).shape == (0,) and gamma_star(np.full((2, 3), 0.3)).shape == (2, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gamma_star_of_a_tensor_is_a_tensor(dtype: torch.dtype) -> None:
    exponents = gamma_star(torch.tensor([0.2, 0.5], dtype=dtype, requires_grad=True))
    assert exponents.dtype == dtype and not exponents.requires_grad
    assert exponents.tolist() == pytest.approx([4.851, 0], abs=1e-3)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_gamma_star_refuses_what_is_no_probability(p: float) -> None:
    with pytest.raises(ValueError, match=r"gamma_star: p has values from .*allowed are probabilities in \[0, 1\]"):
        gamma_star(p)


@settings(max_examples=100, deadline=None)
@given(p=st.floats(1e-9, 1 - 1e-9), gamma=st.floats(0, 50))
def test_gradient_ratio_is_that_of_the_gradients(p: float, gamma: float) -> None:
    leaf = torch.tensor([math.log(p), math.log1p(-p)], dtype=torch.float64).unsqueeze(0).requires_grad_()
    losses = (
        methods.losses.focal(leaf, torch.tensor([0]), gamma=gamma),
        methods.losses.cross_entropy(leaf, torch.tensor([0])),
    )
    focal, ce = (float(torch.autograd.grad(loss.sum(), leaf)[0][0, 0]) for loss in losses)
    assert float(gradient_ratio(p, gamma)) == pytest.approx(focal / ce, rel=1e-6, abs=1e-12)
    assert float(gradient_ratio(p, gamma)) == pytest.approx(math.exp(reference.g(p, gamma)), rel=1e-6)


def test_gradient_ratio_at_the_edges() -> None:
    assert gradient_ratio([0.0, 5e-324, 1.0], 3).tolist() == [1, 1, 0]
    assert gradient_ratio([0.0, 0.5, 1.0], 0.0).tolist() == [1, 1, 1]  # cross entropy
    for p, gamma, message in ((1.1, 1.0, "p has values"), (math.nan, 1.0, "p has values"), (0.5, -1.0, "gamma is -1")):
        with pytest.raises(ValueError, match=message):
            gradient_ratio(p, gamma)


def test_p_zero_is_where_focal_loss_and_cross_entropy_meet() -> None:
    assert p_zero(1) == pytest.approx(1 / math.e, rel=1e-12)
    for gamma in (1e-3, 0.1, 2, 3, 5, 7, 50, 1e6):
        assert float(gamma_star(p_zero(gamma))) == pytest.approx(gamma, rel=1e-5)
        assert float(gradient_ratio(p_zero(gamma), gamma)) == pytest.approx(1, rel=1e-9)
    for gamma in (0, -1, math.nan, 1e7):
        with pytest.raises(ValueError, match=r"allowed is 0\.001 to 1,000,000"):
            p_zero(gamma)


def test_the_table_is_gamma_star_clipped() -> None:
    p = torch.linspace(0, 1, 100_003, dtype=torch.float64)
    exponents = torch.as_tensor(RULES["lambert"](p, 0))
    exact = gamma_star(p.clamp_min(1e-9)).clamp_max(CAP)
    assert (exponents - exact).abs().max() < 0.05  # at the corner where it meets 20
    smooth = (p > 0.08) | (p < 0.07)
    assert (exponents - exact)[smooth].abs().max() < 4e-4
    assert (exponents[p >= 0.5] == 0).all() and (exponents[p < 0.07] == CAP).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_at_their_edges(dtype: torch.dtype) -> None:
    def at(rule: str, edge: float) -> list[float]:
        here = torch.tensor(edge, dtype=dtype)
        beside = [torch.nextafter(here, torch.tensor(float(end), dtype=dtype)) for end in (0, 1)]
        return torch.as_tensor(RULES[rule](torch.stack([beside[0], here, beside[1]]), 0)).tolist()

    assert at("fla53", 0.19) == [5, 5, 3]
    assert at("flsd53", 0.2) == [5, 3, 3]
    assert at("flsd52", 0.2) == [5, 3, 3] and at("flsd52", 0.5) == [3, 2, 2]
    assert at("fla532", 0.19) == [5, 5, 3] and at("fla532", 0.5) == [3, 3, 2]


def test_schedules_change_at_epochs_100_and_250_of_350() -> None:
    p = torch.tensor([0.1, 0.9])
    for rule, values in (("fls531", (5, 3, 1)), ("fls532", (5, 3, 2))):
        exponents = [resolve(rule, p, Moment(epoch / 350)) for epoch in (0, 99, 100, 249, 250, 350)]
        assert exponents == [values[0], values[0], values[1], values[1], values[2], values[2]]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_tiny_presets_change_at_epochs_30_and_70_of_100(schedule: str) -> None:
    logits, labels = batch(4)

    def gamma_at(epoch: int) -> float:
        loss = methods.build(f"{schedule}_tiny").loss(logits, labels, progress=epoch / 100)
        (gamma,) = [g for g in (5, 3, 2, 1) if methods.build("focal", gamma=g).loss(logits, labels) == loss]
        return gamma

    last = 1 if schedule == "fls531" else 2
    assert [gamma_at(epoch) for epoch in (0, 29, 30, 69, 70, 100)] == [5, 5, 3, 3, last, last]


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=30, deadline=None)
@given(p=st.floats(0, 1), progress=st.floats(0, 1))
def test_rules_equal_the_slow_twin(rule: str, p: float, progress: float) -> None:
    exponent = resolve(rule, torch.tensor([p], dtype=torch.float64), Moment(progress))
    exponent = float(exponent[0] if isinstance(exponent, torch.Tensor) else exponent)
    expected = 20.0 if p < 1e-6 and rule == "lambert" else reference.gamma_of(rule, p, progress)
    assert exponent == pytest.approx(expected, abs=0.05 if 0.07 < p < 0.08 else 4e-4)


@pytest.mark.parametrize("loss", [losses.focal, losses.inverse_focal, losses.dual_focal, losses.bsce])
def test_an_exponent_of_each_row_takes_the_place_of_the_losss_own(loss: Callable[..., Tensor]) -> None:
    logits, labels = batch(5)
    gamma = torch.tensor([0.0, 0.3, 1.0, 2.0, 3.5, 20.0], dtype=torch.float64)
    values = loss(logits, labels, Moment(gamma=gamma), gamma=7.0)
    rows = [loss(logits[n : n + 1], labels[n : n + 1], gamma=float(gamma[n])) for n in range(6)]
    assert torch.allclose(values, torch.cat(rows), rtol=1e-14)
    mixed = 0.5 * (distribution(labels, 5, torch.float64) + 0.2)
    values = loss(logits, mixed, Moment(gamma=gamma), gamma=7.0)
    rows = [loss(logits[n : n + 1], mixed[n : n + 1], gamma=float(gamma[n])) for n in range(6)]
    assert torch.allclose(values, torch.cat(rows), rtol=1e-14)


def test_no_loss_asks_a_sample_for_its_value() -> None:
    """A `.item()`, or a loop over rows, waits for the device at every step."""
    folder = Path(methods.__file__).parent
    for path in folder.rglob("*.py"):
        assert ".item()" not in path.read_text(encoding="utf-8"), path
