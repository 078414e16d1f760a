"""Penalties on batch means: confidence against accuracy, per class or of the top class."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.penalties.inputs import check_inputs, top


def mdca(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Return MDCA = 1/C sum_k |mean_i p_ik - share of class k in the batch|.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.

    Returns:
        A scalar.

    Raises:
        ValueError: Shapes, types or labels are invalid.

    References:
        Hebbalaguppe et al. (2022), A stitch in time saves nine: a train-time regularizing loss for improved
        calibration.

    Examples:
        >>> mdca(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor(0.2500)
    """
    p_NC = torch.softmax(check_inputs(logits_NC, labels_N), 1)
    share_N = p_NC.new_full(labels_N.shape, 1 / len(p_NC))
    return (p_NC.mean(0).index_add(0, labels_N, share_N, alpha=-1)).abs().mean()


def dca(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Return DCA = |mean_i a_i - mean_i c_i|: accuracy against mean confidence of the top class.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.

    Returns:
        A scalar.

    Raises:
        ValueError: Shapes, types or labels are invalid.

    References:
        Liang et al. (2020), Improved trainable calibration method for neural networks on medical imaging
        classification.

    Examples:
        >>> dca(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor(0.2500)
    """
    c_N, a_N = top(check_inputs(logits_NC, labels_N), labels_N)
    return (a_N - c_N).mean().abs()
