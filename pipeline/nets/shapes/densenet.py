"""Densely connected networks: their named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.nets.shape import StagedShape


@dataclass(frozen=True)
class DenseNetShape(StagedShape):
    """Sizes of a DenseNet.

    Attributes:
        width: Channels that each layer adds; half the channels of the stem.
        depth: Dense layers of each block.
        dropout: Share of a layer's outputs that training drops.
    """

    dropout: float = 0.0

    net: ClassVar[str] = "pipeline.nets.densenet:DenseNet"


SHAPES = (
    DenseNetShape("densenet121", width=32, depth=(6, 12, 24, 16)),
    DenseNetShape("densenet100", width=12, depth=(16,) * 3),
)
