"""Penalties with their weights: when they are in force, and how often they acted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

Penalty = Callable[[Tensor, Tensor], Tensor]
"""(logits_NC, labels_N) -> a scalar, added to the mean of the primary loss with its weight."""


When = Literal["joint", "separate", "interleaved"]
Schedule = Literal["constant", "ramp", "decay"]


class Tally:
    """At how many of its steps a penalty was not 0, and its mean; summed on the device, which nothing waits for."""

    def __init__(self) -> None:
        self.steps = 0
        self._sums: Tensor | None = None

    def add(self, value: Tensor) -> None:
        value = value.detach().double()
        sums = torch.stack([(value != 0).double(), value])
        self.steps += 1
        self._sums = sums if self._sums is None else self._sums + sums

    def read(self) -> tuple[int, float]:
        """(steps where it was not 0, mean over all of them), read back from the device; without steps zeros."""
        acted, total = (0.0, 0.0) if self._sums is None else self._sums.tolist()
        return int(acted), total / max(self.steps, 1)

    def state(self) -> tuple[int, Tensor | None]:
        return self.steps, self._sums

    def restore(self, state: tuple[int, Tensor | None]) -> None:
        self.steps, self._sums = state


class Balance:
    """Running means of a loss and of a penalty, both positive, over the steps of a run; on the device.

    m <- decay m + (1 - decay) |x|, from the first step's values on.
    """

    DECAY = 0.99
    MOST = 1000.0

    def __init__(self) -> None:
        self._means_2: Tensor | None = None

    def factor(self, loss: Tensor, penalty: Tensor, counted: bool) -> Tensor:
        """m(loss) / m(penalty), at most 1,000, with this step's values; counted: the means keep them."""
        now_2 = torch.stack([loss.detach(), penalty.detach()]).abs().double()
        means_2 = now_2 if self._means_2 is None else torch.lerp(now_2, self._means_2.to(now_2.device), self.DECAY)
        if counted:
            self._means_2 = means_2
        return self._ratio(means_2).to(loss.dtype)

    def read(self) -> float | None:
        """The factor of the last step, read back from the device; None: there was none."""
        return None if self._means_2 is None else float(self._ratio(self._means_2))

    def _ratio(self, means_2: Tensor) -> Tensor:
        tiny = torch.finfo(means_2.dtype).tiny
        return means_2[0] / torch.maximum(means_2[1], means_2[0] / self.MOST).clamp_min(tiny)

    def state(self) -> Tensor | None:
        return self._means_2

    def restore(self, state: Tensor | None) -> None:
        self._means_2 = state


@dataclass(frozen=True)
class Weighted:
    """A penalty with its weight, in force from `start`, a fraction of the run, on (survey, Training strategies).

    schedule: the weight at the fraction t of the run (survey, Multi-objective optimization): constant, weight; ramp,
    weight (t - start) / (1 - start), from 0 up to the whole; decay, weight (1 - t) / (1 - start), from the whole to 0.

    when joint: weight x penalty is part of the objective.
    when separate: its gradient is taken alone and added at `weight` times the norm of the objective's gradient, so that
    neither dominates (`pipeline.methods.gradients`).
    when interleaved: after each `every`-th step it has a step of its own, weight x penalty on a held-out batch, with
    the same optimizer and clipping, the net in training mode and the rows not augmented. Without weight decay, which
    the step before has applied: a run decays its weights as often as one without the penalty.

    relative (of joint ones): the weight adapts to the run. It is multiplied by m(L) / m(|penalty|), at most 1,000, with
    L the mean primary loss and m the running means of `Balance`: the weighted penalty stays at about `weight` times
    the primary loss, whatever the penalty's own scale. A constant for the gradient. (The survey names adaptive
    weights without a rule; this one is this project's.)
    """

    penalty: Penalty
    weight: float = 1.0
    start: float = 0.0
    when: When = "joint"
    every: int = 1
    name: str = ""
    schedule: Schedule = "constant"
    relative: bool = False
    tally: Tally = field(default_factory=Tally, compare=False, repr=False)
    balance: Balance = field(default_factory=Balance, compare=False, repr=False)

    def at(self, progress: float) -> float:
        """The weight at a fraction of the run at which the penalty is in force.

        >>> [Weighted(lambda z, y: z.sum(), 2.0, 0.5, schedule="ramp").at(t) for t in (0.5, 0.75, 1.0)]
        [0.0, 1.0, 2.0]
        """
        if self.schedule == "constant" or self.start == 1:
            return self.weight
        ramp = (progress - self.start) / (1 - self.start)
        return self.weight * (ramp if self.schedule == "ramp" else 1 - ramp)

    def value(self, logits_NC: Tensor, labels_N: Tensor, counted: bool = True) -> Tensor:
        """The penalty, not weighted; counted where gradients are on: then it is a step of training."""
        value = self.penalty(logits_NC, labels_N)
        if counted and torch.is_grad_enabled():
            self.tally.add(value)
        return value

    def joined(self, logits_NC: Tensor, labels_N: Tensor, progress: float, loss: Tensor, counted: bool) -> Tensor:
        """The term of a joint penalty in the objective, where the mean primary loss is `loss`."""
        value = self.value(logits_NC, labels_N, counted)
        weight = self.at(progress)
        if not self.relative:
            return weight * value
        return weight * self.balance.factor(loss, value, counted and torch.is_grad_enabled()) * value

    def figures(self) -> dict[str, float | None]:
        """relative_<penalty>: of a relative one, the weight of the last step beside a constant schedule."""
        if not self.relative:
            return {}
        factor = self.balance.read()
        return {f"relative_{self.name}": None if factor is None else self.weight * factor}

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"tally": self.tally.state(), "balance": self.balance.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a `state` again."""
        self.tally.restore(state["tally"])
        self.balance.restore(state["balance"])
