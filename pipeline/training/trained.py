"""The outcome of a training run, in memory and as the train stage's files."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors.torch import save

from pipeline.nets.net import Net
from pipeline.training.files import EPOCH_ROWS, EPOCHS, SETTINGS, WEIGHTS, empty_network
from trueodds import logits
from trueodds.files import atomic_write, write_bytes, write_json, write_npz

if TYPE_CHECKING:
    from pipeline.data.dataset import DataSet
    from pipeline.training.checkpoint import Checkpoint


@dataclass(frozen=True)
class Trained:
    """The net on the CPU in eval mode, its logits (float32 N x C) on val and test, and one row per epoch.

    settings["notes"]: what whoever uses the rows must know, such as that the net learned from those of validation.
    epoch_rows: the arrays of the epochs that `training.curves` names (`pipeline.training.measuring.curves.read_rows`).
    `checkpoint` is still there: remove it when the rest is safely written.
    """

    net: Net
    logits: dict[str, npt.NDArray[np.float32]]
    history: list[dict[str, Any]]
    epoch_rows: dict[str, npt.NDArray[Any]]
    settings: dict[str, Any]
    checkpoint: Checkpoint

    def write(self, folder: Path, logits_file: Path, data: DataSet) -> None:
        """Writes the net and how it was trained into `folder`, and the logits with their labels; then the checkpoint
        goes.
        """
        empty_network(folder)
        weights = {name: tensor.contiguous() for name, tensor in self.net.state_dict().items()}
        write_bytes(folder / WEIGHTS, save(weights))
        write_json(folder / SETTINGS, self.settings)
        write_epochs(folder / EPOCHS, self.history)
        write_npz(folder / EPOCH_ROWS, self.epoch_rows)
        splits = {split: logits.Logits(values, data.arrays[split][1]) for split, values in self.logits.items()}
        logits.write(logits_file, splits, self.settings["notes"])
        self.checkpoint.remove()


def write_epochs(path: Path, history: list[dict[str, Any]]) -> None:
    """epochs.csv: one row an epoch, nan for None (`dvc plots` leaves nan out, and would draw an empty cell as 0)."""
    with atomic_write(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(history[0]))
        writer.writeheader()
        writer.writerows({k: math.nan if value is None else value for k, value in row.items()} for row in history)
