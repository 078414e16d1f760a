"""What several families of image nets are built of."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def convolution(inside: int, outside: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A square convolution without bias, whose output has the size of its input divided by the stride."""
    return nn.Conv2d(inside, outside, size, stride, size // 2, bias=False)


def shortcut(inside: int, outside: int, stride: int, *, norm: bool = True) -> nn.Module:
    """A 1 x 1 convolution, normalised if `norm`, where a block changes the shape of its input; else the identity.

    The stride is a 1 x 1 average pooling before the convolution, which is the same function: the gradient of a strided
    1 x 1 convolution in channels_last with under 16 channels and odd batches corrupts memory in torch 2.13's CPU build
    (tests/test_nets.py trains such a net).
    """
    if stride == 1 and inside == outside:
        return nn.Identity()
    pooling = nn.AvgPool2d(1, stride) if stride > 1 else nn.Identity()
    layers = [pooling, nn.Conv2d(inside, outside, 1, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(outside)) if norm else nn.Sequential(*layers)


def initialise_convolutions(net: nn.Module) -> None:
    """Draws their weights from N(0, 2 / (outputs x size x size)), for ReLU (He et al. 2015), in place."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def pooled(images_NCHW: Tensor) -> Tensor:
    """(N, C), in float32: the mean over the pixels."""
    return single(images_NCHW).mean(dim=(2, 3))


class Single(nn.Module):
    """`single`, as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        return single(x)


def single(x: Tensor) -> Tensor:
    """bfloat16 as float32, what is more precise as it is."""
    return x.float() if x.dtype == torch.bfloat16 else x
