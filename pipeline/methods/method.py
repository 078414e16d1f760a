"""What the training loop knows of a method: the small protocol that every composition offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PrimaryLoss = Callable[[Tensor, Tensor], Tensor]
"""(logits_NC, targets) -> one value per sample (N,); `targets` as in `pipeline.methods.losses`."""

Penalty = Callable[[Tensor, Tensor], Tensor]
"""(logits_NC, labels_N) -> a scalar, added to the mean of the primary loss with its weight."""


@dataclass(frozen=True)
class Method:
    """A primary loss and weighted penalties.

    The loop calls `batch`, then `objective`, and `after_validation` once an epoch. Mixing and smoothing override
    `batch` and `targets`, schedules read `progress`, methods that learn keep state: no `if` in the loop.
    """

    name: str
    primary: PrimaryLoss
    penalties: tuple[tuple[float, Penalty], ...] = ()

    def batch(self, images: Tensor, labels_N: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The batch to learn from, and its targets."""
        return images, self.targets(labels_N)

    def targets(self, labels_N: Tensor) -> Tensor:
        """Class indices as they are; smoothing returns distributions (N, C)."""
        return labels_N

    def per_sample(
        self, logits_NC: Tensor, targets: Tensor, features: Tensor | None = None, *, progress: float = 0.0
    ) -> Tensor:
        """Primary loss of each sample (N,)."""
        return self.primary(logits_NC, targets)

    def objective(
        self,
        logits_NC: Tensor,
        targets: Tensor,
        labels_N: Tensor,
        features: Tensor | None = None,
        *,
        progress: float = 0.0,
    ) -> Tensor:
        """mean_n per_sample_n + sum_j weight_j penalty_j: the scalar that is minimised."""
        total = self.per_sample(logits_NC, targets, features, progress=progress).mean()
        for weight, penalty in self.penalties:
            total = total + weight * penalty(logits_NC, labels_N)
        return total

    def loss(self, logits_NC: Tensor, labels_N: Tensor, *, progress: float = 0.0) -> Tensor:
        """The plain call: mean over the batch, for labels (N,) and `progress` in [0, 1] through the run.

        Raises:
            ValueError: shapes that disagree, an empty batch, or a progress outside [0, 1].
        """
        if logits_NC.ndim != 2 or labels_N.shape != logits_NC.shape[:1] or not len(labels_N):
            shapes = f"logits {tuple(logits_NC.shape)} and labels {tuple(labels_N.shape)}"
            raise ValueError(f"{shapes} do not fit; expected (N, C) and (N,) with N at least 1")
        if not 0 <= progress <= 1:
            raise ValueError(f"progress is {progress}; allowed is [0, 1], the fraction of the run that is done")
        return self.objective(logits_NC, self.targets(labels_N), labels_N, progress=progress)

    def after_validation(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        """Called once an epoch with the validation logits; methods that adapt to them learn here."""

    def state(self) -> dict[str, Any]:
        """What `after_validation` learned, for checkpoints."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a `state` again."""
