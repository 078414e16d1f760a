"""Inverse focal loss (Wang et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.gamma import resolve
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import constant, expected, of_target


def inverse_focal(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    gamma: float | str = 2.0,
    gra: bool = False,
) -> Tensor:
    """Inverse focal loss -(1 + p_y)^gamma log p_y (Wang et al. 2021); shape (N,). gamma as for `focal`."""
    log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
    p = log_p.exp()
    weight = (1 + p) ** resolve(gamma, p, moment)
    return expected(-constant(weight, gra) * log_p, targets)
