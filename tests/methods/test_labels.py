"""Smoothed and mixed labels: against plain Python, by hand, and their properties."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import methods
from pipeline.methods.batch import Batch
from pipeline.methods.labels import ClassSmoothing, ConfidenceSmoothing, Mixup
from pipeline.methods.labels.smoothing import smooth
from tests import reference_losses as reference
from tests.methods.batches import batch


@settings(max_examples=50, deadline=None)
@given(epsilon=st.floats(0, 1), classes=st.integers(2, 12), label=st.integers(0, 11))
def test_uniform_smoothing(epsilon: float, classes: int, label: int) -> None:
    label = label % classes
    target = smooth(torch.tensor([label]), classes, epsilon, torch.float64)[0].tolist()
    assert target == pytest.approx([(1 - epsilon) * (k == label) + epsilon / classes for k in range(classes)])
    assert math.fsum(target) == pytest.approx(1)


@pytest.mark.parametrize(("name", "epsilon"), [("ls05", 0.05), ("ls10", 0.1)])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_smoothed_cross_entropy_equals_the_slow_twin(name: str, epsilon: float, classes: int) -> None:
    logits, labels = batch(classes)
    targets = [[(1 - epsilon) * (k == y) + epsilon / classes for k in range(classes)] for y in labels.tolist()]
    loss = methods.build(name).loss(logits.requires_grad_(), labels)
    assert loss.item() == pytest.approx(reference.mean("ce", logits.tolist(), targets), rel=1e-12)
    (slopes,) = torch.autograd.grad(loss, logits)
    expected = (torch.softmax(logits.detach(), 1) - torch.tensor(targets, dtype=torch.float64)) / len(labels)
    assert torch.allclose(slopes, expected, atol=1e-14)


def test_smoothing_composes_with_focal_loss() -> None:
    logits, labels = batch(4)
    targets = smooth(labels, 4, 0.1, torch.float64).tolist()
    expected = reference.mean("focal", logits.tolist(), targets, gamma=2.0, alpha=1.0, gra=False)
    assert float(methods.build("focal+smoothing", gamma=2).loss(logits, labels)) == pytest.approx(expected, rel=1e-12)


def test_smoothing_by_confidence_is_a_constant_for_the_gradient() -> None:
    logits, labels = batch(4)
    epsilon = 0.2 * torch.softmax(logits, 1).amax(1)
    loss = methods.build("ce+confidence_smoothing", epsilon=0.2).loss(logits.requires_grad_(), labels)
    targets = (1 - epsilon.unsqueeze(1)) * torch.nn.functional.one_hot(labels, 4) + epsilon.unsqueeze(1) / 4
    assert loss.item() == pytest.approx(reference.mean("ce", logits.tolist(), targets.tolist()), rel=1e-12)
    (slopes,) = torch.autograd.grad(loss, logits)
    assert torch.allclose(slopes, (torch.softmax(logits.detach(), 1) - targets) / len(labels), atol=1e-14)
    assert ConfidenceSmoothing(epsilon=1.0).strength(torch.zeros(1, 4), labels).tolist() == [0.25]


def test_smoothing_by_class_learns_the_difficulty() -> None:
    part = ClassSmoothing(epsilon=0.1)
    logits, labels = batch(4, rows=30)
    labels = labels.clamp_max(2)  # class 3 has no row
    before = methods.build("ls10").loss(logits, labels)
    method = methods.build("ce+class_smoothing")
    assert torch.equal(method.loss(logits, labels), before)
    part.learn(logits, labels)
    method.after_validation(logits, labels)
    missed = [1 - reference.softmax(z)[y] for z, y in zip(logits.tolist(), labels.tolist(), strict=True)]
    overall = math.fsum(missed) / 30
    hardness = []
    for k in range(4):
        own = [m for m, y in zip(missed, labels.tolist(), strict=True) if y == k]
        hardness.append((math.fsum(own) + overall) / (len(own) + 1))
    epsilon = [min(0.1 * h / (math.fsum(hardness) / 4), 0.5) for h in hardness]
    assert part.epsilon_C is not None and part.epsilon_C.tolist() == pytest.approx(epsilon, rel=1e-12)
    assert len(set(epsilon)) == 4
    targets = [[(1 - epsilon[y]) * (k == y) + epsilon[y] / 4 for k in range(4)] for y in labels.tolist()]
    expected = reference.mean("ce", logits.tolist(), targets)
    assert float(method.loss(logits, labels)) == pytest.approx(expected, rel=1e-12)
    one_hot = torch.nn.functional.one_hot(labels, 4).double()
    assert torch.allclose(method.per_sample(logits, one_hot), method.per_sample(logits, labels))
    other = methods.build("ce+class_smoothing")
    other.restore(method.state())
    assert torch.equal(other.loss(logits, labels), method.loss(logits, labels))


def test_smoothing_by_class_where_all_is_right_or_one_class_is_hard() -> None:
    certain, labels = 800 * torch.eye(3), torch.arange(3)
    part = ClassSmoothing(epsilon=0.4)
    part.learn(certain, labels)
    assert part.epsilon_C is not None and part.epsilon_C.tolist() == [0, 0, 0]
    part.learn(certain, torch.tensor([0, 1, 1]))
    assert part.epsilon_C.max() == 0.5 and part.epsilon_C.min() >= 0


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_mixup_mixes_images_and_labels_alike(alpha: float) -> None:
    labels = torch.arange(12) % 4
    images = torch.nn.functional.one_hot(labels, 4).float().reshape(12, 1, 2, 2)  # an image that shows its label
    shares = []
    for seed in range(200):
        method = methods.build("ce+mixup", alpha=alpha)
        mixed, targets = method.batch(images, labels, 4, torch.Generator().manual_seed(seed))
        assert mixed.shape == images.shape and torch.allclose(mixed.reshape(12, 4), targets)
        assert torch.allclose(targets.sum(1), torch.ones(12))
        own = targets.gather(1, labels.unsqueeze(1))
        assert bool((own >= 0.5).all())  # the label of the larger share is the row's own
        shares.append(float(own.min()))
    # the mean of max(l, 1 - l), l ~ Beta(a, a): .75 for a = 1; close to 1 for a = .1
    expected = {1.0: 0.75, 0.1: 0.944}[alpha]
    assert sum(shares) / len(shares) == pytest.approx(expected, abs=0.035)


def test_mixup_repeats_with_its_generator() -> None:
    images, labels = torch.rand(5, 1, 2, 2), torch.arange(5)

    def mixed(seed: int) -> torch.Tensor:
        return Mixup(alpha=1.0).batch(images, labels, 5, torch.Generator().manual_seed(seed))[0]

    assert torch.equal(mixed(1), mixed(1)) and not torch.equal(mixed(1), mixed(2))
    alone = Mixup(alpha=1.0).batch(images[:1], labels[:1], 5, torch.Generator())
    assert torch.allclose(alone[0], images[:1]) and torch.allclose(alone[1], torch.eye(5)[:1])


def test_mixing_and_smoothing_together() -> None:
    images, labels = torch.rand(6, 1, 2, 2, dtype=torch.float64), torch.arange(6) % 3
    logits, _ = batch(3)
    method = methods.build("ce+smoothing+mixup", epsilon=0.3)
    _, targets = method.batch(images, labels, 3, torch.Generator().manual_seed(0))
    loss = method.objective(Batch(logits=logits, targets=targets, labels=labels))
    expected = reference.mean("ce", logits.tolist(), (0.7 * targets + 0.1).tolist())
    assert float(loss) == pytest.approx(expected, rel=1e-12)
