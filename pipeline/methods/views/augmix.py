"""AugMix (Hendrycks et al. 2020): augmented views of each image, and a loss that asks for equal answers to them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pipeline.data.vision import torchvision
from pipeline.methods.views.operations import IDENTITY, Draws, Policy

VIEWS = 3
DEPTH = 3
"""Largest number of operations in a chain."""


class AugMix:
    """AugMix: two mixtures of augmented copies beside each image, and a consistency loss jsd x JS(p_1; p_2; p_3).

    A mixture is x' = m x + (1 - m) sum_i w_i chain_i(x) with m ~ Beta(1, 1) and w ~ Dirichlet(1, .., 1). It has `width`
    chains of 1 to 3 operations, all from torchvision. JS is the Jensen-Shannon divergence mean_v KL(p_v || mean p) of
    the predictions for the three views, in nats, averaged over the batch. The primary loss sees the original image
    only. With jsd = 0 there is one view, a mixture, and the primary loss sees it.

    Args:
        jsd: Weight of the consistency loss.
        severity: Number of magnitudes to draw from, from the smallest on.
        width: Number of chains per mixture.
        all_ops: Whether to add brightness, contrast, colour and sharpness, which the paper leaves out.
        group: Number of rows of a batch that share their chains but not their weights. The paper has 1.

    References:
        Hendrycks et al. (2020), AugMix: a simple data processing method to improve robustness and uncertainty.
    """

    def __init__(
        self, *, jsd: float = 12.0, severity: int = 3, width: int = 3, all_ops: bool = False, group: int = 1
    ) -> None:
        self.jsd, self.severity, self.width, self.all_ops, self.group = jsd, severity, width, all_ops, group
        self._built: tuple[tuple[int, int], Policy] | None = None

    def __call__(self, images_NHWC: Tensor, generator: torch.Generator) -> Tensor:
        """Return the views of uint8 images (N, H, W, C): (3 N, H, W, C), the images and then two mixtures of them.

        With jsd = 0 the result is one mixture of each image, (N, H, W, C).
        """
        images_NCHW = images_NHWC.permute(0, 3, 1, 2)
        n, _, height, width = images_NCHW.shape
        mixed = VIEWS - 1 if self.jsd else 1
        policy = self._policy((height, width))
        chains_MNCHW = images_NCHW.repeat(mixed * self.width, 1, 1, 1)
        for draws in self._chains(policy, n, mixed * self.width, generator):
            chains_MNCHW = policy.apply(chains_MNCHW, draws)
        chains_VWNCHW = chains_MNCHW.view(mixed, self.width, *images_NCHW.shape)
        views = []
        for chains_WNCHW in chains_VWNCHW:
            own_N, share_NW = self._weights(n, generator, images_NCHW.device)
            mixture = own_N.view(n, 1, 1, 1) * images_NCHW
            for share_N, chain_NCHW in zip(share_NW.unbind(1), chains_WNCHW, strict=True):
                mixture.add_(share_N.view(n, 1, 1, 1) * chain_NCHW)
            views.append(mixture.to(torch.uint8).permute(0, 2, 3, 1))
        return torch.cat([images_NHWC, *views]) if self.jsd else views[0]

    def _chains(self, policy: Policy, n: int, chains: int, generator: torch.Generator) -> list[Draws]:
        """Draw the operations of all chains, one `Draws` per step; a chain has none after its last step."""
        groups = -(-n // self.group)
        place_M = (torch.arange(chains).view(-1, 1) * groups + torch.arange(n) // self.group).flatten()
        depth_G = torch.randint(1, DEPTH + 1, (chains * groups,), generator=generator)
        steps = []
        for step in range(DEPTH):
            draws = policy.draw(chains * groups, generator, first=0, count=self.severity)
            over_G = depth_G <= step
            operation_G = draws.operation_N.masked_fill(over_G, policy.names.index(IDENTITY))
            steps.append(Draws(operation_G, draws.magnitude_N.masked_fill(over_G, 0.0))[place_M])
        return steps

    def _weights(self, n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
        """Draw m (N,) and (1 - m) w (N, width)."""
        m_N2, w_NW = (
            torch._sample_dirichlet(torch.ones(n, k), generator=generator).to(device) for k in (2, self.width)
        )
        return m_N2[:, 0], w_NW * m_N2[:, 1:]

    def consistency(self, logits_VNC: Tensor) -> Tensor:
        """Return jsd x mean over n of JS(p_1n; ..; p_Vn), at most jsd log V."""
        log_p_VNC = torch.log_softmax(logits_VNC, 2)
        log_mean_NC = log_p_VNC.logsumexp(0) - math.log(len(log_p_VNC))
        divergence_VN = (log_p_VNC.exp() * (log_p_VNC - log_mean_NC)).sum(2)
        return self.jsd * divergence_VN.mean()

    def _policy(self, size: tuple[int, int]) -> Policy:
        if self._built is None or self._built[0] != size:
            torchvision()
            from torchvision.transforms import v2

            made: Any = v2.AugMix(severity=self.severity, mixture_width=self.width, all_ops=self.all_ops)
            space = made._AUGMENTATION_SPACE if self.all_ops else made._PARTIAL_AUGMENTATION_SPACE
            self._built = size, Policy.of(made, space, made._PARAMETER_MAX, size)
        return self._built[1]
