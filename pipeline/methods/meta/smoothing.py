"""Label smoothing whose strength is learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pipeline.methods.labels.smoothing import MOST, smooth
from pipeline.methods.meta.part import MetaPart
from pipeline.nets.net import Net


class LearnedSmoothing(MetaPart):
    """t' = (1 - epsilon) t + epsilon / K with a learned epsilon in [0, 1/2] (Bohdal et al. 2021, their code).

    per scalar: one for all; per class: one for each class, of a mixed target the mean by its shares. Starts at
    `epsilon`; after each step it is brought back into [0, 1/2].
    """

    def __init__(self, *, epsilon: float = 0.0, per: str = "scalar") -> None:
        super().__init__()
        self._start, self._per_class = epsilon, per == "class"

    def attach(self, net: Net, *, whole: bool) -> None:
        size = net.head.out_features if self._per_class else 1
        self.epsilon = nn.Parameter(net.head.weight.detach().new_full((size,), self._start))

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        if not hasattr(self, "epsilon"):
            raise ValueError("learned_smoothing has a net's classes; build the method with it: Composition.build(net)")
        if not self._per_class:
            epsilon_N = self.epsilon.to(logits_NC.dtype).expand(len(logits_NC))
        elif targets.ndim == 1:
            epsilon_N = self.epsilon.to(logits_NC.dtype)[targets]
        else:
            epsilon_N = targets.to(logits_NC.dtype) @ self.epsilon.to(logits_NC.dtype)
        return smooth(targets, logits_NC.shape[1], epsilon_N, logits_NC.dtype)

    def project(self) -> None:
        with torch.no_grad():
            self.epsilon.clamp_(0, MOST)

    def figures(self) -> dict[str, Tensor]:
        """smoothing_mean; per class also the least and the greatest."""
        epsilon = self.epsilon.detach()
        figures = {"smoothing_mean": epsilon.mean()}
        if self._per_class:
            figures |= {"smoothing_min": epsilon.min(), "smoothing_max": epsilon.max()}
        return figures
