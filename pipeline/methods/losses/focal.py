"""Focal loss (Lin et al. 2017; Mukhoti et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.methods.gamma import resolve
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import constant, expectation, of_class, of_target, one_minus, power


def focal(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    gamma: float | str = 3.0,
    alpha: float | Sequence[float] = 1.0,
    first_change: float = 2 / 7,
    second_change: float = 5 / 7,
    gra: bool = False,
) -> Tensor:
    """Return the focal loss -alpha_y (1 - p_y)^gamma log p_y of each row.

    Args:
        logits_NC: Logits.
        targets: Class indices (N,) or distributions (N, C).
        moment: Progress of the run, and gamma per row if a part of the method sets it.
        gamma: Exponent: a number >= 0, or a name of `pipeline.methods.gamma.RULES`. 0 is cross entropy.
        alpha: One number for all classes, or one per class in the order of the data's classes, such as the inverse of
            the class's share of the rows.
        first_change: Fraction of the run at which a schedule (fls531, fls532) first changes.
        second_change: Fraction of the run at which it changes again.
        gra: Whether the weight (1 - p_y)^gamma is a constant for the gradient.

    Returns:
        The loss of each row (N,).

    Raises:
        ValueError: alpha does not have one number per class of the logits.

    References:
        Lin et al. (2017), Focal loss for dense object detection, eq. 5.
        Mukhoti et al. (2020), Calibrating deep neural networks using focal loss, section 4.

    Examples:
        >>> focal(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]), gamma=2.0)
        tensor([0.0180])
    """
    log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
    exponent = resolve(gamma, log_p.exp(), moment, (first_change, second_change))
    weight = power(one_minus(log_p), exponent)
    return expectation(-of_class(alpha, logits_NC, targets) * constant(weight, gra) * log_p, targets)
