"""Twenty classes of CIFAR-100 as a data set of its own, cifar100-20: every fifth class, 10,000 training images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data import cifar, downloads, npz
from pipeline.data.raw import Raw

NAME = "cifar100-20"
EVERY = 5
"""Every n-th class that is kept."""


def write(path: Path, raw: Raw) -> Path:
    """Write every fifth class of a data set with a test split to an .npz file, with labels 0, 1, ..., and return it."""
    assert raw.x_test is not None
    assert raw.y_test is not None
    parts = {"train": (raw.x_train, raw.y_train), "test": (raw.x_test, raw.y_test)}
    arrays: dict[str, Any] = {"class_names": np.array(raw.classes)[::EVERY]}
    for split, (images, labels) in parts.items():
        assert isinstance(images, np.ndarray)
        rows = labels % EVERY == 0
        arrays |= {f"x_{split}": images[rows], f"y_{split}": (labels[rows] // EVERY).astype(np.uint8)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


def prepare(folder: Path = Path("datasets")) -> Path:
    """Return cifar100-20.npz in a folder. It is made of $TRUEODDS_DATA/cifar100.npz, or of the official download."""
    path = folder / f"{NAME}.npz"
    if not path.is_file():
        mirror = Path(os.environ.get("TRUEODDS_DATA") or downloads()) / "cifar100.npz"
        write(path, npz.read(mirror) if mirror.is_file() else cifar.read("cifar100", downloads()))
    return path
