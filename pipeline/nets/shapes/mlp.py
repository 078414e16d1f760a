"""The multilayer perceptron: its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pipeline.data.raw import Kind
from pipeline.nets.shape import Shape

if TYPE_CHECKING:
    from pipeline.nets.net import Net


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

    def build(self, inside: int, classes: int) -> Net:
        """Build the net."""
        from pipeline.nets.mlp import MLP

        return MLP(inside, classes, width=self.width, depth=self.depth, dropout=self.dropout)


SHAPES = (MLPShape("mlp", width=64, depth=2, dropout=0.1),)
