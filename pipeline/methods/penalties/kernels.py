"""Penalties on pairs of rows: kernels over confidence, with N x N values."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.penalties.inputs import check_inputs, one_of, positive, root, soft_correct, top

RANK_TEMPERATURE = 0.01


def mmce(
    logits_NC: Tensor,
    labels_N: Tensor,
    *,
    bandwidth: float = 0.4,
    weighted: bool = False,
    variant: str = "paper",
) -> Tensor:
    """Return MMCE = sqrt(sum_ij s_i s_j exp(-|c_i - c_j| / bandwidth)) with s = (a - c) / N.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        bandwidth: Width of the kernel.
        weighted: Whether to use the paper's weighted MMCE: s = (1 - c) / number of right rows for right rows, and
            s = -c / number of wrong rows for wrong rows. Both groups then have equal weight, however rare they are. An
            empty group adds nothing.
        variant: paper; or official, the public code of Mukhoti et al. 2020. If weighted, official squares each count,
            and is 0 if all rows are right or all are wrong. This is the MMCE of their tables and of later papers; their
            beta of 2 and 8 is tuned to that scale. If unweighted, official has no root.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range, or the batch has one row.

    References:
        Kumar, Sarawagi and Jain (2018), Trainable calibration measures for neural networks from kernel mean embeddings.

    Examples:
        >>> mmce(torch.log(torch.tensor([[0.25, 0.75], [0.25, 0.75]])), torch.tensor([1, 1]))
        tensor(0.2500)
    """
    one_of("variant", variant, ("paper", "official"))
    positive(bandwidth=bandwidth)
    c_N, a_N = top(check_inputs(logits_NC, labels_N, rows=2), labels_N)
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
    """Return SECE = mean_i |sum_j a_j K_ij / sum_j K_ij - c_i| with K_ij = exp(-(c_i - c_j)^2 / (2 bandwidth^2)).

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        bandwidth: Width of the kernel.
        variant: Correctness a. soft is the all-pairs relu(2 - rank) of the paper's text. hard is 1 or 0, without a
            gradient; on random batches the cosine of the two gradients was .7 to .99.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range, or the batch has one row.

    References:
        gamma-net paper, eqs. 7, 8 and 13.

    Examples:
        >>> sece(torch.log(torch.tensor([[0.25, 0.75], [0.25, 0.75]])), torch.tensor([1, 1]))
        tensor(0.2500)
    """
    one_of("variant", variant, ("soft", "hard"))
    positive(bandwidth=bandwidth)
    p_NC = torch.softmax(logits := check_inputs(logits_NC, labels_N, rows=2), 1)
    c_N, a_N = top(logits, labels_N, p_NC)
    if variant == "soft":
        a_N = soft_correct(p_NC, labels_N, RANK_TEMPERATURE)
    kernel_NN = torch.exp(-(((c_N.unsqueeze(1) - c_N) / bandwidth) ** 2) / 2)
    return (kernel_NN @ a_N / kernel_NN.sum(1) - c_N).abs().mean()
