"""Inverse focal loss (Wang et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.gamma import resolve
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import constant, expectation, of_target


def inverse_focal(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    gamma: float | str = 2.0,
    gra: bool = False,
) -> Tensor:
    """Return the inverse focal loss -(1 + p_y)^gamma log p_y of each row.

    Args:
        logits_NC: Logits.
        targets: Class indices (N,) or distributions (N, C).
        moment: Progress of the run, and gamma per row if a part of the method sets it.
        gamma: Exponent, as for `focal`.
        gra: Whether the weight (1 + p_y)^gamma is a constant for the gradient.

    Returns:
        The loss of each row (N,).

    References:
        Wang, Feng and Zhang (2021), Rethinking calibration of deep neural networks: do not be afraid of overconfidence.

    Examples:
        >>> inverse_focal(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]), gamma=2.0)
        tensor([0.8810])
    """
    log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
    p = log_p.exp()
    weight = (1 + p) ** resolve(gamma, p, moment)
    return expectation(-constant(weight, gra) * log_p, targets)
