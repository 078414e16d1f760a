"""Wide residual networks: their named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipeline.nets.shape import StagedShape

if TYPE_CHECKING:
    from pipeline.nets.net import Net


@dataclass(frozen=True)
class WideResNetShape(StagedShape):
    """Sizes of a wide ResNet.

    Attributes:
        order: Whether a block normalises after or before its convolutions.
        dropout: Dropout between the convolutions of a block.
    """

    order: Literal["after", "before"]
    dropout: float = 0.0

    def build(self, inside: int, classes: int) -> Net:
        """Build the net."""
        from pipeline.nets.wide_resnet import NormAfter, NormBefore, WideResNet

        block = {"after": NormAfter, "before": NormBefore}[self.order]
        return WideResNet(inside, classes, block, width=self.width, depth=self.depth, dropout=self.dropout)


SHAPES = (
    WideResNetShape("wrn26_10", width=160, depth=(4,) * 3, order="after"),
    WideResNetShape("wrn28_10", width=160, depth=(4,) * 3, order="before"),
)
