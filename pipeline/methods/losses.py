"""Primary losses: one value per sample, so that weighting, mixing and meta-learning need no special case.

Targets are class indices (N,) or distributions (N, C); a distribution weighs the classes' losses by its entries.
"""

from __future__ import annotations

import torch
from torch import Tensor


def per_class(values_NC: Tensor, targets: Tensor) -> Tensor:
    """sum_k t_k v_k for distributions, v_y for class indices."""
    if targets.ndim == 1:
        return values_NC.gather(1, targets.unsqueeze(1)).squeeze(1)
    return (targets * values_NC).sum(1)


def cross_entropy(logits_NC: Tensor, targets: Tensor) -> Tensor:
    """CE = -log p_y in nats; shape (N,)."""
    return per_class(-torch.log_softmax(logits_NC, 1), targets)


def focal(logits_NC: Tensor, targets: Tensor, *, gamma: float = 3.0, gra: bool = False) -> Tensor:
    """Focal loss -(1 - p_y)^gamma log p_y (Lin et al. 2017; Mukhoti et al. 2020, section 4); shape (N,).

    gamma >= 0; gamma = 0 is cross entropy. With `gra` the weight (1 - p_y)^gamma is a constant for the gradient
    (BSCE-GRA paper). 1 - p is -expm1(log p), held at the dtype's epsilon or above: for gamma < 1 the power's own
    derivative is infinite at p = 1, although the loss's is 0.
    """
    log_p_NC = torch.log_softmax(logits_NC, 1)
    weight_NC = (-torch.expm1(log_p_NC)).clamp_min(torch.finfo(logits_NC.dtype).eps) ** gamma
    return per_class(-(weight_NC.detach() if gra else weight_NC) * log_p_NC, targets)
