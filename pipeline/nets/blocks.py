"""Building blocks that several families of image nets share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def convolution(inside: int, outside: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Return a square convolution without bias; its output is its input's size divided by the stride."""
    return nn.Conv2d(inside, outside, size, stride, size // 2, bias=False)


def shortcut(inside: int, outside: int, stride: int, *, norm: bool = True) -> nn.Module:
    """Return the shortcut of a block: the identity, or a 1 x 1 convolution if the block changes the shape of its input.

    The convolution is followed by batch normalisation if `norm`. The stride is a 1 x 1 average pooling before the
    convolution, which is the same function. The reason: in torch 2.13's CPU build the gradient of a strided 1 x 1
    convolution in channels_last with under 16 channels and odd batches corrupts memory (tests/test_nets.py trains such
    a net).
    """
    if stride == 1 and inside == outside:
        return nn.Identity()
    pooling = nn.AvgPool2d(1, stride) if stride > 1 else nn.Identity()
    layers = [pooling, nn.Conv2d(inside, outside, 1, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(outside)) if norm else nn.Sequential(*layers)


def initialise_convolutions(net: nn.Module) -> None:
    """Draw the weights of all convolutions, in place, from N(0, 2 / (outputs x size x size)) (He et al. 2015)."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def mean_pool(images_NCHW: Tensor) -> Tensor:
    """Return the mean over the pixels (N, C), in float32."""
    return at_least_float32(images_NCHW).mean(dim=(2, 3))


class AtLeastFloat32(nn.Module):
    """The function `at_least_float32` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x in float32 or better."""
        return at_least_float32(x)


def at_least_float32(x: Tensor) -> Tensor:
    """Return bfloat16 as float32; return more precise types unchanged."""
    return x.float() if x.dtype == torch.bfloat16 else x
