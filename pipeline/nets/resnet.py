"""Residual networks of basic blocks for small images (He et al. 2016): the 6n+2 CIFAR family, and ResNet-18.

The first convolution is 3 x 3 with stride 1 and there is no max pooling, so that 8 x 8 images still have pixels in the
last stage. Global average pooling takes any size from 4 x 4 on.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.nets.blocks import convolution, initialise_convolutions, mean_pool, shortcut
from pipeline.nets.net import Net


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inside, outside, 3, stride)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = convolution(outside, outside, 3)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut = shortcut(inside, outside, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(Net):
    """Stages of residual blocks; each stage after the first halves the image and doubles the channels.

    `features` returns the pooled vector before the last layer.
    """

    def __init__(self, channels: int, classes: int, *, width: int, depth: tuple[int, ...]) -> None:
        super().__init__()
        widths = [width, *(width * 2**stage for stage in range(len(depth)))]
        self.stem = convolution(channels, width, 3)
        self.norm = nn.BatchNorm2d(width)
        layers: list[nn.Module] = []
        for stage, (blocks, (inside, outside)) in enumerate(zip(depth, pairwise(widths), strict=True)):
            layers.append(Block(inside, outside, 1 if stage == 0 else 2))
            layers += [Block(outside, outside, 1) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], classes)
        initialise_convolutions(self)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the pooled maps of each image (N, D)."""
        x = self.stages(F.relu(self.norm(self.stem(inputs))))
        return mean_pool(x)
