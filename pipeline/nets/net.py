"""Base classes of all nets and of their shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from pipeline.data.raw import Kind
from trueodds.errors import ConfigError


class Net(nn.Module, ABC):
    """A net whose last layer is linear: logits = head(features).

    Methods that use the inputs of the last layer need the two parts separately. A subclass sets `head` and implements
    `features`.

    Attributes:
        head: The last layer, D -> C.

    Examples:
        >>> import torch
        >>> class Linear(Net):
        ...     def __init__(self, inside, classes):
        ...         super().__init__()
        ...         self.head = nn.Linear(inside, classes)
        ...     def features(self, inputs):
        ...         return inputs
        >>> Linear(30, 2)(torch.zeros(4, 30)).shape
        torch.Size([4, 2])
    """

    head: nn.Linear

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """Return the inputs of the last layer (N, D) for normalised rows."""

    def answers(self, features_ND: Tensor) -> Tensor:
        """Return the logits of the classes that a row may have (N, C)."""
        logits_NC: Tensor = self.head(features_ND)
        return logits_NC

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits (N, C)."""
        logits_NC: Tensor = self.head(self.features(inputs))
        return logits_NC

    def train(self, mode: bool = True) -> Self:
        """Switch the mode as torch does, but keep layers whose weights do not learn in evaluation mode.

        So the statistics and the dropout of frozen layers stay as in evaluation.
        """
        super().train(mode)
        for module in self.modules() if mode else ():
            weights = list(module.parameters())
            if weights and not any(weight.requires_grad for weight in weights):
                module.eval()
        return self

    def own_names(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return weights under the names of `state_dict`; another library's names of the same net are translated."""
        return dict(state)


@dataclass(frozen=True)
class Shape(ABC):
    """Sizes of a net that do not depend on the data: a net without its input channels and its classes.

    A subclass is a frozen dataclass whose fields are the options of its family. It sets `kind` and implements `build`.

    Attributes:
        name: Name of the net in params.yaml.
    """

    name: str
    kind: ClassVar[Kind]
    """Kind of rows: normalised images N x C x H x W, standardised vectors N x D, texts N x L of word ids, or trees."""

    @abstractmethod
    def build(self, inside: int, classes: int) -> Net:
        """Build the net with random weights from torch's global generator.

        Args:
            inside: Channels of an image, features of a vector, or width of a word vector.
            classes: Number of classes.
        """

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
