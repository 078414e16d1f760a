"""Residual networks of bottleneck blocks: their named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.nets.shape import StagedShape

if TYPE_CHECKING:
    from pipeline.nets.net import Net


@dataclass(frozen=True)
class BottleneckShape(StagedShape):
    """Sizes of a bottleneck ResNet; `pool` is the edge of the maps that the head takes."""

    pool: int = 1

    def build(self, inside: int, classes: int) -> Net:
        """Build the net."""
        from pipeline.nets.bottleneck import BottleneckResNet

        return BottleneckResNet(inside, classes, width=self.width, depth=self.depth, pool=self.pool)


SHAPES = (
    BottleneckShape("resnet50", width=64, depth=(3, 4, 6, 3)),
    BottleneckShape("resnet50_tiny", width=64, depth=(3, 4, 6, 3), pool=2),
    BottleneckShape("resnet110", width=64, depth=(3, 4, 26, 3)),
)
