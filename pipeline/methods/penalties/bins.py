"""Penalties on bins of confidence, with memberships that have a gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.penalties.inputs import check_inputs, one_of, positive, root, soft_correct, top

MOST_ORDER = 10  # above it, the powers of small gaps underflow in float32


def sb_ece(
    logits_NC: Tensor,
    labels_N: Tensor,
    *,
    bins: int = 15,
    temperature: float = 0.01,
    order: float = 2.0,
    kind: str = "label",
    membership: str = "gaussian",
    variant: str = "paper",
) -> Tensor:
    """Return the soft-binned ECE (SB-ECE).

    Memberships are u_i = softmax_j(-(c_i - xi_j)^2 / temperature) for bins with centres xi. S is the size, A the
    accuracy and C the mean confidence of a soft bin.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        bins: Number of bins.
        temperature: Softness of the memberships. The survey names temperatures from .1 to 1 for sigmoids, far wider
            than a bin of 1/15.
        order: Order of the norm, 1 to 10.
        kind: label, the paper's training loss, is (1/N sum_ij u_ij |A_j - c_i|^order)^(1/order). bin is
            (sum_j S_j / N |A_j - C_j|^order)^(1/order).
        membership: gaussian, as above; or sigmoid (survey, soft binning), with edges e as sigmoids: u_ij =
            sigmoid((c_i - e_j) / temperature) - sigmoid((c_i - e_j+1) / temperature). The outermost bins have one edge,
            so the memberships sum to 1.
        variant: paper; or official (kind label only), without the root and with bins that share [1/K, 1].

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Karandikar et al. (2021), Soft calibration objectives for neural networks, eqs. 11 and 12.

    Examples:
        >>> sb_ece(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor(0.2500)
    """
    one_of("kind", kind, ("label", "bin"))
    one_of("membership", membership, ("gaussian", "sigmoid"))
    one_of("variant", variant, ("paper", "official") if kind == "label" else ("paper",))
    positive(bins=bins, temperature=temperature)
    if not 1 <= order <= MOST_ORDER:
        raise ValueError(f"order is {order}; allowed are numbers from 1 to {MOST_ORDER}")
    c_N, a_N = top(check_inputs(logits_NC, labels_N), labels_N)
    low = 1 / logits_NC.shape[1] if variant == "official" else 0.0
    member_NB = (_sigmoid_edges if membership == "sigmoid" else gaussian_memberships)(c_N, low, bins, temperature)
    size_B = member_NB.sum(0).clamp_min(torch.finfo(c_N.dtype).tiny)
    accuracy_B = a_N @ member_NB / size_B
    if kind == "label":
        moment = (member_NB * (accuracy_B - c_N.unsqueeze(1)).abs() ** order).sum() / len(c_N)
    else:
        moment = (size_B * (accuracy_B - c_N @ member_NB / size_B).abs() ** order).sum() / len(c_N)
    return moment if variant == "official" else root(moment, order)


def gaussian_memberships(c_N: Tensor, low: float, bins: int, temperature: float) -> Tensor:
    """Return memberships (N, B) by the distance to the centres of equal bins of [low, 1]."""
    centre_B = low + (1 - low) * (torch.arange(bins, device=c_N.device, dtype=c_N.dtype) + 0.5) / bins
    return torch.softmax(-((c_N.unsqueeze(1) - centre_B) ** 2) / temperature, 1)


def _sigmoid_edges(c_N: Tensor, low: float, bins: int, temperature: float) -> Tensor:
    """Return memberships (N, B) between the soft edges of equal bins of [low, 1].

    They use sigmoid(x) - sigmoid(y) = sigmoid(x) sigmoid(-y) (1 - exp(y - x)), which does not cancel far from a bin.
    """
    inner = low + (1 - low) * torch.arange(1, bins, device=c_N.device, dtype=c_N.dtype) / bins
    past_NE = (c_N.unsqueeze(1) - inner) / temperature
    above_NB = F.pad(torch.sigmoid(past_NE), (1, 0), value=1.0)
    below_NB = F.pad(torch.sigmoid(-past_NE), (0, 1), value=1.0)
    between_B = torch.full((bins,), -math.expm1(-(1 - low) / (bins * temperature)), dtype=c_N.dtype, device=c_N.device)
    between_B[0] = between_B[-1] = 1.0
    return above_NB * below_NB * between_B


def _cuts(c_N: Tensor, low: float, bins: int, temperature: float) -> Tensor:
    """Return memberships (N, B) from scores whose order changes at the cuts between equal bins of [low, 1]."""
    bin_B = torch.arange(1, bins + 1, device=c_N.device, dtype=c_N.dtype)
    score_NB = (c_N.unsqueeze(1) - low) * bin_B - (1 - low) * bin_B * (bin_B - 1) / (2 * bins)
    return torch.softmax(score_NB / temperature, 1)


def dece(
    logits_NC: Tensor, labels_N: Tensor, *, bins: int = 15, temperature: float = 0.01, membership: str = "softmax"
) -> Tensor:
    """Return DECE = sum_j |sum_i u_ij (s_i - c_i)| / N.

    Memberships are u_i = softmax_j((j c_i - cuts_1 - .. - cuts_j) / T) with cuts_j = (j - 1) / bins. s is the soft
    accuracy relu(2 - rank), whose sigmoids have the same temperature. It needs only p_j - p_y, so N x C values.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        bins: Number of bins.
        temperature: Softness T of memberships and accuracy.
        membership: softmax, as above; or sigmoid (survey, soft binning), with soft edges as in `sb_ece`.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Bohdal et al. (2021), Meta-calibration: learning of model calibration using differentiable expected calibration
        error.

    Examples:
        >>> dece(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor(0.2500)
    """
    one_of("membership", membership, ("softmax", "sigmoid"))
    positive(bins=bins, temperature=temperature)
    p_NC = torch.softmax(logits := check_inputs(logits_NC, labels_N), 1)
    c_N, _ = top(logits, labels_N, p_NC)
    member_NB = (_sigmoid_edges if membership == "sigmoid" else _cuts)(c_N, 0.0, bins, temperature)
    return ((soft_correct(p_NC, labels_N, temperature) - c_N) @ member_NB).abs().sum() / len(c_N)


def soft_histogram(logits_NC: Tensor, labels_N: Tensor, *, bins: int = 15) -> Tensor:
    """Return the ECE in a linear histogram layer: sum_j |sum_i u_ij (a_i - c_i)| / N.

    Memberships are triangles u_ij = max(0, 1 - bins |c_i - xi_j|) around bin centres xi. Confidences beyond the
    outermost centres belong to those bins entirely, so memberships always sum to 1.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        bins: Number of bins.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Wang et al. (2016), Learnable histogram: statistical context features for deep neural networks.
        Survey, differentiable histogram.

    Examples:
        >>> soft_histogram(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor(0.2500)
    """
    positive(bins=bins)
    c_N, a_N = top(check_inputs(logits_NC, labels_N), labels_N)
    place_N = (c_N * bins - 0.5).clamp(0, bins - 1)
    member_NB = torch.relu(1 - (place_N.unsqueeze(1) - torch.arange(bins, device=c_N.device)).abs())
    return ((a_N - c_N) @ member_NB).abs().sum() / len(c_N)


def brier_reliability(logits_NC: Tensor, labels_N: Tensor, *, bins: int = 15) -> Tensor:
    """Return the reliability of the Brier score: sum_k sum_b n_kb / N (mean p_k - frequency of k in the bin)^2.

    There is one decomposition per class, as the Brier score sums over classes. Bins (lo, hi] have equal width. They are
    constants for the gradient, which flows through the mean probabilities.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        bins: Number of bins per class.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Murphy (1973), A new vector partition of the probability score.

    Examples:
        >>> brier_reliability(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor(0.1250)
    """
    positive(bins=bins)
    p_NC = torch.softmax(check_inputs(logits_NC, labels_N), 1)
    classes = p_NC.shape[1]
    inner = torch.arange(1, bins, device=p_NC.device, dtype=p_NC.dtype) / bins
    cell_NC = torch.bucketize(p_NC.detach(), inner) + bins * torch.arange(classes, device=p_NC.device)
    gap_NC = p_NC - torch.zeros_like(p_NC).scatter_(1, labels_N.unsqueeze(1), 1.0)
    empty = p_NC.new_zeros(classes * bins)
    gap = empty.index_add(0, cell_NC.flatten(), gap_NC.flatten())
    count = empty.index_add(0, cell_NC.flatten(), torch.ones_like(gap_NC).flatten())
    return (gap**2 / count.clamp_min(1)).sum() / len(p_NC)
