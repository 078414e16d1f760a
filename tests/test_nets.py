from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
import torch

from pipeline import methods, nets
from pipeline.data.vision import torchvision
from pipeline.methods.batch import ForwardPass
from pipeline.methods.looking_ahead import Descent
from trueodds.errors import ConfigError


def count(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


# By the papers' public code: 100 classes, DenseNet-BC-100-12 with 10, and torchvision's own tables with 1,000.
@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [
        ("resnet18", 100, 11_220_132),
        ("resnet50", 100, 23_705_252),
        ("densenet121", 100, 7_048_548),
        ("densenet100", 10, 769_162),
        ("wrn28_10", 100, 36_536_884),
        ("torchvision_resnet18", 1000, 11_689_512),
        ("torchvision_resnet50", 1000, 25_557_032),
        ("convnext_tiny", 1000, 28_589_128),
        ("vit_b_16", 1000, 86_567_656),
    ],
)
def test_parameters_are_the_published_ones(name: str, classes: int, parameters: int) -> None:
    torchvision()
    with torch.device("meta"):
        assert count(nets.build(name, 3, classes)) == parameters


@pytest.mark.parametrize(
    ("name", "blocks"), [("resnet8", 1), ("resnet20", 3), ("resnet56", 9), ("resnet110_basic", 18)]
)
def test_parameters_by_hand(name: str, blocks: int) -> None:
    total = 3 * 16 * 9 + 2 * 16
    inside = 16
    for stage, outside in enumerate((16, 32, 64)):
        for block in range(blocks):
            total += inside * outside * 9 + outside * outside * 9 + 4 * outside
            if stage and not block:
                total += inside * outside + 2 * outside
            inside = outside
    assert count(nets.build(name, 3, 100)) == total + 64 * 100 + 100


def test_the_deep_nets_by_hand() -> None:
    """[3, 4, 26, 3] bottleneck blocks; Tiny-ImageNet's head takes 2 x 2 maps; a norm's place changes its size."""

    def meta(name: str) -> int:
        with torch.device("meta"):
            return count(nets.build(name, 3, 100))

    block = 2 * 1024 * 256 + 256 * 256 * 9 + 2 * (2 * 256 + 1024)
    assert meta("resnet110") == meta("resnet50") + 20 * block
    assert meta("resnet50_tiny") == meta("resnet50") + 3 * 2048 * 100
    norms_of_shortcuts = 2 * (160 + 320 + 640)
    first_norms = 2 * (160 - 16) + 2 * (320 - 160) + 2 * (640 - 320)
    assert meta("wrn26_10") == meta("wrn28_10") + norms_of_shortcuts + first_norms + 2 * 16 - 2 * 640


NARROW = {name: {"width": 8} for name in nets.names("image") if hasattr(nets.SHAPES[name], "width")}
"""The families whose nets take images of any size, narrow."""


@pytest.mark.few(8)
@pytest.mark.parametrize("name", [name for name in NARROW if name not in ("resnet110", "resnet110_basic")])
@pytest.mark.parametrize(("height", "width", "channels"), [(8, 8, 1), (64, 48, 3), (5, 4, 3)])
def test_any_image_size(name: str, height: int, width: int, channels: int) -> None:
    net = nets.build(name, channels, 7, **NARROW[name]).eval()
    images = torch.randn(2, channels, height, width)
    logits = net(images)
    assert logits.shape == (2, 7) and bool(torch.isfinite(logits).all())
    assert torch.equal(logits, net.head(net.features(images)))


TAKEN_APART = {"torchvision_resnet18": {}, "convnext_tiny": {}, "vit_b_16": {"image_size": 48}}


@pytest.mark.full
@pytest.mark.parametrize("name", TAKEN_APART)
def test_the_nets_of_torchvision_answer_as_torchvisions(name: str) -> None:
    """Whose ViT is of one size of images, here of a grid of three by three patches."""
    models = torchvision().models
    theirs = getattr(models, name.removeprefix("torchvision_"))(num_classes=5, **TAKEN_APART[name]).eval()
    ours: Any = nets.build(name, 3, 5).eval()
    state = theirs.state_dict()
    last = ours.last
    head = {"weight": state.pop(f"{last}.weight"), "bias": state.pop(f"{last}.bias")}
    if name == "vit_b_16":
        ours.body.encoder.pos_embedding = theirs.encoder.pos_embedding
    ours.body.load_state_dict(state)
    ours.head.load_state_dict(head)
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        assert torch.allclose(ours(images), theirs(images), atol=1e-5)


