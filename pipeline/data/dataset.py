"""A data set as training reads it: arrays per split and a card, in memory and on disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.data import mapped
from pipeline.data.raw import DataError, Inputs, Labels, Vectors
from trueodds.files import read_json, write_json

SPLITS = ("train", "val", "test")
HELD_OUT = "held_out"
"""A fourth split where `data.held_out_size` asks for one: rows to learn from, so that validation stays clean."""


@dataclass(frozen=True)
class DataSet:
    """SPLITS, and HELD_OUT if there is one; disjoint, but for `data.benchmark_val`, by which val may be test.

    `arrays` maps split -> (rows of `pipeline.data.raw.Inputs`, labels int64 N); `card` describes them. Of texts and
    trees `vectors` float32 V x D holds that of each word's id, and of texts `tokenizer` is the tokenizer.json. `checks`
    counts what the split was looked through for (`pipeline.data.splitting`); it is written, and not read again.
    """

    arrays: dict[str, tuple[Inputs, Labels]]
    card: dict[str, Any]
    checks: dict[str, Any] = field(default_factory=dict)
    vectors: Vectors | None = None
    tokenizer: str = ""


def save(data: DataSet, out: Path) -> None:
    """arrays.npz, checks.json and card.json in `out`, the card last: a folder with a card is whole."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "card.json").unlink(missing_ok=True)
    flat: dict[str, npt.NDArray[Any]] = {}
    for split, (x, y) in data.arrays.items():
        flat |= {f"x_{split}": x, f"y_{split}": y}
    flat |= _of_words(data.vectors, data.tokenizer)
    mapped.write_npz(out / "arrays.npz", flat)
    write_json(out / "checks.json", data.checks)
    write_json(out / "card.json", data.card)


def read(out: Path) -> DataSet:
    """Reads a data set that `save` wrote; large arrays are mapped (`pipeline.data.mapped`).

    Raises:
        DataError: a missing file, or arrays that are not those the card describes.
    """
    card = read_card(out)
    try:
        flat = mapped.read_npz(out / "arrays.npz")
        arrays = {split: (flat[f"x_{split}"], flat[f"y_{split}"]) for split in card["splits"]}
        stated, vectors = card["sha256"], flat.get("vectors")
        tokenizer = flat["tokenizer"].tobytes().decode() if "tokenizer" in flat else ""
    except FileNotFoundError as error:
        raise _missing(error) from None
    except (KeyError, TypeError) as error:
        raise DataError(f"{out}: {error} is missing in arrays.npz or card.json; run: dvc repro fetch") from None
    if stated != sha256(arrays, vectors, tokenizer):
        raise DataError(
            f"{out}/arrays.npz does not hold the arrays that {out}/card.json describes; run: dvc repro fetch"
        )
    return DataSet(arrays, card, vectors=vectors, tokenizer=tokenizer)


def read_card(out: Path) -> dict[str, Any]:
    """Reads the card alone of a data set that `save` wrote.

    Raises:
        DataError: there is none.
    """
    try:
        card: dict[str, Any] = read_json(out / "card.json")
    except FileNotFoundError as error:
        raise _missing(error) from None
    return card


def _missing(error: FileNotFoundError) -> DataError:
    return DataError(f"{error.filename} is missing; run the fetch stage first: trueodds fetch, or dvc repro fetch")


def sha256(arrays: dict[str, tuple[Inputs, Labels]], vectors: Vectors | None = None, tokenizer: str = "") -> str:
    """Of dtype, shape and bytes of every array, in the order of SPLITS, the held-out rows last; then those of words."""
    digest = hashlib.sha256()
    for split in (*SPLITS, *(split for split in arrays if split not in SPLITS)):
        for array in arrays[split]:
            digest.update(f"{split} {array.dtype.str} {array.shape}\n".encode())
            for block in mapped.blocks(array):
                digest.update(np.ascontiguousarray(block).data)
    for name, array in _of_words(vectors, tokenizer).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _of_words(vectors: Vectors | None, tokenizer: str) -> dict[str, npt.NDArray[Any]]:
    """What belongs to the words of texts and trees, as arrays; nothing of other rows."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    if vectors is not None:
        arrays["vectors"] = vectors
    if tokenizer:
        arrays["tokenizer"] = np.frombuffer(tokenizer.encode(), dtype=np.uint8)
    return arrays
