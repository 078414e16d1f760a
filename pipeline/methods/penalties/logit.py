"""Penalties on logits: margins between classes."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.penalties.inputs import checked, one_of


def margin(logits_NC: Tensor, labels_N: Tensor, *, margin: float = 10.0, variant: str = "paper") -> Tensor:
    """MbLS: mean_i sum_k max(0, max_j z_ij - z_ik - margin) (Liu et al. 2022).

    `official`: the mean over classes too, to which the published weight .1 belongs. The paper's margin is 10 for
    Tiny-ImageNet and 6 for CIFAR-10.

    Raises:
        ValueError: inputs or options out of range.
    """
    one_of("variant", variant, ("paper", "official"))
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin is {margin}; allowed are numbers from 0 up")
    logits = checked(logits_NC, labels_N)
    excess_N = torch.relu(logits.max(1, keepdim=True).values - logits - margin).sum(1)
    return (excess_N / logits.shape[1] if variant == "official" else excess_N).mean()


def cpc(logits_NC: Tensor, labels_N: Tensor, *, bdc: float = 0.1, bec: float = 1.0) -> Tensor:
    """Calibration by pairwise constraints on classes: bdc BDC + bec BEC, means over the batch.

    BDC = mean over k != y of softplus(z_k - z_y): the true class wins each duel.
    BEC = mean over ordered pairs j != k, both != y, of softplus(z_j - z_k) / 2: other duels are a toss; 0 for C = 2.
    Cheng and Vasconcelos 2022; weights as the public code of Liu et al. 2023 (CALS) sets them, which also adds BEC's
    constant j = k. Pairs are never formed: sorted, sum_(j<k) log(1 + e^-(z_j - z_k)) is a few running sums.

    Raises:
        ValueError: inputs or options out of range.
    """
    for name, weight in (("bdc", bdc), ("bec", bec)):
        if not 0 <= weight < math.inf:
            raise ValueError(f"{name} is {weight}; allowed are numbers from 0 up")
    logits = checked(logits_NC, labels_N)
    classes = logits.shape[1]
    true_N1 = logits.gather(1, labels_N.unsqueeze(1))
    duel_NC = logits - true_N1
    softplus_NC = -F.logsigmoid(-duel_NC)  # softplus, which torch's own cuts off at 20
    own = math.log(2)  # softplus(0), which the true class adds against itself
    total = bdc * (softplus_NC.sum(1).mean() - own) / (classes - 1)
    if classes > 2:
        # log(2 cosh(d / 2)) = (softplus(d) + softplus(-d)) / 2: all pairs, less those of the true class
        with_true = (softplus_NC - duel_NC / 2).sum(1) - own
        pairs_N: Tensor = _LogCoshPairs.apply(logits)  # type: ignore[no-untyped-call]  # torch's stubs
        total = total + bec * (pairs_N - with_true).mean() / ((classes - 1) * (classes - 2))
    return total


class _LogCoshPairs(torch.autograd.Function):
    """sum_(j<k) log(2 cosh((z_j - z_k) / 2)) per row, in C x N x 20 values (9 in float32) at a time.

    With z falling and u = e^-(z_j - z_k) in (0, 1] a pair adds (z_j - z_k) / 2 + log(1 + u), and log(1 + u) is a
    polynomial in u to the dtype's precision. Each power's sums over j < k and over j > k take log2 C doublings of a
    window: all factors are at most 1, so nothing overflows however far the logits are apart. The gradient needs both
    sums and is taken along; left to autograd, its zero-filled slices made the step 4 times as long. A second derivative
    (create_graph) is left to autograd all the same: `_slope` once more, in steps that it can follow.
    """

    @staticmethod
    def forward(ctx: Any, logits_NC: Tensor) -> Tensor:
        value_N, slope_NC = _pairs_and_slope(logits_NC)
        ctx.save_for_backward(logits_NC, slope_NC)
        return value_N

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor) -> Tensor:
        logits_NC, slope_NC = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: the saved slope is a constant, so its own gradient would be 0
            slope_NC = _pairs_and_slope(logits_NC)[1]
        gradient_NC: Tensor = gradient_N.unsqueeze(1) * slope_NC
        return gradient_NC


def _pairs_and_slope(logits_NC: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over pairs (N,) and its derivative by each logit (N, C)."""
    falling_NC, order_NC = torch.sort(logits_NC, 1, descending=True)
    falling_NC = falling_NC - falling_NC[:, :1]  # a large common constant would cost digits below
    classes = logits_NC.shape[1]
    coefficient_D = logits_NC.new_tensor(_log1p_powers(logits_NC.dtype))
    power_D = torch.arange(1, len(coefficient_D) + 1, device=logits_NC.device, dtype=logits_NC.dtype)
    decay = torch.exp(falling_NC.T.diff(dim=0).unsqueeze(2) * power_D)  # from class k to class k + width
    before_CND = decay.new_ones(classes, *decay.shape[1:])
    after_CND = before_CND.clone()
    width = 1
    while width < classes:
        # Where autograd watches, the factors must outlive the sums.
        earlier_CND, later_CND = (t.clone() if torch.is_grad_enabled() else t for t in (before_CND, after_CND))
        before_CND[width:] += decay * earlier_CND[:-width]
        after_CND[:-width] += decay * later_CND[width:]
        decay = decay[width:] * decay[:-width]
        width *= 2
    weight_C = (classes - 1) / 2 - torch.arange(classes, device=logits_NC.device, dtype=logits_NC.dtype)
    slope_CN = (before_CND - after_CND) @ (coefficient_D * power_D)
    slope_NC = torch.empty_like(logits_NC).scatter_(1, order_NC, slope_CN.T + weight_C)
    return falling_NC @ weight_C + (before_CND.sum(0) - classes) @ coefficient_D, slope_NC


@functools.cache
def _log1p_powers(dtype: torch.dtype) -> tuple[float, ...]:
    """Coefficients of u, u^2, .. in a polynomial for log(1 + u) on [0, 1]; Chebyshev's error falls as 5.8^-degree."""
    degree = 20 if dtype == torch.float64 else 9
    series = np.polynomial.Chebyshev.interpolate(lambda u: np.log1p(u) / u, degree - 1, domain=[0.0, 1.0])
    return tuple(float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef)
