"""The state of a training run, which a checkpoint saves so that a killed run can continue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.methods.batch import ForwardPass
from pipeline.methods.gradients import add_nothing, backward
from pipeline.methods.looking_ahead import Descent, Meta
from pipeline.methods.method import Method
from pipeline.nets.net import Net
from pipeline.training.averaging import WeightAverage
from pipeline.training.batches import Batches
from pipeline.training.machine.processes import ALONE, Processes, is_of_head
from pipeline.training.plan import Plan
from pipeline.training.recipe import Recipe
from pipeline.training.sharpness import at_worst_weights
from pipeline.training.start.freezing import BODY, freeze

Row = dict[str, Any]
"""One epoch of history: column -> number, or None if nothing was measured."""


class WeightSelection:
    """The weights that a run ends with: the last epoch's (`last`), or those of the first epoch with the least `rule`.

    `rule` is a column of history.
    """

    def __init__(self, rule: str) -> None:
        self.rule, self.epoch, self.least = rule, 0, math.inf
        self._weights: dict[str, Tensor] = {}

    def offer(self, net: nn.Module, row: dict[str, float]) -> None:
        """Consider the net and the row of history of a finished epoch."""
        if self.rule == "last":
            self.epoch = int(row["epoch"])
        elif row[self.rule] < self.least:
            self.epoch, self.least = int(row["epoch"]), row[self.rule]
            self._weights = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}

    def take(self, net: nn.Module) -> None:
        """Load the selected weights into `net`."""
        if self._weights:
            net.load_state_dict(self._weights)

    def notes(self, epochs: int) -> list[str]:
        """Return a note for the card if the validation rows selected the weights."""
        if self.rule == "last":
            return []
        return [
            f"The validation rows selected the weights: epoch {self.epoch} of {epochs}, the first with the least"
            f" {self.rule} ({self.least:.4g}). The calibrator was fitted on the same rows."
        ]

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"epoch": self.epoch, "least": self.least, "weights": self._weights}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a `state`."""
        self.epoch, self.least, self._weights = state["epoch"], state["least"], state["weights"]


