"""Densely connected networks (Huang et al. 2017): DenseNet-121 with a 3 x 3 stem, and DenseNet-BC-100-12.

Both have bottleneck layers and halve the channels between blocks. DenseNet-121 is the focal paper's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.nets.blocks import convolution, mean_pool
from pipeline.nets.net import Net


class DenseLayer(nn.Module):
    """Norm, ReLU, 1 x 1 convolution to four times the growth, norm, ReLU, 3 x 3 convolution; prepended to its input."""

    def __init__(self, inside: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inside)
        self.conv1 = convolution(inside, 4 * growth, 1)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = convolution(4 * growth, growth, 3)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer and prepend its output to its input."""
        y = self.conv1(F.relu(self.norm1(x)))
        y = self.dropout(self.conv2(F.relu(self.norm2(y))))
        return torch.cat([y, x], 1)


class Transition(nn.Module):
    """Norm, ReLU, 1 x 1 convolution to half the channels, 2 x 2 average pooling, rounded up for odd images."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inside)
        self.conv = convolution(inside, inside // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the transition."""
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2, ceil_mode=True)


class DenseNet(Net):
    """Dense blocks with transitions between them and torch's default initialisation."""

    def __init__(self, channels: int, classes: int, *, width: int, depth: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        growth, inside = width, 2 * width
        self.stem = convolution(channels, inside, 3)
        stages: list[nn.Module] = []
        for stage, layers in enumerate(depth):
            stages.append(nn.Sequential(*(DenseLayer(inside + i * growth, growth, dropout) for i in range(layers))))
            inside += layers * growth
            if stage < len(depth) - 1:
                stages.append(Transition(inside))
                inside //= 2
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(inside)
        self.head = nn.Linear(inside, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the pooled maps of each image (N, D)."""
        return mean_pool(F.relu(self.norm(self.stages(self.stem(inputs)))))
