"""The digits with 10% wrong labels as a data set of its own, digits-noisy: a second way to over-confident nets.

A wrong label is drawn once for each such row, uniformly from the nine other classes. Training, validation and test
rows have wrong labels alike, as in data that people labelled with some mistakes. So all splits are drawn from one
population. A calibrated net for it has a confidence of about 0.9. A net that learns its rows by heart is surer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.data import embedded
from pipeline.data.raw import Raw

NAME = "digits-noisy"
SHARE = 0.1
"""Share of the rows of each split with a wrong label."""
SEED = 43


def with_wrong_labels(labels_N: npt.NDArray[np.int64], classes: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the labels, of which a share of SHARE, rounded to whole rows, is replaced by another class each."""
    noisy_N = labels_N.copy()
    rows_M = rng.permutation(len(labels_N))[: round(SHARE * len(labels_N))]
    noisy_N[rows_M] = (labels_N[rows_M] + rng.integers(1, classes, len(rows_M))) % classes
    return noisy_N


def write(path: Path, raw: Raw) -> Path:
    """Write a data set with a test split and wrong labels to an .npz file, and return its path."""
    assert raw.x_test is not None
    assert raw.y_test is not None
    assert isinstance(raw.x_train, np.ndarray)
    assert isinstance(raw.x_test, np.ndarray)
    rng = np.random.default_rng(SEED)
    y_train, y_test = (with_wrong_labels(labels, len(raw.classes), rng) for labels in (raw.y_train, raw.y_test))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path, x_train=raw.x_train, y_train=y_train, x_test=raw.x_test, y_test=y_test, class_names=np.array(raw.classes)
    )
    return path


def prepare(folder: Path = Path("datasets")) -> Path:
    """Return digits-noisy.npz in a folder; write it if it is not there."""
    path = folder / f"{NAME}.npz"
    return path if path.is_file() else write(path, embedded.read_digits())
