"""The multilayer perceptron: its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.data.raw import Kind
from pipeline.nets.shape import Shape


@dataclass(frozen=True)
class MLPShape(Shape):
    """Sizes of an MLP.

    Attributes:
        width: Units of a hidden layer.
        depth: Hidden layers.
        dropout: Share of their outputs that training drops.
    """

    width: int
    depth: int
    dropout: float
    kind: ClassVar[Kind] = "vector"
    net: ClassVar[str] = "pipeline.nets.mlp:MLP"


SHAPES = (MLPShape("mlp", width=64, depth=2, dropout=0.1),)
