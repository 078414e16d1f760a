"""Nets by name: `build("resnet8", channels, classes)`, `build("mlp", features, classes)`.

A net of words, `build("gp_cnn", width of a word vector, classes)`, receives the word vectors by `embed`.

A shape is a net's name and options. It needs no torch: it imports the net when it builds it.

To add a net, write a subclass of `pipeline.nets.net.Net` in a module of its own. In `pipeline/nets/shapes/`, write a
subclass of `Shape` with a tuple SHAPES of its named sizes, and enter the module into FAMILIES. Another distribution
registers each `Shape` under its name in the entry-point group `trueodds.nets` instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.data.raw import Kind
from pipeline.nets.shape import Shape
from pipeline.nets.shapes import bottleneck, densenet, gp_cnn, mlp, resnet, torchvision_nets, tree_lstm, wide_resnet
from trueodds.errors import unknown
from trueodds.processes import extensions
from trueodds.processes.extensions import Extension
from trueodds.texts import short

if TYPE_CHECKING:
    from pipeline.nets.net import Net

FAMILIES = (resnet, bottleneck, wide_resnet, densenet, torchvision_nets, mlp, gp_cnn, tree_lstm)
SHAPES: dict[str, Shape] = {shape.name: shape for family in FAMILIES for shape in family.SHAPES}
"""Named sizes of the networks of this package. `shapes` adds those of other distributions."""
OPTIONS = ("width", "depth", "dropout", "resize")
"""Options of a net in params.yaml; each family has some of them."""


def shapes() -> dict[str, Shape]:
    """Return SHAPES and the shapes that other distributions register, by name.

    Raises:
        ExtensionError: A registered object cannot be used, or its name is not its own.
    """
    return SHAPES | {extension.name: _load(extension) for extension in extensions.listing("nets", SHAPES)}


def _load(extension: Extension) -> Shape:
    shape = extension.load()
    if not isinstance(shape, Shape):
        raise extension.error(f"is {short(shape)}; allowed is an instance of a subclass of pipeline.nets.Shape")
    if shape.name != extension.name:
        raise extension.error(f"has the name {shape.name!r} in its shape; the two must be equal")
    return shape


def names(kind: Kind | None = None) -> list[str]:
    """Return the names of the nets that take rows of this kind, or of all nets."""
    return [name for name, shape in shapes().items() if kind in (None, shape.kind)]


def resolve(
    name: str,
    *,
    width: int | None = None,
    depth: int | None = None,
    dropout: float | None = None,
    resize: int | None = None,
) -> Shape:
    """Return the named net's shape, with every option that is not None in place of its default.

    Args:
        name: Name of the net.
        width: Channels of the first stage, or units of a hidden layer.
        depth: Blocks per stage, or hidden layers.
        dropout: Share of outputs that training drops.
        resize: Edge to which the net scales its images.

    Raises:
        ConfigError: The name is unknown (the message has the nearest name), or the net does not have an option.

    Examples:
        >>> resolve("mlp", width=16)
        MLPShape(name='mlp', width=16, depth=2, dropout=0.1)
    """
    if name not in (every := shapes()):
        raise unknown("net", name, every)
    return every[name].with_options(width=width, depth=depth, dropout=dropout, resize=resize)


def restore(settings: Mapping[str, Any]) -> Shape:
    """Return the shape with these fields (`dataclasses.asdict` of it).

    Raises:
        KeyError: There is no such net.
        TypeError: The fields are not those of the net.
    """
    return type(shapes()[settings["name"]])(**settings)


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
    """Build a net with random weights from torch's generator.

    Args:
        name: Name of the net.
        inside: Channels of an image, features of a vector, or width of a word vector.
        classes: Number of classes.
        width: As in `resolve`.
        depth: As in `resolve`.
        dropout: As in `resolve`.
        resize: As in `resolve`.

    Raises:
        ConfigError: As in `resolve`.

    Examples:
        >>> import torch
        >>> net = build("mlp", 30, 2)
        >>> net(torch.zeros(4, 30)).shape
        torch.Size([4, 2])
    """
    return resolve(name, width=width, depth=depth, dropout=dropout, resize=resize).build(inside, classes)


__all__ = [
    "OPTIONS",
    "SHAPES",
    "Shape",
    "build",
    "names",
    "resolve",
    "restore",
    "shapes",
]
