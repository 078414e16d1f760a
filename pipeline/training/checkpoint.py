"""How far a training run is, on disk, so that a kill costs little."""

from __future__ import annotations

import logging
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from pipeline.training.state import Epoch, TrainingState
from trueodds.files import atomic_write

log = logging.getLogger("pipeline.training")

SHARE = 0.05  # of the time; a run of short epochs then skips some of its checkpoints
EVERY = 60.0  # seconds: an epoch that lasts longer is kept in its middle


class Checkpoint:
    """The last finished epoch, or the middle of one that takes minutes, in a folder of its own; removed when the run
    has succeeded.

    A kill costs the work of `every` seconds, or of 1 / `share` times what writing takes where that is more; writing
    takes that share of the time at most, for the first epoch's end and the last's alone come whatever they cost.
    """

    def __init__(self, folder: Path, *, every: float = EVERY, share: float = SHARE) -> None:
        self.folder, self._every, self._share = folder, every, share
        self._cost = 0.0
        self._written = time.monotonic()

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The state that `save` last wrote (`TrainingState.to_dict`); None for nothing, or a damaged file."""
        path = self.folder / "state.pt"
        if not path.exists():
            return None
        try:
            saved: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
            log.warning("%s is damaged (%s): starting afresh", path, error)
            return None
        return saved

    def due(self) -> bool:
        """Whether the middle of an epoch is to be kept now. Waits for no device."""
        return time.monotonic() - self._written > max(self._every, self._cost / self._share)

    def save(self, state: TrainingState, *, last: bool = False) -> None:
        """The end of an epoch; but for the first and the last skipped while writing would cost over its share."""
        spared = len(state.history) > 1 and not last
        if not spared or self._cost <= self._share * (time.monotonic() - self._written):
            self._write(state, None)

    def save_middle(self, state: TrainingState, epoch: Epoch) -> None:
        """The middle of an epoch: for the caller to ask for when it is `due`."""
        self._write(state, epoch)

    def _write(self, state: TrainingState, epoch: Epoch | None) -> None:
        """Written aside and renamed; a checkpoint that cannot be written leaves the last one, and ends no training."""
        started = time.monotonic()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.folder / "state.pt") as aside, aside.open("wb") as file:
                torch.save(state.to_dict(epoch), file)
        except OSError as error:
            cure = "The training goes on; a kill costs what is done since the last checkpoint. Free some space"
            log.warning("no checkpoint could be written: %s. %s", error, cure)
        self._written = time.monotonic()
        self._cost = self._written - started

    def remove(self) -> None:
        """Removes the folder, which may be gone."""
        shutil.rmtree(self.folder, ignore_errors=True)
