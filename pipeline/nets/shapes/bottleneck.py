"""Residual networks of bottleneck blocks: their named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.nets.shape import StagedShape


@dataclass(frozen=True)
class BottleneckShape(StagedShape):
    """Sizes of a bottleneck ResNet; `pool` is the edge of the maps that the head takes."""

    pool: int = 1

    net: ClassVar[str] = "pipeline.nets.bottleneck:BottleneckResNet"


SHAPES = (
    BottleneckShape("resnet50", width=64, depth=(3, 4, 6, 3)),
    BottleneckShape("resnet50_tiny", width=64, depth=(3, 4, 6, 3), pool=2),
    BottleneckShape("resnet110", width=64, depth=(3, 4, 26, 3)),
)
