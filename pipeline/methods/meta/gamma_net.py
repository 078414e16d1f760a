"""Gamma-Net: a small network that computes gamma of the focal loss for each row."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pipeline.methods.meta.part import MetaPart
from pipeline.methods.positive import POSITIVE
from pipeline.nets.net import Net


class GammaNet(MetaPart):
    """Gamma-Net: gamma = min(|x~ . W| / tau, cap) with x~ = softmax(x A) A^T, for focal loss.

    x (N, d) are the features before the last layer, constants for the gradient. A (d, K) has one attention head for
    each of the K classes. W is (d,). There is no projection, so there are d K + d parameters: 51,712 for 512 features
    and 100 classes.

    A and W start uniform in +-1 / sqrt(d). Each A_k is then moved along W so that A_k . W = tau. As the softmax sums to
    1, gamma starts at 1 for every row. The heads differ, so gamma can differ between rows after the first step. With
    equal heads the softmax would have no gradient.

    As tau is small, gamma changes fast. A step of Adam at a rate of 1e-3 moves it by up to 2.2 with 512 features.
    Therefore the default rate is 1e-4; the paper prints none.

    Args:
        tau: Divisor of the output.
        positive: Function that makes the output positive. Section 4.1 names them without a formula. abs is the paper's.
            relu and softplus start at the same value. sigmoid and minmax are scaled to [0, 2], so that 1 is their
            middle. minmax is over the rows of a batch and does not start at 1.
        cap: Greatest gamma, an addition of this project. training.json has the share of rows that reached it.

    References:
        gamma-net paper, eqs. 4 and 5.
    """

    capped: Tensor

    def __init__(self, *, tau: float = 0.01, positive: str = "abs", cap: float = 20.0) -> None:
        super().__init__()
        self.tau, self.cap = tau, cap
        self._positive, self._start = POSITIVE[positive]

    def attach(self, net: Net, *, whole: bool) -> None:
        """Create A and W for the net."""
        inside, classes = net.head.in_features, net.head.out_features
        bound = 1 / math.sqrt(inside)
        a_DK = torch.empty(inside, classes, dtype=torch.float64).uniform_(-bound, bound)
        w_D = torch.empty(inside, dtype=torch.float64).uniform_(-bound, bound)
        if self._start is not None:
            a_DK += torch.outer(w_D, (self._start * self.tau - w_D @ a_DK) / (w_D @ w_D))
        weight = net.head.weight
        self.register_buffer("capped", weight.new_zeros(2, dtype=torch.float64))  # rows at the cap, and all
        self.heads_DK, self.weight_D = nn.Parameter(a_DK.to(weight)), nn.Parameter(w_D.to(weight))

    def count(self, features_ND: Tensor) -> None:
        """Count the rows of a meta step, and those of them at the cap."""
        with torch.no_grad():
            gamma_N = self.gamma(features_ND)
        self.capped[0] += (gamma_N >= self.cap).sum()
        self.capped[1] += len(gamma_N)

    def to_json(self) -> dict[str, float]:
        """Return share_at_cap: the share at the cap of all rows that meta steps used."""
        capped, rows = self.capped.tolist()
        return {"share_at_cap": capped / max(rows, 1.0)}

    def gamma(self, features_ND: Tensor | None) -> Tensor:
        """Return gamma of each row (N,)."""
        if features_ND is None:
            raise ValueError("gamma_net needs the features before the last layer; pass features with the logits")
        if not hasattr(self, "heads_DK"):
            raise ValueError("gamma_net has no parameters yet; build the method with a net: Composition.build(net)")
        share_NK = torch.softmax(features_ND.detach().to(self.heads_DK.dtype) @ self.heads_DK, 1)
        # (p A^T) . W as p . (A^T W), which is the same without N x d values
        return self._positive(share_NK @ (self.weight_D @ self.heads_DK) / self.tau).clamp_max(self.cap)
