"""Networks by name: `build("resnet8", channels, classes)`."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.nets.resnet import ResNet
from trueodds.errors import unknown


@dataclass(frozen=True)
class Shape:
    """A named net's defaults: stages, channels of the first stage, blocks per stage."""

    stages: int
    width: int
    blocks: int


_SHAPES = {
    "resnet8": Shape(stages=3, width=16, blocks=1),
    "resnet20": Shape(stages=3, width=16, blocks=3),
    "resnet18": Shape(stages=4, width=64, blocks=2),
}


def names() -> list[str]:
    """The names `build` knows."""
    return list(_SHAPES)


def check(name: str) -> Shape:
    """The named net's defaults.

    Raises:
        ConfigError: an unknown name; the message lists the names and the nearest.
    """
    if name not in _SHAPES:
        raise unknown("net", name, _SHAPES)
    return _SHAPES[name]


def build(name: str, channels: int, classes: int, *, width: int | None = None, depth: int | None = None) -> ResNet:
    """A net initialised by torch's global generator; `width` and `depth` (blocks per stage) replace its defaults.

    Raises:
        ConfigError: an unknown name.
    """
    shape = check(name)
    return ResNet(channels, classes, stages=shape.stages, width=width or shape.width, blocks=depth or shape.blocks)


__all__ = ["ResNet", "build", "check", "names"]
