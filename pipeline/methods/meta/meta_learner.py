"""Training of a meta part: its optimizer, its outer loss, and the steps at which it learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline.methods.batch import ForwardPass
from pipeline.methods.looking_ahead import Descent, Meta, TrainingLoss
from pipeline.methods.meta import lookahead as ahead
from pipeline.methods.meta.outer import OuterLoss
from pipeline.methods.meta.part import MetaPart
from pipeline.methods.weighted_penalty import Penalty
from pipeline.nets.net import Net

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


class MetaLearner(Meta):
    """A meta part with its optimizer and its outer loss.

    Args:
        part: The meta part.
        name: Its name.
        outer: The outer loss (`pipeline.methods.meta.outer`).
        outer_weight: Weight of the outer loss's second term.
        lookahead: head looks ahead through a step of the last layer; all looks through a step of all layers.
        rate: Learning rate of the meta parameters, without decay.
        optimizer: Their optimizer: adam or sgd.
        every: Number of training steps per meta step.
        variant: paper looks ahead through the net's next step, without its momentum and weight decay. official does
            what the public code of meta-calibration does (`lookahead.as_public_code`).
        outer_penalty: Penalty in the outer loss, with its options, or None.
        penalties: Names of the method's joint penalties.
    """

    part: MetaPart

    def __init__(
        self, part: MetaPart, name: str, *, outer: str, outer_weight: float, lookahead: str, rate: float,
        optimizer: str, every: int, variant: str,
        outer_penalty: Penalty | None, penalties: Sequence[str],
    ) -> None:  # fmt: skip
        self.part, self.name = part, name
        part.weigh(penalties)
        self.outer = OuterLoss(outer, outer_weight, outer_penalty)
        self._whole, self._official = lookahead == "all", variant == "official"
        self._rate, self._optimizer, self._every = rate, OPTIMIZERS[optimizer], every
        self._sums: Tensor | None = None
        """Sums over the epoch, on the device: meta steps, outer loss before them, outer loss after them."""

    def attach(self, net: Net) -> None:
        """Create the part's parameters and their optimizer."""
        cuda = [net.head.weight.device] if net.head.weight.is_cuda else []
        with torch.random.fork_rng(cuda):  # the net draws the same numbers with and without a meta part
            self.part.attach(net, whole=self._whole)
        self.optimizer = self._optimizer(self.part.parameters(), lr=self._rate)  # type: ignore[call-arg]
        self._net_parameters = sum(parameter.numel() for parameter in net.parameters())

    def due(self, step: int) -> tuple[Meta, ...]:
        """Return itself at each `every`-th step."""
        return (self,) if step % self._every == 0 else ()

    def learn(
        self, method: TrainingLoss, net: Net, batch: ForwardPass, held_out: tuple[Tensor, Tensor], descent: Descent
    ) -> list[Tensor]:
        """Move the meta parameters down the gradient of the outer loss."""
        phi = list(self.part.parameters())
        looked = self._look(method, net, phi, batch, held_out, descent)
        for parameter, gradient in zip(phi, looked.gradient, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        self.part.project()
        self.part.count(batch.features[: len(batch.labels)].detach())
        line = torch.stack([looked.before.new_ones(()), looked.before, looked.after]).double()
        self._sums = line if self._sums is None else self._sums + line
        return looked.leak

    def _look(
        self,
        method: TrainingLoss,
        net: Net,
        phi: Sequence[Tensor],
        batch: ForwardPass,
        held_out: tuple[Tensor, Tensor],
        descent: Descent,
    ) -> ahead.LookAhead:
        """Return the look-ahead of the variant and of the layers that were chosen."""
        if self._official:
            return ahead.as_public_code(method, net, phi, batch, held_out, self.outer, descent)
        through = ahead.through_all if self._whole else ahead.through_head
        with batch.random.again():
            return through(method, net, phi, batch, held_out, self.outer, descent)

    def check(self, net: Net, inputs: Tensor) -> None:
        """Raise ConfigError if the look-ahead needs forward-mode differentiation and a layer of the net has none."""
        if self._whole:
            ahead.check_forward_mode(net, inputs)

    def finite(self) -> bool:
        """Return whether all meta parameters are finite."""
        return bool(self.part.finite())

    def figures(self) -> dict[str, float | None]:
        """Return outer_before and outer_after, means over the epoch's meta steps, and the part's figures."""
        steps, before, after = (0.0, 0.0, 0.0) if self._sums is None else self._sums.tolist()
        self._sums = None
        outer = {"outer_before": before / steps if steps else None, "outer_after": after / steps if steps else None}
        return {**outer, **{name: float(value) for name, value in self.part.figures().items()}}

    def to_json(self) -> dict[str, Any]:
        """Return the part's name and size, and its own figures."""
        size = sum(parameter.numel() for parameter in self.part.parameters())
        share = size / self._net_parameters
        return {"part": self.name, "parameters": size, "share_of_net": share, **self.part.to_json()}

    def state(self) -> dict[str, Any]:
        """Return part, optimizer and sums for a checkpoint."""
        return {"part": self.part.state_dict(), "optimizer": self.optimizer.state_dict(), "sums": self._sums}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a `state`."""
        self.part.load_state_dict(state["part"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._sums = state["sums"]
