"""What a training run keeps: its last finished epoch, so that a kill costs little, and the weights it will end with."""

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

log = logging.getLogger("pipeline.train")

SHARE = 0.05  # of the time; a run of short epochs then skips some of its checkpoints


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


class Checkpoint:
    """The last finished epoch, in a folder of its own; removed when the run has succeeded."""

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

    def save(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        method: methods.Method,
        selection: Selection,
        history: list[Any],
        *,
        last: bool,
    ) -> None:
        """Written aside and renamed. Skipped while writing so soon again would cost over 5% of the time."""
        begin = time.monotonic()
        if len(history) > 1 and not last and self._cost > SHARE * (begin - self._written):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "method": method.state(),
            "selection": selection.state(),
            "rng": torch.get_rng_state(),
            "history": history,
        }
        aside = self.folder / "state.pt.part"
        torch.save(state, aside)
        aside.replace(self.folder / "state.pt")
        self._written = time.monotonic()
        self._cost = self._written - begin

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
