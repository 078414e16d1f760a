"""Wide residual networks: their named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.nets.shape import StagedShape


@dataclass(frozen=True)
class WideResNetShape(StagedShape):
    """Sizes of a wide ResNet.

    Attributes:
        order: Whether a block normalises after or before its convolutions.
        dropout: Dropout between the convolutions of a block.
    """

    order: Literal["after", "before"]
    dropout: float = 0.0

    net: ClassVar[str] = "pipeline.nets.wide_resnet:WideResNet"


SHAPES = (
    WideResNetShape("wrn26_10", width=160, depth=(4,) * 3, order="after"),
    WideResNetShape("wrn28_10", width=160, depth=(4,) * 3, order="before"),
)
