"""The Brier score as a loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def mse(logits_NC: Tensor, targets: Tensor) -> Tensor:
    """Return the Brier score sum_k (p_k - y_k)^2 of each row, in [0, 2].

    Args:
        logits_NC: Logits.
        targets: Class indices (N,) or distributions (N, C).

    Returns:
        The loss of each row (N,).

    References:
        Brier (1950), Verification of forecasts expressed in terms of probability.

    Examples:
        >>> mse(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor([0.1250])
    """
    p_NC = torch.softmax(logits_NC, 1)
    t_NC = targets if targets.ndim == 2 else F.one_hot(targets, p_NC.shape[1]).to(p_NC.dtype)
    # sum_k t_k |p - e_k|^2 = |p - t|^2 + 1 - |t|^2 for a distribution t; nothing cancels for one-hot t.
    spread_N = 0.0 if targets.ndim == 1 else t_NC.sum(1) - t_NC.square().sum(1)
    return (p_NC - t_NC).square().sum(1) + spread_N
