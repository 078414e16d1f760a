"""Penalties on pairs of samples: kernels over confidence, N x N values."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.penalties.inputs import checked, one_of, positive, root, soft_correct, top

RANK_TEMPERATURE = 0.01


def mmce(
    logits_NC: Tensor,
    labels_N: Tensor,
    *,
    bandwidth: float = 0.4,
    weighted: bool = False,
    variant: str = "paper",
) -> Tensor:
    """MMCE = sqrt(sum_ij s_i s_j exp(-|c_i - c_j| / bandwidth)) with s = (a - c) / N (Kumar et al. 2018).

    `weighted`, their weighted MMCE: s = (1 - c) / number of right samples for the right, -c / number of wrong ones for
    the wrong, so that both kinds weigh the same however rare they are. An empty kind adds nothing.

    variant `official`, the public code of Mukhoti et al. 2020. Weighted, as in their tables and those of the papers
    after them: each count is squared (their beta of 2 and 8 is tuned to that scale), and the penalty is 0 if all are
    right or all wrong. Unweighted: no root.

    Raises:
        ValueError: inputs or options out of range, or a batch of one.
    """
    one_of("variant", variant, ("paper", "official"))
    positive(bandwidth=bandwidth)
    c_N, a_N = top(checked(logits_NC, labels_N, rows=2), labels_N)
    right, wrong = a_N.sum(), (1 - a_N).sum()
    if weighted:
        power = 2 if variant == "official" else 1
        signed_N = a_N * (1 - c_N) / right.clamp_min(1) ** power - (1 - a_N) * c_N / wrong.clamp_min(1) ** power
    else:
        signed_N = (a_N - c_N) / len(c_N)
    kernel_NN = torch.exp(-(c_N.unsqueeze(1) - c_N).abs() / bandwidth)
    square = signed_N @ (kernel_NN @ signed_N)
    if variant == "official":
        return root(square, 2) * (right * wrong > 0) if weighted else square
    return root(square, 2)


def sece(logits_NC: Tensor, labels_N: Tensor, *, bandwidth: float = 0.01, variant: str = "soft") -> Tensor:
    """SECE = mean_i |sum_j a_j K_ij / sum_j K_ij - c_i|, K_ij = exp(-(c_i - c_j)^2 / (2 bandwidth^2)).

    Gamma-net paper, equations 7, 8 and 13. Correctness a is `soft`, the all-pairs relu(2 - rank), as the paper's text
    has it; or `hard`, 1 or 0, through which no gradient flows: on random batches the cosine of the two gradients was
    .7 to .99.

    Raises:
        ValueError: inputs or options out of range, or a batch of one.
    """
    one_of("variant", variant, ("soft", "hard"))
    positive(bandwidth=bandwidth)
    p_NC = torch.softmax(logits := checked(logits_NC, labels_N, rows=2), 1)
    c_N, a_N = top(logits, labels_N, p_NC)
    if variant == "soft":
        a_N = soft_correct(p_NC, labels_N, RANK_TEMPERATURE)
    kernel_NN = torch.exp(-(((c_N.unsqueeze(1) - c_N) / bandwidth) ** 2) / 2)
    return (kernel_NN @ a_N / kernel_NN.sum(1) - c_N).abs().mean()
