"""Penalties on pairs of samples: kernels over confidence, N x N values."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.penalties.inputs import checked, one_of, positive, root, soft_correct, top

RANK_TEMPERATURE = 0.01


def mmce(logits_NC: Tensor, labels_N: Tensor, *, bandwidth: float = 0.4, variant: str = "paper") -> Tensor:
    """MMCE = sqrt(sum_ij (a_i - c_i)(a_j - c_j) k(c_i, c_j)) / N, k = exp(-|c_i - c_j| / bandwidth).

    Kumar et al. 2018, the empirical MMCE. `official` (public code of Mukhoti et al. 2020) leaves the root out.

    Raises:
        ValueError: inputs or options out of range, or a batch of one.
    """
    one_of("variant", variant, ("paper", "official"))
    c_N, a_N = top(checked(logits_NC, labels_N, rows=2), labels_N)
    square = _square(c_N, (a_N - c_N) / len(c_N), bandwidth)
    return square if variant == "official" else root(square, 2)


def mmce_weighted(logits_NC: Tensor, labels_N: Tensor, *, bandwidth: float = 0.4, variant: str = "paper") -> Tensor:
    """|mean over right of (1 - c) phi(c) - mean over wrong of c phi(c)| in the space of MMCE's kernel.

    Kumar et al. 2018, the weighted MMCE: right and wrong samples weigh the same however rare they are. An empty
    group's mean is 0. `official`, the authors' code: each sum is divided by its squared count twice (their weight 2
    is tuned to that scale), and the penalty is 0 if all are right or all wrong.

    Raises:
        ValueError: inputs or options out of range, or a batch of one.
    """
    one_of("variant", variant, ("paper", "official"))
    c_N, a_N = top(checked(logits_NC, labels_N, rows=2), labels_N)
    right, wrong = a_N.sum(), (1 - a_N).sum()
    power = 2 if variant == "official" else 1
    signed_N = a_N * (1 - c_N) / right.clamp_min(1) ** power - (1 - a_N) * c_N / wrong.clamp_min(1) ** power
    norm = root(_square(c_N, signed_N, bandwidth), 2)
    return norm * (right * wrong > 0) if variant == "official" else norm


def sece(logits_NC: Tensor, labels_N: Tensor, *, bandwidth: float = 0.01, variant: str = "hard") -> Tensor:
    """SECE = mean_i |sum_j a_j K_ij / sum_j K_ij - c_i|, K_ij = exp(-(c_i - c_j)^2 / (2 bandwidth^2)).

    Gamma-net paper, equations 7, 8 and 13. Correctness a is `hard`, or `soft`: the all-pairs relu(2 - rank).

    Raises:
        ValueError: inputs or options out of range, or a batch of one.
    """
    one_of("variant", variant, ("hard", "soft"))
    positive(bandwidth=bandwidth)
    p_NC = torch.softmax(logits := checked(logits_NC, labels_N, rows=2), 1)
    c_N, a_N = top(logits, labels_N, p_NC)
    if variant == "soft":
        a_N = soft_correct(p_NC, labels_N, RANK_TEMPERATURE)
    kernel_NN = torch.exp(-(((c_N.unsqueeze(1) - c_N) / bandwidth) ** 2) / 2)
    return (kernel_NN @ a_N / kernel_NN.sum(1) - c_N).abs().mean()


def _square(c_N: Tensor, signed_N: Tensor, bandwidth: float) -> Tensor:
    """sum_ij s_i s_j exp(-|c_i - c_j| / bandwidth)."""
    positive(bandwidth=bandwidth)
    kernel_NN = torch.exp(-(c_N.unsqueeze(1) - c_N).abs() / bandwidth)
    return signed_N @ (kernel_NN @ signed_N)
