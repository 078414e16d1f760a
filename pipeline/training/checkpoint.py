"""Checkpoints of a training run on disk, so that little work is lost if the process is killed."""

from __future__ import annotations

import logging
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from pipeline.training.training_state import Epoch, TrainingState
from trueodds.files import atomic_write

log = logging.getLogger("pipeline.training")

SHARE = 0.05  # of the time; with short epochs some checkpoints are skipped
EVERY = 60.0  # seconds; a longer epoch also has checkpoints in its middle


class Checkpoint:
    """Checkpoint of the last finished epoch, or of the middle of a long epoch; removed after a successful run.

    A kill loses at most the work of `every` seconds, or of 1 / `share` times the time to write a checkpoint if that is
    longer. Writing takes at most that share of the time, except that the first and the last epoch always have a
    checkpoint at their end.

    Args:
        folder: Folder of the checkpoint.
        every: Seconds between two checkpoints within an epoch.
        share: Largest share of the time spent on writing.
    """

    def __init__(self, folder: Path, *, every: float = EVERY, share: float = SHARE) -> None:
        self.folder, self._every, self._share = folder, every, share
        self._cost = 0.0
        self._written = time.monotonic()

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """Return the state that `save` last wrote (`TrainingState.to_dict`); None without one or if it is damaged."""
        path = self.folder / "state.pt"
        if not path.exists():
            return None
        try:
            saved: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
            log.warning("%s is damaged (%s); training starts again from the beginning", path, error)
            return None
        return saved

    def due(self) -> bool:
        """Return whether the middle of an epoch should be saved now, without waiting for the device."""
        return time.monotonic() - self._written > max(self._every, self._cost / self._share)

    def save(self, state: TrainingState, *, last: bool = False) -> None:
        """Save the end of an epoch, unless it is neither the first nor the last and writing would exceed its share."""
        spared = len(state.history) > 1 and not last
        if not spared or self._cost <= self._share * (time.monotonic() - self._written):
            self._write(state, None)

    def save_middle(self, state: TrainingState, epoch: Epoch) -> None:
        """Save the middle of an epoch; call it when `due`."""
        self._write(state, epoch)

    def _write(self, state: TrainingState, epoch: Epoch | None) -> None:
        """Write the file and rename it. On failure log a warning; the previous checkpoint stays."""
        started = time.monotonic()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.folder / "state.pt") as aside, aside.open("wb") as file:
                torch.save(state.to_dict(epoch), file)
        except OSError as error:
            cure = "Training continues; a kill loses the work since the last checkpoint. Free some disk space"
            log.warning("no checkpoint could be written: %s. %s", error, cure)
        self._written = time.monotonic()
        self._cost = self._written - started

    def remove(self) -> None:
        """Remove the folder, if it exists."""
        shutil.rmtree(self.folder, ignore_errors=True)
