"""Residual networks for small images (He et al. 2016): the CIFAR family and ResNet-18 with the CIFAR stem.

The first convolution is 3 x 3 with stride 1 and there is no max pooling, so 8 x 8 images still have pixels left in
the last stage; global average pooling takes any size from 4 x 4 up.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.data.raw import Kind
from pipeline.nets.net import Net, Shape


@dataclass(frozen=True)
class ResNetShape(Shape):
    """Stages, channels of the first stage, blocks per stage."""

    stages: int
    width: int
    depth: int
    kind: ClassVar[Kind] = "image"

    def build(self, inside: int, classes: int) -> ResNet:
        return ResNet(inside, classes, stages=self.stages, width=self.width, blocks=self.depth)


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut: 1 x 1 convolution where the shape changes, else the identity.

    The shortcut's stride is a 1 x 1 average pooling before its convolution, which is the same function: the gradient of
    a strided 1 x 1 convolution in channels_last with under 16 channels and odd batches corrupts memory in torch 2.13's
    CPU build (tests/test_nets.py trains such a net).
    """

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        same = stride == 1 and inside == outside
        self.shortcut: nn.Module = (
            nn.Identity()
            if same
            else nn.Sequential(
                nn.AvgPool2d(1, stride) if stride > 1 else nn.Identity(),
                nn.Conv2d(inside, outside, 1, bias=False),
                nn.BatchNorm2d(outside),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(Net):
    """Stages of `blocks` residual blocks; each stage after the first halves the image and doubles the channels.

    `features` gives the pooled vector before the last layer.
    """

    def __init__(self, channels: int, classes: int, *, stages: int, width: int, blocks: int) -> None:
        super().__init__()
        widths = [width, *(width * 2**stage for stage in range(stages))]
        self.stem = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        layers: list[nn.Module] = []
        for stage, (inside, outside) in enumerate(pairwise(widths)):
            layers.append(Block(inside, outside, 1 if stage == 0 else 2))
            layers += [Block(outside, outside, 1) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, inputs: Tensor) -> Tensor:
        x = self.stages(F.relu(self.norm(self.stem(inputs))))
        return torch.mean(x, dim=(2, 3))
