"""Densely connected networks: their named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.nets.shape import StagedShape

if TYPE_CHECKING:
    from pipeline.nets.net import Net


@dataclass(frozen=True)
class DenseNetShape(StagedShape):
    """Sizes of a DenseNet.

    Attributes:
        width: Channels that each layer adds; half the channels of the stem.
        depth: Dense layers of each block.
        dropout: Share of a layer's outputs that training drops.
    """

    dropout: float = 0.0

    def build(self, inside: int, classes: int) -> Net:
        """Build the net."""
        from pipeline.nets.densenet import DenseNet

        return DenseNet(inside, classes, growth=self.width, depth=self.depth, dropout=self.dropout)


SHAPES = (
    DenseNetShape("densenet121", width=32, depth=(6, 12, 24, 16)),
    DenseNetShape("densenet100", width=12, depth=(16,) * 3),
)
