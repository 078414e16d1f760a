"""Every registered loss against a slow twin, special cases, and numeric gradients in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pipeline import methods
from pipeline.config import ConfigError
from tests import reference

TWINS: dict[str, Callable[..., float]] = {
    "ce": reference.cross_entropy,
    "focal": reference.focal_loss,
}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("ce", {}),
    ("focal", {}),
    ("focal", {"gamma": 0.5}),
    ("focal", {"gamma": 5}),
    ("focal", {"gra": True}),
]


def batch(classes: int, rows: int = 6, scale: float = 2.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(0, classes, (rows,), generator=generator)


def test_every_part_has_a_twin() -> None:
    assert {name for name, part in methods.PARTS.items() if not part.penalty} == set(TWINS)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("rows", [1, 6])
def test_value_equals_the_slow_twin(name: str, options: dict[str, Any], classes: int, rows: int) -> None:
    logits, labels = batch(classes, rows)
    defaults = methods.PARTS[name].options()
    expected = TWINS[name](logits.tolist(), labels.tolist(), **{**defaults, **options})
    found = methods.build(name, **options).loss(logits, labels)
    assert found.dtype == torch.float64 and found.shape == ()
    assert float(found) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "options"), [case for case in CASES if not case[1].get("gra")])
def test_gradient_is_the_numeric_one(name: str, options: dict[str, Any]) -> None:
    logits, labels = batch(5)
    method = methods.build(name, **options)
    assert torch.autograd.gradcheck(lambda z: method.loss(z, labels), logits.requires_grad_())


def test_gra_has_the_value_of_focal_and_the_gradient_of_weighted_cross_entropy() -> None:
    logits, labels = batch(5)
    logits.requires_grad_()
    plain, gra = (methods.build("focal", gamma=2.0, gra=flag).loss(logits, labels) for flag in (False, True))
    assert plain.item() == gra.item()
    (found,) = torch.autograd.grad(gra, logits)
    p = torch.softmax(logits.detach(), 1)
    true = torch.nn.functional.one_hot(labels, 5)
    weight = (1 - (p * true).sum(1, keepdim=True)) ** 2
    assert torch.allclose(found, weight * (p - true) / len(labels), rtol=1e-12)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_at_the_edges(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    method = methods.build(name, **options)
    rows = [[60.0, -60, 0], [-60, 60, 0], [0, 0, 0], [1e4, 0, -1e4], [0, 1e4, -1e4]]
    logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
    loss = method.loss(logits, torch.zeros(5, dtype=torch.int64))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert bool(torch.isfinite(loss)) and bool(torch.isfinite(gradient).all())


def test_special_cases_by_hand() -> None:
    logits, labels = batch(10)
    assert float(methods.build("focal", gamma=0).loss(logits, labels)) == pytest.approx(
        float(methods.build("ce").loss(logits, labels)), rel=1e-14
    )
    even = torch.zeros(3, 4, dtype=torch.float64)  # p_y = 1/4 everywhere
    target = torch.tensor([0, 1, 2])
    assert float(methods.build("ce").loss(even, target)) == pytest.approx(math.log(4))
    assert float(methods.build("fl2").loss(even, target)) == pytest.approx(0.75**2 * math.log(4))


def test_distributions_as_targets_weigh_the_classes() -> None:
    logits, labels = batch(4)
    one_hot = torch.nn.functional.one_hot(labels, 4).double()
    for name in ("ce", "focal"):
        method = methods.build(name)
        assert torch.allclose(method.per_sample(logits, one_hot), method.per_sample(logits, labels))
        mixed = 0.3 * one_hot + 0.7 * one_hot.roll(1, 1)
        expected = 0.3 * method.per_sample(logits, labels) + 0.7 * method.per_sample(logits, (labels + 1) % 4)
        assert torch.allclose(method.per_sample(logits, mixed), expected)


@pytest.mark.parametrize("name", methods.names())
def test_every_name_builds_and_trains_a_step(name: str) -> None:
    logits, labels = batch(5)
    loss = methods.build(name).loss(logits.requires_grad_(), labels, progress=0.5)
    torch.autograd.backward(loss)
    assert logits.grad is not None and loss.item() > 0


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("focl", {}, r"unknown method 'focl'; allowed: ce, focal, .*Did you mean 'focal'\?"),
        ("focal+nothing", {}, r"unknown penalty 'nothing'; allowed: none"),
        ("focal", {"gama": 2}, r"unknown option of method 'focal': 'gama'; allowed: gamma, gra.*Did you mean 'gamma'"),
        ("ce", {"gamma": 2}, r"unknown option of method 'ce': 'gamma'; allowed: none"),
        ("focal", {"gamma": "2"}, r"gamma = '2' .*allowed is a float"),
        ("focal", {"gamma": True}, r"gamma = True .*allowed is a float"),
        ("focal", {"gra": 1}, r"gra = 1 .*allowed is a bool"),
        ("focal", {"gamma": -1}, r"gamma = -1 .*allowed is 0 to 50"),
        ("focal", {"gamma": float("nan")}, r"gamma = nan .*allowed is 0 to 50"),
    ],
)
def test_what_cannot_be_built_is_explained(spec: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        methods.build(spec, **options)


@pytest.mark.parametrize(
    ("logits", "labels", "progress", "message"),
    [
        (torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64), 0.0, r"logits \(3, 4\) and labels \(2,\) do not fit"),
        (torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), 0.0, "N at least 1"),
        (torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64), 1.5, r"progress is 1\.5; allowed is \[0, 1\]"),
    ],
)
def test_bad_calls(logits: torch.Tensor, labels: torch.Tensor, progress: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        methods.build("ce").loss(logits, labels, progress=progress)
