"""Parquet files with random damage from a seed. Some crash the process that reads them, but never the service."""

from __future__ import annotations

import io
import random
from functools import cache

import pyarrow
from pyarrow import parquet

from benchmarks.faults.hostile import Body

PATH = "/observe?model=damaged&version=1"
PARQUET = "application/vnd.apache.parquet"
ROWS = 60


@cache
def sound() -> bytes:
    """Write a small file with every kind of column, in three row groups."""
    rows, file = range(ROWS), io.BytesIO()
    columns = {
        "id": [f"row-{n}" for n in rows],
        "ham": [0.25 + n / 200 for n in rows],
        "spam": [0.75 - n / 200 for n in rows],
        "tag": ["x" if n % 3 else None for n in rows],
        "time": pyarrow.array([1_700_000_000_000 + n for n in rows], pyarrow.timestamp("ms", "UTC")),
    }
    parquet.write_table(pyarrow.table(columns), file, row_group_size=ROWS // 3)
    return file.getvalue()


def make(seed: int, _: tuple[int, int, int]) -> Body:
    """Return the file with one to eight bytes changed; every second time all are in its metadata at the end."""
    rng, data = random.Random(seed), bytearray(sound())
    first = rng.choice([0, len(data) - int.from_bytes(data[-8:-4], "little") - 8])
    for _change in range(rng.choice([1, 1, 2, 8])):
        data[rng.randrange(first, len(data))] = rng.randrange(256)
    return Body("damaged", PATH, PARQUET, bytes(data))
