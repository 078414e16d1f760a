"""A data set ready for training: arrays per split and a card, in memory and on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.data import mapped
from pipeline.data.raw import DataError, Inputs, Labels, Vectors
from trueodds.files import read_json, write_json
from trueodds.sums.group_names import GroupNames, from_arrays, to_arrays

SPLITS = ("train", "val", "test")
"""Names of the splits of every data set."""
HELD_OUT = "held_out"
"""Name of a fourth split, which `data.held_out_size` creates. Parts of a method learn from it instead of val."""

TAGS = "groups_"
"""Beginning of the names of the arrays of tags in arrays.npz."""
NO_TAGS: Mapping[str, GroupNames] = MappingProxyType({})


@dataclass(frozen=True)
class DataSet:
    """Rows and labels of each split. The splits are disjoint, except that `data.benchmark_val` may make val equal test.

    Attributes:
        arrays: Split -> (rows of `pipeline.data.raw.Inputs`, labels int64 (N,)).
        card: Description of the data set, as in card.json.
        checks: Findings of the checks of the split (`pipeline.data.splitting`). They are written, but not read again.
        vectors: float32 (V, D), the vector of each word's id, for texts and trees.
        tokenizer: The tokenizer.json, for texts.
        tags: `val` and `test` -> group of each row for a calibrator by group (`pipeline.data.tags`); empty without.
    """

    arrays: dict[str, tuple[Inputs, Labels]]
    card: dict[str, Any]
    checks: dict[str, Any] = field(default_factory=dict)
    vectors: Vectors | None = None
    tokenizer: str = ""
    tags: dict[str, GroupNames] = field(default_factory=dict)


def save(data: DataSet, out: Path) -> None:
    """Write arrays.npz, checks.json and card.json into `out`. The card is last, so a folder with a card is complete."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "card.json").unlink(missing_ok=True)
    flat: dict[str, npt.NDArray[Any]] = {}
    for split, (x, y) in data.arrays.items():
        flat |= {f"x_{split}": x, f"y_{split}": y}
    flat |= _of_words(data.vectors, data.tokenizer) | _of_tags(data.tags)
    classes = data.card["classes"]
    if all(map(str.isdecimal, classes)) and classes != [str(k) for k in range(len(classes))]:
        flat["class_names"] = np.array(classes)  # a replay would otherwise take positions for names
    mapped.write_npz(out / "arrays.npz", flat)
    write_json(out / "checks.json", data.checks)
    write_json(out / "card.json", data.card)


def read(out: Path) -> DataSet:
    """Read a data set that `save` wrote; large arrays are memory-mapped (`pipeline.data.mapped`).

    Raises:
        DataError: A file is missing, or the arrays are not those of the card.
    """
    card = read_card(out)
    try:
        flat = mapped.read_npz(out / "arrays.npz")
        arrays = {split: (flat[f"x_{split}"], flat[f"y_{split}"]) for split in card["splits"]}
        stated, vectors = card["sha256"], flat.get("vectors")
        tokenizer = flat["tokenizer"].tobytes().decode() if "tokenizer" in flat else ""
        found = {split: from_arrays(flat, f"{TAGS}{split}", len(y)) for split, (_, y) in arrays.items()}
        tags = {split: tags_N for split, tags_N in found.items() if tags_N is not None}
    except FileNotFoundError as error:
        raise _missing(error) from None
    except (KeyError, TypeError) as error:
        raise DataError(f"{out}: {error} is missing in arrays.npz or card.json; run: dvc repro fetch") from None
    except ValueError as error:
        raise DataError(f"{out}/arrays.npz: {error}; run: dvc repro fetch") from None
    if stated != sha256(arrays, vectors, tokenizer, tags):
        raise DataError(f"{out}/arrays.npz does not hold the arrays of {out}/card.json; run: dvc repro fetch")
    return DataSet(arrays, card, vectors=vectors, tokenizer=tokenizer, tags=tags)


def read_card(out: Path) -> dict[str, Any]:
    """Read only the card of a data set that `save` wrote.

    Raises:
        DataError: There is no card.
    """
    try:
        card: dict[str, Any] = read_json(out / "card.json")
    except FileNotFoundError as error:
        raise _missing(error) from None
    return card


def _missing(error: FileNotFoundError) -> DataError:
    """Return the error for a missing file."""
    return DataError(f"{error.filename} is missing; run the fetch stage first: trueodds fetch, or dvc repro fetch")


def sha256(
    arrays: dict[str, tuple[Inputs, Labels]],
    vectors: Vectors | None = None,
    tokenizer: str = "",
    tags: Mapping[str, GroupNames] = NO_TAGS,
) -> str:
    """Return the SHA-256 of dtype, shape and bytes of all arrays: SPLITS, set-aside rows, vectors, tokenizer, tags."""
    digest = hashlib.sha256()
    for split in (*SPLITS, *(split for split in arrays if split not in SPLITS)):
        for array in arrays[split]:
            digest.update(f"{split} {array.dtype.str} {array.shape}\n".encode())
            for block in mapped.blocks(array):
                digest.update(np.ascontiguousarray(block).data)
    for name, array in (_of_words(vectors, tokenizer) | _of_tags(tags)).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _of_words(vectors: Vectors | None, tokenizer: str) -> dict[str, npt.NDArray[Any]]:
    """Return vectors and tokenizer of texts and trees as arrays; nothing for other rows."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    if vectors is not None:
        arrays["vectors"] = vectors
    if tokenizer:
        arrays["tokenizer"] = np.frombuffer(tokenizer.encode(), dtype=np.uint8)
    return arrays


def _of_tags(tags: Mapping[str, GroupNames]) -> dict[str, npt.NDArray[Any]]:
    """Return the tags as arrays."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for split in (split for split in SPLITS if split in tags):
        arrays |= to_arrays(f"{TAGS}{split}", tags[split])
    return arrays
