"""Wide residual networks (Zagoruyko and Komodakis 2016), in the two block orders of the papers' code.

Wide ResNet-26-10 in the focal paper's code normalises after each convolution, as a ResNet does. Wide ResNet-28-10 in
the code of the soft calibration objectives normalises before each convolution (He et al. 2016b). Its shortcut takes the
block's own input, and it normalises once more after the last block.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.nets.blocks import convolution, initialise_convolutions, mean_pool, shortcut
from pipeline.nets.net import Net

STEM = 16
CUT_NORMAL_STD = 0.8796256610342398
"""Standard deviation of a standard normal variable truncated at -2 and 2."""


class WideBlock(nn.Module, ABC):
    """Two 3 x 3 convolutions with dropout between them, and a shortcut."""

    norm_of_shortcut = True

    def __init__(self, inside: int, outside: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(self.norm_width(inside, outside))
        self.conv1 = convolution(inside, outside, 3, stride)
        self.norm2 = nn.BatchNorm2d(outside)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = convolution(outside, outside, 3)
        self.shortcut = shortcut(inside, outside, stride, norm=self.norm_of_shortcut)

    @staticmethod
    @abstractmethod
    def norm_width(inside: int, outside: int) -> int:
        """Return the number of channels of the first norm."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""


class NormAfter(WideBlock):
    """Block in the order convolution, norm, ReLU."""

    @staticmethod
    def norm_width(inside: int, outside: int) -> int:
        """Return the number of channels of the first norm."""
        return outside

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = self.dropout(F.relu(self.norm1(self.conv1(x))))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class NormBefore(WideBlock):
    """Block in the order norm, ReLU, convolution."""

    norm_of_shortcut = False

    @staticmethod
    def norm_width(inside: int, outside: int) -> int:
        """Return the number of channels of the first norm."""
        return inside

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = self.conv1(F.relu(self.norm1(x)))
        y = self.conv2(self.dropout(F.relu(self.norm2(y))))
        output: Tensor = y + self.shortcut(x)
        return output


class WideResNet(Net):
    """A stem of 16 channels and stages of wide blocks; `features` returns the pooled vector before the last layer."""

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        width: int,
        depth: tuple[int, ...],
        order: Literal["after", "before"],
        dropout: float,
    ) -> None:
        super().__init__()
        block = {"after": NormAfter, "before": NormBefore}[order]
        widths = [STEM, *(width * 2**stage for stage in range(len(depth)))]
        self.stem = convolution(channels, STEM, 3)
        self.normalises_last = order == "before"
        if not self.normalises_last:
            self.norm = nn.BatchNorm2d(STEM)
        layers: list[nn.Module] = []
        for stage, (blocks, (inside, outside)) in enumerate(zip(depth, pairwise(widths), strict=True)):
            layers.append(block(inside, outside, 1 if stage == 0 else 2, dropout))
            layers += [block(outside, outside, 1, dropout) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*layers)
        if self.normalises_last:
            self.norm = nn.BatchNorm2d(widths[-1])
        self.head = nn.Linear(widths[-1], classes)
        if self.normalises_last:
            _initialise_as_tensorflow(self)
        else:
            initialise_convolutions(self)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the pooled maps of each image (N, D)."""
        x = self.stem(inputs)
        if self.normalises_last:
            return mean_pool(F.relu(self.norm(self.stages(x))))
        return mean_pool(self.stages(F.relu(self.norm(x))))


def _initialise_as_tensorflow(net: nn.Module) -> None:
    """Draw convolutions as Keras' he_normal: normal, cut at 2 standard deviations, variance 2 / (inputs x size²)."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            std = math.sqrt(2 / module.weight[0].numel()) / CUT_NORMAL_STD
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
