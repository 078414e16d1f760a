"""Gaps between confidence and accuracy, by bin. Parts of a method that adapt during training use them."""

from __future__ import annotations

import torch
from torch import Tensor


def top(logits_NC: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidence max_k p_nk (N,) and gap, confidence - correctness (1 or 0), of each row (N,) in float64."""
    top_N, answer_N = torch.softmax(logits_NC.double(), 1).max(1)
    return top_N, top_N - (answer_N == labels_N).to(top_N.dtype)


def equal_mass(confidence_N: Tensor, bins: int) -> Tensor:
    """Return the rising edges (bins - 1,) of `bins` bins of about N / bins rows each; ties may leave bins empty."""
    rising_N = confidence_N.sort().values
    return rising_N[torch.arange(1, bins, device=rising_N.device) * len(rising_N) // bins].clone()


def mean_gaps(gap_N: Tensor, bin_N: Tensor, bins: int) -> Tensor:
    """Return each bin's mean gap (bins,), mean confidence - accuracy of its rows; 0 for a bin without rows."""
    count_B, sum_B = gap_N.new_zeros(2, bins)
    count_B = count_B.index_add(0, bin_N, torch.ones_like(gap_N))
    mean_B: Tensor = sum_B.index_add(0, bin_N, gap_N) / count_B.clamp_min(1)
    return mean_B


def equal_width(bins: int, like: Tensor) -> Tensor:
    """Return the edges (bins - 1,) of `bins` bins (lo, hi] of equal width, in the dtype and on the device of `like`."""
    return torch.arange(1, bins, dtype=like.dtype, device=like.device) / bins


def binned_error(confidence_N: Tensor, gap_N: Tensor, bins: int) -> Tensor:
    """Return the ECE in bins of equal width, sum_b |sum_{n in b} gap_n| / N; a scalar."""
    bin_N = torch.bucketize(confidence_N, equal_width(bins, confidence_N))
    return gap_N.new_zeros(bins).index_add(0, bin_N, gap_N).abs().sum() / len(gap_N)


def class_errors(logits_NC: Tensor, labels_N: Tensor, bins: int) -> Tensor:
    """Return the ECE of each class (C,) in float64, from the gaps p_nk - [y_n = k]."""
    # Class by class, because all classes at once need three times the memory of the logits.
    columns = torch.softmax(logits_NC.double(), 1).T.contiguous()
    return torch.stack([binned_error(p_N, p_N - (labels_N == k).to(p_N), bins) for k, p_N in enumerate(columns)])
