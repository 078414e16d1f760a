"""The base of all networks, and of their shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from pipeline.data.raw import Kind


class Net(nn.Module, ABC):
    """A network whose last layer is linear: logits = head(features).

    Methods that work on what comes before the last layer need the two apart.
    """

    head: nn.Linear

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """(N, D), what `head` turns into logits."""

    def forward(self, inputs: Tensor) -> Tensor:
        logits_NC: Tensor = self.head(self.features(inputs))
        return logits_NC


@dataclass(frozen=True)
class Shape(ABC):
    """A net but for the sizes of the data: the channels or features of a row, and the classes."""

    name: str
    kind: ClassVar[Kind]
    """What it takes: normalised images N x C x H x W, or standardised vectors N x D."""

    @abstractmethod
    def build(self, inside: int, classes: int) -> Net:
        """The net of rows with `inside` channels or features, initialised by torch's global generator."""