@pytest.mark.parametrize(("name", "least"), [("vit_b_16", 16), ("convnext_tiny", 32)])
def test_images_that_are_too_small_for_a_net(name: str, least: int) -> None:
    torchvision()
    with torch.device("meta"):
        net = nets.build(name, 3, 5).eval()
        assert net(torch.randn(2, 3, least, least + 7)).shape == (2, 5)
        with pytest.raises(
            ConfigError, match=rf"'{name}' needs images of at least {least} pixels.* have 8 x 40; set training\.resize"
        ):
            net(torch.randn(2, 3, 8, 40))


@pytest.mark.parametrize("name", ["resnet50", "densenet100", "wrn26_10", "wrn28_10"])
def test_a_step_looks_ahead(name: str) -> None:
    """One family each, narrow: a step of training, through the head and through all layers."""
    one_step(name, {"width": 4, "depth": 1}, ("head", "all"))


@pytest.mark.full
@pytest.mark.parametrize("name", nets.names("image"))
def test_every_net_takes_a_step_and_looks_ahead(name: str) -> None:
    """In full size. `all` needs forward-mode differentiation, which attention's fast form lacks; the error says so."""
    one_step(name, {}, ("head",) if name == "vit_b_16" else ("head", "all"))
    if name == "vit_b_16":
        with pytest.raises(ConfigError, match=r"lookahead: all needs forward-mode .*; use lookahead: head"):
            one_step(name, {}, ("all",))


def one_step(name: str, options: dict[str, int], lookahead: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    net = nets.build(name, 3, 5, **options)
    rows, labels = torch.randn(2, 3, 32, 32), torch.tensor([0, 1])
    for through in lookahead:
        method = methods.build("ce_meta_sece", net, lookahead=through)
        method.meta.check(net, rows)
        batch = ForwardPass.of(net, rows, labels, labels, 0.0)
        for meta in method.meta.due(1):
            meta.learn(method, net, batch, (rows, labels), Descent(0.1, is_sum=False, clip=0.0))
        torch.autograd.backward(method.objective(batch))
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in net.parameters())


@pytest.mark.parametrize(("features", "width", "depth"), [(30, 64, 2), (5, 8, 1), (1, 3, 4)])
def test_the_mlp_by_hand(features: int, width: int, depth: int) -> None:
    net = nets.build("mlp", features, 3, width=width, depth=depth, dropout=0.5).eval()
    assert count(net) == features * width + width + (depth - 1) * (width * width + width) + 3 * width + 3
    x = torch.randn(4, features)
    layers = [(p.detach(), q.detach()) for p, q in zip(*[iter(net.parameters())] * 2, strict=True)]
    h = x
    for weight, bias in layers[:-1]:
        h = (h @ weight.T + bias).clamp_min(0)
    assert torch.allclose(net(x), h @ layers[-1][0].T + layers[-1][1], atol=1e-6)
    assert torch.allclose(net.features(x), h, atol=1e-6)
    assert bool((net.train().features(x.expand(50, 4, features)) == 0).any()), "training drops units"


def test_options_are_the_familys() -> None:
    words = r"training\.dropout is 0\.2, and net 'resnet8' has no dropout; leave dropout null \(it has width, depth\)"
    with pytest.raises(ConfigError, match=words):
        nets.build("resnet8", 1, 10, dropout=0.2)
    with pytest.raises(ConfigError, match=r"net 'vit_b_16' has no width; leave width null \(it has resize\)"):
        nets.build("vit_b_16", 3, 10, width=8)
    for name in ("wrn26_10", "wrn28_10", "densenet100"):
        net = nets.build(name, 3, 10, width=4, depth=1, dropout=0.5)
        images = torch.randn(2, 3, 8, 8)
        assert not torch.equal(net(images), net(images))
        assert torch.equal(net.eval()(images), net(images))


def test_width_and_depth() -> None:
    assert count(nets.build("resnet8", 3, 10, width=32)) > 3 * count(nets.build("resnet8", 3, 10))
    assert count(nets.build("resnet8", 3, 10, depth=3)) == count(nets.build("resnet20", 3, 10))
    shape = nets.resolve("resnet50", width=8)
    assert nets.restore(json.loads(json.dumps(asdict(shape)))) == shape


def test_unknown_net() -> None:
    with pytest.raises(ConfigError, match=r"unknown net 'resnet9'; allowed: resnet8, .*Did you mean 'resnet8'\?"):
        nets.build("resnet9", 3, 10)


def test_narrow_nets_learn_from_odd_batches() -> None:
    """Torch 2.13's CPU build corrupted memory here: strided 1 x 1 convolutions, under 16 channels, channels_last."""
    for width, rows in ((4, 7), (8, 5), (12, 9)):
        net = nets.build("resnet8", 3, 2, width=width).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = torch.randn(rows, 48, 64, 3).permute(0, 3, 1, 2)
        torch.autograd.backward(net(images).square().sum())
        assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in net.parameters())
