"""Base class of all nets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

from torch import Tensor, nn


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
