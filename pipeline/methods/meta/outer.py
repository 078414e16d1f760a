"""Outer losses: what the meta parameters learn to lower, on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from pipeline.methods import penalties

CE = "ce"
NAMES = (CE, *penalties.__all__, *(f"{CE}+{name}" for name in penalties.__all__))


@dataclass(frozen=True)
class OuterLoss:
    """`ce`, the mean cross entropy; a penalty by its name, with its own defaults; or `ce+dece`, ce + weight x dece."""

    name: str
    weight: float

    def __call__(self, logits_NC: Tensor, labels_N: Tensor) -> Tensor:
        """A scalar, for logits (N, C) and labels (N,)."""
        first, _, second = self.name.partition("+")
        if first != CE:
            return self._penalty(first, logits_NC, labels_N)
        loss = F.cross_entropy(logits_NC, labels_N)
        return loss + self.weight * self._penalty(second, logits_NC, labels_N) if second else loss

    @staticmethod
    def _penalty(name: str, logits_NC: Tensor, labels_N: Tensor) -> Tensor:
        value: Tensor = getattr(penalties, name)(logits_NC, labels_N)
        return value
