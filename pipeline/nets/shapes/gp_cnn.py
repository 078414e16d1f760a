"""The global pooling CNN for texts: its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pipeline.data.raw import Kind
from pipeline.nets.shape import Shape

if TYPE_CHECKING:
    from pipeline.nets.net import Net


@dataclass(frozen=True)
class GPCNNShape(Shape):
    """Sizes of the net.

    Attributes:
        width: Channels of the convolutions and units of the hidden layer.
        dropout: Share of the hidden units that training drops.
    """

    width: int
    dropout: float
    kind: ClassVar[Kind] = "text"

    def build(self, inside: int, classes: int) -> Net:
        """Build the net."""
        from pipeline.nets.gp_cnn import GPCNN

        return GPCNN(inside, classes, width=self.width, dropout=self.dropout)


SHAPES = (GPCNNShape("gp_cnn", width=128, dropout=0.3),)
