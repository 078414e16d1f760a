"""Weight decay with a learned strength for each unit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pipeline.methods.meta.part import MetaPart
from pipeline.nets.net import Net


class UnitL2(MetaPart):
    """Penalty sum_i w_i theta_i^2, added to the loss summed over the rows. w starts at 0.

    With `lookahead: head`, i runs over the entries of the last layer's weight and bias. With `lookahead: all` there is
    one w for each output unit of each layer. It covers the unit's weights, bias and batch normalisation. w may become
    negative, as in the authors' code.

    References:
        Bohdal et al. (2021), Meta-calibration, unit-wise L2.
    """

    def attach(self, net: Net, *, whole: bool) -> None:
        """Create w for the parameters of the net."""
        theta = dict(net.named_parameters()) if whole else {f"head.{n}": p for n, p in net.head.named_parameters()}
        # In a tuple, so that they do not become this module's parameters: its optimizer must not move the net.
        self._theta = tuple(theta.values())
        self._names = tuple(theta)
        sizes = [(len(p), *[1] * (p.ndim - 1)) if whole else p.shape for p in self._theta]
        self.weights = nn.ParameterList(p.new_zeros(size) for p, size in zip(self._theta, sizes, strict=True))

    def penalty(self) -> Tensor:
        """Return the penalty, a scalar."""
        if not hasattr(self, "weights"):
            raise ValueError("unit_l2 has no parameters yet; build the method with a net: Composition.build(net)")
        terms = [(w * p.square()).sum() for w, p in zip(self.weights, self._theta, strict=True)]
        return torch.stack(terms).sum()

    def figures(self) -> dict[str, Tensor]:
        """Return l2_<layer>: the mean strength over its weights, biases and batch normalisation."""
        layers: dict[str, list[Tensor]] = {}
        for name, w in zip(self._names, self.weights, strict=True):
            layers.setdefault(name.rpartition(".")[0], []).append(w.detach().flatten())
        return {f"l2_{layer}": torch.cat(parts).mean() for layer, parts in layers.items()}
