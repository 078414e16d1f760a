"""Parts of a method that adapt to what the net says of labelled rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

Split = Literal["train", "val"]


@runtime_checkable
class Learner(Protocol):
    """A part that adapts to the net's logits, and whose state a checkpoint keeps.

    learns_from: the rows that it is shown: those of validation, or the training rows as the steps of the epoch made
    their logits; None where its options leave it nothing to learn.
    every: after how many steps of the run it is shown the validation rows; 0: at the end of each epoch.
    """

    @property
    def learns_from(self) -> Split | None: ...

    @property
    def every(self) -> int: ...

    def learn(self, logits_NC: Tensor, labels_N: Tensor) -> None: ...

    def figures(self) -> dict[str, float]:
        """What it has learned so far, as columns of history: the same ones in every epoch."""
        ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


def learners_due(learners: Iterable[Learner], split: Split, step: int | None) -> list[Learner]:
    """Those that are shown this split after step number `step` of the run, from 1 on; None: at an epoch's end."""
    shown = [learner for learner in learners if learner.learns_from == split]
    if step is None:
        return [learner for learner in shown if not learner.every]
    return [learner for learner in shown if learner.every and step % learner.every == 0]
