"""Brier-score-weighted cross entropy (BSCE-GRA paper)."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.gamma import resolve
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import constant, expectation, of_target, one_minus, power


def bsce(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    gamma: float = 2.0,
    norm: float = 2.0,
    gra: bool = False,
) -> Tensor:
    """Return the Brier-score-weighted cross entropy -||p - y||_norm^gamma log p_y of each row.

    norm = gamma = 2 weighs by the Brier score. norm = 1 is 2^gamma times focal loss.

    Args:
        logits_NC: Logits.
        targets: Class indices (N,) or distributions (N, C).
        moment: Progress of the run, and gamma per row if a part of the method sets it.
        gamma: Exponent of the norm.
        norm: Order of the norm.
        gra: Whether the weight is a constant for the gradient.

    Returns:
        The loss of each row (N,).

    References:
        BSCE-GRA paper, eqs. 6 and 11.

    Examples:
        >>> bsce(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor([0.0360])
    """
    log_p_NC = torch.log_softmax(logits_NC, 1)
    log_p = of_target(log_p_NC, targets)
    powers_NC = power(log_p_NC.exp(), norm)
    if targets.ndim == 1:  # sum over the other classes, because subtracting p_y^norm from the whole would cancel
        rest = powers_NC.scatter(1, targets.unsqueeze(1), 0).sum(1)
    else:
        rest = (powers_NC.sum(1, keepdim=True) - powers_NC).clamp_min(0)
    exponent = resolve(gamma, log_p.exp(), moment)
    weight = power(rest + power(one_minus(log_p), norm), exponent / norm)
    return expectation(-constant(weight, gra) * log_p, targets)
