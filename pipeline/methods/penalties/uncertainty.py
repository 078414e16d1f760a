"""Penalties on entropy: be certain when right and uncertain when wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pipeline.methods.penalties.inputs import checked, correct, positive, top

LEAST_COUNT = 1e-10  # of samples that are as they should be; AvUC is infinite where there are none


def entropy(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """-mean_i h_i, h = -sum_k p_k log p_k in nats: the confidence penalty (Pereyra et al. 2017).

    Raises:
        ValueError: inputs that do not fit.
    """
    return -_entropy(torch.log_softmax(checked(logits_NC, labels_N), 1)).mean()


def avuc(logits_NC: Tensor, labels_N: Tensor, *, kappa: float = 0.5) -> Tensor:
    """AvUC = log(1 + (n_AU + n_IC) / (n_AC + n_IU)): accurate or inaccurate, certain (h <= kappa nats) or uncertain.

    Counts are sums of (c if accurate, else 1 - c) times (1 - tanh h if certain, else tanh h); the denominator is at
    least 1e-10. Krishnan and Tickoo 2020; Karandikar et al. 2021, equations 13 and 14. The papers tune kappa.

    Raises:
        ValueError: inputs or options out of range.
    """
    return _avuc(logits_NC, labels_N, kappa, stop=False)


def avuc_gs(logits_NC: Tensor, labels_N: Tensor, *, kappa: float = 0.5) -> Tensor:
    """AvUC's value with no gradient through c (Karandikar et al. 2021, appendix D): else minimising it makes wrong,
    certain answers more confident.

    Raises:
        ValueError: inputs or options out of range.
    """
    return _avuc(logits_NC, labels_N, kappa, stop=True)


def s_avuc(logits_NC: Tensor, labels_N: Tensor, *, kappa: float = 0.5, temperature: float = 1.0) -> Tensor:
    """S-AvUC: AvUC with soft uncertainty t = logistic((logit h* - logit kappa) / temperature), h* = h / log C.

    n_AU, n_IU sum t tanh h and n_AC, n_IC sum (1 - t)(1 - tanh h); kappa in (0, 1). The defaults make t = h*.
    Karandikar et al. 2021, equations 15 and 16; the paper tunes kappa and temperature.

    Raises:
        ValueError: inputs or options out of range.
    """
    positive(temperature=temperature)
    if not 0 < kappa < 1:
        raise ValueError(f"kappa is {kappa}; allowed are numbers between 0 and 1, a share of the largest entropy")
    log_p_NC = torch.log_softmax(logits := checked(logits_NC, labels_N), 1)
    h_N = _entropy(log_p_NC)
    a_N = correct(logits, labels_N)
    t_N = soft_uncertainty(h_N / math.log(logits.shape[1]), kappa, temperature)
    uncertain_N, certain_N = t_N * torch.tanh(h_N), (1 - t_N) * (1 - torch.tanh(h_N))
    good = (a_N * certain_N + (1 - a_N) * uncertain_N).sum()
    bad = (a_N * uncertain_N + (1 - a_N) * certain_N).sum()
    return _log_ratio(bad, good)


def soft_uncertainty(share_N: Tensor, kappa: float, temperature: float) -> Tensor:
    """t = logistic((logit h - logit kappa) / temperature) of shares h of the largest entropy.

    kappa is where t is 1/2; the smaller the temperature, the sharper the step. Karandikar et al. 2021, equation 15.
    """
    limits = torch.finfo(share_N.dtype)
    # Both logarithms' derivatives are infinite at the ends, where h's own is 0.
    share_N = share_N.clamp(limits.tiny, 1 - limits.eps)
    threshold = math.log(kappa) - math.log1p(-kappa)
    return torch.sigmoid((share_N.log() - torch.log1p(-share_N) - threshold) / temperature)


def _avuc(logits_NC: Tensor, labels_N: Tensor, kappa: float, *, stop: bool) -> Tensor:
    positive(kappa=kappa)
    log_p_NC = torch.log_softmax(logits := checked(logits_NC, labels_N), 1)
    h_N = _entropy(log_p_NC)
    c_N, a_N = top(logits, labels_N, log_p_NC.exp())
    if stop:
        c_N = c_N.detach()
    accurate_N, certain_N = a_N > 0, h_N <= kappa
    weight_N = torch.where(accurate_N, c_N, 1 - c_N) * torch.where(certain_N, 1 - torch.tanh(h_N), torch.tanh(h_N))
    good_N = accurate_N == certain_N
    return _log_ratio((weight_N * ~good_N).sum(), (weight_N * good_N).sum())


def _log_ratio(bad: Tensor, good: Tensor) -> Tensor:
    """log(1 + bad / good)."""
    return torch.log1p(bad / good.clamp_min(LEAST_COUNT))


def _entropy(log_p_NC: Tensor) -> Tensor:
    return -(log_p_NC.exp() * log_p_NC).sum(1)
