"""AdaFocal: the update of gamma against its slow twin, the switch of sign, and what a checkpoint keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline import methods
from pipeline.methods.losses.adafocal import AdaFocal
from pipeline.methods.method import Method
from tests import reference_losses as reference
from tests.methods.batches import batch


def learned(validations: int = 3, bins: int = 5, rate: float = 4.0) -> tuple[Method, AdaFocal]:
    method = methods.build("adafocal", bins=bins, rate=rate)
    assert isinstance(method.primary, AdaFocal)
    for seed in range(validations):
        method.after_validation(*batch(4, rows=40, seed=seed))
    return method, method.primary


def test_updates_equal_the_slow_twin() -> None:
    part = AdaFocal(bins=5, rate=4.0)
    gammas, signs = [1.0] * 5, set()
    for seed in range(12):
        logits, labels = batch(4, rows=40, seed=seed)
        labels = labels if seed < 2 else logits.argmax(1)  # over-confident, then under-confident
        part.learn(logits, labels)
        edges, gammas = reference.adafocal_update(logits.tolist(), labels.tolist(), gammas, rate=4.0)
        assert part.edges.tolist() == pytest.approx(edges, rel=1e-12)
        assert part.gamma_B.tolist() == pytest.approx(gammas, rel=1e-9)
        signs |= {gamma > 0 for gamma in gammas}
    assert signs == {False, True}  # or the inverse loss was never reached


@pytest.mark.parametrize("gra", [False, True])
def test_loss_and_gradient_equal_the_slow_twin_after_learning(gra: bool) -> None:
    part = AdaFocal(bins=4, gra=gra)
    part.edges, part.gamma_B = torch.tensor([0.1, 0.3, 0.6]), torch.tensor([-2.0, 20.0, -0.2, 1.5])
    logits, labels = batch(4, rows=20)
    rows, known = logits.tolist(), (part.edges.tolist(), part.gamma_B.tolist())
    options: dict[str, Any] = {"gamma": 1.0, "bins": 4, "rate": 1.0, "every": 0, "gra": gra, "learned": known}
    values = part(logits.requires_grad_(), labels)
    for n in range(20):
        expected = reference.adafocal(rows[n], int(labels[n]), rows[n], 0.0, **options)
        assert values[n].item() == pytest.approx(expected, rel=1e-6)  # the gammas are float32 here
    (slope,) = torch.autograd.grad(values.mean(), logits)
    numeric = reference.slope(lambda moved: reference.mean("adafocal", moved, labels.tolist(), rows, **options), rows)
    assert torch.allclose(slope, torch.tensor(numeric, dtype=torch.float64), atol=1e-6)
    assert len({int(b) for b in torch.bucketize(values.neg().exp().detach(), part.edges)}) > 1


def certain(confidence: float, right: bool, rows: int = 30) -> tuple[Tensor, Tensor]:
    z = torch.tensor([confidence, 1 - confidence], dtype=torch.float64).log().expand(rows, 2)
    return z, torch.full((rows,), 0 if right else 1)


def test_gamma_by_hand() -> None:
    part = AdaFocal(bins=1, gamma=1.0, rate=1.0)
    part.learn(*certain(0.8, right=False))  # gap .8
    assert part.gamma_B.tolist() == pytest.approx([2.2255409])
    for _ in range(5):
        part.learn(*certain(0.8, right=False))
    assert part.gamma_B.tolist() == [20.0]
    part = AdaFocal(bins=1, gamma=0.22, rate=1.0)
    part.learn(*certain(0.8, right=True))  # gap -.2: .18 is under the switch
    assert part.gamma_B.tolist() == [-0.2]
    part.learn(*certain(0.8, right=True))  # under-confident still: more inverse focal
    assert part.gamma_B.tolist() == pytest.approx([-0.2 * 2.718281828459045**0.2])
    for _ in range(20):
        part.learn(*certain(0.8, right=True))
    assert part.gamma_B.tolist() == [-2.0]
    part.gamma_B = torch.tensor([-0.21], dtype=torch.float64)
    part.learn(*certain(0.8, right=False))
    assert part.gamma_B.tolist() == [0.2]


@pytest.mark.parametrize("rows", [1, 3])
def test_fewer_rows_than_bins_and_ties_leave_empty_bins_alone(rows: int) -> None:
    part = AdaFocal(bins=15, gamma=2.0)
    part.learn(*certain(0.9, right=True, rows=rows))
    changed = [gamma for gamma in part.gamma_B.tolist() if gamma != 2.0]
    assert changed == pytest.approx([2 * 2.718281828459045**-0.1])
    saturated = torch.tensor([[800.0, 0]] * 50), torch.zeros(50, dtype=torch.int64)
    part.learn(*saturated)
    assert bool(torch.isfinite(part.gamma_B).all()) and bool((part.edges <= 1).all())


def test_state_is_taken_up_again() -> None:
    method, part = learned()
    other = methods.build("adafocal", bins=5, rate=4.0)
    other.restore(method.state())
    for seed in (7, 8):
        logits, labels = batch(4, rows=40, seed=seed)
        assert torch.equal(method.loss(logits, labels), other.loss(logits, labels))
        method.after_validation(logits, labels)
        other.after_validation(logits, labels)
    assert isinstance(other.primary, AdaFocal) and torch.equal(part.gamma_B, other.primary.gamma_B)


@pytest.mark.parametrize(("every", "steps", "at_the_end"), [(0, [], True), (3, [3, 6, 9], False)])
def test_when_gamma_moves(every: int, steps: list[int], at_the_end: bool) -> None:
    method = methods.build("adafocal", every=every)
    part, rows = method.primary, batch(4, rows=40)
    assert isinstance(part, AdaFocal)
    assert [step for step in range(1, 11) if method.validates_after(step)] == steps
    moved = []
    for step in (None, 2, 3):
        before = part.gamma_B
        method.after_validation(*rows, step=step)
        moved.append(part.gamma_B is not before)
    method.after_steps(*rows)
    assert moved == [at_the_end, False, not at_the_end]


def test_logits_of_inference_mode_can_be_learned_from() -> None:
    part = AdaFocal(bins=3)
    with torch.inference_mode():
        logits, labels = (x.clone() for x in batch(4, rows=40))
    part.learn(logits, labels)
    z, y = batch(4)
    torch.autograd.backward(part(z.requires_grad_(), y).mean())
    assert z.grad is not None
