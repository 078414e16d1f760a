"""What the training loop asks of a method that learns by looking ahead; most have nothing of the kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from pipeline.methods.batch import Batch, ForwardPass
from pipeline.nets.net import Net

CE = "ce"
"""Cross entropy in the name of an outer loss."""


def outer_penalty(name: str) -> str:
    """The penalty in an outer loss of this name; empty: it has none."""
    last = name.rpartition("+")[2]
    return "" if last == CE else last


@dataclass(frozen=True)
class Descent:
    """The net's next step: its learning rate, whether losses are summed over the batch, and the norm it clips to.

    clip 0: not at all.
    """

    rate: float
    summed: bool
    clip: float


class TrainingLoss(Protocol):
    """What a method trains a net with; `pipeline.methods.method.Method` is one."""

    def terms(self, batch: Batch, *, counted: bool) -> list[Tensor]:
        """The terms of its objective: first what meta parameters shape, then the rest. counted: for a step's."""
        ...


class Meta:
    """Nothing that is learned by looking ahead. `pipeline.methods.meta.learner.MetaLearner` is something."""

    name = ""

    def attach(self, net: Net) -> None:
        """Take the sizes of the net. Draws nothing from torch's global generator that would be missed."""

    def check(self, net: Net, inputs: Tensor) -> None:
        """Raises ConfigError if the net cannot be looked ahead through, tried on rows as it takes them."""

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
        """What the weight of a joint penalty is multiplied by; None: nothing that is learned."""
        return None

    def due(self, step: int) -> tuple[Meta, ...]:
        """Itself, if a meta step comes in step number `step` of the run, from 1 on."""
        return ()

    def learn(
        self, method: TrainingLoss, net: Net, batch: ForwardPass, held_out: tuple[Tensor, Tensor], descent: Descent
    ) -> list[Tensor]:
        """A meta step, before the net's own down `descent` on `batch`.

        Returns what is to be added to the gradient of each of the net's parameters; empty: nothing.
        """
        raise NotImplementedError

    def finite(self) -> bool:
        """Whether what was learned is finite."""
        return True

    def figures(self) -> dict[str, float | None]:
        """Columns of history, of the epoch that is over."""
        return {}

    def to_json(self) -> dict[str, Any] | None:
        """What a reader of training.json may want to know."""
        return None

    def state(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a `state` again."""
