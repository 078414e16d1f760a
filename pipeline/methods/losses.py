"""Primary losses: one value per sample, so that weighting, mixing and meta-learning need no special case.

Targets are class indices (N,) or distributions (N, C); a distribution weighs the classes' losses by its entries.
All but `mse` are u(p, y) CE, the uncertainty-weighted family of the BSCE-GRA paper (eq. 6); with `gra` the weight u is
a constant for the gradient (eq. 9). p = softmax(z), p_y the target class's probability.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.gamma import resolve
from pipeline.methods.method import START, Moment


def of_target(values_NC: Tensor, targets: Tensor) -> Tensor:
    """v_y (N,) for class indices; all of v (N, C) for distributions."""
    return values_NC.gather(1, targets.unsqueeze(1)).squeeze(1) if targets.ndim == 1 else values_NC


def expected(values: Tensor, targets: Tensor) -> Tensor:
    """Of what `of_target` selects: v_y for class indices, sum_k t_k v_k for distributions; shape (N,)."""
    return values if targets.ndim == 1 else (targets * values).sum(1)


def per_class(values_NC: Tensor, targets: Tensor) -> Tensor:
    """sum_k t_k v_k for distributions, v_y for class indices."""
    return expected(of_target(values_NC, targets), targets)


def one_minus(log_p: Tensor) -> Tensor:
    """1 - p from log p, without cancellation."""
    return -torch.expm1(log_p)


def power(base: Tensor, exponent: Tensor | float) -> Tensor:
    """base^exponent for base >= 0, with a finite derivative at 0: below the dtype's smallest number it is constant.

    For exponents under 1 the power's own derivative is infinite at 0, although that of the losses is 0 there.
    """
    return base.clamp_min(torch.finfo(base.dtype).tiny) ** exponent


def cross_entropy(logits_NC: Tensor, targets: Tensor) -> Tensor:
    """CE = -log p_y in nats; shape (N,)."""
    return F.cross_entropy(logits_NC, targets, reduction="none")


def mse(logits_NC: Tensor, targets: Tensor, *, variant: str = "paper") -> Tensor:
    """Brier score sum_k (p_k - y_k)^2, in [0, 2]; shape (N,).

    variant official: divided by N. The focal paper's code takes the mean over the batch here and the sum for every
    other loss, so its Brier results were trained with a loss that is N times smaller.
    """
    p_NC = torch.softmax(logits_NC, 1)
    t_NC = targets if targets.ndim == 2 else F.one_hot(targets, p_NC.shape[1]).to(p_NC.dtype)
    # sum_k t_k |p - e_k|^2 = |p - t|^2 + 1 - |t|^2 for a distribution t; nothing cancels for one-hot t.
    spread_N = 0.0 if targets.ndim == 1 else t_NC.sum(1) - t_NC.square().sum(1)
    values_N = (p_NC - t_NC).square().sum(1) + spread_N
    return values_N / len(logits_NC) if variant == "official" else values_N


def focal(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    gamma: float | str = 3.0,
    alpha: float = 1.0,
    gra: bool = False,
) -> Tensor:
    """Focal loss -alpha (1 - p_y)^gamma log p_y (Lin et al. 2017; Mukhoti et al. 2020, section 4); shape (N,).

    gamma >= 0, or a name of `pipeline.methods.gamma.RULES`; 0 is cross entropy.
    """
    log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
    weight = power(one_minus(log_p), resolve(gamma, log_p.exp(), moment.progress))
    return expected(-alpha * _constant(weight, gra) * log_p, targets)


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
    weight = (1 + p) ** resolve(gamma, p, moment.progress)
    return expected(-_constant(weight, gra) * log_p, targets)


def dual_focal(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    gamma: float | str = 5.0,
    alpha: float = 1.0,
    variant: str = "paper",
    gra: bool = False,
) -> Tensor:
    """Dual focal loss -(1 - p_y + p_j)^gamma log p_y, p_j the largest p below p_y, 0 if none; shape (N,).

    Tao et al. 2023; BSCE-GRA paper, eqs. 5 and 8. Without `gra` the gradient flows through p_y and p_j.

    variant official: with `gra`, only p_j is a constant, as in the BSCE-GRA paper's code (its DFL-GRA results).
    variant survey: -(1 - p_y)^gamma log p_y - alpha (1 - p_s)^gamma log(1 - p_s), p_s the largest p of the others.
    `alpha` is the weight of that second term; the other variants have none.
    """
    log_p_NC = torch.log_softmax(logits_NC, 1)
    log_p = of_target(log_p_NC, targets)
    exponent = resolve(gamma, log_p.exp(), moment.progress)
    own = one_minus(log_p)
    if variant == "survey":
        log_rest = _log_without_rival(log_p_NC, targets)
        second = _constant(power(log_rest.exp(), exponent), gra) * log_rest
        return expected(-_constant(power(own, exponent), gra) * log_p - alpha * second, targets)
    below = _next_below(log_p_NC.exp(), targets)
    if variant == "official":
        weight = power(own + _constant(below, gra), exponent)
    else:
        weight = _constant(power(own + below, exponent), gra)
    return expected(-weight * log_p, targets)


def bsce(
    logits_NC: Tensor,
    targets: Tensor,
    *,
    gamma: float = 2.0,
    norm: float = 2.0,
    gra: bool = False,
) -> Tensor:
    """Brier-score-weighted cross entropy -||p - y||_norm^gamma log p_y (BSCE-GRA paper, eqs. 6 and 11); shape (N,).

    norm = gamma = 2 weighs by the Brier score. norm = 1 is 2^gamma times focal loss.
    """
    log_p_NC = torch.log_softmax(logits_NC, 1)
    log_p = of_target(log_p_NC, targets)
    powers_NC = power(log_p_NC.exp(), norm)
    if targets.ndim == 1:  # the sum over the other classes: subtracting p_y^norm from the whole would cancel
        rest = powers_NC.scatter(1, targets.unsqueeze(1), 0).sum(1)
    else:
        rest = (powers_NC.sum(1, keepdim=True) - powers_NC).clamp_min(0)
    weight = power(rest + power(one_minus(log_p), norm), gamma / norm)
    return expected(-_constant(weight, gra) * log_p, targets)


def consistency(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    count: int = 8,
    noise: float = 1.0,
    variant: str = "mean",
    gra: bool = True,
) -> Tensor:
    """(1 - consistency) CE (BSCE-GRA paper, section 16.1); shape (N,).

    consistency = mean over `count` draws of softmax(head(features + noise e))_k, e standard normal, k the unperturbed
    answer. variant vote: the share of draws that answer k (Tao et al. 2024); it has no gradient of its own. Where the
    moment has no features, the logits are perturbed. Draws come from torch's global generator.

    `gra` is on unless switched off, as in the paper: with a gradient through the weight, being sure of one class for
    every row is optimal, right or wrong (digits: loss .004 after two epochs at an error of .9).
    """
    answer_1N1 = logits_NC.detach().argmax(1)[None, :, None]
    with torch.set_grad_enabled(torch.is_grad_enabled() and not (gra or variant == "vote")):
        inner_ND = logits_NC if moment.features is None else moment.features
        draws_TND = inner_ND + noise * torch.randn(count, *inner_ND.shape, dtype=inner_ND.dtype, device=inner_ND.device)
        perturbed_TNC = draws_TND if moment.features is None else moment.head(draws_TND)
        if variant == "vote":
            agrees_TN = perturbed_TNC.argmax(2) == answer_1N1.squeeze(2)
            weight_N = 1 - agrees_TN.to(logits_NC.dtype).mean(0)
        else:
            log_p_TN = torch.log_softmax(perturbed_TNC, 2).gather(2, answer_1N1.expand(count, -1, 1)).squeeze(2)
            weight_N = one_minus(log_p_TN).mean(0)
    return weight_N * cross_entropy(logits_NC, targets)


def _constant(weight: Tensor, gra: bool) -> Tensor:
    return weight.detach() if gra else weight


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
