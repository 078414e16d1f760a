"""A data set as training reads it: arrays per split and a card, in memory and on disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.data import mapped
from pipeline.data.raw import DataError, Inputs, Labels
from trueodds.files import read_json, write_json

SPLITS = ("train", "val", "test")
HELD_OUT = "held_out"
"""A fourth split where `data.held_out_size` asks for one: rows to learn from, so that validation stays clean."""


@dataclass(frozen=True)
class DataSet:
    """SPLITS, and HELD_OUT if there is one; disjoint, but for `data.benchmark_val`, by which val may be test.

    `arrays` maps split -> (images uint8 N x H x W x C or vectors float32 N x D, labels int64 N); `card` describes them.
    """

    arrays: dict[str, tuple[Inputs, Labels]]
    card: dict[str, Any]


def save(data: DataSet, out: Path) -> None:
    """arrays.npz and card.json in `out`, the card last: a folder with a card is whole."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "card.json").unlink(missing_ok=True)
    flat: dict[str, npt.NDArray[Any]] = {}
    for split, (x, y) in data.arrays.items():
        flat |= {f"x_{split}": x, f"y_{split}": y}
    mapped.write_npz(out / "arrays.npz", flat)
    write_json(out / "card.json", data.card)


def read(out: Path) -> DataSet:
    """Reads a data set that `save` wrote; large arrays are mapped (`pipeline.data.mapped`).

    Raises:
        DataError: a missing file, or arrays that are not those the card describes.
    """
    try:
        card = read_json(out / "card.json")
        flat = mapped.read_npz(out / "arrays.npz")
        arrays = {split: (flat[f"x_{split}"], flat[f"y_{split}"]) for split in card["splits"]}
        stated = card["sha256"]
    except FileNotFoundError as error:
        raise DataError(f"{error.filename} is missing; run the fetch stage first: dvc repro fetch") from None
    except (KeyError, TypeError) as error:
        raise DataError(f"{out}: {error} is missing in arrays.npz or card.json; run: dvc repro fetch") from None
    if stated != sha256(arrays):
        raise DataError(
            f"{out}/arrays.npz does not hold the arrays that {out}/card.json describes; run: dvc repro fetch"
        )
    return DataSet(arrays, card)


def sha256(arrays: dict[str, tuple[Inputs, Labels]]) -> str:
    """Of dtype, shape and bytes of every array, in the order of SPLITS, the held-out rows last."""
    digest = hashlib.sha256()
    for split in (*SPLITS, *(split for split in arrays if split not in SPLITS)):
        for array in arrays[split]:
            digest.update(f"{split} {array.dtype.str} {array.shape}\n".encode())
            for block in mapped.blocks(array):
                digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()
