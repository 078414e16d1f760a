"""Penalties on means over the batch: confidence against accuracy, per class and of the top answer."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.penalties.inputs import checked, top


def mdca(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """MDCA = 1/C sum_k |mean_i p_ik - frequency of class k in the batch| (Hebbalaguppe et al. 2022).

    Raises:
        ValueError: inputs that do not fit.
    """
    p_NC = torch.softmax(checked(logits_NC, labels_N), 1)
    share_N = p_NC.new_full(labels_N.shape, 1 / len(p_NC))
    return (p_NC.mean(0).index_add(0, labels_N, share_N, alpha=-1)).abs().mean()


def dca(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """DCA = |mean_i a_i - mean_i c_i|: accuracy against mean confidence (Liang et al. 2020).

    Raises:
        ValueError: inputs that do not fit.
    """
    c_N, a_N = top(checked(logits_NC, labels_N), labels_N)
    return (a_N - c_N).mean().abs()
