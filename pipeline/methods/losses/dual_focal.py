"""Dual focal loss (Tao et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.gamma import resolve
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import constant, expectation, of_target, one_minus, power


def dual_focal(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    gamma: float | str = 5.0,
    gamma2: float = 5.0,
    alpha1: float = 1.0,
    alpha2: float = 1.0,
    variant: str = "paper",
    gra: bool = False,
) -> Tensor:
    """Return the dual focal loss -(1 - p_y + p_j)^gamma log p_y of each row.

    p_j is the largest probability below p_y, or 0 if there is none. Without `gra` the gradient flows through p_y and
    p_j.

    Args:
        logits_NC: Logits.
        targets: Class indices (N,) or distributions (N, C).
        moment: Progress of the run, and gamma per row if a part of the method sets it.
        gamma: Exponent: a number or a name of `pipeline.methods.gamma.RULES`.
        gamma2: Second exponent, of variant survey only.
        alpha1: Weight of the first term, of variant survey only.
        alpha2: Weight of the second term, of variant survey only.
        variant: paper is the formula above. official: with `gra` only p_j is a constant, as in the BSCE-GRA paper's
            code (its DFL-GRA results). survey: -alpha1 (1 - p_y)^gamma log p_y - alpha2 (1 - p_s)^gamma2 log(1 - p_s),
            where p_s is the largest probability of the other classes.
        gra: Whether the weight is a constant for the gradient.

    Returns:
        The loss of each row (N,).

    References:
        Tao et al. (2023), Dual focal loss for calibration.
        BSCE-GRA paper, eqs. 5 and 8.
        Survey, Modified training objectives, for variant survey.

    Examples:
        >>> dual_focal(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]), gamma=2.0)
        tensor([0.0719])
    """
    log_p_NC = torch.log_softmax(logits_NC, 1)
    log_p = of_target(log_p_NC, targets)
    exponent = resolve(gamma, log_p.exp(), moment)
    own = one_minus(log_p)
    if variant == "survey":
        log_rest = _log_without_rival(log_p_NC, targets)
        second = constant(power(log_rest.exp(), gamma2), gra) * log_rest
        return expectation(-alpha1 * constant(power(own, exponent), gra) * log_p - alpha2 * second, targets)
    below = _next_below(log_p_NC.exp(), targets)
    if variant == "official":
        weight = power(own + constant(below, gra), exponent)
    else:
        weight = constant(power(own + below, exponent), gra)
    return expectation(-weight * log_p, targets)


def _next_below(p_NC: Tensor, targets: Tensor) -> Tensor:
    """Return max{p_i : p_i < p_k}, or 0 if none, for the target class k (N,) or for every class (N, C)."""
    if targets.ndim == 1:
        p_N1 = p_NC.gather(1, targets.unsqueeze(1))
        return torch.where(p_NC < p_N1, p_NC, 0).amax(1)
    rising_NC = p_NC.sort(1).values
    below_NC = torch.searchsorted(rising_NC.detach(), p_NC.detach().contiguous())  # count of values below p_k
    return F.pad(rising_NC, (1, 0)).gather(1, below_NC)


def _log_without_rival(log_p_NC: Tensor, targets: Tensor) -> Tensor:
    """Return log(1 - p_s) for the target class k (N,) or for every class (N, C).

    p_s is the largest p of the classes other than k. The result is the logarithm of the sum of the remaining p, so it
    is finite even if p_s rounds to 1.
    """
    top_N2 = log_p_NC.detach().topk(2, dim=1).indices
    without = [log_p_NC.scatter(1, top_N2[:, i : i + 1], -torch.inf).logsumexp(1) for i in (0, 1)]
    if targets.ndim == 1:
        return torch.where(targets == top_N2[:, 0], without[1], without[0])
    first_NC = F.one_hot(top_N2[:, 0], log_p_NC.shape[1]).bool()
    return torch.where(first_NC, without[1].unsqueeze(1), without[0].unsqueeze(1))
