"""Base class of the meta parts: parameters that shape the training loss of a net."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pipeline.methods.looking_ahead import Shaping
from pipeline.nets.net import Net


class MetaPart(Shaping, nn.Module):
    """Parameters phi of a training loss.

    A subclass creates its parameters in `attach` and overrides the method for what it shapes: `gamma`, `targets`,
    `penalty`, `batch_penalty` or `factor`. To register it, enter it into PARTS with `role="meta"` and
    `learner=MetaLearner`.

    Examples:
        >>> class Scale(MetaPart):
        ...     def attach(self, net, *, whole):
        ...         self.log = nn.Parameter(torch.zeros(()))
        ...     def penalty(self):
        ...         return self.log.exp()
    """

    def weigh(self, penalties: Sequence[str]) -> None:
        """Receive the names of the method's joint penalties; called before `attach`."""

    def attach(self, net: Net, *, whole: bool) -> None:
        """Create the parameters for this net. `whole` says that the look-ahead moves all layers, not only the last."""
        raise NotImplementedError

    def project(self) -> None:
        """Clip the parameters to their allowed ranges after a step."""

    def count(self, features_ND: Tensor) -> None:
        """Update the counts of `to_json` with the rows of a meta step, without waiting for the device."""

    def to_json(self) -> dict[str, float]:
        """Return figures about these parameters for training.json."""
        return {}

    def figures(self) -> dict[str, Tensor]:
        """Return values to plot over the epochs: column -> scalar."""
        return {}

    def finite(self) -> Tensor:
        """Return whether all parameters are finite, a scalar on their device."""
        return torch.stack([torch.isfinite(parameter).all() for parameter in self.parameters()]).all()
