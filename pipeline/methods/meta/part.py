"""The base of the meta parts: parameters that shape the training loss of a net."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pipeline.nets.net import Net


class MetaPart(nn.Module):
    """Parameters phi of a training loss. A part overrides what it shapes: `gamma`, `targets`, `penalty`,
    `batch_penalty` or `factor`.
    """

    def weigh(self, penalties: Sequence[str]) -> None:
        """Take the names of the method's joint penalties, before `attach`."""

    def attach(self, net: Net, *, whole: bool) -> None:
        """Make the parameters, of the sizes of this net; whole: the look-ahead moves all layers, not just the last."""
        raise NotImplementedError

    def gamma(self, features_ND: Tensor | None) -> Tensor | None:
        """An exponent for each row (N,); None: the primary loss has its own."""
        return None

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        """The targets of the primary loss."""
        return targets

    def penalty(self) -> Tensor | None:
        """A scalar added to the loss summed over the rows; None: nothing."""
        return None

    def batch_penalty(self, logits_NC: Tensor, labels_N: Tensor) -> Tensor | None:
        """A scalar added to the mean loss of the rows; None: nothing."""
        return None

    def factor(self, penalty: str) -> Tensor | None:
        """What the weight of a joint penalty is multiplied by; None: nothing."""
        return None

    def project(self) -> None:
        """Bring the parameters back to where they are allowed, after a step."""

    def count(self, features_ND: Tensor) -> None:
        """Note what `to_json` tells, of the rows of a meta step; waits for no device."""

    def to_json(self) -> dict[str, float]:
        """What a reader of training.json may want to know of these parameters."""
        return {}

    def figures(self) -> dict[str, Tensor]:
        """What to plot over the epochs: column -> scalar."""
        return {}

    def finite(self) -> Tensor:
        """Whether all parameters are finite; a scalar on their device."""
        return torch.stack([torch.isfinite(parameter).all() for parameter in self.parameters()]).all()
