"""Focal loss (Lin et al. 2017; Mukhoti et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.gamma import CHANGES, resolve
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import constant, expected, of_target, one_minus, power


def focal(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    gamma: float | str = 3.0,
    alpha: float = 1.0,
    first_change: float = CHANGES[0],
    second_change: float = CHANGES[1],
    gra: bool = False,
) -> Tensor:
    """Focal loss -alpha (1 - p_y)^gamma log p_y (Lin et al. 2017; Mukhoti et al. 2020, section 4); shape (N,).

    gamma >= 0, or a name of `pipeline.methods.gamma.RULES`; 0 is cross entropy. first_change and second_change: when a
    schedule (fls531, fls532) changes, in fractions of the run.
    """
    log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
    exponent = resolve(gamma, log_p.exp(), moment, (first_change, second_change))
    weight = power(one_minus(log_p), exponent)
    return expected(-alpha * constant(weight, gra) * log_p, targets)