class Epoch:
    """The current epoch: the outputs of its steps, and the state to continue in its middle.

    Attributes:
        generator: Generator of the order of the rows, the augmentation and the mixing of batches.
        resumed: The generator's state after the steps before a kill; None without a kill.
        steps: Number of steps taken.
        held_out: Number of batches of set-aside rows taken.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)
        self.resumed: Tensor | None = None
        self.steps = self.held_out = 0
        self._outputs: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def add(self, loss: Tensor, logits_NC: Tensor, labels_N: Tensor, gamma_N: Tensor | None) -> None:
        """Add one step: its loss summed over the rows, and their logits, labels and gamma, all kept on their device."""
        self.steps += 1
        nothing = loss.new_empty(0)
        line = loss.detach().reshape(1), logits_NC.detach(), labels_N, nothing if gamma_N is None else gamma_N
        self._outputs.append(line)

    def outputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the steps' losses (S,), and their rows' logits (N, C), labels (N,) and gamma ((N,), or empty)."""
        losses, logits, labels, gamma = (torch.cat(parts) for parts in zip(*self._outputs, strict=True))
        self._outputs = [(losses, logits, labels, gamma)]
        return self._outputs[0]

    def next(self, held_out: Iterator[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return the next batch of set-aside rows."""
        self.held_out += 1
        return next(held_out)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state for a checkpoint."""
        random = self.generator.get_state()
        return {"steps": self.steps, "held_out": self.held_out, "generator": random, "outputs": self.outputs()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a `to_dict`."""
        self.steps, self.held_out, self.resumed = state["steps"], state["held_out"], state["generator"].cpu()
        self._outputs = [state["outputs"]]


@dataclass
class TrainingState:
    """Net, optimizer, method and its state, selection of the weights, and a row of history per epoch.

    Attributes:
        recipe: The recipe.
        net: The net.
        optimizer: Its optimizer.
        method: The training method.
        selection: Selection of the final weights.
        average: Average of the weights, or None.
        snapshots: Weights at the ends of the finished cycles of a snapshot ensemble.
        vectors: Optimizer of word vectors, if the net learns them.
        history: Rows of the finished epochs.
        middle: Saved middle of the next epoch, after a kill.
        rate: Learning rate of the last step.
        processes: This process among those that train together.
    """

    recipe: Recipe
    net: Net
    optimizer: torch.optim.Optimizer
    method: Method
    selection: WeightSelection
    vectors: torch.optim.Optimizer | None = None
    history: list[Row] = field(default_factory=list)
    middle: dict[str, Any] | None = None
    rate: float = 0.0
    processes: Processes = ALONE
    average: WeightAverage | None = None
    snapshots: list[dict[str, Tensor]] = field(default_factory=list)
    _leak: list[Tensor] = field(default_factory=list)

    @classmethod
    def initial(cls, plan: Plan, net: Net) -> TrainingState:
        """Return the state before the first step of this net."""
        recipe = plan.recipe
        selection, vectors = WeightSelection(recipe.selection), recipe.vectors_optimizer_of(net)
        average = WeightAverage(recipe, net) if recipe.ema or recipe.swa else None
        method = plan.method.build(net)
        return cls(recipe, net, recipe.optimizer_of(net), method, selection, vectors, average=average)

    @property
    def measured_net(self) -> Net:
        """Net that is measured, selected and kept: the average once there is one, else the net that learns."""
        return self.average.net if self.average is not None and self.average.is_begun else self.net

    def settle(self, rows: Batches) -> None:
        """Prepare the measured net for a measurement (`WeightAverage.settle`); `rows` are the training rows."""
        if self.average is not None:
            self.average.settle(self.net, rows, len(self.history))

    def end_step(self) -> None:
        """Record the weights after a training step and its interleaved steps."""
        if self.average is not None:
            self.average.after_step(self.net)

    def end_steps(self) -> None:
        """Record the weights after the last step of an epoch, and let all processes agree."""
        if self.average is not None:
            self.average.after_epoch(self.net, len(self.history) + 1)
        self.agree()

    def finish(self) -> Net:
        """Load the selected weights into the net, and return it."""
        if self.measured_net is not self.net:
            self.net.load_state_dict(self.measured_net.state_dict())
        self.selection.take(self.net)
        return self.net

    def begin_epoch(self, seed: int) -> Epoch:
        """Return the next epoch, or the interrupted one in its middle; freeze what does not learn in it."""
        recipe = self.recipe
        freeze(self.net, BODY if len(self.history) < recipe.head_epochs else recipe.freeze)
        epoch = Epoch((seed << 20) + len(self.history))
        if self.middle is not None:
            epoch.restore(self.middle)
            self.middle = None
        return epoch

    def end_epoch(self, row: Row) -> None:
        """Record an epoch whose steps are done and measured."""
        self.history.append(row)
        self.selection.offer(self.measured_net, row)
        if self.recipe.snapshots > 1 and len(self.history) * self.recipe.snapshots % self.recipe.epochs == 0:
            self.snapshots.append({name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()})

    def steps_done(self, per_epoch: int) -> int:
        """Return the number of finished steps of the run."""
        return per_epoch * len(self.history) + (self.middle["steps"] if self.middle else 0)

    def set_rate(self, progress: float) -> None:
        """Set the learning rate that the schedule has at `progress` through the run."""
        self.rate = self.recipe.rate_at(progress)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(self.rate)
            else:
                group["lr"] = self.rate

    def look_ahead(self, meta: Meta, batch: ForwardPass, held_out: tuple[Tensor, Tensor]) -> None:
        """Take a meta step before the training step that it looks ahead to."""
        descent = Descent(self.rate, is_sum=self.recipe.reduction == "sum", clip=self.recipe.clip)
        self._leak = meta.learn(self.method, self.net, batch, held_out, descent)

    def descend(
        self,
        loss: Tensor,
        labels: int,
        apart: Sequence[tuple[float, Tensor]] = (),
        *,
        rows: int | None = None,
        decay: bool = True,
        again: Callable[[], Tensor] | None = None,
    ) -> None:
        """Take one step of the optimizers.

        A row's loss is the sum over its labels, and the batch's loss is the recipe's reduction over rows.

        Args:
            loss: Mean over the labels.
            labels: Number of labels.
            apart: Pairs (weight, penalty) of penalties with a gradient of their own.
            rows: Number of rows that the labels belong to; None means one label per row.
            decay: Whether the step applies weight decay.
            again: Function that computes `loss` once more. If it is given, the step goes along its gradient at the
                worst weights within `recipe.sam`.
        """
        for group in self.optimizer.param_groups:
            group["weight_decay"] = self.recipe.weight_decay if decay else 0.0
        self.net.zero_grad(set_to_none=True)
        loss = self._reduce(loss, labels, rows)
        backward(loss, apart, self.net, add_nothing if self.processes.world == 1 else self._add_up)
        if again is not None:
            with at_worst_weights(self.net, self.recipe.sam):
                self.net.zero_grad(set_to_none=True)
                backward(self._reduce(again(), labels, rows), (), self.net)
        learning = [parameter for parameter in self.net.parameters() if parameter.requires_grad]
        for parameter, leak in zip(learning, self._leak, strict=bool(self._leak)):
            parameter.grad = leak if parameter.grad is None else parameter.grad + leak
        self._leak = []
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.clip)
        self.optimizer.step()
        if self.vectors is not None:
            self.vectors.step()
        # Gradients that stay during the next forward pass fragment the memory: 45 of 790 MB.
        self.net.zero_grad(set_to_none=True)

    def _reduce(self, loss: Tensor, labels: int, rows: int | None) -> Tensor:
        """Return a batch's loss for a mean over its labels."""
        if self.recipe.reduction == "sum":
            return loss * labels
        return loss if rows is None else loss * (labels / rows)

    def _add_up(self, gradients: Sequence[Tensor]) -> None:
        """Sum gradients over processes."""
        self.processes.add_up(gradients, is_of_head(self.net))

    def agree(self) -> None:
        """Give all processes the first one's net and learners; until then, statistics of batch normalisation differ."""
        if self.processes.world > 1:
            self.processes.agree([*self.net.state_dict().values()])
            if self.average is not None:
                self.processes.agree(self.average.tensors())
            self.method.restore(self.processes.from_first(self.method.state()))

    def to_dict(self, epoch: Epoch | None = None) -> dict[str, Any]:
        """Return the whole state for a checkpoint, with the random states; `epoch` is the current one."""
        return {  # `vectors`, plain SGD, has no state
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": self.method.state(),
            "selection": self.selection.state(),
            "average": None if self.average is None else self.average.state(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state() if next(self.net.parameters()).is_cuda else None,
            "snapshots": self.snapshots,
            "history": self.history,
            "middle": None if epoch is None else epoch.to_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a `to_dict`."""
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rate = float(self.optimizer.param_groups[0]["lr"])
        self.method.restore(state["method"])
        self.selection.restore(state["selection"])
        if self.average is not None:
            self.average.restore(state["average"])
        torch.set_rng_state(state["rng"].cpu())
        if state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(state["cuda_rng"].cpu())
        self.snapshots = state["snapshots"]
        self.history, self.middle = state["history"], state["middle"]
