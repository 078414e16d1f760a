"""Cross entropy: the negative log likelihood."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits_NC: Tensor, targets: Tensor) -> Tensor:
    """CE = -log p_y in nats; shape (N,)."""
    return F.cross_entropy(logits_NC, targets, reduction="none")
