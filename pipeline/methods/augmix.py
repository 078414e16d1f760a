"""AugMix (Hendrycks et al. 2020): mixtures of augmentation chains, and the same answer to all views of an image."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

VIEWS = 3


class AugMix:
    """Two mixtures x' = m x + (1 - m) sum_i w_i chain_i(x) of each image beside itself, and jsd JS(p_1; p_2; p_3).

    m ~ Beta(1, 1), w ~ Dirichlet(1, .., 1) over `width` chains of 1 to 3 operations, all by torchvision. JS is the
    Jensen-Shannon divergence mean_v KL(p_v || mean p) of the three views' answers, in nats, mean over the batch; the
    loss itself sees the image as it is. With jsd = 0 there is one view, a mixture, and the loss is of that.

    all_ops adds brightness, contrast, colour and sharpness, which the paper leaves out. group: so many rows of a batch
    share their chains, not their weights; 1 is the paper's, and takes 170 ms for 128 images of 32 x 32 on one thread,
    where 8 takes 27.
    """

    def __init__(
        self, *, jsd: float = 12.0, severity: int = 3, width: int = 3, all_ops: bool = False, group: int = 1
    ) -> None:
        self.jsd, self.severity, self.width, self.all_ops, self.group = jsd, severity, width, all_ops, group

    def __call__(self, images_NHWC: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 (N, H, W, C) -> (3 N, H, W, C): the images, then two mixtures of them; (N, H, W, C) with jsd = 0."""
        groups_GCHW = torch.split(images_NHWC.permute(0, 3, 1, 2), self.group)
        device = images_NHWC.device
        (seed,) = torch.randint(2**62, (1,), generator=generator).tolist()
        with torch.random.fork_rng([device] if device.type == "cuda" else []):  # torchvision draws from the global one
            torch.manual_seed(seed)
            mixed = [
                torch.cat([self._mixture(group_GCHW) for group_GCHW in groups_GCHW])
                for _ in range(VIEWS - 1 if self.jsd else 1)
            ]
        views = [view_NCHW.permute(0, 2, 3, 1) for view_NCHW in mixed]
        return torch.cat([images_NHWC, *views]) if self.jsd else views[0]

    def consistency(self, logits_VNC: Tensor) -> Tensor:
        """jsd x mean over n of JS(p_1n; ..; p_Vn), at most jsd log V."""
        log_p_VNC = torch.log_softmax(logits_VNC, 2)
        log_mean_NC = log_p_VNC.logsumexp(0) - math.log(len(log_p_VNC))
        divergence_VN = (log_p_VNC.exp() * (log_p_VNC - log_mean_NC)).sum(2)
        return self.jsd * divergence_VN.mean()

    @cached_property
    def _mixture(self) -> Callable[[Tensor], Tensor]:
        from pipeline.data.vision import torchvision  # 1.5 s to import, for those who use it

        torchvision()
        from torchvision.transforms import v2

        mixture: Any = v2.AugMix(severity=self.severity, mixture_width=self.width, all_ops=self.all_ops)
        return mixture  # type: ignore[no-any-return]
