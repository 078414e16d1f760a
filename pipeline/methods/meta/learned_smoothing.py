"""Label smoothing whose strength is learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pipeline.methods.labels.smoothing import MOST, smooth
from pipeline.methods.meta.part import MetaPart
from pipeline.nets.net import Net


class LearnedSmoothing(MetaPart):
    """Label smoothing t' = (1 - epsilon) t + epsilon / K with a learned epsilon in [0, 1/2].

    After each step epsilon is clipped to [0, 1/2].

    Args:
        epsilon: Start of epsilon.
        per: scalar learns one epsilon for all rows. class learns one per class; a mixed target has the mean by its
            shares.

    References:
        Bohdal et al. (2021), Meta-calibration, public code.
    """

    def __init__(self, *, epsilon: float = 0.0, per: str = "scalar") -> None:
        super().__init__()
        self._start, self._per_class = epsilon, per == "class"

    def attach(self, net: Net, *, whole: bool) -> None:
        """Create epsilon."""
        size = net.head.out_features if self._per_class else 1
        self.epsilon = nn.Parameter(net.head.weight.detach().new_full((size,), self._start))

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        """Return the smoothed targets (N, C)."""
        if not hasattr(self, "epsilon"):
            raise ValueError(
                "learned_smoothing has no epsilon yet; build the method with a net: Composition.build(net)"
            )
        if not self._per_class:
            epsilon_N = self.epsilon.to(logits_NC.dtype).expand(len(logits_NC))
        elif targets.ndim == 1:
            epsilon_N = self.epsilon.to(logits_NC.dtype)[targets]
        else:
            epsilon_N = targets.to(logits_NC.dtype) @ self.epsilon.to(logits_NC.dtype)
        return smooth(targets, logits_NC.shape[1], epsilon_N, logits_NC.dtype)

    def project(self) -> None:
        """Clip epsilon to its range."""
        with torch.no_grad():
            self.epsilon.clamp_(0, MOST)

    def figures(self) -> dict[str, Tensor]:
        """Return smoothing_mean; with one epsilon per class also the least and the greatest."""
        epsilon = self.epsilon.detach()
        figures = {"smoothing_mean": epsilon.mean()}
        if self._per_class:
            figures |= {"smoothing_min": epsilon.min(), "smoothing_max": epsilon.max()}
        return figures
