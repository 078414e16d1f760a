"""Base classes of the shapes of nets. They need no torch: a shape has its net's place and imports it to build it."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pipeline.data.raw import Kind
from trueodds.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.nets.net import Net


@dataclass(frozen=True)
class Shape:
    """Sizes of a net that do not depend on the data: a net without its input channels and its classes.

    A subclass is a frozen dataclass whose fields are the options of its family. It sets `kind`, and `net` or `build`.

    Attributes:
        name: Name of the net in params.yaml.
    """

    name: str
    kind: ClassVar[Kind]
    """Kind of rows: normalised images N x C x H x W, standardised vectors N x D, texts N x L of word ids, or trees."""

    net: ClassVar[str] = ""
    """Place of the net's class as entry points have it, `package.module:name`. Its arguments are the fields."""

    def modules(self) -> list[str]:
        """Return the modules that define the shape and its net."""
        return [type(self).__module__, *filter(None, [self.net.partition(":")[0]])]

    def build(self, inside: int, classes: int) -> Net:
        """Build the net with random weights from torch's global generator.

        Args:
            inside: Channels of an image, features of a vector, or width of a word vector.
            classes: Number of classes.
        """
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        net: Net = pkgutil.resolve_name(self.net)(inside, classes, **options)
        return net

    def with_options(self, **options: Any) -> Self:
        """Return the shape with the options that are not None.

        Raises:
            ConfigError: This family of nets does not have an option.
        """
        changes = {name: value for name, value in options.items() if value is not None}
        known = [field.name for field in fields(self)]
        for name, value in changes.items():
            if name not in known:
                has = ", ".join(option for option in options if option in known) or "none of these options"
                raise ConfigError(
                    f"training.{name} is {value}, and net {self.name!r} has no {name}; leave {name} null (it has {has})"
                )
        return replace(self, **changes)


@dataclass(frozen=True)
class StagedShape(Shape):
    """Sizes of a net with stages.

    Attributes:
        width: Channels of the first stage.
        depth: Blocks of each stage; the option `depth` sets one number for every stage.
    """

    width: int
    depth: tuple[int, ...]
    kind: ClassVar[Kind] = "image"

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", tuple(self.depth))  # from JSON it is a list

    def with_options(self, **options: Any) -> Self:
        """Return the shape with the options that are not None; `depth` is one number for every stage."""
        depth = options.get("depth")
        return super().with_options(**{**options, "depth": None if depth is None else (depth,) * len(self.depth)})
