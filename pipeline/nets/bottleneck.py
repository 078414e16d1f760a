"""Residual networks of bottleneck blocks (He et al. 2016) with the CIFAR stem: the focal paper's ResNet-50 and -110.

ResNet-110 has [3, 4, 26, 3] bottleneck blocks there; it is not the 6n+2 net of that name (`resnet110_basic`).
Tiny-ImageNet's ResNet-50 keeps the stem's stride of 1 and pools its last 8 x 8 maps to 2 x 2, so its head takes 8,192
features.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.nets.blocks import at_least_float32, convolution, mean_pool, shortcut
from pipeline.nets.net import Net

EXPANSION = 4


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, the last to four times the channels, and a shortcut."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = EXPANSION * width
        self.conv1 = convolution(inside, width, 1)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outside, 1)
        self.norm3 = nn.BatchNorm2d(outside)
        self.shortcut = shortcut(inside, outside, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class BottleneckResNet(Net):
    """Stages of bottleneck blocks with torch's default initialisation; `features` returns the pooled maps, flat."""

    def __init__(self, channels: int, classes: int, *, width: int, depth: tuple[int, ...], pool: int) -> None:
        super().__init__()
        widths = [width * 2**stage for stage in range(len(depth))]
        self.stem = convolution(channels, width, 3)
        self.norm = nn.BatchNorm2d(width)
        layers: list[nn.Module] = []
        for stage, (blocks, (before, here)) in enumerate(zip(depth, pairwise([0, *widths]), strict=True)):
            layers.append(Bottleneck(EXPANSION * before or width, here, 1 if stage == 0 else 2))
            layers += [Bottleneck(EXPANSION * here, here, 1) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*layers)
        self.pool = pool
        self.head = nn.Linear(EXPANSION * widths[-1] * pool**2, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the pooled maps of each image (N, D)."""
        x = self.stages(F.relu(self.norm(self.stem(inputs))))
        return mean_pool(x) if self.pool == 1 else F.adaptive_avg_pool2d(at_least_float32(x), self.pool).flatten(1)
