"""Outer losses, which meta parameters learn to lower on set-aside rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F

from pipeline.methods import penalties
from pipeline.methods.looking_ahead import CE

if TYPE_CHECKING:
    from pipeline.config import OptionValue

NAMES = (CE, *penalties.__all__, *(f"{CE}+{name}" for name in penalties.__all__))
"""Names of outer losses: cross entropy, a penalty, or both."""


@dataclass(frozen=True)
class OuterLoss:
    """Outer loss: `ce`, the mean cross entropy; a penalty by its name; or their sum, such as `ce+dece`.

    Attributes:
        name: The name.
        weight: Weight of the penalty in a sum.
        options: Options of the penalty.
    """

    name: str
    weight: float
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    def __call__(self, logits_NC: Tensor, labels_N: Tensor) -> Tensor:
        """Return the outer loss, a scalar, for logits (N, C) and labels (N,)."""
        first, _, second = self.name.partition("+")
        if first != CE:
            return self._penalty(first, logits_NC, labels_N)
        loss = F.cross_entropy(logits_NC, labels_N)
        return loss + self.weight * self._penalty(second, logits_NC, labels_N) if second else loss

    def _penalty(self, name: str, logits_NC: Tensor, labels_N: Tensor) -> Tensor:
        """Return a penalty by its name."""
        value: Tensor = getattr(penalties, name)(logits_NC, labels_N, **self.options)
        return value
