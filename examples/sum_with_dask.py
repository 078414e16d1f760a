"""Add up answers with Dask: sums of each batch, one addition, and the report of the whole.

    pip install 'trueodds[table]' 'dask[dataframe]'
    python examples/sum_with_dask.py

Calibration sums add up, so no worker needs the rows of another one. With a Dask cluster the same lines run on all of
its machines: create a `dask.distributed.Client` first.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import dask
import dask.dataframe
import numpy as np
import pandas as pd

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


def sums_of(batch: pd.DataFrame) -> trueodds.CalibrationSums:
    """Return the sums of a batch of rows."""
    return trueodds.CalibrationSums.from_probabilities(
        batch[CLASSES].to_numpy(), batch["label"], classes=CLASSES, resolution="exact"
    )


def add_up(folder: Path) -> trueodds.CalibrationSums:
    """Return the sums of all files of a folder."""
    batches = dask.dataframe.read_parquet(f"{folder}/*.parquet").to_delayed()
    total: trueodds.CalibrationSums = dask.delayed(sum)([dask.delayed(sums_of)(batch) for batch in batches]).compute()
    return total


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        write_answers(Path(name))
        total = add_up(Path(name))
    interval = trueodds.metrics.ece_interval(total)
    print(f"{total.n:,} labels: ECE {interval.ece:.4f}, 95% interval {interval.lower:.4f} .. {interval.upper:.4f}")


if __name__ == "__main__":
    main()
