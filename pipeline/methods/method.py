"""The class that every composition builds, with the few calls that the training loop makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from pipeline.methods.batch import Batch, identity
from pipeline.methods.learner import Learner, learners_due
from pipeline.methods.looking_ahead import Meta
from pipeline.methods.roles import When
from pipeline.methods.weighted_penalty import WeightedPenalty
from trueodds.errors import ConfigError


@dataclass(frozen=True)
class Moment:
    """Inputs of a loss besides logits and targets.

    Attributes:
        progress: Fraction of the run that is over, in [0, 1].
        features: (N, D), the inputs of `head`, which turned them into the logits; None if only logits are available.
        head: Function from features to logits.
        gamma: (N,), an exponent for each row that replaces the focal family's own; None if there is none.
    """

    progress: float = 0.0
    features: Tensor | None = None
    head: Callable[[Tensor], Tensor] = identity
    gamma: Tensor | None = None


START = Moment()

PrimaryLoss = Callable[[Tensor, Tensor, Moment], Tensor]
"""Function (logits_NC, targets, moment) -> loss of each row (N,). For `targets` see `pipeline.methods.losses`."""


class Labels(Protocol):
    """Protocol of a change to labels and batches.

    Attributes:
        draws: Whether `batch` draws random numbers from the generator.
    """

    draws: bool

    def batch(self, inputs: Tensor, targets: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return changed inputs and targets of a batch."""
        ...

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        """Return changed targets, once the logits are known."""
        ...


class Views(Protocol):
    """Protocol of an augmentation with several views of each image, and of a loss on the net's outputs for them."""

    def __call__(self, images_NHWC: Tensor, generator: torch.Generator) -> Tensor:
        """Return V views of uint8 images, view by view (V N, H, W, C)."""
        ...

    def consistency(self, logits_VNC: Tensor) -> Tensor:
        """Return the loss on the logits of the views; a scalar."""
        ...


