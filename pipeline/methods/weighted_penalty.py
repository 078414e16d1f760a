"""Penalties with their weights: when they act, and a tally of how often they were not 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pipeline.methods.roles import Schedule, When

Penalty = Callable[[Tensor, Tensor], Tensor]
"""Function (logits_NC, labels_N) -> scalar, added with its weight to the mean of the primary loss."""


class PenaltyTally:
    """Count of the steps at which a penalty was not 0, and its mean.

    The sums stay on the device, so no step waits for them.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._sums: Tensor | None = None

    def add(self, value: Tensor) -> None:
        """Add the value of one step."""
        value = value.detach().double()
        sums = torch.stack([(value != 0).double(), value])
        self.steps += 1
        self._sums = sums if self._sums is None else self._sums + sums

    def read(self) -> tuple[int, float]:
        """Return (steps at which it was not 0, mean over all steps), read from the device; zeros without steps."""
        acted, total = (0.0, 0.0) if self._sums is None else self._sums.tolist()
        return int(acted), total / max(self.steps, 1)

    def state(self) -> tuple[int, Tensor | None]:
        """Return the counts for a checkpoint."""
        return self.steps, self._sums

    def restore(self, state: tuple[int, Tensor | None]) -> None:
        """Restore a `state`."""
        self.steps, self._sums = state


class Balance:
    """Running means of a loss and of a penalty over the steps of a run, both of absolute values; on the device.

    m <- decay m + (1 - decay) |x|. The first step's values start the means.
    """

    DECAY = 0.99
    MOST = 1000.0

    def __init__(self) -> None:
        self._means_2: Tensor | None = None

    def factor(self, loss: Tensor, penalty: Tensor, is_step: bool) -> Tensor:
        """Return m(loss) / m(penalty), at most 1,000, this step included. If `is_step`, the means keep this step."""
        now_2 = torch.stack([loss.detach(), penalty.detach()]).abs().double()
        means_2 = now_2 if self._means_2 is None else torch.lerp(now_2, self._means_2.to(now_2.device), self.DECAY)
        if is_step:
            self._means_2 = means_2
        return self._ratio(means_2).to(loss.dtype)

    def read(self) -> float | None:
        """Return the factor of the last step, read from the device, or None if there was no step."""
        return None if self._means_2 is None else float(self._ratio(self._means_2))

    def _ratio(self, means_2: Tensor) -> Tensor:
        """Return the factor for these means."""
        tiny = torch.finfo(means_2.dtype).tiny
        return means_2[0] / torch.maximum(means_2[1], means_2[0] / self.MOST).clamp_min(tiny)

    def state(self) -> Tensor | None:
        """Return the means for a checkpoint."""
        return self._means_2

    def restore(self, state: Tensor | None) -> None:
        """Restore a `state`."""
        self._means_2 = state


@dataclass(frozen=True)
class WeightedPenalty:
    """A penalty with its weight. It acts from the fraction `start` of the run on (survey, Training strategies).

    Attributes:
        penalty: The function.
        weight: The weight, beta.
        start: Fraction of the run after which it acts.
        when: joint: weight x penalty is a term of the objective. separate: its gradient is computed alone, and added at
            `weight` times the norm of the objective's gradient, so that neither dominates
            (`pipeline.methods.gradients`). interleaved: after each `every`-th step it takes a step of its own, with
            weight x penalty on a set-aside batch. That step uses the same optimizer and clipping, the net in training
            mode, and rows without augmentation. It has no weight decay, because the step before has applied it: a run
            decays its weights as often as one without the penalty.
        every: Number of steps between two interleaved steps.
        name: Name of the penalty.
        schedule: Weight at the fraction t of the run (survey, Multi-objective optimization). constant: weight. ramp:
            weight (t - start) / (1 - start), from 0 to the whole. decay: weight (1 - t) / (1 - start), from the whole
            to 0.
        relative: Whether the weight of a joint penalty is multiplied by m(L) / m(|penalty|), at most 1,000. L is the
            mean primary loss and m are the running means of `Balance`. So the weighted penalty stays at about `weight`
            times the primary loss, whatever its own scale. The factor is a constant for the gradient. (The survey names
            adaptive weights without a rule; this rule is this project's.)
        tally: Count of the steps at which it was not 0.
        balance: Running means for `relative`.
    """

    penalty: Penalty
    weight: float = 1.0
    start: float = 0.0
    when: When = "joint"
    every: int = 1
    name: str = ""
    schedule: Schedule = "constant"
    relative: bool = False
    tally: PenaltyTally = field(default_factory=PenaltyTally, compare=False, repr=False)
    balance: Balance = field(default_factory=Balance, compare=False, repr=False)

    def at(self, progress: float) -> float:
        """Return the weight at a fraction of the run at which the penalty acts.

        Examples:
            >>> [WeightedPenalty(lambda z, y: z.sum(), 2.0, 0.5, schedule="ramp").at(t) for t in (0.5, 0.75, 1.0)]
            [0.0, 1.0, 2.0]
        """
        if self.schedule == "constant" or self.start == 1:
            return self.weight
        ramp = (progress - self.start) / (1 - self.start)
        return self.weight * (ramp if self.schedule == "ramp" else 1 - ramp)

    def value(self, logits_NC: Tensor, labels_N: Tensor, is_step: bool = True) -> Tensor:
        """Return the penalty without its weight. If `is_step` and gradients are on, the tally counts it."""
        value = self.penalty(logits_NC, labels_N)
        if is_step and torch.is_grad_enabled():
            self.tally.add(value)
        return value

    def joint_term(self, logits_NC: Tensor, labels_N: Tensor, progress: float, loss: Tensor, is_step: bool) -> Tensor:
        """Return the term of a joint penalty in the objective, where `loss` is the mean primary loss."""
        value = self.value(logits_NC, labels_N, is_step)
        weight = self.at(progress)
        if not self.relative:
            return weight * value
        return weight * self.balance.factor(loss, value, is_step and torch.is_grad_enabled()) * value

    def figures(self) -> dict[str, float | None]:
        """Return relative_<penalty>, for a relative penalty: its weight at the last step of a constant schedule."""
        if not self.relative:
            return {}
        factor = self.balance.read()
        return {f"relative_{self.name}": None if factor is None else self.weight * factor}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"tally": self.tally.state(), "balance": self.balance.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a `state`."""
        self.tally.restore(state["tally"])
        self.balance.restore(state["balance"])
