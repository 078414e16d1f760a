"""The base of all networks, and of their shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from pipeline.data.raw import Kind
from trueodds.errors import ConfigError


class Net(nn.Module, ABC):
    """A network whose last layer is linear: logits = head(features).

    Methods that work on what comes before the last layer need the two apart.
    """

    head: nn.Linear

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """(N, D), what `head` turns into logits."""

    def answers(self, features_ND: Tensor) -> Tensor:
        """(N, C): the logits of the classes that a row may have."""
        logits_NC: Tensor = self.head(features_ND)
        return logits_NC

    def forward(self, inputs: Tensor) -> Tensor:
        logits_NC: Tensor = self.head(self.features(inputs))
        return logits_NC

    def train(self, mode: bool = True) -> Self:
        """As torch's, but layers whose weights do not learn stay as in evaluation: their statistics and dropout."""
        super().train(mode)
        for module in self.modules() if mode else ():
            weights = list(module.parameters())
            if weights and not any(weight.requires_grad for weight in weights):
                module.eval()
        return self

    def own_names(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights under the names of `state_dict`, where they come under those of another library's same net."""
        return dict(state)


@dataclass(frozen=True)
class Shape(ABC):
    """A net but for the sizes of the data: the channels or features of a row, and the classes."""

    name: str
    kind: ClassVar[Kind]
    """What it takes: normalised images N x C x H x W, standardised vectors N x D, texts N x L of word ids, or trees."""

    @abstractmethod
    def build(self, inside: int, classes: int) -> Net:
        """The net of rows with `inside` channels, features or numbers of a word's vector, initialised by torch's global
        generator.
        """

    def changed(self, **options: Any) -> Self:
        """The shape with the options that are not None.

        Raises:
            ConfigError: an option that this family of nets does not have.
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
    """Channels of the first stage, and the blocks of each stage; one number stands for every stage."""

    width: int
    depth: tuple[int, ...]
    kind: ClassVar[Kind] = "image"

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", tuple(self.depth))  # JSON has lists

    def changed(self, **options: Any) -> Self:
        depth = options.get("depth")
        return super().changed(**{**options, "depth": None if depth is None else (depth,) * len(self.depth)})
