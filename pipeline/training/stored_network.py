"""The network of the train stage: reading it back, and scoring rows with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from pipeline import nets
from pipeline.data.dataset import DataSet
from pipeline.data.raw import Inputs
from pipeline.nets.pool import Pool
from pipeline.nets.text import WordNet, net_of
from pipeline.training.batches import Batches
from pipeline.training.files import SETTINGS, WEIGHTS
from pipeline.training.machine.device import device_of, repeatable
from trueodds.files import FileError, read_json

ROWS = 500
"""Rows scored at once."""


def read_settings(folder: Path, data: DataSet) -> dict[str, Any]:
    """Read the settings that the network in `folder` was trained with.

    Raises:
        FileError: A file is missing or damaged, or the network was trained on other data.
    """
    settings: dict[str, Any] = read_json(folder / SETTINGS)
    if settings["data_sha256"] != data.card["sha256"]:
        raise FileError(f"{folder} was trained on data other than those fetched; run the stages in order: dvc repro")
    return settings


def read_net(folder: Path, settings: dict[str, Any], data: DataSet) -> nn.Module:
    """Read the net, or the pool of nets, that `TrainingResult.write` wrote into `folder`.

    Raises:
        FileError: A file is missing or damaged, or belongs to another net.
    """
    name, distributions = settings["net"]["name"], settings.get("distributions", [])
    if distributions and name not in nets.names():
        raise FileError(
            f"{folder} holds the net {name!r}, which is not registered here; install its distribution: pip install"
            f" {' '.join(map(repr, distributions))}"
        )
    try:
        recipe = settings["recipe"]
        pooled = max(recipe["members"], recipe["snapshots"])
        members = [net_of(nets.restore(settings["net"]), data) for _ in range(pooled)]
        net: nn.Module = members[0] if pooled == 1 else Pool(members)
        net.load_state_dict(load_file(folder / WEIGHTS))
    except (SafetensorError, RuntimeError, KeyError, TypeError) as error:
        raise FileError(f"{folder / WEIGHTS} does not hold this net ({error}); run: dvc repro train") from None
    return net


def scorer(net: nn.Module, data: DataSet) -> Callable[[Inputs], npt.NDArray[np.float32]]:
    """Return a function from rows of the data set's kind to logits (N, K), computed by the net in eval mode.

    Rows are normalised as the training rows were. It runs on CUDA if available. On the CPU the same rows give the same
    bytes.
    """
    of_words = any(isinstance(module, WordNet) for module in net.modules())
    device = device_of("auto", fixed_sizes=not of_words)
    net = net.to(device).eval()

    def score(rows: Inputs) -> npt.NDArray[np.float32]:
        """Return the logits (N, K) of rows."""
        labels_N = np.zeros(len(rows), np.int64)  # a batch needs labels, but they are not used
        batches = Batches.of(replace(data, arrays={"test": (rows, labels_N)}), "test", device)
        with repeatable(device, 0), torch.inference_mode():
            logits = [net(inputs).cpu() for inputs, _ in batches.in_order(ROWS)]
        logits_NK: npt.NDArray[np.float32] = torch.cat(logits).numpy()
        return logits_NK

    return score
