"""Features of a body that does not learn, computed once for every row, so that only the head is trained."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.data.dataset import DataSet
from pipeline.nets.net import Net
from pipeline.training.batches import Batches
from trueodds.files import atomic_write
from trueodds.processes.progress import bar

log = logging.getLogger("pipeline.training")

ROWS = 500


class Head(Net):
    """The last layer alone, for rows that are features."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.head = head

    def features(self, inputs: Tensor) -> Tensor:
        """Return the rows, which are features."""
        return inputs


def features_of(data: DataSet, net: Net, device: torch.device, folder: Path) -> DataSet:
    """Return the data set with the net's features (float32 N x D) in place of rows.

    They are stored in `folder` under a key of the body's weights, the rows and their normalisation. Another run with
    the same key reads them, and a killed run continues with the next split.
    """
    place = folder / f"features-{_key(data, net)[:16]}"
    place.mkdir(parents=True, exist_ok=True)
    net.eval()
    width, arrays = net.head.in_features, {}
    for split, (_, labels) in data.arrays.items():
        path = place / f"{split}.npy"
        if path.exists():
            log.info("%s: the features of %d rows are already stored (%s)", split, len(labels), path)
        else:
            _write(path, Batches.of(data, split, device), net, width, split)
        # Memory-mapped with copy on write, because torch accepts no read-only array.
        arrays[split] = (np.load(path, mmap_mode="c"), labels)
    card = {
        **data.card,
        "input": {"kind": "vector", "features": [f"feature {k}" for k in range(width)], "missing": False},
        "normalise": {"mean": [0.0] * width, "std": [1.0] * width},
    }
    return DataSet(arrays, card)


def _write(path: Path, batches: Batches, net: Net, width: int, split: str) -> None:
    """Write the rows one after another, because writing to a mapping on a full disk would kill the process."""
    descr = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    header = {"descr": descr, "fortran_order": False, "shape": (len(batches), width)}
    with atomic_write(path) as aside, aside.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        with torch.inference_mode(), bar(len(batches), f"features of {split}", "row") as progress_bar:
            for inputs, _ in batches.in_order(ROWS):
                file.write(net.features(inputs).cpu().numpy().astype(np.float32).tobytes())
                progress_bar.update(len(inputs))


def _key(data: DataSet, net: Net) -> str:
    """Return the key of the features."""
    digest = hashlib.sha256(data.card["sha256"].encode())
    settings: dict[str, Any] = {"normalise": data.card["normalise"], "device": str(net.head.weight.device.type)}
    digest.update(json.dumps(settings, sort_keys=True).encode())
    for name, tensor in net.state_dict().items():
        if not name.startswith("head."):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()
