"""Focal loss (Lin et al. 2017; Mukhoti et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.methods.gamma import CHANGES, resolve
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import constant, expected, of_class, of_target, one_minus, power


def focal(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    gamma: float | str = 3.0,
    alpha: float | Sequence[float] = 1.0,
    first_change: float = CHANGES[0],
    second_change: float = CHANGES[1],
    gra: bool = False,
) -> Tensor:
    """Focal loss -alpha_y (1 - p_y)^gamma log p_y (Lin et al. 2017, eq. 5; Mukhoti et al. 2020, section 4); (N,).

    alpha: one for all classes, or a number for each in the order of the data's classes, such as the inverse of its
    share of the rows. gamma >= 0, or a name of `pipeline.methods.gamma.RULES`; 0 is cross entropy. first_change and
    second_change: when a schedule (fls531, fls532) changes, in fractions of the run.

    Raises:
        ValueError: alpha has another number of classes than the logits.
    """
    log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
    exponent = resolve(gamma, log_p.exp(), moment, (first_change, second_change))
    weight = power(one_minus(log_p), exponent)
    return expected(-of_class(alpha, logits_NC, targets) * constant(weight, gra) * log_p, targets)
