"""Cross entropy: the negative log likelihood."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits_NC: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy -log p_y of each row, in nats.

    Args:
        logits_NC: Logits.
        targets: Class indices (N,) or distributions (N, C).

    Returns:
        The loss of each row (N,).

    Examples:
        >>> import torch
        >>> cross_entropy(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor([0.2877])
    """
    return F.cross_entropy(logits_NC, targets, reduction="none")
