"""What a training run keeps: how far it is, so that a kill costs little, and the weights it will end with."""

from __future__ import annotations

import logging
import math
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline import methods

log = logging.getLogger("pipeline.training.loop")

SHARE = 0.05  # of the time; a run of short epochs then skips some of its checkpoints
EVERY = 60.0  # seconds: an epoch that lasts longer is kept in its middle


class Selection:
    """Whose weights a run ends with: the last epoch's (`last`), or the first's of least `rule`, a column of history."""

    def __init__(self, rule: str) -> None:
        self.rule, self.epoch, self.least = rule, 0, math.inf
        self._weights: dict[str, Tensor] = {}

    def offer(self, net: nn.Module, row: dict[str, float]) -> None:
        """One finished epoch: its net, and its row of history."""
        if self.rule == "last":
            self.epoch = int(row["epoch"])
        elif row[self.rule] < self.least:
            self.epoch, self.least = int(row["epoch"]), row[self.rule]
            self._weights = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}

    def take(self, net: nn.Module) -> None:
        """Give `net` the chosen weights."""
        if self._weights:
            net.load_state_dict(self._weights)

    def notes(self, epochs: int) -> list[str]:
        """What a reader must know of the choice: that validation rows made it, if they did."""
        if self.rule == "last":
            return []
        return [
            f"The validation rows chose the weights: epoch {self.epoch} of {epochs}, the first of least {self.rule}"
            f" ({self.least:.4g}). The calibrator was fitted on the same rows."
        ]

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "least": self.least, "weights": self._weights}

    def restore(self, state: dict[str, Any]) -> None:
        self.epoch, self.least, self._weights = state["epoch"], state["least"], state["weights"]


class Begun:
    """An epoch under way: what its steps gave, and what it takes to go on in its middle.

    generator: of the order of the rows, the augmentation and the batches' mixing. drawn: its state after the steps
    there have been, None before the first. held_out: how many batches of held-out rows were taken.
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.drawn: Tensor | None = None
        self.steps = self.held_out = 0
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, loss: Tensor, logits_NC: Tensor, labels_N: Tensor) -> None:
        """One step: its loss summed over the rows, their logits and labels, all kept on their device."""
        self.steps += 1
        self._seen.append((loss.detach().reshape(1), logits_NC.detach(), labels_N))

    def seen(self) -> tuple[Tensor, Tensor, Tensor]:
        """The steps' losses (S,), and logits (N, C) and labels (N,) of the rows that they took."""
        losses, logits, labels = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
        self._seen = [(losses, logits, labels)]
        return self._seen[0]

    def state(self) -> dict[str, Any]:
        drawn = self.generator.get_state()
        return {"steps": self.steps, "held_out": self.held_out, "generator": drawn, "seen": self.seen()}

    def restore(self, state: dict[str, Any]) -> None:
        self.steps, self.held_out, self.drawn = state["steps"], state["held_out"], state["generator"].cpu()
        self._seen = [state["seen"]]


class Checkpoint:
    """The last finished epoch, or the middle of one that takes minutes, in a folder of its own; removed when the run
    has succeeded.

    A kill costs the work of a minute, or of 20 times what writing takes where that is more; writing takes 5% of the
    time at most, for the first epoch's end and the last's alone come whatever they cost.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cost = 0.0
        self._written = time.monotonic()

    def load(self, device: torch.device) -> dict[str, Any] | None:
        path = self.folder / "state.pt"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
            log.warning("%s is damaged (%s): starting afresh", path, error)
            return None
        return state

    def due(self) -> bool:
        """Whether the middle of an epoch is to be kept now. Waits for no device."""
        return time.monotonic() - self._written > max(EVERY, self._cost / SHARE)

    def save(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        method: methods.Method,
        selection: Selection,
        history: list[Any],
        *,
        begun: Begun | None = None,
        last: bool = False,
    ) -> None:
        """Written aside and renamed. An epoch's end is skipped while writing so soon again would cost over 5% of the
        time, the middle of one (`begun`) is for the caller to ask for when it is `due`.
        """
        begin = time.monotonic()
        spared = begun is None and len(history) > 1 and not last
        if spared and self._cost > SHARE * (begin - self._written):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "method": method.state(),
            "selection": selection.state(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state() if next(net.parameters()).is_cuda else None,
            "history": history,
            "begun": None if begun is None else begun.state(),
        }
        aside = self.folder / "state.pt.part"
        torch.save(state, aside)
        aside.replace(self.folder / "state.pt")
        self._written = time.monotonic()
        self._cost = self._written - begin

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
