"""Networks by name: `build("resnet8", channels, classes)`, `build("mlp", features, classes)`.

Nets of words, `build("gp_cnn", numbers of a vector, classes)`, take the vectors by `embed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.data.raw import Kind
from pipeline.nets import bottleneck, densenet, gp_cnn, mlp, resnet, torchvision_nets, tree_lstm, wide_resnet
from pipeline.nets.mlp import MLP
from pipeline.nets.net import Net, Shape
from pipeline.nets.resnet import ResNet
from pipeline.nets.text import WordNet
from trueodds.errors import unknown

FAMILIES = (resnet, bottleneck, wide_resnet, densenet, torchvision_nets, mlp, gp_cnn, tree_lstm)
SHAPES: dict[str, Shape] = {shape.name: shape for family in FAMILIES for shape in family.SHAPES}
OPTIONS = ("width", "depth", "dropout", "resize")
"""What params.yaml can change of a net; each family has some of them."""


def names(kind: Kind | None = None) -> list[str]:
    """The names `resolve` knows, of the nets that take rows of this kind, or of all."""
    return [name for name, shape in SHAPES.items() if kind in (None, shape.kind)]


def resolve(
    name: str,
    *,
    width: int | None = None,
    depth: int | None = None,
    dropout: float | None = None,
    resize: int | None = None,
) -> Shape:
    """The named net's shape; what is not None replaces its default. depth: blocks per stage, or hidden layers.

    Raises:
        ConfigError: an unknown name, with the names and the nearest; an option that the net does not have.
    """
    if name not in SHAPES:
        raise unknown("net", name, SHAPES)
    return SHAPES[name].changed(width=width, depth=depth, dropout=dropout, resize=resize)


def restore(settings: Mapping[str, Any]) -> Shape:
    """The shape whose fields (`dataclasses.asdict`) these are.

    Raises:
        KeyError, TypeError: other fields than a net's.
    """
    return type(SHAPES[settings["name"]])(**settings)


def build(
    name: str,
    inside: int,
    classes: int,
    *,
    width: int | None = None,
    depth: int | None = None,
    dropout: float | None = None,
    resize: int | None = None,
) -> Net:
    """A net of rows with `inside` channels, features or numbers of a word's vector, drawn from torch's generator.

    Raises:
        ConfigError: as `resolve`.
    """
    return resolve(name, width=width, depth=depth, dropout=dropout, resize=resize).build(inside, classes)


__all__ = ["MLP", "OPTIONS", "SHAPES", "Net", "ResNet", "Shape", "WordNet", "build", "names", "resolve", "restore"]
