"""Residual networks of basic blocks: their named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.nets.shape import StagedShape


@dataclass(frozen=True)
class ResNetShape(StagedShape):
    """Sizes of a ResNet of basic blocks."""

    net: ClassVar[str] = "pipeline.nets.resnet:ResNet"


SHAPES = (
    ResNetShape("resnet8", width=16, depth=(1,) * 3),
    ResNetShape("resnet20", width=16, depth=(3,) * 3),
    ResNetShape("resnet56", width=16, depth=(9,) * 3),
    ResNetShape("resnet110_basic", width=16, depth=(18,) * 3),
    ResNetShape("resnet18", width=64, depth=(2,) * 4),
)
