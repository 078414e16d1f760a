"""The tree LSTM: its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.data.raw import Kind
from pipeline.nets.shape import Shape


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
    net: ClassVar[str] = "pipeline.nets.tree_lstm:TreeLSTM"


SHAPES = (TreeLSTMShape("tree_lstm", width=150, dropout=0.5),)
