"""Dual focal loss (Tao et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.gamma import resolve
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import constant, expected, of_target, one_minus, power


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
    """Dual focal loss -(1 - p_y + p_j)^gamma log p_y, p_j the largest p below p_y, 0 if none; shape (N,).

    Tao et al. 2023; BSCE-GRA paper, eqs. 5 and 8. Without `gra` the gradient flows through p_y and p_j.

    variant official: with `gra`, only p_j is a constant, as in the BSCE-GRA paper's code (its DFL-GRA results).
    variant survey: -alpha1 (1 - p_y)^gamma log p_y - alpha2 (1 - p_s)^gamma2 log(1 - p_s), p_s the largest p of the
    others (survey, Modified training objectives). alpha1, alpha2 and gamma2 belong to this variant alone.
    """
    log_p_NC = torch.log_softmax(logits_NC, 1)
    log_p = of_target(log_p_NC, targets)
    exponent = resolve(gamma, log_p.exp(), moment)
    own = one_minus(log_p)
    if variant == "survey":
        log_rest = _log_without_rival(log_p_NC, targets)
        second = constant(power(log_rest.exp(), gamma2), gra) * log_rest
        return expected(-alpha1 * constant(power(own, exponent), gra) * log_p - alpha2 * second, targets)
    below = _next_below(log_p_NC.exp(), targets)
    if variant == "official":
        weight = power(own + constant(below, gra), exponent)
    else:
        weight = constant(power(own + below, exponent), gra)
    return expected(-weight * log_p, targets)


def _next_below(p_NC: Tensor, targets: Tensor) -> Tensor:
    """max{p_i : p_i < p_k strictly}, 0 if none, for the target class k (N,) or for every class (N, C)."""
    if targets.ndim == 1:
        p_N1 = p_NC.gather(1, targets.unsqueeze(1))
        return torch.where(p_NC < p_N1, p_NC, 0).amax(1)
    rising_NC = p_NC.sort(1).values
    below_NC = torch.searchsorted(rising_NC.detach(), p_NC.detach().contiguous())  # how many are below p_k
    return F.pad(rising_NC, (1, 0)).gather(1, below_NC)


def _log_without_rival(log_p_NC: Tensor, targets: Tensor) -> Tensor:
    """log(1 - p_s), p_s the largest p of the classes other than k, for the target class k (N,) or for every (N, C).

    As the logarithm of the sum of the others: finite where p_s rounds to 1.
    """
    top_N2 = log_p_NC.detach().topk(2, dim=1).indices
    without = [log_p_NC.scatter(1, top_N2[:, i : i + 1], -torch.inf).logsumexp(1) for i in (0, 1)]
    if targets.ndim == 1:
        return torch.where(targets == top_N2[:, 0], without[1], without[0])
    first_NC = F.one_hot(top_N2[:, 0], log_p_NC.shape[1]).bool()
    return torch.where(first_NC, without[1].unsqueeze(1), without[0].unsqueeze(1))
