"""Penalty weights that are learned."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pipeline.methods.meta.part import MetaPart
from pipeline.nets.net import Net


class LearnedWeights(MetaPart):
    """Weights beta_j exp(phi_j) of the joint penalties j, with phi_j learned from 0 on.

    After each step phi_j is clipped to [-log most, log most], so a weight changes by a factor of at most `most`. (The
    survey's multi-objective optimization names meta-learned weights without a formula; this formula is this project's.)

    Args:
        most: Greatest factor, and its inverse the least.
    """

    def __init__(self, *, most: float = 100.0) -> None:
        super().__init__()
        self._limit = math.log(most)
        self._names: tuple[str, ...] = ()

    def weigh(self, penalties: Sequence[str]) -> None:
        """Receive the names of the joint penalties."""
        self._names = tuple(penalties)

    def attach(self, net: Net, *, whole: bool) -> None:
        """Create phi."""
        zero = net.head.weight.detach().new_zeros(())
        self.logs = nn.ParameterDict({name: nn.Parameter(zero.clone()) for name in self._names})

    def factor(self, penalty: str) -> Tensor | None:
        """Return exp(phi) of a penalty."""
        if not hasattr(self, "logs"):
            raise ValueError("learned_weights has no weights yet; build the method with a net: Composition.build(net)")
        factor: Tensor = self.logs[penalty].exp()
        return factor

    def project(self) -> None:
        """Clip phi to its range."""
        with torch.no_grad():
            for log in self.logs.values():
                log.clamp_(-self._limit, self._limit)

    def figures(self) -> dict[str, Tensor]:
        """Return factor_<penalty>: the factor of its weight beta."""
        return {f"factor_{name}": log.detach().exp() for name, log in self.logs.items()}
