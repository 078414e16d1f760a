"""A training batch: its rows, the net's outputs for them, and the state of the random generators before the pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline.nets.net import Net


def identity(logits: Tensor) -> Tensor:
    """Return the logits: the head to use where the features are the logits."""
    return logits


@dataclass(frozen=True)
class RandomState:
    """State of torch's global generators: of the CPU, and of one CUDA device or None."""

    cpu: Tensor
    cuda: Tensor | None

    @classmethod
    def of(cls, device: torch.device) -> RandomState:
        """Read the state of the CPU's generator, and of `device` if that is a CUDA device."""
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(torch.get_rng_state(), cuda)

    def equals(self, other: RandomState) -> bool:
        """Return whether both states are the same, so that nothing was drawn between them."""
        cuda = self.cuda is None or other.cuda is None or torch.equal(self.cuda, other.cuda)
        return cuda and torch.equal(self.cpu, other.cpu)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same numbers again inside the block; afterwards restore the generators."""
        now = RandomState.of(torch.device("cpu") if self.cuda is None else torch.device("cuda"))
        self._set()
        try:
            yield
        finally:
            now._set()

    def _set(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of a batch as a loss sees them.

    Attributes:
        logits: (V N, C) = head(features). V is the number of views of each row, 1 if there are none.
        targets: Class indices (N,), or distributions (N, C) if rows are mixed.
        labels: (N,), the class with the larger share of each row.
        features: (V N, D); None if only logits are available.
        head: Function from features to logits.
        progress: Fraction of the run that is over, in [0, 1].
        weights: (N,), factors of the rows' losses; None means 1 for each row.
    """

    logits: Tensor
    targets: Tensor
    labels: Tensor
    features: Tensor | None = None
    head: Callable[[Tensor], Tensor] = identity
    progress: float = 0.0
    weights: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class ForwardPass(Batch):
    """A batch with the net's graph for `inputs`; `random` is the state of the generators before that pass."""

    features: Tensor
    inputs: Tensor
    random: RandomState

    @classmethod
    def of(
        cls,
        net: Net,
        inputs: Tensor,
        targets: Tensor,
        labels: Tensor,
        progress: float = 0.0,
        weights: Tensor | None = None,
        features_of: Callable[[Tensor], Tensor] | None = None,
    ) -> ForwardPass:
        """Pass `inputs` through the net.

        Args:
            net: The net.
            inputs: The rows, as the net takes them.
            targets: Targets of the rows (see `Batch`).
            labels: Classes of the rows.
            progress: Fraction of the run that is over.
            weights: Factors of the rows' losses.
            features_of: Function that replaces `net.features`, such as the net wrapped for several processes.
        """
        random = RandomState.of(inputs.device)
        features = (features_of or net.features)(inputs)
        return cls(
            logits=net.head(features), targets=targets, labels=labels, features=features, head=net.head,
            progress=progress, weights=weights, inputs=inputs, random=random,
        )  # fmt: skip

    def apart(self) -> ForwardPass:
        """Return a copy whose logits are a leaf of a new graph and whose features are constants."""
        return replace(self, logits=self.logits.detach().requires_grad_(), features=self.features.detach())
