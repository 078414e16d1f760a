"""Networks by name: `build("resnet8", channels, classes)`, `build("mlp", features, classes)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeline.data.raw import Kind
from pipeline.nets.mlp import MLP, MLPShape
from pipeline.nets.net import Net, Shape
from pipeline.nets.resnet import ResNet, ResNetShape
from trueodds.errors import ConfigError, unknown

_SHAPES: dict[str, ResNetShape | MLPShape] = {
    "resnet8": ResNetShape("resnet8", stages=3, width=16, depth=1),
    "resnet20": ResNetShape("resnet20", stages=3, width=16, depth=3),
    "resnet18": ResNetShape("resnet18", stages=4, width=64, depth=2),
    "mlp": MLPShape("mlp", width=64, depth=2, dropout=0.1),
}


def names(kind: Kind | None = None) -> list[str]:
    """The names `resolve` knows, of the nets that take rows of this kind, or of all."""
    return [name for name, shape in _SHAPES.items() if kind in (None, shape.kind)]


def resolve(name: str, *, width: int | None = None, depth: int | None = None, dropout: float | None = None) -> Shape:
    """The named net's shape; `width`, `depth` (blocks per stage, hidden layers) and `dropout` replace its defaults.

    Raises:
        ConfigError: an unknown name, with the names and the nearest; dropout of a net that has none.
    """
    if name not in _SHAPES:
        raise unknown("net", name, _SHAPES)
    shape = _SHAPES[name]
    shape = replace(shape, width=width or shape.width, depth=depth or shape.depth)
    if dropout is None:
        return shape
    if not isinstance(shape, MLPShape):
        raise ConfigError(f"training.dropout is {dropout}, and net {name!r} drops nothing; leave dropout null")
    return replace(shape, dropout=dropout)


def restore(settings: Mapping[str, Any]) -> Shape:
    """The shape whose fields (`dataclasses.asdict`) these are.

    Raises:
        KeyError, TypeError: other fields than a net's.
    """
    return type(_SHAPES[settings["name"]])(**settings)


def build(
    name: str,
    inside: int,
    classes: int,
    *,
    width: int | None = None,
    depth: int | None = None,
    dropout: float | None = None,
) -> Net:
    """A net of rows with `inside` channels or features, initialised by torch's global generator.

    Raises:
        ConfigError: as `resolve`.
    """
    return resolve(name, width=width, depth=depth, dropout=dropout).build(inside, classes)


__all__ = ["MLP", "Net", "ResNet", "Shape", "build", "names", "resolve", "restore"]
