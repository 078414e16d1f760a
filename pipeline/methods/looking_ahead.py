"""Interface between the training loop and a method that learns by looking ahead. Most methods use the empty `Meta`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.methods.batch import Batch, ForwardPass
    from pipeline.nets.net import Net

CE = "ce"
"""Name of cross entropy in an outer loss."""


def outer_penalty(name: str) -> str:
    """Return the penalty in an outer loss of this name, or an empty text if it has none."""
    last = name.rpartition("+")[2]
    return "" if last == CE else last


@dataclass(frozen=True)
class Descent:
    """The net's next step of gradient descent.

    Attributes:
        rate: Learning rate.
        is_sum: Whether losses are summed over the batch instead of averaged.
        clip: Largest norm of the gradient; 0 means no clipping.
    """

    rate: float
    is_sum: bool
    clip: float


class TrainingLoss(Protocol):
    """Protocol of the loss that trains a net; `pipeline.methods.method.Method` implements it."""

    def terms(self, batch: Batch, *, is_step: bool) -> list[Tensor]:
        """Return the terms of the objective.

        The first term is the one that meta parameters shape. `is_step` says that they belong to a training step, so
        that tallies count them.
        """
        ...


class Shaping:
    """Base class of what shapes a training loss; it leaves the loss as it is."""

    def gamma(self, features_ND: Tensor | None) -> Tensor | None:
        """Return gamma for each row (N,), or None if the primary loss has its own."""
        return None

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        """Return the targets of the primary loss."""
        return targets

    def penalty(self) -> Tensor | None:
        """Return a scalar to add to the loss summed over the rows, or None."""
        return None

    def batch_penalty(self, logits_NC: Tensor, labels_N: Tensor) -> Tensor | None:
        """Return a scalar to add to the mean loss of the rows, or None."""
        return None

    def factor(self, penalty: str) -> Tensor | None:
        """Return the factor of a joint penalty's weight, or None if it is not learned."""
        return None


class Meta:
    """Base class without meta parameters; `pipeline.methods.meta.meta_learner.MetaLearner` has them."""

    name = ""
    part = Shaping()

    def attach(self, net: Net) -> None:
        """Create the parameters for this net, without a lasting effect on torch's global generator."""

    def check(self, net: Net, inputs: Tensor) -> None:
        """Raise ConfigError if the look-ahead does not work with this net, tried on some rows."""

    def due(self, step: int) -> tuple[Meta, ...]:
        """Return itself if a meta step is due at step number `step` of the run, from 1 on."""
        return ()

    def learn(
        self, method: TrainingLoss, net: Net, batch: ForwardPass, held_out: tuple[Tensor, Tensor], descent: Descent
    ) -> list[Tensor]:
        """Take a meta step before the net's own step `descent` on `batch`.

        Returns:
            A tensor to add to the gradient of each of the net's parameters, or an empty list.
        """
        raise NotImplementedError

    def finite(self) -> bool:
        """Return whether all learned values are finite."""
        return True

    def figures(self) -> dict[str, float | None]:
        """Return columns of history for the epoch that is over."""
        return {}

    def to_json(self) -> dict[str, Any] | None:
        """Return figures for training.json, or None."""
        return None

    def state(self) -> dict[str, Any]:
        """Return the whole state for a checkpoint."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a `state`."""
