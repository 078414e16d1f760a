"""Penalties on entropy: be certain when right and uncertain when wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pipeline.methods.penalties.inputs import check_inputs, correct, positive, top

LEAST_COUNT = 1e-10  # of accurate certain and inaccurate uncertain rows; without them AvUC is infinite


def entropy(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Return the confidence penalty -mean_i h_i with h = -sum_k p_k log p_k in nats.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.

    Returns:
        A scalar.

    Raises:
        ValueError: Shapes, types or labels are invalid.

    References:
        Pereyra et al. (2017), Regularizing neural networks by penalizing confident output distributions.

    Examples:
        >>> entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
        tensor(-0.6931)
    """
    return -_entropy(torch.log_softmax(check_inputs(logits_NC, labels_N), 1)).mean()


def avuc(logits_NC: Tensor, labels_N: Tensor, *, kappa: float = 0.5) -> Tensor:
    """Return AvUC = log(1 + (n_AU + n_IC) / (n_AC + n_IU)).

    A row is accurate (A) or inaccurate (I), and certain (C, h <= kappa nats) or uncertain (U). A count n is the sum
    over its rows of (c if accurate, else 1 - c) times (1 - tanh h if certain, else tanh h). The denominator is at least
    1e-10.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        kappa: Threshold of the entropy h in nats. The papers tune it.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Krishnan and Tickoo (2020), Improving model calibration with accuracy versus uncertainty optimization.
        Karandikar et al. (2021), Soft calibration objectives for neural networks, eqs. 13 and 14.

    Examples:
        >>> avuc(torch.tensor([[0.0, 9.0]]), torch.tensor([1]))  # accurate and certain
        tensor(0.)
    """
    return _avuc(logits_NC, labels_N, kappa, stop=False)


def avuc_gs(logits_NC: Tensor, labels_N: Tensor, *, kappa: float = 0.5) -> Tensor:
    """Return AvUC without a gradient through c, in the same value as `avuc`.

    Minimising AvUC with that gradient makes wrong, certain answers more confident.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        kappa: Threshold of the entropy h in nats.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Karandikar et al. (2021), Soft calibration objectives for neural networks, appendix D.

    Examples:
        >>> avuc_gs(torch.tensor([[0.0, 9.0]]), torch.tensor([1]))  # accurate and certain
        tensor(0.)
    """
    return _avuc(logits_NC, labels_N, kappa, stop=True)


def s_avuc(logits_NC: Tensor, labels_N: Tensor, *, kappa: float = 0.5, temperature: float = 1.0) -> Tensor:
    """Return S-AvUC: AvUC with a soft uncertainty t.

    t = logistic((logit h* - logit kappa) / temperature) with h* = h / log C.
    n_AU and n_IU sum t tanh h; n_AC and n_IC sum (1 - t)(1 - tanh h). With the defaults t = h*.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        kappa: h* at which t is 1/2, in (0, 1). The paper tunes it.
        temperature: Softness of the step. The paper tunes it.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Karandikar et al. (2021), Soft calibration objectives for neural networks, eqs. 15 and 16.

    Examples:
        >>> s_avuc(torch.tensor([[9.0, 0.0]]), torch.tensor([0])).round(decimals=4)  # accurate and certain
        tensor(0.)
    """
    positive(temperature=temperature)
    if not 0 < kappa < 1:
        raise ValueError(f"kappa is {kappa}; allowed are numbers between 0 and 1, a share of the greatest entropy")
    log_p_NC = torch.log_softmax(logits := check_inputs(logits_NC, labels_N), 1)
    h_N = _entropy(log_p_NC)
    a_N = correct(logits, labels_N)
    t_N = soft_uncertainty(h_N / math.log(logits.shape[1]), kappa, temperature)
    uncertain_N, certain_N = t_N * torch.tanh(h_N), (1 - t_N) * (1 - torch.tanh(h_N))
    good = (a_N * certain_N + (1 - a_N) * uncertain_N).sum()
    bad = (a_N * uncertain_N + (1 - a_N) * certain_N).sum()
    return _log_ratio(bad, good)


def soft_uncertainty(share_N: Tensor, kappa: float, temperature: float) -> Tensor:
    """Return t = logistic((logit h - logit kappa) / temperature) for shares h of the greatest entropy.

    t is 1/2 at h = kappa. A smaller temperature gives a sharper step. Karandikar et al. 2021, eq. 15.
    """
    limits = torch.finfo(share_N.dtype)
    # The derivatives of both logarithms are infinite at the ends, where that of h is 0.
    share_N = share_N.clamp(limits.tiny, 1 - limits.eps)
    threshold = math.log(kappa) - math.log1p(-kappa)
    return torch.sigmoid((share_N.log() - torch.log1p(-share_N) - threshold) / temperature)


def _avuc(logits_NC: Tensor, labels_N: Tensor, kappa: float, *, stop: bool) -> Tensor:
    """Return AvUC; with `stop` no gradient flows through the confidence."""
    positive(kappa=kappa)
    log_p_NC = torch.log_softmax(logits := check_inputs(logits_NC, labels_N), 1)
    h_N = _entropy(log_p_NC)
    c_N, a_N = top(logits, labels_N, log_p_NC.exp())
    if stop:
        c_N = c_N.detach()
    accurate_N, certain_N = a_N > 0, h_N <= kappa
    weight_N = torch.where(accurate_N, c_N, 1 - c_N) * torch.where(certain_N, 1 - torch.tanh(h_N), torch.tanh(h_N))
    good_N = accurate_N == certain_N
    return _log_ratio((weight_N * ~good_N).sum(), (weight_N * good_N).sum())


def _log_ratio(bad: Tensor, good: Tensor) -> Tensor:
    """Return log(1 + bad / good)."""
    return torch.log1p(bad / good.clamp_min(LEAST_COUNT))


def _entropy(log_p_NC: Tensor) -> Tensor:
    """Return the entropy of each row (N,) in nats."""
    return -(log_p_NC.exp() * log_p_NC).sum(1)
