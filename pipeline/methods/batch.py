"""A batch of training on its way through a step: rows, what the net made of them, and the draws that it took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline.nets.net import Net


def identity(logits: Tensor) -> Tensor:
    """The head where the logits themselves are the features."""
    return logits


@dataclass(frozen=True)
class RandomState:
    """Torch's global generators, of the CPU and where it is not None of a CUDA device, as they were."""

    cpu: Tensor
    cuda: Tensor | None

    @classmethod
    def of(cls, device: torch.device) -> RandomState:
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(torch.get_rng_state(), cuda)

    def equals(self, other: RandomState) -> bool:
        """Whether nothing was drawn between the two."""
        cuda = self.cuda is None or other.cuda is None or torch.equal(self.cuda, other.cuda)
        return cuda and torch.equal(self.cpu, other.cpu)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draws as from then on; afterwards the generators are where they were before."""
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
    """What a loss sees of some rows.

    targets: class indices (N,), or distributions (N, C) where rows are mixed. labels (N,): the classes of the rows'
    larger shares. logits (V N, C) = head(features): of V views of each row where there are views; features (V N, D) are
    None where only logits are known. progress: the fraction of the run that is done, in [0, 1]. weights (N,): by which
    the rows' own losses are multiplied; None: all 1.
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
    """A batch as the net made it of `inputs`, with the graph of that pass, which drew from `random` on."""

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
        """One pass through the net; features_of: in place of the net's own, of several processes'."""
        random = RandomState.of(inputs.device)
        features = (features_of or net.features)(inputs)
        return cls(
            logits=net.head(features), targets=targets, labels=labels, features=features, head=net.head,
            progress=progress, weights=weights, inputs=inputs, random=random,
        )  # fmt: skip

    def apart(self) -> ForwardPass:
        """Its logits as a leaf of a graph of their own, and its features as constants."""
        return replace(self, logits=self.logits.detach().requires_grad_(), features=self.features.detach())
