"""Cross entropy weighted by the last epoch's gaps: against slow twins, by hand, and where the gaps come from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline import methods
from pipeline.methods.losses import EceCE
from pipeline.methods.method import Method
from tests import reference_losses as reference
from tests.methods.batches import batch

PROGRESS = 0.75
BINS = 5


def learned(seed: int = 3, classes: int = 4) -> tuple[Method, EceCE, reference.Statistics]:
    method = methods.build("ece_ce", bins=BINS)
    assert isinstance(method.primary, EceCE)
    logits, labels = batch(classes, rows=40, seed=seed)
    method.after_steps(logits, labels)
    return method, method.primary, reference.ece_ce_statistics(logits.tolist(), labels.tolist(), BINS)


def test_the_gaps_equal_the_slow_twin() -> None:
    _, part, expected = learned()
    assert part.gaps is not None
    for tensor, values in zip(part.gaps, expected, strict=True):
        assert tensor.tolist() == pytest.approx(values, rel=1e-12, abs=1e-15)
    assert all(any(values) for values in expected)


def test_loss_and_gradient_equal_the_slow_twin_after_learning() -> None:
    method, _, statistics = learned()
    logits, labels = batch(4, rows=20)
    rows = logits.tolist()
    options: dict[str, Any] = {"bins": BINS, "classwise": 2.0, "split": "train", "learned": statistics}
    loss = method.loss(logits.requires_grad_(), labels, progress=PROGRESS)
    expected = reference.mean("ece_ce", rows, labels.tolist(), progress=PROGRESS, **options)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    (slope,) = torch.autograd.grad(loss, logits)
    numeric = reference.slope(
        lambda moved: reference.mean("ece_ce", moved, labels.tolist(), rows, PROGRESS, **options), rows
    )
    assert torch.allclose(slope, torch.tensor(numeric, dtype=torch.float64), atol=1e-7)


def test_distributions_weigh_the_classes() -> None:
    method, _, _ = learned()
    logits, labels = batch(4)
    one_hot = torch.nn.functional.one_hot(labels, 4).double()
    one, two, mixed = (
        method.per_sample(logits, y, progress=PROGRESS)
        for y in (labels, (labels + 1) % 4, 0.3 * one_hot + 0.7 * one_hot.roll(1, 1))
    )
    assert torch.allclose(mixed, 0.3 * one + 0.7 * two, rtol=1e-10)


def said(p: float, right: int, rows: int) -> tuple[Tensor, Tensor]:
    """Rows that all say class 0 with probability p, of which so many are right."""
    logits = torch.tensor([[math.log(p / (1 - p)), 0.0]], dtype=torch.float64).expand(rows, 2)
    return logits, (torch.arange(rows) >= right).long()


def test_by_hand() -> None:
    """.9 said and .6 right: g = a = .3 and e = .3 for both classes, so w = (.3 + .3 + 2 x .3) / 3 = .4 at the end."""
    method = methods.build("ece_ce", bins=15)
    rows = said(0.9, 6, 10)
    cross_entropy = methods.build("ce").loss(rows[0], torch.zeros(10, dtype=torch.int64))
    sure = rows[0], torch.zeros(10, dtype=torch.int64)

    def weight(progress: float) -> float:
        return float(method.loss(*sure, progress=progress) / cross_entropy)

    assert weight(1.0) == 1.0  # nothing is learned yet
    method.after_steps(*rows)
    assert [weight(at) for at in (0.0, 0.5, 1.0)] == pytest.approx([1, 0.7, 0.4])
    calibrated = methods.build("ece_ce", bins=15)
    calibrated.after_steps(*said(0.9, 9, 10))
    assert float(calibrated.loss(*sure, progress=1.0)) == pytest.approx(0, abs=1e-12)  # nothing left to repair


def test_a_certain_row_lies_in_the_last_bin() -> None:
    """The public code finds no bin for p_y = 1 and takes its gap to be 0."""
    method = methods.build("ece_ce", classwise=0)
    certain = torch.tensor([[800.0, 0.0]] * 10), torch.tensor([0] * 5 + [1] * 5)
    method.after_steps(*certain)
    assert isinstance(method.primary, EceCE) and method.primary.gaps is not None
    assert float(method.primary.gaps.width_B[-1]) == pytest.approx(0.5)
    p = torch.tensor([1.0])
    assert float(method.primary._gap(p, torch.tensor([0]), method.primary.gaps)) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("split", "from_validation"), [("train", False), ("val", True)])
def test_the_rows_it_learns_from(split: str, from_validation: bool) -> None:
    method = methods.build("ece_ce", split=split)
    assert method.learns_from_validation == from_validation and bool(method.notes()) == from_validation
    part = method.primary
    assert isinstance(part, EceCE)
    for show, learns in ((method.after_steps, not from_validation), (method.after_validation, from_validation)):
        part.gaps = None
        show(*batch(4, rows=40))
        assert (part.gaps is not None) == learns


def test_state_is_taken_up_again() -> None:
    method, _, _ = learned()
    other, fresh = methods.build("ece_ce", bins=BINS), methods.build("ece_ce", bins=BINS)
    other.restore(fresh.state())
    other.restore(method.state())
    logits, labels = batch(4)
    assert torch.equal(method.loss(logits, labels, progress=PROGRESS), other.loss(logits, labels, progress=PROGRESS))
    assert not torch.equal(other.loss(logits, labels, progress=PROGRESS), fresh.loss(logits, labels, progress=PROGRESS))
