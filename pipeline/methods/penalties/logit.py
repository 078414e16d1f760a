"""Penalties on logits: margins between classes."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.penalties.inputs import check_inputs, one_of


def margin(logits_NC: Tensor, labels_N: Tensor, *, margin: float = 10.0, variant: str = "paper") -> Tensor:
    """Return MbLS = mean_i sum_k max(0, max_j z_ij - z_ik - margin).

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        margin: Largest gap without a penalty. The paper has 10 for Tiny-ImageNet and 6 for CIFAR-10.
        variant: paper; or official, the mean over classes, for which the published weight .1 is meant.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Liu et al. (2022), The devil is in the margin: margin-based label smoothing for network calibration.

    Examples:
        >>> margin(torch.tensor([[0.0, 12.0]]), torch.tensor([1]))
        tensor(2.)
    """
    one_of("variant", variant, ("paper", "official"))
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin is {margin}; allowed are numbers from 0 up")
    logits = check_inputs(logits_NC, labels_N)
    excess_N = torch.relu(logits.max(1, keepdim=True).values - logits - margin).sum(1)
    return (excess_N / logits.shape[1] if variant == "official" else excess_N).mean()


def cpc(logits_NC: Tensor, labels_N: Tensor, *, bdc: float = 0.1, bec: float = 1.0) -> Tensor:
    """Return the pairwise-constraint penalty CPC = bdc BDC + bec BEC, a mean over the batch.

    BDC = mean over k != y of softplus(z_k - z_y): the true class should win each comparison.
    BEC = mean over ordered pairs j != k, both != y, of softplus(z_j - z_k) / 2: the other classes should be equal. It
    is 0 for C = 2. Pairs are never formed: in sorted order, sum_(j<k) log(1 + e^-(z_j - z_k)) needs a few running sums.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        bdc: Weight of BDC.
        bec: Weight of BEC. The defaults are those of the public code of Liu et al. 2023 (CALS), which also adds BEC's
            constant j = k.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Cheng and Vasconcelos (2022), Calibrating deep neural networks by pairwise constraints.

    Examples:
        >>> cpc(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), bdc=1.0)  # softplus(0) = log 2
        tensor(0.6931)
    """
    for name, weight in (("bdc", bdc), ("bec", bec)):
        if not 0 <= weight < math.inf:
            raise ValueError(f"{name} is {weight}; allowed are numbers from 0 up")
    logits = check_inputs(logits_NC, labels_N)
    classes = logits.shape[1]
    true_N1 = logits.gather(1, labels_N.unsqueeze(1))
    duel_NC = logits - true_N1
    softplus_NC = -F.logsigmoid(-duel_NC)  # softplus without the cut-off of torch's own at 20
    own = math.log(2)  # softplus(0), the true class against itself
    total = bdc * (softplus_NC.sum(1).mean() - own) / (classes - 1)
    if classes > 2:
        # log(2 cosh(d / 2)) = (softplus(d) + softplus(-d)) / 2: all pairs minus those with the true class
        with_true = (softplus_NC - duel_NC / 2).sum(1) - own
        pairs_N: Tensor = _LogCoshPairs.apply(logits)  # type: ignore[no-untyped-call]  # torch's stubs
        total = total + bec * (pairs_N - with_true).mean() / ((classes - 1) * (classes - 2))
    return total


class _LogCoshPairs(torch.autograd.Function):
    """Sum_(j<k) log(2 cosh((z_j - z_k) / 2)) of each row, in C x N x 20 values (9 in float32) at a time.

    With falling z and u = e^-(z_j - z_k) in (0, 1], a pair adds (z_j - z_k) / 2 + log(1 + u). log(1 + u) is a
    polynomial in u, exact to the dtype's precision. The sums of each power over j < k and over j > k take log2 C
    doublings of a window. All factors are at most 1, so nothing overflows, however far apart the logits are.

    The gradient needs both sums and is computed together with the value. Autograd's zero-filled slices would make the
    step 4 times as long. A second derivative (create_graph) still uses autograd: it computes `_pairs_and_slope` again
    in steps that autograd can follow.
    """

    @staticmethod
    def forward(ctx: Any, logits_NC: Tensor) -> Tensor:
        value_N, slope_NC = _pairs_and_slope(logits_NC)
        ctx.save_for_backward(logits_NC, slope_NC)
        return value_N

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor) -> Tensor:
        logits_NC, slope_NC = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: the saved slope is a constant with gradient 0
            slope_NC = _pairs_and_slope(logits_NC)[1]
        gradient_NC: Tensor = gradient_N.unsqueeze(1) * slope_NC
        return gradient_NC


def _pairs_and_slope(logits_NC: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum over pairs (N,) and its derivative by each logit (N, C)."""
    falling_NC, order_NC = torch.sort(logits_NC, 1, descending=True)
    falling_NC = falling_NC - falling_NC[:, :1]  # a large common constant would lose digits below
    classes = logits_NC.shape[1]
    coefficient_D = logits_NC.new_tensor(_log1p_powers(logits_NC.dtype))
    power_D = torch.arange(1, len(coefficient_D) + 1, device=logits_NC.device, dtype=logits_NC.dtype)
    decay = torch.exp(falling_NC.T.diff(dim=0).unsqueeze(2) * power_D)  # from class k to class k + width
    before_CND = decay.new_ones(classes, *decay.shape[1:])
    after_CND = before_CND.clone()
    width = 1
    while width < classes:
        # With autograd the factors must stay as they are until the backward pass.
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
    """Return coefficients of u, u^2, .. in a polynomial for log(1 + u) on [0, 1].

    The error of Chebyshev's interpolation falls as 5.8^-degree.
    """
    degree = 20 if dtype == torch.float64 else 9
    series = np.polynomial.Chebyshev.interpolate(lambda u: np.log1p(u) / u, degree - 1, domain=[0.0, 1.0])
    return tuple(float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef)
