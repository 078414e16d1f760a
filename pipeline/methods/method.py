"""The small protocol that every composition offers to the training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from pipeline.methods.batch import Batch, identity
from pipeline.methods.learner import Learner, learners_due
from pipeline.methods.looking_ahead import Meta
from pipeline.methods.weighted import Weighted, When
from trueodds.errors import ConfigError


@dataclass(frozen=True)
class Moment:
    """A loss's inputs besides logits and targets.

    progress: the fraction of the run that is done, in [0, 1].
    features: (N, D), what `head` turned into the logits; None where only logits are known.
    gamma: (N,), an exponent for each sample that takes the place of the focal family's own; None: it has its own.
    """

    progress: float = 0.0
    features: Tensor | None = None
    head: Callable[[Tensor], Tensor] = identity
    gamma: Tensor | None = None


START = Moment()

PrimaryLoss = Callable[[Tensor, Tensor, Moment], Tensor]
"""(logits_NC, targets, moment) -> one value per sample (N,); `targets` as in `pipeline.methods.losses`."""


class Labels(Protocol):
    """A change to labels and batches.

    draws: whether `batch` takes numbers from the generator.
    """

    draws: bool

    def batch(
        self, inputs: Tensor, targets: Tensor, classes: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]: ...

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor: ...


class Views(Protocol):
    """Several views of each image, and a loss of what the net makes of them."""

    def __call__(self, images_NHWC: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 images -> V views of each, view by view (V N, H, W, C)."""
        ...

    def consistency(self, logits_VNC: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Method:
    """A primary loss, weighted penalties, and changes to labels and batches.

    At each step the loop calls `batch`, `objective`, `apart`, `due` and `validates_after`, and once an epoch
    `after_steps` and `after_validation`: no `if` in the loop. `views` is part of its augmentation.
    """

    name: str
    primary: PrimaryLoss
    penalties: tuple[Weighted, ...] = ()
    labels: tuple[Labels, ...] = ()
    views: Views | None = None
    meta: Meta = field(default_factory=Meta)
    exponent: Callable[[Tensor, Moment], Tensor] | None = None

    def batch(
        self, inputs: Tensor, labels_N: Tensor, classes: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """The batch to learn from, and its targets: class indices (N,), or distributions (N, C) where rows are mixed.

        labels_N stay the classes of the rows' larger shares.
        """
        targets = labels_N
        for part in self.labels:
            inputs, targets = part.batch(inputs, targets, classes, generator)
        return inputs, targets

    @property
    def draws(self) -> bool:
        """Whether `batch` takes numbers from its generator, so that nobody may draw for later steps before it."""
        return any(part.draws for part in self.labels)

    @property
    def mixes(self) -> bool:
        """Whether `batch` makes rows of several rows, for which it needs the whole batch."""
        return any(getattr(part, "mixes", False) for part in self.labels)

    def per_sample(
        self,
        logits_NC: Tensor,
        targets: Tensor,
        features: Tensor | None = None,
        *,
        head: Callable[[Tensor], Tensor] = identity,
        progress: float = 0.0,
    ) -> Tensor:
        """Primary loss of each sample (N,), its targets smoothed."""
        for part in self.labels:
            targets = part.targets(logits_NC, targets)
        targets = self.meta.targets(logits_NC, targets)
        return self.primary(logits_NC, targets, Moment(progress, features, head, self.meta.gamma(features)))

    def exponents(self, batch: Batch) -> Tensor | None:
        """The gamma of each row (N,), detached; None: the method has none."""
        if self.exponent is None:
            return None
        with torch.no_grad():
            rows = len(batch.labels)
            p_N = torch.softmax(batch.logits[:rows], 1).gather(1, batch.labels.unsqueeze(1)).squeeze(1)
            features = None if batch.features is None else batch.features[:rows]
            return self.exponent(p_N, Moment(batch.progress, features, batch.head, self.meta.gamma(features)))

    def objective(self, batch: Batch) -> Tensor:
        """mean_n w_n per_sample_n + meta penalty / N + meta batch penalty + sum_j factor_j weight_j penalty_j, j the
        joint penalties, w_n the weights of the batch, 1 where it has none, factor_j the meta part's, else 1.

        Where the method has views and the logits are theirs, the first view's rows are the batch, and the views'
        consistency is added.
        """
        shaped, *rest = self.terms(batch)
        return sum(rest, start=shaped)

    def terms(self, batch: Batch, *, counted: bool = True) -> list[Tensor]:
        """The terms of the objective: first what meta parameters shape, then the rest. counted: for a step's."""
        labels, rows = batch.labels, len(batch.labels)
        logits, features = batch.logits[:rows], None if batch.features is None else batch.features[:rows]
        losses_N = self.per_sample(logits, batch.targets, features, head=batch.head, progress=batch.progress)
        loss = shaped = (losses_N if batch.weights is None else batch.weights * losses_N).mean()
        if (penalty := self.meta.penalty()) is not None:
            shaped = shaped + penalty / rows
        if (penalty := self.meta.batch_penalty(logits, labels)) is not None:
            shaped = shaped + penalty
        terms = []
        for term in self._in_force("joint", batch.progress):
            value = term.joined(logits, labels, batch.progress, loss, counted)
            if (factor := self.meta.factor(term.name)) is None:
                terms.append(value)
            else:
                shaped = shaped + factor * value
        if self.views is not None and len(batch.logits) > rows:
            terms.append(self.views.consistency(batch.logits.view(-1, rows, logits.shape[1])))
        return [shaped, *terms]

    def apart(self, logits_NC: Tensor, labels_N: Tensor, *, progress: float = 0.0) -> list[tuple[float, Tensor]]:
        """(weight, penalty) of each separate penalty in force, for `pipeline.methods.gradients.backward`."""
        terms = self._in_force("separate", progress)
        return [(term.at(progress), term.value(logits_NC[: len(labels_N)], labels_N)) for term in terms]

    def due(self, step: int, progress: float) -> list[Weighted]:
        """The interleaved penalties that take a step of their own after step number `step` of the run, from 1 on."""
        return [term for term in self._in_force("interleaved", progress) if step % term.every == 0]

    def _in_force(self, when: When, progress: float) -> list[Weighted]:
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
        """The plain call: mean over the batch, for labels (N,) and `progress` in [0, 1] through the run.

        features and head, logits = head(features), matter to methods that look at what comes before the last layer.

        It is the objective: penalties that are separate or interleaved have gradients of their own and are not in it.

        Raises:
            ValueError: shapes that disagree, an empty batch, or a progress outside [0, 1].
        """
        if logits_NC.ndim != 2 or labels_N.shape != logits_NC.shape[:1] or not len(labels_N):
            shapes = f"logits {tuple(logits_NC.shape)} and labels {tuple(labels_N.shape)}"
            raise ValueError(f"{shapes} do not fit; expected (N, C) and (N,) with N at least 1")
        if not 0 <= progress <= 1:
            raise ValueError(f"progress is {progress}; allowed is [0, 1], the fraction of the run that is done")
        return self.objective(
            Batch(
                logits=logits_NC, targets=labels_N, labels=labels_N, features=features_ND, head=head, progress=progress
            )
        )

    @property
    def learns_from_validation(self) -> bool:
        """Whether the validation rows are no longer clean: a calibrator fitted on them reuses what trained the net."""
        return any(learner.learns_from == "val" for learner in self._learners())

    def notes(self) -> list[str]:
        """Notes for a reader of the model's card; of a run that is over also of its penalties."""
        notes = []
        if self.learns_from_validation:
            notes.append(
                f"Training learned from the validation rows (method {self.name}), so the calibrator was fitted on rows"
                " that are not clean; judge it on the test rows alone."
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

    def acted(self) -> list[dict[str, Any]]:
        """Of each penalty name and weight, its steps so far, at how many it was not 0, and its mean, not weighted."""
        lines = []
        for term in self.penalties:
            acted, mean = term.tally.read()
            line = {"name": term.name, "beta": term.weight, "steps": term.tally.steps, "acted": acted, "mean": mean}
            lines.append(line)
        return lines

    def figures(self) -> dict[str, float | None]:
        """What its parts have learned so far, as columns of history: the same ones in every epoch."""
        mine = {name: value for learner in self._learners() for name, value in learner.figures().items()}
        weights = {name: value for term in self.penalties for name, value in term.figures().items()}
        return {**mine, **weights, **self.meta.figures()}

    def check(self, steps: int) -> None:
        """Refuses a run of so many steps in which a part would never learn.

        Raises:
            ConfigError: naming its `every`.
        """
        if late := [learner.every for learner in self._learners() if learner.every > steps]:
            raise ConfigError(
                f"method {self.name!r} learns after every {late[0]:,} steps, and this run has {steps:,}: it would never"
                f" learn; set every to {steps:,} at most, or 0 for once an epoch"
            )

    def validates_after(self, step: int) -> bool:
        """Whether a part learns from the validation rows after step number `step` of the run, from 1 on."""
        return bool(learners_due(self._learners(), "val", step))

    def after_validation(self, logits_NC: Tensor, labels_N: Tensor, *, step: int | None = None) -> None:
        """Called with the validation logits at the end of each epoch, and after a `step` where `validates_after`.

        The parts that adapt to them and are due learn here.
        """
        for learner in learners_due(self._learners(), "val", step):
            learner.learn(logits_NC, labels_N)

    def after_steps(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        """Called at the end of each epoch with the training logits as its steps made them.

        The parts that adapt to them learn here.
        """
        for learner in learners_due(self._learners(), "train", None):
            learner.learn(logits_NC, labels_N)

    def state(self) -> dict[str, Any]:
        """The state that the parts learned and the penalties' tallies, for checkpoints."""
        learned = [learner.state() for learner in self._learners()]
        penalties = [term.state() for term in self.penalties]
        return {"learned": learned, "penalties": penalties, "meta": self.meta.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a `state` again."""
        for learner, learned in zip(self._learners(), state["learned"], strict=True):
            learner.restore(learned)
        for term, kept in zip(self.penalties, state["penalties"], strict=True):
            term.restore(kept)
        self.meta.restore(state["meta"])

    def _learners(self) -> list[Learner]:
        parts = (self.primary, *self.labels)
        return [part for part in parts if isinstance(part, Learner) and part.learns_from is not None]
