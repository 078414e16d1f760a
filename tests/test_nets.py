from __future__ import annotations

import pytest
import torch

from pipeline import nets
from trueodds.errors import ConfigError


def count(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


# ResNet-18 with the CIFAR stem and 100 classes has 11,220,132 parameters in every public implementation of it.
# The other two are counted by hand: see `test_parameters_by_hand`.
def test_resnet18_is_the_published_one() -> None:
    assert count(nets.build("resnet18", 3, 100)) == 11_220_132


@pytest.mark.parametrize(("name", "blocks"), [("resnet8", 1), ("resnet20", 3)])
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


@pytest.mark.parametrize("name", nets.names("image"))
@pytest.mark.parametrize(("height", "width", "channels"), [(8, 8, 1), (32, 32, 3), (64, 48, 3), (4, 4, 3)])
def test_any_image_size(name: str, height: int, width: int, channels: int) -> None:
    net = nets.build(name, channels, 7, width=8).eval()
    images = torch.randn(2, channels, height, width)
    logits = net(images)
    assert logits.shape == (2, 7) and bool(torch.isfinite(logits).all())
    assert torch.equal(logits, net.head(net.features(images)))


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


def test_dropout_is_the_mlps_alone() -> None:
    with pytest.raises(
        ConfigError, match=r"training\.dropout is 0\.2, and net 'resnet8' drops nothing; leave dropout null"
    ):
        nets.build("resnet8", 1, 10, dropout=0.2)


def test_width_and_depth() -> None:
    assert count(nets.build("resnet8", 3, 10, width=32)) > 3 * count(nets.build("resnet8", 3, 10))
    assert count(nets.build("resnet8", 3, 10, depth=3)) == count(nets.build("resnet20", 3, 10))


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
