"""Calibration penalty in a histogram layer whose bins are learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pipeline.methods.meta.part import MetaPart
from pipeline.methods.penalties.inputs import check_inputs, top
from pipeline.nets.net import Net

WIDEST = 10.0
"""Largest factor by which a bin may become wider, or narrower, than at its start."""


class LearnedHistogram(MetaPart):
    """Calibration penalty with learned bins: beta sum_j |sum_i u_ij (a_i - c_i)| / N, added to the mean loss.

    u_ij = max(0, 1 - |c_i - mu_j| / w_j). It is the ECE in a linear histogram layer with learnable centres mu and
    widths w. They start as the equal bins of the penalty `soft_histogram`, so both penalties start equal. c is clipped
    to the outermost centres of the start. After each step mu is clipped to [0, 1], and w to between a tenth and ten
    times its start.

    Bins that learned to lower the penalty itself would become empty. These bins learn by looking ahead instead: the
    net's step, with the penalty in it, should lower the outer loss of set-aside rows.

    Args:
        bins: Number of bins.
        beta: Weight of the penalty.

    References:
        Wang et al. (2016), Learnable histogram: statistical context features for deep neural networks.
        Survey, histogram layers.
    """

    def __init__(self, *, bins: int = 15, beta: float = 1.0) -> None:
        super().__init__()
        self._bins, self._beta = bins, beta

    def attach(self, net: Net, *, whole: bool) -> None:
        """Create centres and widths."""
        weight = net.head.weight.detach()
        centre_B = (torch.arange(self._bins, dtype=weight.dtype, device=weight.device) + 0.5) / self._bins
        self.centre_B, self.log_width_B = nn.Parameter(centre_B), nn.Parameter(torch.zeros_like(centre_B))

    def batch_penalty(self, logits_NC: Tensor, labels_N: Tensor) -> Tensor:
        """Return the weighted penalty, a scalar."""
        if not hasattr(self, "centre_B"):
            raise ValueError("learned_histogram has no bins yet; build the method with a net: Composition.build(net)")
        c_N, a_N = top(check_inputs(logits_NC, labels_N), labels_N)
        edge = 0.5 / self._bins
        distance_NB = (c_N.clamp(edge, 1 - edge).unsqueeze(1) - self.centre_B.to(c_N.dtype)).abs()
        member_NB = torch.relu(1 - self._bins * distance_NB * torch.exp(-self.log_width_B.to(c_N.dtype)))
        return self._beta * ((a_N - c_N) @ member_NB).abs().sum() / len(c_N)

    def project(self) -> None:
        """Clip centres and widths to their ranges."""
        with torch.no_grad():
            self.centre_B.clamp_(0, 1)
            self.log_width_B.clamp_(-math.log(WIDEST), math.log(WIDEST))

    def figures(self) -> dict[str, Tensor]:
        """Return centre and width of each bin."""
        width_B = self.log_width_B.detach().exp() / self._bins
        lines = {f"centre_{b}": value for b, value in enumerate(self.centre_B.detach(), 1)}
        return {**lines, **{f"width_{b}": value for b, value in enumerate(width_B, 1)}}
