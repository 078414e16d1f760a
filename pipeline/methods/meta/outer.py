"""Outer losses, which meta parameters learn to lower on set-aside rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.looking_ahead import CE
from pipeline.methods.weighted_penalty import Penalty


@dataclass(frozen=True)
class OuterLoss:
    """Outer loss: `ce`, the mean cross entropy; a penalty by its name; or their sum, such as `ce+dece`.

    Attributes:
        name: The name.
        weight: Weight of the penalty in a sum.
        penalty: The penalty with its options; None if the name has none.
    """

    name: str
    weight: float
    penalty: Penalty | None = None

    def __call__(self, logits_NC: Tensor, labels_N: Tensor) -> Tensor:
        """Return the outer loss, a scalar, for logits (N, C) and labels (N,)."""
        penalty = None if self.penalty is None else self.penalty(logits_NC, labels_N)
        if penalty is not None and self.name.partition("+")[0] != CE:
            return penalty
        loss = F.cross_entropy(logits_NC, labels_N)
        return loss if penalty is None else loss + self.weight * penalty
