"""Add up answers with Ray Data: sums of each batch, one addition, and the report of the whole.

    pip install 'trueodds[table]' 'ray[data]'
    python examples/sum_with_ray.py

Calibration sums add up, so no worker needs the rows of another one. On a Ray cluster the same lines run on all of its
machines.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import ray

import trueodds

CLASSES = ["cat", "dog", "hare"]


def write_answers(folder: Path, files: int = 4, rows: int = 2_000) -> None:
    """Write files of answers. The confidences are too high."""
    rng = np.random.default_rng(3)
    for k in range(files):
        logits_NC = rng.normal(0, 3, (rows, len(CLASSES)))
        true_NC = trueodds.metrics.softmax(logits_NC / 1.5)
        label_N = (true_NC.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
        table = pd.DataFrame(trueodds.metrics.softmax(logits_NC), columns=CLASSES)
        table.assign(label=np.array(CLASSES)[label_N]).to_parquet(folder / f"day-{k}.parquet")


def sums_of(batch: dict[str, npt.NDArray[np.generic]]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the sums of a batch of rows, as one row. A resolution that each batch infers could differ among them."""
    p_NC = np.stack([batch[name] for name in CLASSES], axis=1)
    sums = trueodds.CalibrationSums.from_probabilities(p_NC, batch["label"], classes=CLASSES, resolution="exact")
    return {"cells": sums.cells[None]}


def add_up(folder: Path) -> trueodds.CalibrationSums:
    """Return the sums of all files of a folder."""
    parts = ray.data.read_parquet(str(folder)).map_batches(sums_of, batch_size=None).take_all()
    return trueodds.CalibrationSums(np.sum([part["cells"] for part in parts], axis=0))


def main() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as name:
        write_answers(Path(name))
        total = add_up(Path(name))
    ray.shutdown()
    interval = trueodds.metrics.ece_interval(total)
    print(f"{total.n:,} labels: ECE {interval.ece:.4f}, 95% interval {interval.lower:.4f} .. {interval.upper:.4f}")


if __name__ == "__main__":
    main()
