"""The global pooling CNN for texts: its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.data.raw import Kind
from pipeline.nets.shape import Shape


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
    net: ClassVar[str] = "pipeline.nets.gp_cnn:GPCNN"


SHAPES = (GPCNNShape("gp_cnn", width=128, dropout=0.3),)
