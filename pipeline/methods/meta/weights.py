"""Weights of penalties that are learned."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pipeline.methods.meta.part import MetaPart
from pipeline.nets.net import Net


class LearnedWeights(MetaPart):
    """beta_j exp(phi_j) in place of the weight beta_j of each joint penalty j; phi_j starts at 0.

    After each step phi_j is brought back into [-log most, log most]: a weight changes by a factor of `most`, 100, at
    most. (The survey's multi-objective optimization names meta-learned weights without a formula; this one is this
    project's.)
    """

    def __init__(self, *, most: float = 100.0) -> None:
        super().__init__()
        self._limit = math.log(most)
        self._names: tuple[str, ...] = ()

    def weigh(self, penalties: Sequence[str]) -> None:
        self._names = tuple(penalties)

    def attach(self, net: Net, *, whole: bool) -> None:
        zero = net.head.weight.detach().new_zeros(())
        self.logs = nn.ParameterDict({name: nn.Parameter(zero.clone()) for name in self._names})

    def factor(self, penalty: str) -> Tensor | None:
        if not hasattr(self, "logs"):
            raise ValueError("learned_weights is made with a net; build the method with one: Composition.build(net)")
        factor: Tensor = self.logs[penalty].exp()
        return factor

    def project(self) -> None:
        with torch.no_grad():
            for log in self.logs.values():
                log.clamp_(-self._limit, self._limit)

    def figures(self) -> dict[str, Tensor]:
        """factor_<penalty>: what its weight beta is multiplied by."""
        return {f"factor_{name}": log.detach().exp() for name, log in self.logs.items()}
