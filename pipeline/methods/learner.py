"""Protocol of the parts of a method that adapt to the net's logits during training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

Split = Literal["train", "val"]


@runtime_checkable
class Learner(Protocol):
    """Part that adapts to the net's logits. Checkpoints keep its state.

    Attributes:
        learns_from: Rows that `learn` gets: `val`, the validation rows, or `train`, the training rows with the logits
            that the epoch's steps computed; None if the part does not learn with its options.
        every: Number of steps between two calls with the validation rows; 0 means at the end of each epoch.
    """

    @property
    def learns_from(self) -> Split | None:
        """Rows that `learn` gets; None if it does not learn."""
        ...

    @property
    def every(self) -> int:
        """Number of steps between two calls of `learn`; 0 means at the end of each epoch."""
        ...

    def learn(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        """Adapt to the logits of labelled rows."""
        ...

    def figures(self) -> dict[str, float]:
        """Return what was learned so far as columns of history. The columns are the same in every epoch."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a `state`."""
        ...


def learners_due(learners: Iterable[Learner], split: Split, step: int | None) -> list[Learner]:
    """Return the learners that are due.

    Args:
        learners: The learners of a method.
        split: Rows that are at hand.
        step: Number of the step just taken, from 1 on; None at the end of an epoch.
    """
    shown = [learner for learner in learners if learner.learns_from == split]
    if step is None:
        return [learner for learner in shown if not learner.every]
    return [learner for learner in shown if learner.every and step % learner.every == 0]
