"""Residual networks of basic blocks: their named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.nets.shape import StagedShape

if TYPE_CHECKING:
    from pipeline.nets.net import Net


@dataclass(frozen=True)
class ResNetShape(StagedShape):
    """Sizes of a ResNet of basic blocks."""

    def build(self, inside: int, classes: int) -> Net:
        """Build the net."""
        from pipeline.nets.resnet import ResNet

        return ResNet(inside, classes, width=self.width, depth=self.depth)


SHAPES = (
    ResNetShape("resnet8", width=16, depth=(1,) * 3),
    ResNetShape("resnet20", width=16, depth=(3,) * 3),
    ResNetShape("resnet56", width=16, depth=(9,) * 3),
    ResNetShape("resnet110_basic", width=16, depth=(18,) * 3),
    ResNetShape("resnet18", width=64, depth=(2,) * 4),
)