@dataclass(frozen=True)
class Method:
    """A training method: primary loss, weighted penalties, changes to labels and batches, and a meta part.

    At each step the loop calls `batch`, `objective`, `apart`, `due` and `validates_after`. Once an epoch it calls
    `after_steps` and `after_validation`. `views` belongs to the loop's augmentation. So the loop needs no `if` for
    methods.

    Attributes:
        name: Its name in params.yaml.
        primary: Loss of each row.
        penalties: Penalties with their weights.
        labels: Changes to labels and batches, in their order.
        views: Augmentation with several views, or None.
        meta: Part that learns by looking ahead; the base class does nothing.
        exponent: Function (p_y, moment) -> gamma of each row, or None.
        mixes: Whether `batch` mixes rows, for which it needs the whole batch.
    """

    name: str
    primary: PrimaryLoss
    penalties: tuple[WeightedPenalty, ...] = ()
    labels: tuple[Labels, ...] = ()
    views: Views | None = None
    meta: Meta = field(default_factory=Meta)
    exponent: Callable[[Tensor, Moment], Tensor] | None = None
    mixes: bool = False

    def batch(
        self, inputs: Tensor, labels_N: Tensor, classes: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the batch to learn from, and its targets.

        Targets are class indices (N,), or distributions (N, C) if rows are mixed. labels_N stay the classes with the
        larger share of each row.
        """
        targets = labels_N
        for part in self.labels:
            inputs, targets = part.batch(inputs, targets, classes, generator)
        return inputs, targets

    @property
    def draws(self) -> bool:
        """Whether `batch` draws from its generator, so that batches must be made one after the other."""
        return any(part.draws for part in self.labels)

    def per_sample(
        self,
        logits_NC: Tensor,
        targets: Tensor,
        features: Tensor | None = None,
        *,
        head: Callable[[Tensor], Tensor] = identity,
        progress: float = 0.0,
    ) -> Tensor:
        """Return the primary loss of each row (N,), with smoothed targets if the method smooths labels."""
        for part in self.labels:
            targets = part.targets(logits_NC, targets)
        targets = self.meta.part.targets(logits_NC, targets)
        return self.primary(logits_NC, targets, Moment(progress, features, head, self.meta.part.gamma(features)))

    def exponents(self, batch: Batch) -> Tensor | None:
        """Return the gamma of each row (N,), detached, or None if the method has none."""
        if self.exponent is None:
            return None
        with torch.no_grad():
            rows = len(batch.labels)
            p_N = torch.softmax(batch.logits[:rows], 1).gather(1, batch.labels.unsqueeze(1)).squeeze(1)
            features = None if batch.features is None else batch.features[:rows]
            return self.exponent(p_N, Moment(batch.progress, features, batch.head, self.meta.part.gamma(features)))

    def objective(self, batch: Batch) -> Tensor:
        """Return the objective of a batch, a scalar.

        mean_n w_n loss_n + meta penalty / N + meta batch penalty + sum_j factor_j weight_j penalty_j. j runs over the
        joint penalties. w_n are the batch's weights, or 1. factor_j is the meta part's factor, or 1.

        With views, the rows of the first view are the batch, and the consistency of the views is added.
        """
        shaped, *rest = self.terms(batch)
        return sum(rest, start=shaped)

    def terms(self, batch: Batch, *, is_step: bool = True) -> list[Tensor]:
        """Return the terms of the objective.

        The first term is the one that meta parameters shape. `is_step` says that they belong to a training step, so
        that tallies count them.
        """
        labels, rows = batch.labels, len(batch.labels)
        logits, features = batch.logits[:rows], None if batch.features is None else batch.features[:rows]
        losses_N = self.per_sample(logits, batch.targets, features, head=batch.head, progress=batch.progress)
        loss = shaped = (losses_N if batch.weights is None else batch.weights * losses_N).mean()
        if (penalty := self.meta.part.penalty()) is not None:
            shaped = shaped + penalty / rows
        if (penalty := self.meta.part.batch_penalty(logits, labels)) is not None:
            shaped = shaped + penalty
        terms = []
        for term in self._in_force("joint", batch.progress):
            value = term.joint_term(logits, labels, batch.progress, loss, is_step)
            if (factor := self.meta.part.factor(term.name)) is None:
                terms.append(value)
            else:
                shaped = shaped + factor * value
        if self.views is not None and len(batch.logits) > rows:
            terms.append(self.views.consistency(batch.logits.view(-1, rows, logits.shape[1])))
        return [shaped, *terms]

    def apart(self, logits_NC: Tensor, labels_N: Tensor, *, progress: float = 0.0) -> list[tuple[float, Tensor]]:
        """Return (weight, penalty) of each separate penalty that acts now (see `pipeline.methods.gradients`)."""
        terms = self._in_force("separate", progress)
        return [(term.at(progress), term.value(logits_NC[: len(labels_N)], labels_N)) for term in terms]

    def due(self, step: int, progress: float) -> list[WeightedPenalty]:
        """Return the interleaved penalties that take a step after step number `step` of the run, from 1 on."""
        return [term for term in self._in_force("interleaved", progress) if step % term.every == 0]

    def _in_force(self, when: When, progress: float) -> list[WeightedPenalty]:
        """Return the penalties of this kind whose start has passed."""
        return [term for term in self.penalties if term.when == when and progress >= term.start]

    def loss(
        self,
        logits_NC: Tensor,
        labels_N: Tensor,
        features_ND: Tensor | None = None,
        *,
        head: Callable[[Tensor], Tensor] = identity,
        progress: float = 0.0,
    ) -> Tensor:
        """Return the objective for plain logits and labels: the mean over the batch.

        Separate and interleaved penalties have gradients of their own and are not part of it.

        Args:
            logits_NC: Logits.
            labels_N: Class indices.
            features_ND: Inputs of the last layer. Some methods use them.
            head: Function with logits = head(features).
            progress: Fraction of the run that is over, in [0, 1].

        Returns:
            A scalar with a gradient.

        Raises:
            ValueError: Shapes do not agree, the batch is empty, or progress is outside [0, 1].

        Examples:
            >>> from pipeline.methods import build
            >>> build("fl2").loss(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
            tensor(0.0180)
        """
        if logits_NC.ndim != 2 or labels_N.shape != logits_NC.shape[:1] or not len(labels_N):
            shapes = f"logits {tuple(logits_NC.shape)} and labels {tuple(labels_N.shape)}"
            raise ValueError(f"{shapes} do not fit; expected (N, C) and (N,) with N at least 1")
        if not 0 <= progress <= 1:
            raise ValueError(f"progress is {progress}; allowed is [0, 1], the fraction of the run that is over")
        return self.objective(
            Batch(
                logits=logits_NC, targets=labels_N, labels=labels_N, features=features_ND, head=head, progress=progress
            )
        )

    @property
    def learns_from_validation(self) -> bool:
        """Whether training uses the validation rows, on which the calibrator is fitted later."""
        return any(learner.learns_from == "val" for learner in self._learners())

    def notes(self) -> list[str]:
        """Return notes for the model's card. After a run, they include penalties that never acted."""
        notes = []
        if self.learns_from_validation:
            notes.append(
                f"Training used the validation rows (method {self.name}), and the calibrator was fitted on the same"
                " rows; judge it on the test rows alone."
            )
        for term in self.penalties:
            if not term.tally.steps:
                notes.append(
                    f"The penalty {term.name} never acted: no step of the run was its own (start {term.start:g})."
                )
            elif not term.weight or not term.tally.read()[0]:
                what = (
                    "its weight beta is 0" if not term.weight else f"it was 0 at each of its {term.tally.steps:,} steps"
                )
                notes.append(f"The penalty {term.name} never acted: {what}.")
        return notes

    def penalty_tallies(self) -> list[dict[str, Any]]:
        """Return a line for each penalty.

        A line has its name, its weight, its steps, the steps at which it was not 0, and its mean before weighting.
        """
        lines = []
        for term in self.penalties:
            acted, mean = term.tally.read()
            line = {"name": term.name, "beta": term.weight, "steps": term.tally.steps, "acted": acted, "mean": mean}
            lines.append(line)
        return lines

    def figures(self) -> dict[str, float | None]:
        """Return what the parts have learned as columns of history. The columns are the same in every epoch."""
        mine = {name: value for learner in self._learners() for name, value in learner.figures().items()}
        weights = {name: value for term in self.penalties for name, value in term.figures().items()}
        return {**mine, **weights, **self.meta.figures()}

    def check(self, steps: int) -> None:
        """Raise ConfigError if a part would never learn in a run of this many steps."""
        if late := [learner.every for learner in self._learners() if learner.every > steps]:
            raise ConfigError(
                f"method {self.name!r} learns after every {late[0]:,} steps, and this run has {steps:,}, so it would"
                f" never learn; set every to {steps:,} at most, or 0 for once an epoch"
            )

    def validates_after(self, step: int) -> bool:
        """Return whether a part learns from the validation rows after step number `step` of the run, from 1 on."""
        return bool(learners_due(self._learners(), "val", step))

    def after_validation(self, logits_NC: Tensor, labels_N: Tensor, *, step: int | None = None) -> None:
        """Let the parts that are due learn from the validation logits.

        The loop calls this at the end of each epoch, and after a `step` for which `validates_after` is true.
        """
        for learner in learners_due(self._learners(), "val", step):
            learner.learn(logits_NC, labels_N)

    def after_steps(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        """Let parts learn from the training logits that the epoch's steps computed; called at the end of each epoch."""
        for learner in learners_due(self._learners(), "train", None):
            learner.learn(logits_NC, labels_N)

    def state(self) -> dict[str, Any]:
        """Return the parts' state and the penalties' tallies for a checkpoint."""
        learned = [learner.state() for learner in self._learners()]
        penalties = [term.state() for term in self.penalties]
        return {"learned": learned, "penalties": penalties, "meta": self.meta.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a `state`."""
        for learner, learned in zip(self._learners(), state["learned"], strict=True):
            learner.restore(learned)
        for term, kept in zip(self.penalties, state["penalties"], strict=True):
            term.restore(kept)
        self.meta.restore(state["meta"])

    def _learners(self) -> list[Learner]:
        """Return the parts that adapt to logits."""
        parts = (self.primary, *self.labels)
        return [part for part in parts if isinstance(part, Learner) and part.learns_from is not None]
