"""AugMix: its views, its consistency loss against a slow twin, and its place in the objective."""

from __future__ import annotations

import math

import pytest
import torch

from pipeline import methods
from pipeline.methods.batch import Batch
from pipeline.methods.views.augmix import AugMix
from tests.methods.batches import batch


def pictures(rows: int, channels: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (rows, 8, 8, channels), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize(("channels", "group"), [(1, 1), (3, 4)])
def test_the_images_and_two_mixtures_of_them(channels: int, group: int) -> None:
    images = pictures(6, channels)
    views = AugMix(group=group)(images, torch.Generator().manual_seed(1))
    assert views.shape == (18, 8, 8, channels) and views.dtype == torch.uint8
    assert torch.equal(views[:6], images)
    assert not torch.equal(views[6:12], views[12:]) and not torch.equal(views[6:12], images)


def test_the_loops_generator_decides_and_the_global_one_is_left_alone() -> None:
    images, mix = pictures(4, 3), AugMix()
    torch.manual_seed(5)
    first = mix(images, torch.Generator().manual_seed(1))
    drawn = torch.rand(1)
    torch.manual_seed(6)
    assert torch.equal(first, mix(images, torch.Generator().manual_seed(1)))
    assert not torch.equal(first, mix(images, torch.Generator().manual_seed(2)))
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))


def test_without_consistency_there_is_one_view_a_mixture() -> None:
    images = pictures(4, 3)
    views = AugMix(jsd=0.0)(images, torch.Generator().manual_seed(1))
    assert views.shape == images.shape and not torch.equal(views, images)


def test_the_divergence_against_its_definition() -> None:
    logits = torch.stack([batch(5, rows=7, scale=s)[0] for s in (1.0, 2.0, 3.0)])
    total = 0.0
    for n in range(7):
        p = [torch.softmax(logits[v, n], 0).tolist() for v in range(3)]
        mean = [sum(q[k] for q in p) / 3 for k in range(5)]
        total += sum(q[k] * math.log(q[k] / mean[k]) for q in p for k in range(5)) / 3
    assert float(AugMix(jsd=2.0).consistency(logits)) == pytest.approx(2 * total / 7, rel=1e-12)
    far = torch.zeros(3, 1, 4, dtype=torch.float64)
    far[0, 0, 0] = far[1, 0, 1] = far[2, 0, 2] = 1e4  # three sure and different answers: the greatest
    far.requires_grad_()
    worst = AugMix(jsd=1.0).consistency(far)
    torch.autograd.backward(worst)
    assert worst.item() == pytest.approx(math.log(3)) and far.grad is not None and far.grad.isfinite().all()


def test_the_loss_sees_the_first_view_and_the_divergence_is_added() -> None:
    (clean, labels), (one, _), (two, _) = (batch(4, rows=6, scale=s) for s in (1.0, 2.0, 3.0))
    method = methods.build("focal+augmix+mmce", jsd=3.0, beta=2.0)
    plain = methods.build("focal+mmce", beta=2.0).loss(clean, labels)
    loss = method.objective(Batch(logits=torch.cat([clean, one, two]), targets=labels, labels=labels))
    extra = AugMix(jsd=3.0).consistency(torch.stack([clean, one, two]))
    assert float(loss) == pytest.approx(float(plain + extra), rel=1e-12) and float(extra) > 0
    assert method.loss(clean, labels) == plain
