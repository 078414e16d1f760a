"""The tree LSTM: its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pipeline.data.raw import Kind
from pipeline.nets.shape import Shape

if TYPE_CHECKING:
    from pipeline.nets.net import Net


@dataclass(frozen=True)
class TreeLSTMShape(Shape):
    """Sizes of the net.

    Attributes:
        width: Units of the memory.
        dropout: Share of a node's outputs that training drops.
    """

    width: int
    dropout: float
    kind: ClassVar[Kind] = "tree"

    def build(self, inside: int, classes: int) -> Net:
        """Build the net."""
        from pipeline.nets.tree_lstm import TreeLSTM

        return TreeLSTM(inside, classes, width=self.width, dropout=self.dropout)


SHAPES = (TreeLSTMShape("tree_lstm", width=150, dropout=0.5),)
