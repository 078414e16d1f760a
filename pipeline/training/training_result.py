"""The result of a training run, in memory and as the train stage's files."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors.torch import save
from torch import nn

from pipeline.training.files import EPOCH_ROWS, EPOCHS, SETTINGS, WEIGHTS, empty_network
from trueodds import logits
from trueodds.files import atomic_write, write_bytes, write_json, write_npz

if TYPE_CHECKING:
    from pipeline.data.dataset import DataSet
    from pipeline.training.checkpoint import Checkpoint


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training run.

    Attributes:
        net: The net on the CPU in eval mode; for an ensemble, its `pipeline.nets.pool.Pool`.
        logits: Its logits (float32 N x C) for val and test.
        history: One row per epoch.
        epoch_rows: Arrays of the epochs that `training.curves` names
            (`pipeline.training.measuring.curves.read_rows`).
        settings: Content of training.json. settings["notes"] has warnings for users of the rows, such as that the net
            learned from the validation rows.
        checkpoint: The checkpoint, which still exists. Remove it once the result is safely written.
        other_checkpoints: Those of the other members of an ensemble.
    """

    net: nn.Module
    logits: dict[str, npt.NDArray[np.float32]]
    history: list[dict[str, Any]]
    epoch_rows: dict[str, npt.NDArray[Any]]
    settings: dict[str, Any]
    checkpoint: Checkpoint
    other_checkpoints: tuple[Checkpoint, ...] = ()

    def write(self, folder: Path, logits_file: Path, data: DataSet) -> None:
        """Write net and settings into `folder`, and the logits with their labels; then remove the checkpoints."""
        empty_network(folder)
        weights = {name: tensor.contiguous() for name, tensor in self.net.state_dict().items()}
        write_bytes(folder / WEIGHTS, save(weights))
        write_json(folder / SETTINGS, self.settings)
        write_epochs(folder / EPOCHS, self.history)
        write_npz(folder / EPOCH_ROWS, self.epoch_rows)
        splits = {
            split: logits.Logits(values, data.arrays[split][1], data.tags.get(split))
            for split, values in self.logits.items()
        }
        logits.write(logits_file, splits, self.settings["notes"])
        for checkpoint in (self.checkpoint, *self.other_checkpoints):
            checkpoint.remove()


def write_epochs(path: Path, history: list[dict[str, Any]]) -> None:
    """Write epochs.csv: one row per epoch, with nan for None.

    `dvc plots` skips nan, but would draw an empty cell as 0.
    """
    with atomic_write(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(history[0]))
        writer.writeheader()
        writer.writerows({k: math.nan if value is None else value for k, value in row.items()} for row in history)
