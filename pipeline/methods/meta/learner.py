"""The learner of a meta part: when it takes a step, by which optimizer, down which loss of the held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pipeline.methods.batch import ForwardPass
from pipeline.methods.looking_ahead import Descent, Meta, TrainingLoss
from pipeline.methods.meta import lookahead as ahead
from pipeline.methods.meta.outer import OuterLoss
from pipeline.methods.meta.part import MetaPart
from pipeline.nets.net import Net

if TYPE_CHECKING:
    from pipeline.config import OptionValue

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


class MetaLearner(Meta):
    """A meta part with its optimizer.

    outer: the outer loss (`pipeline.methods.meta.outer`), outer_weight that of its second term, outer_options those of
    its penalty. penalties: the names of the method's joint penalties. lookahead: head, through a step of the last
    layer, or all. rate and optimizer: of the meta parameters, without decay. every: a meta step each so many steps of
    training. variant paper: the look-ahead is the step that the net will take, but for momentum and weight decay;
    official: what the public code of meta-calibration does (`lookahead.as_their_code`).
    """

    def __init__(
        self, part: MetaPart, name: str, *, outer: str, outer_weight: float, lookahead: str, rate: float,
        optimizer: str, every: int, variant: str,
        outer_options: Mapping[str, OptionValue], penalties: Sequence[str],
    ) -> None:  # fmt: skip
        self.part, self.name = part, name
        part.weigh(penalties)
        self.outer = OuterLoss(outer, outer_weight, outer_options)
        self._whole, self._official = lookahead == "all", variant == "official"
        self._rate, self._optimizer, self._every = rate, OPTIMIZERS[optimizer], every
        self._sums: Tensor | None = None
        """Of the epoch: the meta steps, the outer loss before them and after; on the device."""

    def attach(self, net: Net) -> None:
        cuda = [net.head.weight.device] if net.head.weight.is_cuda else []
        with torch.random.fork_rng(cuda):  # the net draws the same with and without it
            self.part.attach(net, whole=self._whole)
        self.optimizer = self._optimizer(self.part.parameters(), lr=self._rate)  # type: ignore[call-arg]
        self._net_parameters = sum(parameter.numel() for parameter in net.parameters())

    def gamma(self, features_ND: Tensor | None) -> Tensor | None:
        return self.part.gamma(features_ND)

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        return self.part.targets(logits_NC, targets)

    def penalty(self) -> Tensor | None:
        return self.part.penalty()

    def batch_penalty(self, logits_NC: Tensor, labels_N: Tensor) -> Tensor | None:
        return self.part.batch_penalty(logits_NC, labels_N)

    def factor(self, penalty: str) -> Tensor | None:
        return self.part.factor(penalty)

    def due(self, step: int) -> tuple[Meta, ...]:
        return (self,) if step % self._every == 0 else ()

    def learn(
        self, method: TrainingLoss, net: Net, batch: ForwardPass, held_out: tuple[Tensor, Tensor], descent: Descent
    ) -> list[Tensor]:
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
        if self._official:
            return ahead.as_their_code(method, net, phi, batch, held_out, self.outer, descent)
        through = ahead.through_all if self._whole else ahead.through_head
        with batch.random.again():
            return through(method, net, phi, batch, held_out, self.outer, descent)

    def check(self, net: Net, inputs: Tensor) -> None:
        """Raises ConfigError if the look-ahead needs a forward mode that the net does not have."""
        if self._whole:
            ahead.check_forward_mode(net, inputs)

    def finite(self) -> bool:
        return bool(self.part.finite())

    def figures(self) -> dict[str, float | None]:
        """outer_before and outer_after, means over the meta steps of the epoch that is over, and the part's figures."""
        steps, before, after = (0.0, 0.0, 0.0) if self._sums is None else self._sums.tolist()
        self._sums = None
        outer = {"outer_before": before / steps if steps else None, "outer_after": after / steps if steps else None}
        return {**outer, **{name: float(value) for name, value in self.part.figures().items()}}

    def to_json(self) -> dict[str, Any]:
        size = sum(parameter.numel() for parameter in self.part.parameters())
        share = size / self._net_parameters
        return {"part": self.name, "parameters": size, "share_of_net": share, **self.part.to_json()}

    def state(self) -> dict[str, Any]:
        return {"part": self.part.state_dict(), "optimizer": self.optimizer.state_dict(), "sums": self._sums}

    def restore(self, state: dict[str, Any]) -> None:
        self.part.load_state_dict(state["part"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._sums = state["sums"]
