"""Penalties with their weights: when they are in force, and how often they acted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

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
    """

    penalty: Penalty
    weight: float = 1.0
    start: float = 0.0
    when: When = "joint"
    every: int = 1
    name: str = ""
    schedule: Schedule = "constant"
    tally: Tally = field(default_factory=Tally, compare=False, repr=False)

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
