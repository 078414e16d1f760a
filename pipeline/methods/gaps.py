"""How far confidence is from accuracy, bin by bin: what parts that learn look at."""

from __future__ import annotations

import torch
from torch import Tensor


def top(logits_NC: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """max_k p_nk of each row (N,), and by how much it is over the answer's correctness, 1 or 0 (N,); float64."""
    top_N, answer_N = torch.softmax(logits_NC.double(), 1).max(1)
    return top_N, top_N - (answer_N == labels_N).to(top_N.dtype)


def equal_mass(confidence_N: Tensor, bins: int) -> Tensor:
    """The edges between `bins` bins of about N / bins rows each, rising (bins - 1,); ties may leave bins empty."""
    rising_N = confidence_N.sort().values
    return rising_N[torch.arange(1, bins, device=rising_N.device) * len(rising_N) // bins].clone()


def mean_gaps(gap_N: Tensor, bin_N: Tensor, bins: int) -> Tensor:
    """Mean gap of each bin's rows (bins,): mean confidence - accuracy; 0 for a bin without rows."""
    count_B, sum_B = gap_N.new_zeros(2, bins)
    count_B = count_B.index_add(0, bin_N, torch.ones_like(gap_N))
    mean_B: Tensor = sum_B.index_add(0, bin_N, gap_N) / count_B.clamp_min(1)
    return mean_B


def equal_width(bins: int, like: Tensor) -> Tensor:
    """The edges between `bins` bins (lo, hi] of equal width (bins - 1,), of the type and on the device of `like`."""
    return torch.arange(1, bins, dtype=like.dtype, device=like.device) / bins


def binned_error(confidence_N: Tensor, gap_N: Tensor, bins: int) -> Tensor:
    """ECE in bins of equal width, sum_b |sum_{n in b} gap_n| / N; a scalar."""
    bin_N = torch.bucketize(confidence_N, equal_width(bins, confidence_N))
    return gap_N.new_zeros(bins).index_add(0, bin_N, gap_N).abs().sum() / len(gap_N)


def class_errors(logits_NC: Tensor, labels_N: Tensor, bins: int) -> Tensor:
    """ECE of each class, its gaps p_nk - [y_n = k]; (C,), float64."""
    # Class by class: all at once take three times the memory of the logits.
    columns = torch.softmax(logits_NC.double(), 1).T.contiguous()
    return torch.stack([binned_error(p_N, p_N - (labels_N == k).to(p_N), bins) for k, p_N in enumerate(columns)])
