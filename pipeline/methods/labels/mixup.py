"""Mixup (Zhang et al. 2018)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pipeline.methods.targets import distribution


class Mixup:
    """Mixup: x' = l x + (1 - l) x_o and t' = l t + (1 - l) t_o, with one l ~ Beta(alpha, alpha) per batch.

    x_o is the row's partner, and the partners are a random permutation of the batch. l is the larger of the two shares,
    so a row keeps its own label where one is needed. This does not change the distribution of the set of mixed rows.

    Args:
        alpha: Parameter of the Beta distribution.

    References:
        Zhang et al. (2018), mixup: beyond empirical risk minimization.
    """

    draws = True

    def __init__(self, *, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def batch(self, inputs: Tensor, targets: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the mixed inputs and their targets (N, C)."""
        seed = torch.randint(2**62, (2,), generator=generator).tolist()
        rng = np.random.default_rng(seed)
        drawn = rng.beta(self.alpha, self.alpha)
        share = max(drawn, 1 - drawn)
        other_N = torch.from_numpy(rng.permutation(len(inputs))).to(inputs.device)
        t_NC = distribution(targets, classes, inputs.dtype)
        return torch.lerp(inputs[other_N], inputs, share), torch.lerp(t_NC[other_N], t_NC, share)

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        """Return the targets unchanged."""
        return targets
