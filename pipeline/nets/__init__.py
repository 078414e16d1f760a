"""Networks by name: `build("resnet8", channels, classes)`."""

from __future__ import annotations

from dataclasses import replace

from pipeline.nets.resnet import ResNet, Shape
from trueodds.errors import unknown

_SHAPES = {
    shape.name: shape
    for shape in (
        Shape("resnet8", stages=3, width=16, depth=1),
        Shape("resnet20", stages=3, width=16, depth=3),
        Shape("resnet18", stages=4, width=64, depth=2),
    )
}


def names() -> list[str]:
    """The names `resolve` knows."""
    return list(_SHAPES)


def resolve(name: str, *, width: int | None = None, depth: int | None = None) -> Shape:
    """The named net's shape; `width` and `depth` (blocks per stage) replace its defaults.

    Raises:
        ConfigError: an unknown name; the message lists the names and the nearest.
    """
    if name not in _SHAPES:
        raise unknown("net", name, _SHAPES)
    shape = _SHAPES[name]
    return replace(shape, width=width or shape.width, depth=depth or shape.depth)


def build(name: str, channels: int, classes: int, *, width: int | None = None, depth: int | None = None) -> ResNet:
    """A net initialised by torch's global generator.

    Raises:
        ConfigError: an unknown name.
    """
    return resolve(name, width=width, depth=depth).build(channels, classes)


__all__ = ["ResNet", "Shape", "build", "names", "resolve"]
