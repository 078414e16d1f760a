"""Gamma-Net: a small network that gives each sample its own exponent of the focal loss."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.methods.meta.part import MetaPart
from pipeline.nets.net import Net

SMALLEST_RANGE = 1e-6  # of minmax: equal rows have no order
POSITIVE: dict[str, tuple[Callable[[Tensor], Tensor], float | None]] = {
    "abs": (torch.abs, 1.0),
    "relu": (F.relu, 1.0),
    "softplus": (F.softplus, math.log(math.e - 1)),
    "sigmoid": (lambda raw_N: 2 * torch.sigmoid(raw_N), 0.0),
    "minmax": (lambda raw_N: 2 * (raw_N - raw_N.min()) / (raw_N.max() - raw_N.min()).clamp_min(SMALLEST_RANGE), None),
}
"""Name -> the function that makes the output positive, and where it is 1; None: nowhere by itself."""


class GammaNet(MetaPart):
    """gamma = min(|x~ . W| / tau, cap), x~ = softmax(x A) A^T (gamma-net paper, eqs. 4 and 5).

    x (N, d): the features before the last layer, constants for the gradient. A (d, K): one attention head for each of
    the K classes. W (d,). There is no projection: d K + d parameters, 51,712 for 512 features and 100 classes.

    Start: A and W uniform in +-1 / sqrt(d), then each A_k moved along W so that A_k . W = tau. As the softmax sums to
    1, gamma is 1 for every row whatever its features say, and since the heads differ it can tell rows apart after the
    first step; with equal heads the softmax would have no gradient.

    As tau is small, gamma is fast: a step of Adam at a rate of 1e-3 moves it by up to 2.2 where there are 512 features,
    so the rate is 1e-4 unless another is named; the paper prints none.

    positive (section 4.1 names them without a formula): abs is the paper's; relu and softplus of the same value;
    sigmoid and minmax are scaled to [0, 2], so that 1 is their middle. minmax is over the rows of a batch, and has no
    start at 1. cap: the greatest gamma, this project's; training.json says of how many rows it was reached.
    """

    capped: Tensor

    def __init__(self, *, tau: float = 0.01, positive: str = "abs", cap: float = 20.0) -> None:
        super().__init__()
        self.tau, self.cap = tau, cap
        self._positive, self._start = POSITIVE[positive]

    def attach(self, net: Net, *, whole: bool) -> None:
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
        with torch.no_grad():
            gamma_N = self.gamma(features_ND)
        self.capped += torch.stack([(gamma_N >= self.cap).sum(), torch.as_tensor(len(gamma_N))])

    def to_json(self) -> dict[str, float]:
        """share_at_cap: of the rows that its meta steps saw."""
        capped, rows = self.capped.tolist()
        return {"share_at_cap": capped / max(rows, 1.0)}

    def gamma(self, features_ND: Tensor | None) -> Tensor:
        if features_ND is None:
            raise ValueError("gamma_net reads the features before the last layer; give features beside the logits")
        if not hasattr(self, "heads_DK"):
            raise ValueError("gamma_net has the sizes of a net; build the method with one: Composition.build(net)")
        share_NK = torch.softmax(features_ND.detach().to(self.heads_DK.dtype) @ self.heads_DK, 1)
        # (p A^T) . W as p . (A^T W): the same, without N x d values
        return self._positive(share_NK @ (self.weight_D @ self.heads_DK) / self.tau).clamp_max(self.cap)
